"""From pairs of texts to a translator, in one call: what is taught, its task for the trainer, and the training."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.files import PathLike
from regard.data.pairs import Pairs
from regard.seq2seq.batches import Batch, Texts, bucketed, collate, in_order
from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.trainer import Trainer
from regard.seq2seq.training import Outcome, Progress, Training
from regard.seq2seq.translator import Translator
from regard.seq2seq.vocabulary import PAD, Vocabulary

MODEL = "model.regard"
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Lesson:
    """What is learned from pairs, and how they are dealt out.

    Parameters
    ----------
    unit, max_size, min_count, lower : of both vocabularies, as in ``Vocabulary.learn``.
    target_unit : of the target's vocabulary, where it is another: number words into digits, say.
    batch_size : pairs in a batch.
    label_smoothing : the share of a token's probability that all tokens share.
    scheduled_sampling : the share of tokens that the decoder is given from its own mouth at the end of training, rising
        evenly from none.
    max_tokens : pairs with a longer side are left out.
    precision : "float32", or "bfloat16" for products on a GPU; sums and weights stay float32.
    """

    unit: str = "words"
    target_unit: str | None = None
    max_size: int | None = None
    min_count: int = 1
    lower: bool = False
    batch_size: int = 64
    label_smoothing: float = 0.1
    scheduled_sampling: float = 0.0
    max_tokens: int = 200
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("label_smoothing", "scheduled_sampling"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(map(repr, PRECISIONS))}, got {self.precision!r}")


class PairsTask:
    """Learning to say the targets of some sources.

    Parameters
    ----------
    module : the model.
    train, valid : source and target sentences as token numbers.
    lesson : how pairs are dealt out.
    seed : of the order of pairs, which is another in every epoch.
    """

    def __init__(
        self, module: Seq2Seq, train: tuple[Texts, Texts], valid: tuple[Texts, Texts], lesson: Lesson, seed: int
    ) -> None:
        self.module, self._train, self._lesson, self._seed = module, train, lesson, seed
        self._held_out = [collate(*valid, rows) for rows in in_order(*valid, 4 * lesson.batch_size)]

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def batches(self, epoch: int) -> Sequence[list[int]]:
        """Rows of each batch, in an order that depends on the seed and the epoch alone."""
        return bucketed(*self._train, self._lesson.batch_size, np.random.default_rng((self._seed, epoch)))

    def loss(self, batch: list[int], progress: float) -> tuple[Tensor, int]:
        """Mean of −log p(token | source, tokens before it), smoothed, and how many tokens there were."""
        told = collate(*self._train, batch).to(self.device)
        own = None
        if self._lesson.scheduled_sampling:
            share = self._lesson.scheduled_sampling * progress
            own = torch.rand(told.tokens.shape, device=self.device) < share
        return self._mean(told, own, self._lesson.label_smoothing), told.tokens_wanted

    def validate(self) -> float:
        """Mean of −log p(token) over all tokens held out, not smoothed."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        count = 0
        for batch in self._held_out:
            total += self._mean(batch.to(self.device), None, 0.0).double() * batch.tokens_wanted
            count += batch.tokens_wanted
        return float(total) / count

    def _mean(self, batch: Batch, own: Tensor | None, smoothing: float) -> Tensor:
        dtype = PRECISIONS[self._lesson.precision]
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
            logits, _ = self.module(batch.source, batch.lengths, batch.tokens, own)
        return F.cross_entropy(
            logits.flatten(0, 1).float(), batch.wanted.flatten(), ignore_index=PAD, label_smoothing=smoothing
        )


class Learned(NamedTuple):
    """A translator, and how its training went."""

    translator: Translator
    outcome: Outcome


def learn(
    train: Pairs,
    valid: Pairs,
    *,
    architecture: Architecture | None = None,
    lesson: Lesson | None = None,
    training: Training | None = None,
    device: str = "cpu",
    folder: PathLike | None = None,
    resume: bool = False,
    every: float = 30.0,
    watch: Callable[[Progress], None] | None = None,
) -> Learned:
    """A translator that has learned to say the targets of some sources.

    Parameters
    ----------
    train : pairs to learn from; vocabularies are learned from them alone.
    valid : pairs that tell when to stop, and which epoch to keep.
    architecture, lesson, training : what the model is made of, what it is taught, and how.
    device : "cpu" or "cuda".
    folder : where checkpoints, metrics (JSON lines) and in the end the translator go; it must exist.
    resume : go on from the checkpoint in ``folder``.
    every : seconds between two checkpoints.
    watch : called with ``Progress`` while it trains.

    *Cost*: an epoch takes O(tokens·hidden_size²) time, and for every target token that of the score for its source.
    """
    architecture, lesson, training = architecture or Architecture(), lesson or Lesson(), training or Training()
    source, target = (
        Vocabulary.learn(texts, unit, min_count=lesson.min_count, max_size=lesson.max_size, lower=lesson.lower)
        for texts, unit in ((train.source, lesson.unit), (train.target, lesson.target_unit or lesson.unit))
    )
    read = {name: _read(pairs, source, target, lesson, name) for name, pairs in (("train", train), ("valid", valid))}
    with torch.random.fork_rng():
        torch.manual_seed(training.seed)
        model = Seq2Seq(architecture, len(source), len(target)).to(device)
    task = PairsTask(model, read["train"], read["valid"], lesson, training.seed)
    settings = {**asdict(architecture), **asdict(lesson), "train": _digest(train), "valid": _digest(valid)}
    trainer = Trainer(task, training, folder=folder, every=every, settings=settings, watch=watch)
    outcome = trainer.run(resume=resume)
    told = {"ended": outcome.ended, "epochs": len(outcome.losses), "steps": outcome.steps, "pairs": len(train)}
    translator = Translator(model.eval(), source, target, told)
    if folder is not None and outcome.ended != "interrupted":
        translator.save(Path(folder) / MODEL, force=True)
    return Learned(translator, outcome)


def _read(pairs: Pairs, source: Vocabulary, target: Vocabulary, lesson: Lesson, name: str) -> tuple[Texts, Texts]:
    """Both sides as token numbers, without pairs that are too long or whose source is empty."""
    both = [(source.encode(a), target.encode(b)) for a, b in zip(pairs.source, pairs.target, strict=True)]
    kept = [(a, b) for a, b in both if a and max(len(a), len(b)) <= lesson.max_tokens]
    if not kept:
        raise ValueError(f"{name} holds no pair with 1 to {lesson.max_tokens} tokens on either side")
    if len(kept) < len(both):
        warnings.warn(
            f"{len(both) - len(kept):,} of {len(both):,} pairs of {name} are left out: their source is empty, or a "
            f"side has more than {lesson.max_tokens} tokens",
            stacklevel=3,
        )
    return Texts([a for a, _ in kept]), Texts([b for _, b in kept])


def _digest(pairs: Pairs) -> str:
    """The SHA-256 of all texts: a training is resumed with the pairs it began with."""
    whole = hashlib.sha256()
    for a, b in zip(pairs.source, pairs.target, strict=True):
        whole.update(f"{a}\n{b}\n".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()

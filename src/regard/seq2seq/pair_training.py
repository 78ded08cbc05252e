"""From pairs of texts to a translator, in one call: settings of the task, the task, and its training."""

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
from regard.data.text_pairs import Pairs
from regard.nn.argument_checks import at_least_one, one_of
from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.token_batches import Sentences, TokenBatch, bucketed, collate, in_order
from regard.seq2seq.trainer import Trainer, Training, TrainingOutcome, TrainingProgress
from regard.seq2seq.translator import Translator
from regard.seq2seq.vocabulary import PAD, Vocabulary

MODEL = "model.regard"
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Lesson:
    """The settings of vocabularies, batches and loss.

    Parameters
    ----------
    unit : {"words", "characters", "sentencepiece"}, default="words"
        Of both vocabularies, as in ``Vocabulary.learn``.
    target_unit : str, default=None
        Of the target's vocabulary, if it differs, for example for words to digits.
    max_size : int, default=None
        Of both vocabularies, as in ``Vocabulary.learn``.
    min_count : int, default=1
        The same.
    lower : bool, default=False
        The same.
    batch_size : int, default=64
        Pairs in a batch.
    label_smoothing : float, default=0.1
        The probability that the target distribution spreads over all tokens.
    scheduled_sampling : float, default=0.0
        The fraction of input tokens that are the decoder's own predictions at the end of training, rising linearly from
        0.
    max_tokens : int, default=200
        Pairs with more tokens on either side are left out.
    precision : {"float32", "bfloat16"}, default="float32"
        "bfloat16" for products on a GPU; sums and parameters stay float32.

    >>> Lesson(unit="words", target_unit="characters").batch_size
    64
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
        at_least_one(batch_size=self.batch_size, max_tokens=self.max_tokens)
        one_of(PRECISIONS, precision=self.precision)
        for name in ("label_smoothing", "scheduled_sampling"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")


class PairsTask:
    """The task of predicting the targets of sources, for ``Trainer``.

    Parameters
    ----------
    module : the model.
    train, valid : source and target sentences as token ids.
    lesson : settings of batches and loss.
    seed : of the order of pairs, which differs between epochs.
    """

    def __init__(
        self,
        module: Seq2Seq,
        train: tuple[Sentences, Sentences],
        valid: tuple[Sentences, Sentences],
        lesson: Lesson,
        seed: int,
    ) -> None:
        self.module, self._train, self._lesson, self._seed = module, train, lesson, seed
        self._held_out = [collate(*valid, rows) for rows in in_order(*valid, 4 * lesson.batch_size)]

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def batches(self, epoch: int) -> Sequence[list[int]]:
        """Rows of each batch, in an order that depends only on the seed and the epoch."""
        return bucketed(*self._train, self._lesson.batch_size, np.random.default_rng((self._seed, epoch)))

    def loss(self, batch: list[int], progress: float) -> tuple[Tensor, int]:
        """Mean of −log p(token | source, previous tokens), with label smoothing, and the number of tokens."""
        pairs = collate(*self._train, batch).to(self.device)
        own = None
        if self._lesson.scheduled_sampling:
            rate = self._lesson.scheduled_sampling * progress
            own = torch.rand(pairs.tokens.shape, device=self.device) < rate
        return self._mean(pairs, own, self._lesson.label_smoothing), pairs.tokens_wanted

    def validate(self) -> float:
        """Mean of −log p(token) over all validation tokens, without label smoothing."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        count = 0
        for batch in self._held_out:
            total += self._mean(batch.to(self.device), None, 0.0).double() * batch.tokens_wanted
            count += batch.tokens_wanted
        return float(total) / count

    def _mean(self, batch: TokenBatch, own: Tensor | None, smoothing: float) -> Tensor:
        dtype = PRECISIONS[self._lesson.precision]
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
            logits, _ = self.module(batch.source, batch.lengths, batch.tokens, own)
        return F.cross_entropy(
            logits.flatten(0, 1).float(), batch.wanted.flatten(), ignore_index=PAD, label_smoothing=smoothing
        )


class Learned(NamedTuple):
    """A translator and the outcome of its training.

    Attributes
    ----------
    translator : Translator
        With the weights of the best epoch.
    outcome : TrainingOutcome
        How the training ended, its losses, steps and seconds.

    >>> from regard.data import number_words
    >>> learned = learn(*number_words(40).split(0.2), architecture=Architecture(4, 4), training=Training(epochs=1))
    >>> learned.outcome.ended
    'epochs'
    """

    translator: Translator
    outcome: TrainingOutcome


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
    watch: Callable[[TrainingProgress], None] | None = None,
) -> Learned:
    """A translator trained on pairs of texts.

    Parameters
    ----------
    train : Pairs
        Training pairs; the vocabularies are learned from them alone.
    valid : Pairs
        Validation pairs, for early stopping and for choosing the best epoch.
    architecture : Architecture, default=None
        Settings of the model.
    lesson : Lesson, default=None
        Settings of vocabularies, batches and loss.
    training : Training, default=None
        Settings of the training.
    device : {"cpu", "cuda"}, default="cpu"
        Where to train.
    folder : str or path, default=None
        An existing folder for checkpoints, metrics (JSON lines) and finally the translator.
    resume : bool, default=False
        Continue from the checkpoint in ``folder``.
    every : float, default=30.0
        Seconds between two checkpoints.
    watch : callable, default=None
        Called with ``TrainingProgress`` during training.

    Returns
    -------
    Learned
        ``translator`` and ``outcome``.

    *Cost*: O(tokens·hidden_size²) time per epoch, and for every target token that of the score for its source.

    >>> from regard.data import number_words
    >>> train, valid = number_words(40).split(0.2)
    >>> small = Architecture(embed_size=4, hidden_size=4)
    >>> translator, outcome = learn(train, valid, architecture=small, training=Training(epochs=1))
    >>> len(outcome.losses)
    1
    """
    architecture, lesson, training = architecture or Architecture(), lesson or Lesson(), training or Training()
    source, target = (
        Vocabulary.learn(texts, unit, min_count=lesson.min_count, max_size=lesson.max_size, lower=lesson.lower)
        for texts, unit in ((train.source, lesson.unit), (train.target, lesson.target_unit or lesson.unit))
    )
    encoded = {
        name: _encode(pairs, source, target, lesson, name) for name, pairs in (("train", train), ("valid", valid))
    }
    with torch.random.fork_rng():
        torch.manual_seed(training.seed)
        model = Seq2Seq(architecture, len(source), len(target)).to(device)
    task = PairsTask(model, encoded["train"], encoded["valid"], lesson, training.seed)
    settings = {**asdict(architecture), **asdict(lesson), "train": _digest(train), "valid": _digest(valid)}
    trainer = Trainer(task, training, folder=folder, every=every, settings=settings, watch=watch)
    outcome = trainer.run(resume=resume)
    metadata = {"ended": outcome.ended, "epochs": len(outcome.losses), "steps": outcome.steps, "pairs": len(train)}
    translator = Translator(model.eval(), source, target, metadata)
    if folder is not None and outcome.ended != "interrupted":
        translator.save(Path(folder) / MODEL, force=True)
    return Learned(translator, outcome)


def _encode(
    pairs: Pairs, source: Vocabulary, target: Vocabulary, lesson: Lesson, name: str
) -> tuple[Sentences, Sentences]:
    """Both sides as token ids, without pairs that are too long or have an empty source."""
    both = [(source.encode(a), target.encode(b)) for a, b in zip(pairs.source, pairs.target, strict=True)]
    usable = [(a, b) for a, b in both if a and max(len(a), len(b)) <= lesson.max_tokens]
    if not usable:
        raise ValueError(
            f"{name} must contain a pair with 1 to {lesson.max_tokens} tokens on either side, got none in {len(both):,}"
        )
    if len(usable) < len(both):
        warnings.warn(
            f"{len(both) - len(usable):,} of {len(both):,} pairs of {name} are left out: their source is empty, or "
            f"a side has more than {lesson.max_tokens} tokens",
            stacklevel=3,
        )
    return Sentences([a for a, _ in usable]), Sentences([b for _, b in usable])


def _digest(pairs: Pairs) -> str:
    """The SHA-256 of all texts: a training can be resumed only with the same pairs."""
    digest = hashlib.sha256()
    for a, b in zip(pairs.source, pairs.target, strict=True):
        digest.update(f"{a}\n{b}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()

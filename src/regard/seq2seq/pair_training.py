"""From pairs of texts to a translator, in one call: settings of the task, the task, and its training."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.files import PathLike
from regard.data.text_pairs import Pairs
from regard.nn.argument_checks import at_least_one, one_of
from regard.seq2seq.alignment import error_rate
from regard.seq2seq.measures import corpus_bleu, exact_fraction
from regard.seq2seq.model import AnyArchitecture, Architecture, Seq2Seq, as_plain
from regard.seq2seq.processes import Processes
from regard.seq2seq.token_batches import Sentences, TokenBatch, bucketed, collate, in_order
from regard.seq2seq.trainer import Trainer, TrainingOutcome, TrainingProgress
from regard.seq2seq.training_settings import Training
from regard.seq2seq.transformer import TransformerArchitecture
from regard.seq2seq.translator import Translator
from regard.seq2seq.vocabulary import PAD, Vocabulary, gold_alignments

MODEL = "model.regard"
CRITERIA = ("loss", "bleu", "exact")
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Lesson:
    """The settings of vocabularies, batches and loss.

    Parameters
    ----------
    unit : {"words", "characters", "sentencepiece", "bpe"}, default="words"
        Of both vocabularies, as in ``Vocabulary.learn``.
    target_unit : str, default=None
        Of the target's vocabulary, if it differs, for example for words to digits.
    max_size : int, default=None
        Of both vocabularies, as in ``Vocabulary.learn``.
    min_count : int, default=1
        The same.
    lower : bool, default=False
        The same.
    joint : bool, default=False
        One vocabulary for both sides, learned from both.
    sampling : float, default=0.0
        If above 0, the training texts have another random segmentation in every epoch, as in ``Vocabulary.sampled``, by
        units "bpe" (a good value is 0.1) and "sentencepiece".
    batch_size : int, default=64
        Pairs in a batch.
    batch_tokens : int, default=None
        Instead, tokens in a batch on the longer side, padding included.
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
    joint: bool = False
    sampling: float = 0.0
    batch_size: int = 64
    batch_tokens: int | None = None
    label_smoothing: float = 0.1
    scheduled_sampling: float = 0.0
    max_tokens: int = 200
    precision: str = "float32"

    def __post_init__(self) -> None:
        at_least_one(batch_size=self.batch_size, max_tokens=self.max_tokens)
        if self.batch_tokens is not None:
            at_least_one(batch_tokens=self.batch_tokens)
        one_of(PRECISIONS, precision=self.precision)
        for name in ("label_smoothing", "scheduled_sampling", "sampling"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if self.joint and self.target_unit not in (None, self.unit):
            raise ValueError(
                f"joint=True needs one unit for both sides, got {self.unit!r} and target_unit {self.target_unit!r}"
            )

    def vocabularies(self, train: Pairs) -> tuple[Vocabulary, Vocabulary]:
        """The vocabularies of both sides, learned from the training pairs.

        Parameters
        ----------
        train : Pairs
            Training pairs.

        Returns
        -------
        tuple of Vocabulary
            That of the sources and that of the targets; one and the same if ``joint``.
        """
        options: Any = {"min_count": self.min_count, "max_size": self.max_size, "lower": self.lower}
        if self.joint:
            both = Vocabulary.learn((*train.source, *train.target), self.unit, **options)
            return both, both
        source = Vocabulary.learn(train.source, self.unit, **options)
        return source, Vocabulary.learn(train.target, self.target_unit or self.unit, **options)


class PairsTask:
    """The task of predicting the targets of sources, for ``Trainer``.

    Parameters
    ----------
    module : the model.
    train, valid : source and target sentences as token ids.
    lesson : settings of batches and loss.
    seed : of the order of pairs, which differs between epochs.
    sampled : training sentences of an epoch, if they differ between epochs.
    measured : quality of the model on the validation pairs, if more than the loss is wanted.
    """

    def __init__(
        self,
        module: Seq2Seq,
        train: tuple[Sentences, Sentences],
        valid: tuple[Sentences, Sentences],
        lesson: Lesson,
        seed: int,
        *,
        sampled: Callable[[int], tuple[Sentences, Sentences]] | None = None,
        measured: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        self.module, self._train, self._lesson, self._seed = module, train, lesson, seed
        self._sampled, self._measured = sampled, measured
        self._held_out = [collate(*valid, rows) for rows in in_order(*valid, 4 * lesson.batch_size)]

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def batches(self, epoch: int) -> Sequence[list[int]]:
        """Rows of each batch, in an order that depends only on the seed and the epoch."""
        if self._sampled is not None:
            self._train = self._sampled(epoch)
        size, order = self._lesson.batch_tokens, np.random.default_rng((self._seed, epoch))
        return bucketed(*self._train, size or self._lesson.batch_size, order, by_tokens=size is not None)

    def loss(self, batch: list[int], progress: float) -> tuple[Tensor, int]:
        """Mean of −log p(token | source, previous tokens), with label smoothing, and the number of tokens."""
        pairs = collate(*self._train, batch).to(self.device)
        own = None
        if self._lesson.scheduled_sampling:
            rate = self._lesson.scheduled_sampling * progress
            own = torch.rand(pairs.tokens.shape, device=self.device) < rate
        return self._mean(pairs, own, self._lesson.label_smoothing), pairs.tokens_wanted

    def validate(self) -> float | Mapping[str, float]:
        """Mean of −log p(token) over all validation tokens, without label smoothing, and what else is measured."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        count = 0
        for batch in self._held_out:
            total += self._mean(batch.to(self.device), None, 0.0).double() * batch.tokens_wanted
            count += batch.tokens_wanted
        loss = float(total) / count
        return loss if self._measured is None else {"loss": loss, **self._measured()}

    def _mean(self, batch: TokenBatch, own: Tensor | None, smoothing: float) -> Tensor:
        dtype = PRECISIONS[self._lesson.precision]
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
            logits, _ = self.module(batch.source, batch.lengths, batch.tokens, own, need_weights=False)
        return F.cross_entropy(
            logits.flatten(0, 1).float(), batch.wanted.flatten(), ignore_index=PAD, label_smoothing=smoothing
        )


class SampledSentences:
    """Training sentences, segmented anew at random in every epoch; the next epoch is computed in the background."""

    def __init__(self, pairs: Pairs, translator: Translator, lesson: Lesson, seed: int) -> None:
        self._pairs, self._lesson, self._seed = pairs, lesson, seed
        self._source, self._target = translator.source, translator.target
        self._worker = ThreadPoolExecutor(1)
        self._next: dict[int, Future[tuple[Sentences, Sentences]]] = {}

    def __call__(self, epoch: int) -> tuple[Sentences, Sentences]:
        """Source and target sentences of an epoch, which depend on it and the seed only."""
        self._next = {
            number: self._next.get(number) or self._worker.submit(self._segmented, number)
            for number in (epoch, epoch + 1)
        }
        return self._next[epoch].result()

    def close(self) -> None:
        """Cancel the segmentation of later epochs."""
        self._worker.shutdown(cancel_futures=True)

    def _segmented(self, epoch: int) -> tuple[Sentences, Sentences]:
        seeds = np.random.SeedSequence((self._seed, epoch)).generate_state(2).tolist()
        sides = (self._source, self._pairs.source, seeds[0]), (self._target, self._pairs.target, seeds[1])
        source, target = (
            Sentences([ids[: self._lesson.max_tokens] for ids in side.sampled(texts, self._lesson.sampling, seed)])
            for side, texts, seed in sides
        )
        return source, target


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
    architecture: AnyArchitecture | None = None,
    lesson: Lesson | None = None,
    training: Training | None = None,
    start: Translator | None = None,
    device: str = "cpu",
    folder: PathLike | None = None,
    resume: bool = False,
    every: float = 30.0,
    watch: Callable[[TrainingProgress], None] | None = None,
    threads: int | str | None = None,
    tensorboard: bool = False,
) -> Learned:
    """A translator trained on pairs of texts.

    Parameters
    ----------
    train : Pairs
        Training pairs; the vocabularies are learned from them alone.
    valid : Pairs
        Validation pairs, for early stopping and for choosing the best epoch.
    architecture : Architecture or TransformerArchitecture, default=None
        Settings of the model; None is those of ``start``, or ``Architecture()``.
    lesson : Lesson, default=None
        Settings of vocabularies, batches and loss.
    training : Training, default=None
        Settings of the training. Its ``criterion`` may be "loss", "bleu" or "exact", those of greedy translations of
        the validation pairs.
    start : Translator, default=None
        A translator to continue from, or to fine-tune on other pairs: its architecture, vocabularies and weights are
        where the training starts, and it is left unchanged.
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
    threads, tensorboard : as in ``Trainer``
        Threads of torch, and whether to write for TensorBoard.

    Returns
    -------
    Learned
        ``translator`` and ``outcome``.

    Where ``torch.distributed`` is initialised, its processes train together, as in ``Trainer``.

    *Cost*: O(tokens·hidden_size²) time per epoch, and for every target token that of the score for its source.

    >>> from regard.data import number_words
    >>> train, valid = number_words(40).split(0.2)
    >>> small = Architecture(embed_size=4, hidden_size=4)
    >>> translator, outcome = learn(train, valid, architecture=small, training=Training(epochs=1))
    >>> len(outcome.losses)
    1
    """
    lesson, training = lesson or Lesson(), training or Training()
    one_of(CRITERIA, criterion=training.criterion)
    model, source, target = _initial_model(train, architecture, lesson, start, training.seed)
    first = Translator(model.to(device), source, target)
    (train_pairs, train_ids), (valid_pairs, valid_ids) = (
        _encode(pairs, source, target, lesson, name) for name, pairs in (("train", train), ("valid", valid))
    )
    sampled = SampledSentences(train_pairs, first, lesson, training.seed) if lesson.sampling else None
    measured = None if training.criterion == "loss" else partial(_translation_quality, first, valid_pairs)
    task = PairsTask(model, train_ids, valid_ids, lesson, training.seed, sampled=sampled, measured=measured)
    settings = {**as_plain(first.architecture), **asdict(lesson), "train": _digest(train), "valid": _digest(valid)}
    if start is not None:
        settings["start"] = start.digest()
    trainer = Trainer(
        task,
        training,
        folder=folder,
        every=every,
        settings=settings,
        watch=watch,
        threads=threads,
        tensorboard=tensorboard,
    )
    try:
        outcome = trainer.run(resume=resume)
    finally:
        if sampled is not None:
            sampled.close()
    first.metadata = {
        "ended": outcome.ended,
        "epochs": len(outcome.losses),
        "steps": outcome.steps,
        "pairs": len(train),
    }
    model.eval()
    if outcome.ended != "interrupted":
        _choose_alignment(model, first, valid_pairs)
        if folder is not None and Processes().is_main:
            first.save(Path(folder) / MODEL, force=True)
    return Learned(first, outcome)


def _initial_model(
    train: Pairs, architecture: AnyArchitecture | None, lesson: Lesson, start: Translator | None, seed: int
) -> tuple[Seq2Seq, Vocabulary, Vocabulary]:
    """The model before training and its vocabularies: new ones, or a copy of those to continue from."""
    if start is not None:
        if not isinstance(start.model, Seq2Seq):
            raise ValueError("start must be one translator, got an ensemble")
        if architecture not in (None, start.architecture):
            raise ValueError("architecture must be None or that of start, whose weights the training starts from")
        return deepcopy(start.model), start.source, start.target
    source, target = lesson.vocabularies(train)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Seq2Seq(architecture or Architecture(), len(source), len(target))
    if getattr(model.architecture, "shared", False) and not lesson.joint:
        raise ValueError("shared=True needs one vocabulary for both sides: Lesson(joint=True)")
    return model, source, target


def _translation_quality(translator: Translator, valid: Pairs) -> dict[str, float]:
    """BLEU and the fraction of exact matches of greedy translations."""
    translations = [one.text for one in translator.translate(valid.source, batch_size=256)]
    wanted = [text.lower() if translator.target.lower else text for text in valid.target]
    return {"bleu": corpus_bleu(translations, wanted), "exact": exact_fraction(translations, wanted)}


def _choose_alignment(model: Seq2Seq, translator: Translator, valid: Pairs) -> None:
    """Choose the layer and head of a transformer whose weights align best, if gold alignments are known.

    Candidates are the mean of the heads of each layer, and each head; the choice becomes a setting of the model, and
    the metadata have its error rate on the validation pairs.
    """
    architecture = model.architecture
    gold = gold_alignments(translator.source, translator.target, valid)
    if gold is None or not isinstance(architecture, TransformerArchitecture):
        return
    candidates = [(layer, head) for layer in range(architecture.layers) for head in (None, *range(architecture.heads))]
    found: dict[tuple[int, int | None], list[int]] = {candidate: [] for candidate in candidates}
    for per_layer in translator.source_weights(valid.source, valid.target):
        for layer, head in candidates:
            weights = per_layer[layer].mean(0) if head is None else per_layer[layer, head]
            found[layer, head] += weights.argmax(-1).tolist()
    wanted = [sources for sentence in gold for sources in sentence]
    errors = {candidate: error_rate(rows, wanted) for candidate, rows in found.items()}
    layer, head = min(candidates, key=lambda candidate: errors[candidate])
    model.align_by(layer, head)
    translator.metadata["alignment"] = {"layer": layer, "head": head, "validation_error_rate": errors[layer, head]}


def _encode(
    pairs: Pairs, source: Vocabulary, target: Vocabulary, lesson: Lesson, name: str
) -> tuple[Pairs, tuple[Sentences, Sentences]]:
    """The pairs that are not too long and have a source, and both sides as token ids."""
    both = [(source.encode(a), target.encode(b)) for a, b in zip(pairs.source, pairs.target, strict=True)]
    rows = [row for row, (a, b) in enumerate(both) if a and max(len(a), len(b)) <= lesson.max_tokens]
    if not rows:
        raise ValueError(
            f"{name} must contain a pair with 1 to {lesson.max_tokens} tokens on either side, got none in {len(both):,}"
        )
    if len(rows) < len(both):
        warnings.warn(
            f"{len(both) - len(rows):,} of {len(both):,} pairs of {name} are left out: their source is empty, or "
            f"a side has more than {lesson.max_tokens} tokens",
            stacklevel=3,
        )
        pairs = pairs.take(rows)
    return pairs, (Sentences([both[row][0] for row in rows]), Sentences([both[row][1] for row in rows]))


def _digest(pairs: Pairs) -> str:
    """The SHA-256 of all texts: a training can be resumed only with the same pairs."""
    digest = hashlib.sha256()
    for a, b in zip(pairs.source, pairs.target, strict=True):
        digest.update(f"{a}\n{b}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()

"""From pairs of texts to a translator, in one call."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch

from regard.data.files import PathLike
from regard.data.pairs import Pairs
from regard.seq2seq.batches import Texts
from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.task import Lesson, PairsTask
from regard.seq2seq.trainer import Trainer
from regard.seq2seq.training import Outcome, Progress, Training
from regard.seq2seq.translator import Translator
from regard.seq2seq.vocabulary import Vocabulary

MODEL = "model.regard"


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

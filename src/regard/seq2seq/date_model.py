"""The date model: a small translator from written dates to ISO dates, learned in about a minute.

The tour trains it, and the playground shows its attention step by step.
"""

from __future__ import annotations

from collections.abc import Callable

from regard.data import Pairs, dates
from regard.nn.loo_training import torch_threads
from regard.seq2seq.model import Architecture
from regard.seq2seq.pair_training import Learned, Lesson, learn
from regard.seq2seq.trainer import TrainingProgress
from regard.seq2seq.training_settings import Training

# Sizes of the training, validation and test sets, and epochs: at most a minute on one core of an ordinary machine.
PAIRS = 15_000
VALID = 1000
EPOCHS = 4
ARCHITECTURE = Architecture(embed_size=32, hidden_size=64)
LESSON = Lesson(unit="characters", batch_size=64, label_smoothing=0.0)


def date_pairs(seed: int = 0) -> tuple[Pairs, Pairs, Pairs]:
    """Training, validation and test dates; no text is in two of them."""
    rest, test = dates(PAIRS + 2 * VALID, seed).split(VALID / (PAIRS + 2 * VALID), seed)
    train, valid = rest.split(VALID / (PAIRS + VALID), seed + 1)
    return train, valid, test


def learn_dates(seed: int = 0, *, watch: Callable[[TrainingProgress], None] | None = None) -> Learned:
    """The date model and how its training went.

    Its length is a number of epochs, not a time: the same seed gives the same model on any machine. Ctrl-C raises
    KeyboardInterrupt instead of returning a model that is half trained.

    *Cost*: up to a minute on one core.
    """
    train, valid, _ = date_pairs(seed)
    training = Training(epochs=EPOCHS, learning_rate=4e-3, patience=EPOCHS, seed=seed)
    # Matrices this small gain a tenth from a second thread, and lose far more on a busy machine.
    with torch_threads(1):
        learned = learn(train, valid, architecture=ARCHITECTURE, lesson=LESSON, training=training, watch=watch)
    if learned.outcome.ended == "interrupted":
        raise KeyboardInterrupt
    return learned

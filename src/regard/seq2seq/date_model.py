"""The date model: a small translator from dates as people write them to ISO dates, learned in about a minute.

It is the example that everybody can check: the tour trains it, and the playground lets a person watch it look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from regard.data import Pairs, dates
from regard.seq2seq.learning import Learned, Lesson, learn
from regard.seq2seq.model import Architecture
from regard.seq2seq.training import Progress, Training

# Pairs to learn from and to choose by, and the passes over them: at most a minute on one core of a usual machine.
PAIRS, VALID, EPOCHS = 15_000, 1000, 4
ARCHITECTURE = Architecture(embed_size=32, hidden_size=64)
LESSON = Lesson(unit="characters", batch_size=64, label_smoothing=0.0)


def date_pairs(seed: int = 0) -> tuple[Pairs, Pairs, Pairs]:
    """Dates to learn from, to choose the best pass by, and to judge it by: no text is in two of them."""
    rest, test = dates(PAIRS + 2 * VALID, seed).split(VALID / (PAIRS + 2 * VALID), seed)
    train, valid = rest.split(VALID / (PAIRS + VALID), seed + 1)
    return train, valid, test


def learn_dates(seed: int = 0, *, watch: Callable[[Progress], None] | None = None) -> Learned:
    """The date model and how its training went.

    It ends by passes, not by the clock: the same seed gives the same model, however busy the machine is. Ctrl-C raises
    KeyboardInterrupt, for half a model is of no use here.

    *Cost*: up to a minute on one core.
    """
    train, valid, _ = date_pairs(seed)
    training = Training(epochs=EPOCHS, learning_rate=4e-3, patience=EPOCHS, seed=seed)
    with _one_thread():
        learned = learn(train, valid, architecture=ARCHITECTURE, lesson=LESSON, training=training, watch=watch)
    if learned.outcome.ended == "interrupted":
        raise KeyboardInterrupt
    return learned


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small gain a tenth from a second thread, and lose far more where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

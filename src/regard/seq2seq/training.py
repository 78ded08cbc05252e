"""The words of a training: what is trained, how, how far it has come, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

SCHEDULES = ("cosine", "plateau")
# What a cosine falls to.
LEAST = 0.01


class Task(Protocol):
    """What is trained."""

    @property
    def module(self) -> nn.Module: ...

    def batches(self, epoch: int) -> Sequence[Any]:
        """The batches of an epoch: the same at every call."""

    def loss(self, batch: Any, progress: float) -> tuple[Tensor, int]:
        """The mean loss of a batch, and what number of tokens it is a mean of; ``progress`` goes from 0 to 1."""

    def validate(self) -> float:
        """The loss of what is held out."""


@dataclass(frozen=True)
class Training:
    """How to train.

    Parameters
    ----------
    epochs : at most.
    learning_rate : of Adam, at its highest.
    schedule : "cosine" falls along a cosine to a hundredth at the end; "plateau" is halved where two epochs brought
        nothing better; both rise over the first ``warmup`` steps.
    clip : the longest that a gradient may be.
    patience : epochs without a better validation loss after which it ends.
    seconds : ends after so long at the latest; a cosine then ends there.
    seed : of everything random.
    """

    epochs: int = 20
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    warmup: int = 100
    clip: float = 1.0
    patience: int = 5
    seconds: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "clip"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if self.warmup < 0:
            raise ValueError(f"warmup must not be negative, got {self.warmup}")
        if self.seconds is not None and not self.seconds > 0.0:
            raise ValueError(f"seconds must be positive, got {self.seconds}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(map(repr, SCHEDULES))}, got {self.schedule!r}")

    def rate(self, step: int, progress: float, halvings: int) -> float:
        """The learning rate at a step (from 0), when this much of the training is over.

        >>> [round(Training(learning_rate=1.0, warmup=2).rate(step, step / 8, 0), 3) for step in (0, 1, 2, 4, 8)]
        [0.333, 0.642, 0.855, 0.505, 0.01]
        """
        rise = min(1.0, (step + 1) / (self.warmup + 1))
        if self.schedule == "plateau":
            return self.learning_rate * (rise * 0.5**halvings)
        fall = LEAST + (1.0 - LEAST) * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
        return self.learning_rate * (rise * fall)


@dataclass
class Standing:
    """How far a training has come."""

    epoch: int = 0
    batch: int = 0  # the next of this epoch
    step: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0  # of this epoch, over its tokens
    tokens: int = 0
    all_tokens: int = 0
    best: float = math.inf
    best_epoch: int = -1
    halvings: int = 0
    metrics_end: int = 0  # bytes of the metrics that belong to this standing
    losses: list[float] = field(default_factory=list)  # by epoch
    validations: list[float] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """As JSON, which knows no infinity."""
        return {**asdict(self), "best": repr(self.best)}


class Progress(NamedTuple):
    """What a watcher is told."""

    epoch: int  # from 1
    epochs: int
    step: int
    steps: int  # in all epochs
    loss: float
    validation: float  # the last one, NaN before the first
    tokens_per_second: float
    seconds_left: float  # if no patience runs out


class Outcome(NamedTuple):
    """How a training ended: the module has the weights of its best epoch."""

    ended: str  # "epochs", "patience", "seconds", "interrupted"
    best: float
    best_epoch: int  # from 0
    losses: tuple[float, ...]
    validations: tuple[float, ...]
    steps: int
    seconds: float


class DivergedError(ValueError):
    """The loss is no number any more."""

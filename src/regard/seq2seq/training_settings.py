"""The settings of a training, and its learning rate at every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from regard.nn.argument_checks import at_least_one, one_of

SCHEDULES = ("cosine", "plateau", "inverse")
OPTIMIZERS: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
# The measure that is minimised; all others are maximised.
LOSS = "loss"
# Final learning rate of the cosine schedule, relative to the largest.
FINAL_RATE = 0.01


@dataclass(frozen=True)
class Training:
    """The settings of a training.

    Parameters
    ----------
    epochs : int, default=20
        Maximum number of epochs.
    learning_rate : float, default=0.001
        Largest learning rate.
    schedule : {"cosine", "plateau", "inverse"}, default="cosine"
        "cosine" decays along a cosine to a hundredth at the end; "plateau" halves the rate after every two epochs
        without improvement; "inverse" decays with the inverse square root of the step; all rise linearly over the first
        ``warmup`` steps.
    warmup : int, default=100
        Steps over which the rate rises.
    clip : float, default=1.0
        Maximum norm of the gradient.
    patience : int, default=5
        Number of epochs without improvement after which training stops.
    seconds : float, default=None
        Time limit; a cosine schedule then ends there.
    seed : int, default=0
        Of all random numbers.
    optimizer : {"adam", "adamw"}, default="adam"
        "adamw" shrinks the weights at every step, by ``weight_decay``.
    weight_decay : float, default=0.0
        Of "adamw"; others accept 0 only.
    beta2 : float, default=0.999
        Adam's: how slowly its mean of squared gradients forgets.
    accumulate : int, default=1
        Number of batches in a step, together in all processes.
    average : int, default=1
        The weights validated and kept are the mean of those at the end of this many epochs, the last ones.
    criterion : str, default="loss"
        The measure of ``Task.validate`` that chooses the best epoch and ends training: "loss", or one of which more is
        better.

    >>> Training(epochs=5).schedule
    'cosine'
    """

    epochs: int = 20
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    warmup: int = 100
    clip: float = 1.0
    patience: int = 5
    seconds: float | None = None
    seed: int = 0
    optimizer: str = "adam"
    weight_decay: float = 0.0
    beta2: float = 0.999
    accumulate: int = 1
    average: int = 1
    criterion: str = LOSS

    def __post_init__(self) -> None:
        at_least_one(epochs=self.epochs, patience=self.patience, accumulate=self.accumulate, average=self.average)
        one_of(SCHEDULES, schedule=self.schedule)
        one_of(OPTIMIZERS, optimizer=self.optimizer)
        if not 0.0 <= self.weight_decay < math.inf or (self.weight_decay and self.optimizer != "adamw"):
            raise ValueError(
                "weight_decay must be at least 0 and finite, and 0 unless optimizer is 'adamw', got "
                f"{self.weight_decay} with {self.optimizer!r}"
            )
        if not 0.0 <= self.beta2 < 1.0:
            raise ValueError(f"beta2 must be at least 0 and below 1, got {self.beta2}")
        for name in ("learning_rate", "clip"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if self.warmup < 0:
            raise ValueError(f"warmup must be at least 0, got {self.warmup}")
        if self.seconds is not None and not self.seconds > 0.0:
            raise ValueError(f"seconds must be positive, got {self.seconds}")

    def rate(self, step: int, progress: float, halvings: int) -> float:
        """The learning rate at a step (from 0), after this fraction of the training.

        Parameters
        ----------
        step : int
            Counted from 0.
        progress : float
            Fraction of the training that is done.
        halvings : int
            How often "plateau" has halved the rate.

        Returns
        -------
        float

        >>> [round(Training(learning_rate=1.0, warmup=2).rate(step, step / 8, 0), 3) for step in (0, 1, 2, 4, 8)]
        [0.333, 0.642, 0.855, 0.505, 0.01]
        """
        rise = min(1.0, (step + 1) / (self.warmup + 1))
        if self.schedule == "plateau":
            return self.learning_rate * (rise * 0.5**halvings)
        if self.schedule == "inverse":
            return self.learning_rate * min(rise, math.sqrt((self.warmup + 1) / (step + 1)))
        fall = FINAL_RATE + (1.0 - FINAL_RATE) * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
        return self.learning_rate * (rise * fall)

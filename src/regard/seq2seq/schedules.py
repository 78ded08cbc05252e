"""How the learning rate goes."""

from __future__ import annotations

import math

SCHEDULES = ("cosine", "plateau")
# What a cosine falls to.
LEAST = 0.01


def rate_at(schedule: str, step: int, warmup: int, progress: float, halvings: int) -> float:
    """The share of the highest rate at a step (from 0), when this much of the training is over.

    >>> [round(rate_at("cosine", step, 2, step / 8, 0), 3) for step in (0, 1, 2, 4, 8)]
    [0.333, 0.642, 0.855, 0.505, 0.01]
    """
    rise = min(1.0, (step + 1) / (warmup + 1)) if warmup else 1.0
    if schedule == "plateau":
        return rise * 0.5**halvings
    return rise * (LEAST + (1.0 - LEAST) * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0))))

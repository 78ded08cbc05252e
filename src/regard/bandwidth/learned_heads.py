"""Heads that were learned, their mix, and the record of the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from regard.bandwidth.losses import LogLoss
from regard.bandwidth.objective import Objective
from regard.bandwidth.scaling import Scaling
from regard.bandwidth.tempering import Tempering, learn_tempering
from regard.core.arrays import Array


class LearnedHead(NamedTuple):
    """One head: ``weight`` is its weight in the mix."""

    weight: float
    share: Array  # (d,)  t of the scaling
    w: Array  # (d,) or (d, r), in the units of the scaled columns
    ridge: float


class HeadSearch(NamedTuple):
    """The history of learning the heads."""

    value: float  # the criterion of the mix, in the units of y
    evaluations: int
    path: Array  # (evaluations,)  the criterion at every evaluation, on the rows evaluated
    interrupted: bool

    def __str__(self) -> str:
        summary = f"criterion {self.value:.6g} after {self.evaluations} evaluations"
        return summary + "; interrupted: this is the best so far" * self.interrupted


class Heads(NamedTuple):
    """The result of ``learn_heads``."""

    heads: tuple[LearnedHead, ...]
    scaling: Scaling
    answer: Array  # (n, P)  leave-one-out predictions
    score: float  # of these predictions: R², or minus the log-loss
    search: HeadSearch
    tempering: Tempering | None = None  # of class probabilities


# Called at every evaluation with its number, the criterion, and the share of the planned work that is done.
Progress = Callable[[int, float, float], None]


@dataclass(eq=False)
class HeadSearchLog:
    """Every evaluation of all descents, and the share of the planned work that is done."""

    progress: Progress | None
    planned: float = 1.0  # work of all descents, in rows or pairs
    path: list[float] = field(default_factory=list)
    before: float = 0.0  # the part of it in finished descents
    done: float = 0.0  # the share reported last: it never goes back, also where the plan grows

    def add(self, value: float, work: float) -> None:
        """Record an evaluation of a descent that has done so much work."""
        self.path.append(value)
        if self.progress is not None:
            self.done = max(self.done, min((self.before + work) / self.planned, 1.0))
            self.progress(len(self.path), value, self.done)


def mix_heads(
    objective: Objective,
    heads: Sequence[Sequence[LearnedHead]],
    answers: Sequence[Array],
    scaling: Scaling,
    path: Sequence[float],
    interrupted: bool,
) -> Heads:
    """The heads with their weights in the mix, from leave-one-out predictions of the rows that are evaluated.

    ``answers`` has one array (Q, P), in the units of the loss, for each group of ``heads``, which share their weight.
    Rows that are not evaluated have NaN in ``Heads.answer``.
    """
    rows, counts = objective.rows, objective.counts[objective.rows]
    loss, stacked = objective.loss, np.stack(answers[: len(heads)])
    weights = (loss if len(rows) == len(objective.key) else loss.take(rows)).mix(stacked, counts)
    mixed = np.tensordot(weights, stacked, 1)
    tempering = learn_tempering(mixed, loss.columns[rows], counts) if isinstance(loss, LogLoss) else None
    mixed = mixed if tempering is None else tempering(mixed)
    value = objective.in_units_of_y(loss(mixed, rows, counts).value)
    used = tuple(
        head._replace(weight=float(c) / len(group))
        for group, c in zip(heads, weights, strict=True)
        for head in group
        if c > 0.0
    )
    answer = np.full((len(objective.key), mixed.shape[1]), np.nan)
    answer[rows] = loss.in_units_of_y(mixed)
    score = objective.score(answer[rows])
    return Heads(used, scaling, answer, score, HeadSearch(value, len(path), np.array(path), interrupted), tempering)

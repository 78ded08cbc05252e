"""Rows that are left out one by one, or by groups, for local lines and for classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from regard.bandwidth.objective import Objective
from regard.core.arrays import Array
from regard.core.problem import relative_weights


@dataclass(frozen=True, eq=False)
class LeftOutRows:
    """Rows of an objective that are queries, and keys of all rows but themselves."""

    position: Array  # (n, d) float64, centred
    columns: Array  # (n, P)  values: targets, or one-hot classes
    weight: Array | None  # (n,)  mass of every row as a key, at most 1
    staying: Array | None  # (n,)  mass of the copies of a row that stay when one is left out
    groups: Array | None  # (n,)  rows of a group are left out together; None: every row alone

    @classmethod
    def of(cls, objective: Objective, position: Array) -> Self:
        """The rows of an objective, at a position (n, d) each."""
        weight = None if objective.weight is None else relative_weights(objective.weight.astype(np.float64))[0]
        repeated, staying = objective.repeated, None
        if repeated is not None and repeated.any():
            assert weight is not None
            staying = repeated * weight / (repeated + 1.0)
        alone = len(np.unique(objective.labels)) == len(objective.labels)
        groups = None if alone else objective.labels
        return cls(position - position.mean(axis=0), objective.loss.columns, weight, staying, groups)

    def among(self, rows: Array) -> Self:
        """Some of the rows, as if there were no others."""

        def take(part: Array | None) -> Any:
            return None if part is None else part[rows]

        return replace(
            self,
            position=self.position[rows],
            columns=self.columns[rows],
            weight=take(self.weight),
            staying=take(self.staying),
            groups=take(self.groups),
        )

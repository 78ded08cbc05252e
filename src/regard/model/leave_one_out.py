"""Which keys each training row may attend to when it is predicted from the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.bandwidth.distinct import Distinct
from regard.bandwidth.rules import counts_repetitions
from regard.core.arrays import Array
from regard.core.scores import Score
from regard.pooling.functions import pool


class LeaveOneOutKeys(NamedTuple):
    """Rows as queries, and as keys: a query attends to every key that has another label.

    A row of k repetitions is two keys: one copy that carries its label, and k − 1 that every query attends to, so that
    leaving the row out removes one repetition. With importances or groups the whole row leaves.
    """

    counts: Array  # type: ignore[assignment]  # (n,)  repetitions, or importances with mean 1
    label: Array  # (n,)
    key: Array  # (K,)  which row each key is
    key_label: Array  # (K,)  −1: never excluded
    key_weight: Array | None  # (K,)

    @classmethod
    def of(cls, table: Distinct) -> LeaveOneOutKeys:
        """Raises ValueError if no row can be left out and predicted from others."""
        n = len(table.key)
        label = np.arange(n) if table.groups is None else np.unique(table.groups, return_inverse=True)[1]
        weight, key = table.weight, np.arange(n)
        if weight is not None and counts_repetitions(weight):
            repeated = np.flatnonzero(weight > 1) if table.groups is None else key[:0]
            first = np.where(weight > 1, 1, weight) if table.groups is None else weight
            counts, weight = weight.astype(np.float64), np.concatenate([first, weight[repeated] - 1])
        else:
            repeated = key[:0]
            counts = np.ones(n) if weight is None else weight / weight.max()
            counts = counts / counts.mean()
        if (label == label[0]).all() and not len(repeated):
            given = "one group" if n > 1 else "1 row (n_samples=1)"
            raise ValueError(f"leave-one-out learning needs at least 2 rows, in different groups; got {given}")
        key_label = np.concatenate([label, np.full(len(repeated), -1)])
        return cls(counts, label, np.concatenate([key, repeated]), key_label, weight)

    def answers(self, query: Array, key: Array, value: Array, score: Score, engine: str) -> Array:
        """Every row (n, r), as a query and as a key, predicted from the values (n, P) of the others: (n, P)."""
        weight, exclude = self.key_weight, (self.label, self.key_label)
        key, value = key[self.key], value[self.key]
        return pool(query, key, value, score, sample_weight=weight, exclude=exclude, engine=engine).output

    def among(self, rows: Array) -> LeaveOneOutKeys:
        """The same for some of the rows only, renumbered."""
        number = np.full(len(self.label), -1)
        number[rows] = np.arange(len(rows))
        inside = number[self.key] >= 0
        key, key_label = number[self.key[inside]], self.key_label[inside]
        weight = None if self.key_weight is None else self.key_weight[inside]
        return LeaveOneOutKeys(self.counts[rows], self.label[rows], key, key_label, weight)

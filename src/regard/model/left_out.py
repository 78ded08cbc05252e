"""Which keys each training row may attend to when it is answered by the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.bandwidth.distinct import Distinct
from regard.bandwidth.rules import counts_repetitions
from regard.core.arrays import Array
from regard.core.scores import Score
from regard.pooling.functions import pool


class LeftOut(NamedTuple):
    """Rows as queries, and as keys: a query looks at every key that has another label.

    A row that counts k times is two keys: one copy that carries its label, and k − 1 that everybody sees. So leaving
    it out takes away one repetition. Importances and groups leave whole.
    """

    counts: Array  # type: ignore[assignment]  # (n,)  what each row counts, 1 on average unless repeated
    label: Array  # (n,)
    key: Array  # (K,)  which row each key is
    key_label: Array  # (K,)  −1: everybody may look
    key_weight: Array | None  # (K,)

    @classmethod
    def of(cls, table: Distinct) -> LeftOut:
        """Raises ValueError where some row has nobody else to look at."""
        n = len(table.key)
        label = np.arange(n) if table.groups is None else np.unique(table.groups, return_inverse=True)[1]
        weight, key = table.weight, np.arange(n)
        if weight is not None and counts_repetitions(weight):
            again = np.flatnonzero(weight > 1) if table.groups is None else key[:0]
            first = np.where(weight > 1, 1, weight) if table.groups is None else weight
            counts, weight = weight.astype(np.float64), np.concatenate([first, weight[again] - 1])
        else:
            again = key[:0]
            counts = np.ones(n) if weight is None else weight / weight.max()
            counts = counts / counts.mean()
        if (label == label[0]).all() and not len(again):
            what = "one group" if n > 1 else "1 row (n_samples=1)"
            raise ValueError(f"learning a score needs rows to leave out and others to look at, got {what}")
        return cls(
            counts, label, np.concatenate([key, again]), np.concatenate([label, np.full(len(again), -1)]), weight
        )

    def answers(self, query: Array, key: Array, value: Array, score: Score, engine: str) -> Array:
        """Every row (n, r), as a query and as a key, answered by the values (n, P) of the others: (n, P)."""
        weight, exclude = self.key_weight, (self.label, self.key_label)
        key, value = key[self.key], value[self.key]
        return pool(query, key, value, score, sample_weight=weight, exclude=exclude, engine=engine).output

    def among(self, rows: Array) -> LeftOut:
        """The same for some of the rows only, numbered anew."""
        number = np.full(len(self.label), -1)
        number[rows] = np.arange(len(rows))
        kept = number[self.key] >= 0
        weight = None if self.key_weight is None else self.key_weight[kept]
        return LeftOut(self.counts[rows], self.label[rows], number[self.key[kept]], self.key_label[kept], weight)

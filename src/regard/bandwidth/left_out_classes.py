"""Leave-one-out class probabilities of all rows and their derivatives by the metric, by products of matrices.

In a head's coordinates z = x·W the probability of a row's own class c depends on two masses, Σ exp(−½‖z_k − z_i‖²) over
the keys of class c and over those of all other classes. Their log odds

    ℓ_i = log Σ_{k in c} weight − log Σ_{k not in c} weight,   p_i = 1/(1 + exp(−ℓ_i))

and the derivatives of ℓ_i by W come from the means of 1, x, z and x zᵀ under the weights of each side: two products of
matrices per block of rows, whatever the number of classes. Nothing here is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from regard.bandwidth.left_out_rows import LeftOutRows
from regard.core.arrays import Array
from regard.engines.cpu.worker_threads import run_jobs
from regard.pooling.runner import threads_for_products

# Cells of the weights of a block of rows: they stay in a core's cache.
BLOCK_CELLS = 1 << 18
MAX_BLOCK_ROWS = 512
# Largest ‖z‖² about the mean for which scores by products are precise enough: in single precision, and in double
# precision; rows beyond are computed from differences.
MAX_SQUARE_SINGLE = 1600.0
MAX_SQUARE_DOUBLE = 1e6
# Scores this far below the largest of a row are set to it: numpy's exp is slow where it underflows.
MIN_SCORE = -80.0
# Bound on |ℓ|: a side without mass.
MAX_LOG_ODDS = 700.0
# Cells of differences at a time.
CELLS_OF_DIFFERENCES = 1 << 20


class LeftOutOdds(NamedTuple):
    """Log odds of the rows' own classes without themselves, and their derivatives."""

    log_odds: Array  # (Q,)
    by_metric: Array | None  # (Q, d) by log w of each feature, or (Q, d, r) by W


@dataclass(frozen=True, eq=False)
class LeftOutClasses(LeftOutRows):
    """Class attention of every row of an objective from the other rows; built by ``LeftOutClasses.of``."""

    @cached_property
    def label(self) -> Array:
        """The class (n,) of every row, by number: its column that is one."""
        return np.asarray(self.columns.argmax(axis=1))

    def answer(self, W: Array, rows: Array | None = None, keys: Array | None = None, *, single: bool = False) -> Array:
        """Left-out probabilities (Q, C) of ``rows`` (all if None) with z = x·W, W (d, r).

        ``keys`` are other rows, to attend to instead of all. Rows without another key have the mean of the columns.

        *Cost*: O(Q·n·(r + C)).
        """
        rows = np.arange(len(self.position)) if rows is None else rows
        space = _Space.of(self, W, np.float32 if single else np.float64)
        columns = self.columns if keys is None else self.columns[keys]
        narrow, out = columns.astype(space.dtype), np.empty((len(rows), columns.shape[1]))

        def run(places: Array) -> None:
            weights = self._weights(space, rows[places], keys)
            mass = weights.sum(axis=1, keepdims=True)
            out[places] = np.where(mass > 0.0, weights @ narrow / np.where(mass > 0.0, mass, 1.0), columns.mean(axis=0))

        threads = threads_for_products(len(rows) * len(columns))
        run_jobs(run, _blocks(np.arange(len(rows)), len(columns)), threads)
        return out

    def __call__(
        self,
        W: Array,
        rows: Array | None = None,
        *,
        diagonal: bool = False,
        derivatives: bool = True,
        single: bool = False,
    ) -> LeftOutOdds:
        """Log odds of ``rows`` (all if None) with z = x·W, W (d, r), and their derivatives.

        ``diagonal`` gives derivatives by the logarithms of the diagonal of W, otherwise they are by W. ``single``
        computes products in single precision where coordinates are small enough.

        *Cost*: O(Q·n·(r + columns)) with 1 + 2d columns for a diagonal and (1 + d)(1 + r) otherwise.
        """
        rows = np.arange(len(self.position)) if rows is None else rows
        order, bounds = self._by_class
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        inside = self.among(order)
        at = place[rows]
        space = _Space.of(inside, W, np.float32 if single else np.float64)
        basis = (
            space.basis(inside.position, diagonal) if derivatives else np.ones((len(at) and len(order), 1), space.dtype)
        )
        log_odds = np.empty(len(rows))
        slopes = np.empty((len(rows), W.shape[0]) if diagonal else (len(rows), *W.shape)) if derivatives else None
        kinds = inside.label[at]
        sort = np.argsort(at, kind="stable")
        parts = np.split(sort, np.flatnonzero(np.diff(kinds[sort])) + 1)

        def run(places: Array) -> None:
            mine = at[places]
            own = slice(*bounds[inside.label[mine[0]]])
            weights = inside._weights(space, mine)
            same = (weights[:, own] @ basis[own]).astype(np.float64)
            weights[:, own] = 0.0
            other = (weights @ basis).astype(np.float64)
            with np.errstate(divide="ignore"):
                found = np.log(same[:, 0]) - np.log(other[:, 0])
            log_odds[places] = np.clip(np.nan_to_num(found, nan=0.0), -MAX_LOG_ODDS, MAX_LOG_ODDS)
            if slopes is not None:
                sides = [side / np.where(side[:, :1] > 0.0, side[:, :1], np.inf) for side in (same, other)]
                one, two = (
                    space.by_diagonal(mine, side) if diagonal else space.by_matrix(inside.position[mine], mine, side)
                    for side in sides
                )
                known = (same[:, 0] > 0.0) & (other[:, 0] > 0.0)
                slopes[places] = np.where(known.reshape(-1, *[1] * (one.ndim - 1)), two - one, 0.0)

        jobs = [block for part in parts for block in _blocks(part, len(order))]
        run_jobs(run, jobs, threads_for_products(sum(map(len, jobs)) * len(order)))
        return LeftOutOdds(log_odds, slopes)

    @property
    def _by_class(self) -> tuple[Array, dict[int, tuple[int, int]]]:
        """Rows in order of their classes, and where each class starts and ends."""
        order = np.argsort(self.label, kind="stable")
        numbers, first, count = np.unique(self.label[order], return_index=True, return_counts=True)
        return order, {int(c): (int(a), int(a + k)) for c, a, k in zip(numbers, first, count, strict=True)}

    def _weights(self, space: _Space, at: Array, keys: Array | None = None) -> Array:
        """Weights (q, n) of rows, relative to their largest weight; their own is left out."""
        score = space.scores(at, keys)
        weight = self.weight if keys is None else None if self.weight is None else self.weight[keys]
        if weight is not None:
            score += np.log(weight).astype(score.dtype)
        gone: Any = None
        if keys is None and self.groups is not None:
            gone = self.groups[at][:, None] == self.groups[None]
        elif keys is None:
            own = np.arange(len(at)), at
            if self.staying is None:
                gone = own
            else:
                assert weight is not None
                share = self.staying[at] / weight[at]
                gone = own[0][share == 0.0], at[share == 0.0]
                score[own] += np.log(np.where(share > 0.0, share, 1.0)).astype(score.dtype)
        if gone is not None:
            score[gone] = -np.inf
        peak = score.max(axis=1, keepdims=True)
        score -= np.where(np.isfinite(peak), peak, 0.0)
        np.clip(score, MIN_SCORE, 0.0, out=score)
        np.exp(score, out=score)
        if gone is not None:
            score[gone] = 0.0
        return np.asarray(score)


@dataclass(frozen=True, eq=False)
class _Space:
    """All rows in a head's coordinates."""

    W: Array
    z: Array  # (n, r) float64
    left: Array  # (n, r + 1)
    right: Array  # (r + 1, n)  left·right = score + ½‖z_i‖²
    beyond: Array  # (n,)  rows whose scores are computed from differences

    @classmethod
    def of(cls, classes: LeftOutClasses, W: Array, dtype: Any) -> _Space:
        z = classes.position @ W
        square = (z**2).sum(axis=1)
        if square.max(initial=0.0) > MAX_SQUARE_SINGLE:
            dtype = np.float64
        left = np.column_stack([z, np.ones(len(z))]).astype(dtype)
        right = np.ascontiguousarray(np.column_stack([z, -0.5 * square]).astype(dtype).T)
        return cls(W, z, left, right, ~(square <= MAX_SQUARE_DOUBLE))

    @property
    def dtype(self) -> Any:
        return self.left.dtype

    def scores(self, at: Array, keys: Array | None) -> Array:
        """Scores (q, n) up to a constant per row; of some ``keys`` if given."""
        score = self.left[at] @ (self.right if keys is None else self.right[:, keys])
        z = self.z if keys is None else self.z[keys]
        far = np.flatnonzero(self.beyond[at])
        step = max(1, CELLS_OF_DIFFERENCES // max(z.size, 1))
        for start in range(0, len(far), step):
            some = far[start : start + step]
            score[some] = -0.5 * ((self.z[at[some]][:, None] - z[None]) ** 2).sum(axis=2)
        return np.asarray(score)

    def basis(self, position: Array, diagonal: bool) -> Array:
        """What weights are summed with (n, B): [1, z, z²], or [1, x, z, x zᵀ]."""
        one = np.ones((len(self.z), 1))
        if diagonal:
            return np.concatenate([one, self.z, self.z**2], axis=1, dtype=self.dtype)
        across = (position[:, :, None] * self.z[:, None, :]).reshape(len(self.z), -1)
        return np.concatenate([one, position, self.z, across], axis=1, dtype=self.dtype)

    def by_diagonal(self, at: Array, means: Array) -> Array:
        """Σ weight·δz² (q, r) from means of the basis."""
        width, z = self.z.shape[1], self.z[at]
        first, second = means[:, 1 : 1 + width], means[:, 1 + width :]
        return np.asarray(second - 2.0 * z * first + z**2)

    def by_matrix(self, position: Array, at: Array, means: Array) -> Array:
        """Σ weight·δx δzᵀ (q, d, r) from means of the basis."""
        (width, rank), z = self.W.shape, self.z[at]
        x, zs = means[:, 1 : 1 + width], means[:, 1 + width : 1 + width + rank]
        across = means[:, 1 + width + rank :].reshape(-1, width, rank)
        return np.asarray(
            across - position[:, :, None] * zs[:, None] - x[:, :, None] * z[:, None] + position[:, :, None] * z[:, None]
        )


def _blocks(rows: Array, keys: int) -> list[Array]:
    """Rows in blocks whose weights over so many keys fit into a core's cache."""
    size = int(np.clip(BLOCK_CELLS // max(keys, 1), 1, MAX_BLOCK_ROWS))
    return [rows[start : start + size] for start in range(0, len(rows), size)]

"""Leave-one-out local lines of all rows and their derivatives by the metric, by products of matrices.

In a head's coordinates z = x·W the line of a row comes from the moments, under weights exp(−½‖z_k − z_i‖²), of

    φ(k) = [1, z, z zᵀ, y, z y]

so the moments of some rows are one product, weights (rows × keys) times φ (keys × columns). A change of the scores
changes the answer by Σ_k weight_k·h_k·dscore_k, where h is a combination of the columns of φ (``fitted_lines``): a
second product gives h of all pairs, and a third one Σ weight·h·δδᵀ, the derivative of every row's answer by E in
W(I + E). Nothing here is compiled: a first fit does not wait for a compiler. Products are numpy's (``host_lines``) or,
on a GPU, torch's (``device_lines``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from regard.bandwidth.fitted_lines import fit_lines
from regard.bandwidth.host_lines import HostKeys, HostWeights, KeyBoxes, leaf_order
from regard.bandwidth.left_out_rows import LeftOutRows
from regard.bandwidth.objective import Objective
from regard.core.arrays import Array
from regard.engines.cpu.worker_threads import run_jobs, split_range
from regard.pooling.runner import threads_for_products

# Rows whose lines are fitted at once: fewer cost calls, more do not stay in a core's cache.
MAX_ROWS_AT_ONCE = 512
# Keys from which rows are put into an order of space, so that far tiles can be skipped.
MIN_KEYS_TO_SKIP = 4096
# Largest ‖z‖² about the mean for which scores by products are precise enough: in single precision for a search, …
MAX_SQUARE_SINGLE = 1600.0
# … and in double precision for answers; rows beyond are computed one by one from differences.
MAX_SQUARE_DOUBLE = 1e6
# Share of rows beyond single precision up to which it is used for the others.
MAX_SHARE_BEYOND = 0.01


class LeftOut(NamedTuple):
    """Answers of rows without themselves, and their derivatives."""

    answer: Array  # (Q, P)
    by_metric: Array | None  # (Q, P, r) by log w of each coordinate, or (Q, P, r, r) by E in W(I + E)
    by_log_ridge: Array | None  # (Q, P)


@dataclass(frozen=True, eq=False)
class LeftOutLines(LeftOutRows):
    """Local lines of every row of an objective from the other rows; built by ``LeftOutLines.of``."""

    tol: float = 0.0  # share of its attention mass that a row may lose
    gpu: bool = False  # products on a GPU, in float64 and over all keys
    in_order: bool = False  # near rows are near each other: tiles of keys far from a block of rows are skipped

    @classmethod
    def of(cls, objective: Objective, position: Array, tol: float = 0.0) -> LeftOutLines:
        """The rows of an objective, at a position (n, d) each."""
        return replace(super().of(objective, position), tol=tol, gpu=objective.engine == "fused")

    def ordered(self, W: Array) -> tuple[LeftOutLines, Array]:
        """The rows in an order of space near W, in which far tiles are skipped, and the place of each row in it.

        With few rows, or on a GPU, the order is the present one.
        """
        size = len(self.position)
        if self.gpu or size < MIN_KEYS_TO_SKIP:
            return self, np.arange(size)
        order = leaf_order(self.position @ W)
        place = np.empty(size, np.intp)
        place[order] = np.arange(size)
        return replace(self.among(order), in_order=True), place

    def __call__(
        self, W: Array, ridge: float, rows: Array | None = None, *, metric: str | None = None, single: bool = False
    ) -> LeftOut:
        """Answers of ``rows`` (all if None) with z = x·W, W (d, r), and λ; derivatives if ``metric`` is given.

        ``metric`` "feature" gives derivatives by the logarithm of the scale of each coordinate, "full" those by E.
        ``single`` computes products in single precision where coordinates are small enough.

        *Cost*: O(Q·n·r·(r + P)) time, three products of matrices with derivatives and one without; memory O(n·r²).
        """
        rows = np.arange(len(self.position)) if rows is None else rows
        z = self.position @ W
        square = (z**2).sum(axis=1)
        single = single and not self.gpu and float((square > MAX_SQUARE_SINGLE).mean()) <= MAX_SHARE_BEYOND
        beyond = ~(square <= (MAX_SQUARE_SINGLE if single else MAX_SQUARE_DOUBLE))
        weights_of = self._on_gpu(z, metric, beyond) if self.gpu else self._on_host(z, metric, beyond, single)
        count, width = self.columns.shape[1], z.shape[1]
        answer = np.empty((len(rows), count))
        shape = (width, width) if metric == "full" else (width,)
        slopes = None if metric is None else np.empty((len(rows), count, *shape))
        by_ridge = None if metric is None else np.empty((len(rows), count))

        def run(part: slice) -> None:
            weights = weights_of(rows[part])
            line = fit_lines(weights.moments, weights.z, ridge, count)
            answer[part] = in_memory(line.answer)
            if slopes is None or by_ridge is None:
                return
            assert metric is not None
            by_ridge[part] = in_memory(line.by_log_ridge)
            for p in range(count):
                means = weights.products(line.coefficients(p)) / weights.moments[:, :1]
                slopes[part, p] = in_memory(line.slopes(p, means, metric))

        threads = 1 if self.gpu else threads_for_products(len(rows) * len(z))
        run_jobs(run, split_range(len(rows), self._rows_at_once(len(rows), threads)), threads)
        return LeftOut(answer, slopes, by_ridge)

    def _rows_at_once(self, rows: int, threads: int) -> int:
        if not self.gpu:
            return max(1, min(MAX_ROWS_AT_ONCE, -(-rows // threads)))
        # It comes with torch, which the CPU does without.
        from regard.bandwidth.device_lines import rows_at_once

        return rows_at_once(len(self.position))

    def _on_host(self, z: Array, metric: str | None, beyond: Array, single: bool) -> Callable[[Array], HostWeights]:
        """A function of some rows that gives their weights, on the CPU."""
        dtype = np.dtype(np.float32 if single else np.float64)
        left, right = (matrix.astype(dtype) for matrix in _score_factors(np, z, self._log_weight))
        bases = _bases(np, z.astype(dtype), self.columns.astype(dtype), metric)
        tiles = KeyBoxes.of(z, self.weight) if self.in_order else None
        keys = HostKeys(
            z, beyond, left, right, *bases, tiles, self.tol, self.weight, staying=self.staying, groups=self.groups
        )
        return lambda at: HostWeights(keys, at)

    def _on_gpu(self, z: Array, metric: str | None, beyond: Array) -> Callable[[Array], Any]:
        """The same on a GPU."""
        import torch

        from regard.bandwidth.device_lines import DeviceKeys, DeviceWeights, on_device

        near, log_weight = on_device(z), on_device(self._log_weight)
        factors = _score_factors(torch, near, log_weight)
        bases = _bases(torch, near, on_device(self.columns), metric)
        keys = DeviceKeys(near, *factors, *bases, log_weight, on_device(self.staying), on_device(self.groups))
        return lambda at: DeviceWeights(keys, at, beyond[at])

    @property
    def _log_weight(self) -> Array | None:
        return None if self.weight is None else np.log(self.weight)


def in_memory(array: Any) -> Array:
    """An array of numpy, or a tensor, as one of numpy."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu().numpy())


def _score_factors(xp: Any, z: Any, log_weight: Any) -> tuple[Any, Any]:
    """Matrices (n, r + 2) and (r + 2, n) of numpy or torch whose product over keys is score + log weight."""
    one, half = xp.ones_like(z[:, :1]), 0.5 * (z**2).sum(axis=1)[:, None]
    bias = -half if log_weight is None else log_weight[:, None] - half
    return xp.concatenate([z, -half, one], axis=1), xp.concatenate([z.T, one.T, bias.T])


def _bases(xp: Any, z: Any, columns: Any, metric: str | None) -> tuple[Any, Any]:
    """φ of all keys (B, n), and what weight·h is summed with (S, n) for derivatives by the metric: [1, z, z²]."""
    a, b = np.triu_indices(z.shape[1])
    one, z, value = xp.ones_like(z.T[:1]), z.T, columns.T
    across = (value[:, None] * z).reshape(-1, z.shape[1])
    basis = xp.concatenate([one, z, z[a] * z[b], value, across])
    if metric is None:
        return basis, None
    return basis, basis[: 1 + len(z) + len(a)] if metric == "full" else xp.concatenate([one, z, z**2])

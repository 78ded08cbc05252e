"""Losses with every w of a fitted model multiplied by one common factor: along some factors, and at the best one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from regard.bandwidth.parametrization import feature_scales
from regard.bandwidth.search import max_scaled_w
from regard.core.arrays import Array
from regard.model.attention_summary import training_error
from regard.model.smoother import HeadObjective

# Smallest w·(standard deviation) scanned: at a bandwidth of fifty deviations attention is uniform.
MIN_SCANNED_W = 0.02
# Ratio of neighbouring w of the scan.
SCAN_RATIO = 2.0
# Rows evaluated by the scan and by the refinement.
SCAN_ROWS = 256
REFINE_ROWS = 1000
# Tolerance of the refinement in log w, and its iterations.
REFINE_TOL = 0.02
REFINE_ITERATIONS = 12
# Rows that a path is evaluated on if there are more.
MAX_PATH_ROWS = 2000


class LossPath(NamedTuple):
    """Losses at multiples of w, as in ``Diagnosis``."""

    multiple: Array  # (M,)
    training: Array  # (M,)  every row predicted from all rows
    left_out: Array  # (M,)  every row predicted from the others


class BestMultiple(NamedTuple):
    """The best common factor, and the left-out losses there and as fitted, with y scaled to unit variance."""

    factor: float  # best w over fitted w; 1 if nothing is better, inf if the fitted w ignores every feature
    best: float
    fitted: float


def best_multiple(heads: Sequence[HeadObjective], rows: Array) -> BestMultiple:
    """Scan and refine the factor; losses are means over ``rows`` (Q,), in random order.

    *Cost*: some 20 evaluations of O(256·n·d), 12 of O(1,000·n·d) and two of O(Q·n·d) per head; d² at degree 1.
    """
    fitted = left_out_error(heads, rows)
    level, heads = _level(heads)
    if level is None:
        return BestMultiple(1.0, fitted, fitted)
    objective = heads[0].objective
    features = max(int((feature_scales(objective.key, objective.counts) > 0.0).sum()), 1)
    top = min(10.0 * objective.size ** (1.0 / features), max_scaled_w(objective))
    steps = int(np.ceil(np.log(top / MIN_SCANNED_W) / np.log(SCAN_RATIO)))
    grid = np.linspace(np.log(MIN_SCANNED_W), np.log(top), steps + 1)
    here = 0.0 if np.isneginf(level) else level

    def at(log_level: float, some: Array) -> float:
        factor = np.exp(log_level - here)
        return left_out_error([scaled(one, factor) for one in heads], some)

    values = [at(log_level, rows[:SCAN_ROWS]) for log_level in grid]
    lowest = int(np.argmin(values))
    low, high = grid[max(lowest - 1, 0)], grid[min(lowest + 1, len(grid) - 1)]
    options = {"xatol": REFINE_TOL, "maxiter": REFINE_ITERATIONS}
    some = rows[:REFINE_ROWS]
    place = float(minimize_scalar(at, bounds=(low, high), method="bounded", args=(some,), options=options).x)
    best = at(place, rows)
    # An improvement by rounding alone does not count.
    if not best < fitted * (1.0 - 1e-9):
        return BestMultiple(1.0, fitted, fitted)
    return BestMultiple(float(np.exp(place - level)) if np.isfinite(level) else np.inf, best, fitted)


def loss_path(heads: Sequence[HeadObjective], multiples: ArrayLike) -> LossPath:
    """Losses of a mixture of heads over the same rows, with every w times each of ``multiples`` (M,) ≥ 0.

    *Cost*: 2·M passes of O(min(n, 2,000)·n·d) for each head, d² at degree 1; memory O(n·d) and a tile.
    """
    factors = np.asarray(multiples, np.float64)
    if factors.ndim != 1 or not ((factors >= 0.0) & np.isfinite(factors)).all():
        raise ValueError(f"multiples must be finite numbers of at least 0 and of shape (M,), got {multiples!r}")
    first = heads[0].objective
    rows = np.sort(np.random.default_rng(0).permutation(len(first.key))[:MAX_PATH_ROWS])
    losses = np.empty((2, len(factors)))
    for i, factor in enumerate(factors):
        there = [scaled(one, factor) for one in heads]
        losses[:, i] = training_error(there, rows), left_out_error(there, rows)
    return LossPath(factors, *(losses * first.loss.unit))


def scaled(one: HeadObjective, factor: float) -> HeadObjective:
    """The same head with every w times ``factor``."""
    return one._replace(head=one.head.at(one.head.w * factor))


def left_out_error(heads: Sequence[HeadObjective], rows: Array) -> float:
    """Mean loss of the mixture at ``rows`` (Q,), each predicted from all others, with y scaled to unit variance."""
    first = heads[0].objective
    # An objective of all rows takes them in their own order.
    rows = np.sort(rows)
    answer: Any = 0.0
    for head, objective in heads:
        found = objective.evaluated_at(rows)(head.w, head.ridge).answer
        answer = answer + head.mix * first.loss.from_units_of_y(found)
    return first.loss(np.asarray(answer), rows, first.counts[rows]).value


def _level(heads: Sequence[HeadObjective]) -> tuple[float | None, Sequence[HeadObjective]]:
    """Logarithm of the typical w·(standard deviation), and heads to scale from there; None if no feature varies.

    Heads that ignore every feature have level −inf, and are scaled from w·(standard deviation) = 1.
    """
    levels, mixes, units = [], [], []
    for one in heads:
        w, deviation = one.head.w, feature_scales(one.objective.key, one.objective.counts)
        varies = deviation > 0.0
        size = np.linalg.norm(w, axis=1) if np.ndim(w) == 2 else np.broadcast_to(np.abs(w), deviation.shape)
        used = varies & (size > 0.0)
        if not varies.any():
            return None, heads
        unit = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
        units.append(one._replace(head=one.head.at(unit)))
        if used.any():
            logs = np.log(size[used]) + np.log(deviation[used])
            levels.append(logs.max() + 0.5 * np.log(np.mean(np.exp(2.0 * (logs - logs.max())))))
            mixes.append(one.head.mix)
    if not sum(mixes):
        return -np.inf, units
    return float(np.average(levels, weights=mixes)), heads

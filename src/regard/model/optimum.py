"""Losses with every w of a fitted model times one common factor: along some factors, and at the best one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from regard.bandwidth.search import sharpest
from regard.bandwidth.shapes import spreads
from regard.core.arrays import Array
from regard.model.attention_summary import training_error
from regard.model.smoother import HeadObjective

# Smallest w·spread looked at (a bandwidth of fifty spreads looks everywhere alike) and the factor between two of them.
BLUNTEST = 0.02
STEP = 2.0
# Rows looked at while scanning and while refining, and how fine that is in log w.
SCAN_ROWS, FINE_ROWS = 256, 1000
FINE, FINE_STEPS = 0.02, 12
# Rows of a path where there are more.
PATH_ROWS = 2000


class LossPath(NamedTuple):
    """Losses at multiples of w: mean squared errors in the units of y², several outputs relative to each one's
    variance; log-losses in a classifier."""

    multiple: Array  # (M,)
    training: Array  # (M,)  rows see themselves
    left_out: Array  # (M,)  no row sees itself


class Optimum(NamedTuple):
    """The best common factor, and left-out losses there and as fitted, y scaled to unit variance."""

    factor: float  # best w over fitted w; 1 where nothing is better, inf where the fitted w looks at no feature
    best: float
    fitted: float


def optimum(heads: Sequence[HeadObjective], rows: Array) -> Optimum:
    """Scan and refine the factor; losses are means over ``rows`` (Q,), in an order of chance.

    *Cost*: some 20 evaluations of O(256·n·d), 12 of O(1,000·n·d) and two of O(Q·n·d) per head; d² at degree 1.
    """
    fitted = left_out_error(heads, rows)
    level, heads = _level(heads)
    if level is None:
        return Optimum(1.0, fitted, fitted)
    objective = heads[0].objective
    width = max(int((spreads(objective.key, objective.counts) > 0.0).sum()), 1)
    top = min(10.0 * objective.size ** (1.0 / width), sharpest(objective))
    grid = np.linspace(np.log(BLUNTEST), np.log(top), int(np.ceil(np.log(top / BLUNTEST) / np.log(STEP))) + 1)
    here = 0.0 if np.isneginf(level) else level

    def at(log_level: float, some: Array) -> float:
        factor = np.exp(log_level - here)
        return left_out_error([scaled(one, factor) for one in heads], some)

    values = [at(log_level, rows[:SCAN_ROWS]) for log_level in grid]
    lowest = int(np.argmin(values))
    low, high = grid[max(lowest - 1, 0)], grid[min(lowest + 1, len(grid) - 1)]
    options = {"xatol": FINE, "maxiter": FINE_STEPS}
    some = rows[:FINE_ROWS]
    place = float(minimize_scalar(at, bounds=(low, high), method="bounded", args=(some,), options=options).x)
    best = at(place, rows)
    # Rounding is no reason to change anything.
    if not best < fitted * (1.0 - 1e-9):
        return Optimum(1.0, fitted, fitted)
    return Optimum(float(np.exp(place - level)) if np.isfinite(level) else np.inf, best, fitted)


def loss_path(heads: Sequence[HeadObjective], multiples: ArrayLike) -> LossPath:
    """Losses of a mix of heads over the same rows, every w times each of ``multiples`` (M,) ≥ 0.

    *Cost*: 2·M passes of O(min(n, 2,000)·n·d) for each head, d² at degree 1; memory O(n·d) and a tile.
    """
    factors = np.asarray(multiples, np.float64)
    if factors.ndim != 1 or not ((factors >= 0.0) & np.isfinite(factors)).all():
        raise ValueError("multiples must be finite numbers (M,), not negative")
    first = heads[0].objective
    rows = np.sort(np.random.default_rng(0).permutation(len(first.key))[:PATH_ROWS])
    losses = np.empty((2, len(factors)))
    for i, factor in enumerate(factors):
        there = [scaled(one, factor) for one in heads]
        losses[:, i] = training_error(there, rows), left_out_error(there, rows)
    return LossPath(factors, *(losses * first.loss.unit))


def scaled(one: HeadObjective, factor: float) -> HeadObjective:
    """The same head with every w times ``factor``."""
    return one._replace(head=one.head.at(one.head.w * factor))


def left_out_error(heads: Sequence[HeadObjective], rows: Array) -> float:
    """Mean loss of the mix at ``rows`` (Q,), each answered by all the others, y scaled to unit variance."""
    first = heads[0].objective
    # An objective of all rows takes them in their own order.
    rows = np.sort(rows)
    answer: Any = 0.0
    for head, objective in heads:
        found = objective.looking_at(rows)(head.w, head.ridge).answer
        answer = answer + head.mix * first.loss.from_units_of_y(found)
    return first.loss(np.asarray(answer), rows, first.counts[rows]).value


def _level(heads: Sequence[HeadObjective]) -> tuple[float | None, Sequence[HeadObjective]]:
    """Logarithm of the typical w·spread, and heads to be scaled from there; None where no feature varies.

    Heads that ignore every feature have level −inf, and are scaled from w·spread = 1.
    """
    known, shares, ones = [], [], []
    for one in heads:
        w, spread = one.head.w, spreads(one.objective.key, one.objective.counts)
        varies = spread > 0.0
        size = np.linalg.norm(w, axis=1) if np.ndim(w) == 2 else np.broadcast_to(np.abs(w), spread.shape)
        seen = varies & (size > 0.0)
        if not varies.any():
            return None, heads
        unit = np.where(varies, 1.0 / np.where(varies, spread, 1.0), 0.0)
        ones.append(one._replace(head=one.head.at(unit)))
        if seen.any():
            logs = np.log(size[seen]) + np.log(spread[seen])
            known.append(logs.max() + 0.5 * np.log(np.mean(np.exp(2.0 * (logs - logs.max())))))
            shares.append(one.head.mix)
    if not sum(shares):
        return -np.inf, ones
    return float(np.average(known, weights=shares)), heads

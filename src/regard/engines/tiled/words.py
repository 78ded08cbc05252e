"""The problem in the programs' words: one working precision, plain arrays, numbers that cannot overflow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.partial import Partial
from regard.problem import Problem
from regard.programs.lanes import DEEPEST, LOG2E
from regard.programs.pairs import ADDITIVE, DOT, METRIC, RADIAL, Pairs
from regard.scores import Additive, DotProduct, Nearest, Radial

Array = NDArray[Any]


def working(problem: Problem) -> Problem:
    """Hard attention is discontinuous: always in float64, where differences of float32 numbers are exact enough."""
    if not isinstance(problem.score, Nearest):
        return problem
    cast = {name: getattr(problem, name).astype(np.float64) for name in ("query", "key", "columns")}
    return replace(problem, **cast)


def pairs_of(problem: Problem) -> Pairs:
    """The problem in the programs' words."""
    score, dtype = problem.score, problem.query.dtype
    real, largest = dtype.type, np.finfo(dtype).max
    query, key, code, compact = problem.query, problem.key, 0, False
    if isinstance(score, Radial):
        form = METRIC if score.w.ndim == 2 else RADIAL
        code, compact = score.kernel.code, score.kernel.compact
        w = score.w if form == METRIC else np.broadcast_to(score.w, key.shape[1])[:, None]
    elif isinstance(score, DotProduct):
        form, w = DOT, np.reshape(score.w / np.sqrt(max(key.shape[1], 1)), (1, 1))
    elif isinstance(score, Additive):
        form, w = ADDITIVE, score.w_v[:, None]
        query, key = query @ score.W_q.T, key @ score.W_k.T
    else:
        raise TypeError(f"engine 'tiled' does not know the score {type(score).__name__}")
    none, nothing = np.empty(0, dtype), np.empty((0, 0), dtype)
    weight = none
    if problem.sample_weight is not None:
        # By a power of two to at most 1: nothing is rounded, and neither 1e-290 nor 1e290 can overflow.
        weight = problem.sample_weight * np.exp(-weight_shift(problem))
    hard = isinstance(score, Nearest)
    mask, bias = problem.mask, nothing
    if mask is not None and mask.dtype != bool:
        if not hard:
            bias = np.where(np.isneginf(mask), -np.inf, np.clip(mask, -largest, largest)).astype(dtype)
        # Hard attention goes by distance alone: of an additive mask only −inf counts.
        mask = mask > -np.inf if hard else None
    labels = problem.exclude or (np.empty(0, np.int64), np.empty(0, np.int64))
    pairs = Pairs(
        form=form,
        code=code,
        direct=compact and not bias.size and not hard,
        hard=hard,
        queries=np.ascontiguousarray(query, dtype),
        keys=np.ascontiguousarray(key.T, dtype),
        w=np.ascontiguousarray(np.clip(w, -largest, largest), dtype),
        row_scale=_row_scale(problem) if hard else none,
        weight=weight.astype(dtype),
        log_weight=none if problem.sample_weight is None else np.log(weight).astype(dtype),
        mask=np.empty((0, 0), np.uint8) if mask is None else mask.view(np.uint8),
        bias=bias,
        query_labels=labels[0],
        key_labels=labels[1],
        largest=largest,
        cap=real(DEEPEST[dtype.itemsize] / LOG2E),
        log2e=real(LOG2E),
    )
    return Pairs._make(frozen(part) if isinstance(part, np.ndarray) else part for part in pairs)


def frozen(array: Array) -> Array:
    """A read-only view: the programs are then compiled once, whatever the caller's arrays allow."""
    view = array.view()
    view.flags.writeable = False
    return view


def weight_shift(problem: Problem) -> float:
    """Log of the power of two by which the programs' sample weights are smaller than the caller's."""
    if problem.sample_weight is None:
        return 0.0
    return float(np.frexp(problem.sample_weight.max(initial=0.0))[1] * np.log(2.0))


def _row_scale(problem: Problem) -> Array:
    """A power of two per query that keeps the squares of its distances clear of overflow and underflow."""
    assert isinstance(problem.score, Radial)
    w = np.abs(problem.score.w)
    reach = np.abs(problem.query) + np.abs(problem.key).max(axis=0, initial=0.0)  # (Q, d)
    bound = (reach @ w if w.ndim == 2 else reach * w).max(axis=1, initial=0.0)
    return np.ldexp(1.0, -np.frexp(np.where(bound > 0.0, bound, 1.0))[1])


def in_score_units(partial: Partial, problem: Problem, pairs: Pairs) -> Partial:
    if pairs.hard:
        scale = np.exp(weight_shift(problem))
        return Partial(-np.sqrt(-partial.peak) / pairs.row_scale, partial.mass * scale, partial.moments * scale, True)
    return partial._replace(peak=partial.peak + weight_shift(problem))


def overflowed(pairs: Pairs, peak: Array) -> Array | None:
    """Queries whose every distance is beyond the largest number: their scores cannot tell keys apart."""
    if pairs.hard or pairs.form not in (RADIAL, METRIC) or pairs.direct or pairs.code > 1:
        return None
    lowest = -np.sqrt(pairs.largest) if pairs.code == 1 else -0.5 * pairs.largest
    return np.asarray((peak > -np.inf) & (peak <= 0.99 * lowest))

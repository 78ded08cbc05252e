"""The problem in the programs' words: one working precision, blocks of queries, numbers that cannot overflow."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.kernels import LAPLACE
from regard.core.problem import Problem, allowed
from regard.core.scores import Additive, DotProduct, Gaussian, Nearest, Radial, at_limit, far_below, power_and_stretch
from regard.core.state import Partial
from regard.programs.cpu.lanes import DEEPEST, LOG2E, block_lanes
from regard.programs.cpu.pairs import ADDITIVE, DOT, METRIC, RADIAL, Pairs

# Fewer queries than this do not fill the lanes of the fused program.
FEWEST_FUSED = 32


class GaussianWords(NamedTuple):
    """A Gaussian score as the fused program takes it."""

    w: Array | None  # (d,) what differences are multiplied by
    c: Any  # what u² is multiplied by to give a power of two
    cap: Any  # u² from which on a weight is zero


def gaussian_words(score: Gaussian, width: int, dtype: np.dtype[Any]) -> GaussianWords:
    """One moderate w for all features goes into the exponent; otherwise differences are scaled one by one."""
    single = score.w.ndim == 0 and 1e-6 < score.w < 1e6
    w = None if single else frozen(np.broadcast_to(score.w, width).astype(dtype))
    c = dtype.type(-0.5 * LOG2E * (score.w**2 if single else 1.0))
    return GaussianWords(w, c, dtype.type(DEEPEST[dtype.itemsize] / -float(c)))


def squares_fit(w: float, largest: float, width: int, dtype: np.dtype[Any]) -> bool:
    """Whether no u² of the fused program can overflow, given the largest w and the largest size of a coordinate."""
    reach = 2.0 * largest * w
    return width * reach * reach < 0.25 * float(np.finfo(dtype).max)


def least_mass(keys: int, width: int, dtype: np.dtype[Any]) -> float:
    """A mass so far above what the cut-off can take that the loss is below rounding, and no query with it far."""
    cut = 2.0 ** (30.0 - DEEPEST[4]) if dtype.itemsize == 4 else 2.0 ** (60.0 - DEEPEST[8])
    return float(keys * max(cut, exp(-far_below(keys, width))))


def working(problem: Problem) -> Problem:
    """The problem in the precision it is computed in: float32 only where float32 can hold what happens on the way.

    Hard attention is discontinuous and products with δ cancel in a fit: both are in float64, but for rough fits.
    """
    if problem.query.dtype == np.float64:
        return problem
    score = problem.score
    single = not (isinstance(score, Nearest) or (problem.degree and not problem.rough))
    if isinstance(score, Radial):
        w = np.abs(score.w[score.w != 0.0])
        single = single and bool(((w > 1e-18) & (w < 1e18)).all())
    elif problem.query.size and problem.key.size:
        bounds = (np.abs(part.astype(np.float64)).max(axis=0) for part in (problem.query, problem.key))
        single = score.bound(*bounds) < 1e30
    return problem if single else doubled(problem)


def doubled(problem: Problem) -> Problem:
    """The problem in float64."""
    cast = {name: getattr(problem, name).astype(np.float64) for name in ("query", "key", "columns")}
    return replace(problem, **cast, rough=False)


def pairs_of(problem: Problem, height: Array | None = None) -> Pairs:
    """Everything about the pairs of a problem, as read-only arrays; scores relative to ``height`` (Q, 2) if given."""
    score, dtype = problem.score, problem.query.dtype
    real, largest = dtype.type, np.finfo(dtype).max
    query, key, code, metric, stretch = problem.query, problem.key, 0, np.empty((0, 0)), 1.0
    hard, compact = isinstance(score, Nearest), False
    if isinstance(score, Radial):
        form, code, compact = RADIAL, score.kernel.code, score.kernel.compact
        w = score.w
        if w.ndim == 2:
            # Without a turn there is nothing to project; gradients still are those of a matrix.
            straight = np.array_equal(w, np.eye(key.shape[1]))
            form, metric, w = RADIAL if straight else METRIC, w, np.ones(key.shape[1])
        elif w.ndim == 0:
            # Squares of differences are summed unrounded as far as they are, so that ties stay ties.
            power, stretch = power_and_stretch(w)
            w = np.full(key.shape[1], power)
    elif isinstance(score, DotProduct):
        form, w = DOT, np.full(key.shape[1], score.w / np.sqrt(max(key.shape[1], 1)))
    elif isinstance(score, Additive):
        form, w = ADDITIVE, score.w_v
        query, key = query @ score.W_q.T, key @ score.W_k.T
    else:
        raise TypeError(f"no compiled program knows the score {type(score).__name__}")
    lanes = block_lanes(dtype.itemsize)
    whole = np.dtype(f"i{dtype.itemsize}")
    none, nothing = np.empty(0), np.empty((0, 0))
    mask, bias = problem.mask, nothing
    if mask is not None and mask.dtype != bool:
        if not hard:
            bias = np.where(allowed(mask), np.clip(mask, -largest, largest), -np.inf)
        # Hard attention goes by distance alone: of an additive mask only −inf counts.
        mask = allowed(mask) if hard else None
    weight = problem.sample_weight
    # Weights too far apart for this precision go into the scores as logarithms.
    even = weight is None or weight.min(initial=1.0) > (2.0**-60 if dtype.itemsize == 4 else 2.0**-499)
    direct = compact and even and not bias.size and not hard
    labels = lane_labels(problem)
    pairs = Pairs(
        form=form,
        code=code,
        direct=direct,
        hard=hard,
        rows=len(query),
        queries=packed(query.astype(dtype, copy=False), lanes),
        keys=np.ascontiguousarray(key, dtype),
        w=np.clip(w, -largest, largest).astype(dtype),
        stretch=real(stretch),
        metric=np.ascontiguousarray(np.clip(metric, -largest, largest), dtype),
        # Only float64 goes deep: the programs are compiled without it for float32.
        height=None if dtype == np.float32 else np.empty((0, 0, 0)) if height is None else packed(height, lanes),
        scale=packed(_row_scale(problem), lanes) if hard else nothing.astype(dtype),
        key_shift=(none if problem.log_weight is None or direct or hard else problem.log_weight).astype(dtype),
        key_scale=(weight if weight is not None and (direct or hard) else none).astype(dtype),
        mask=np.empty((0, 0), np.uint8) if mask is None else mask.view(np.uint8),
        bias=np.ascontiguousarray(bias, dtype),
        query_labels=np.empty((0, 0), whole) if labels is None else packed(labels[0], lanes),
        key_labels=np.empty(0, whole) if labels is None else labels[1],
        largest=largest,
        cap=real(DEEPEST[dtype.itemsize] / LOG2E),
        log2e=real(LOG2E),
    )
    return frozen_pairs(pairs)


def frozen_pairs(pairs: Pairs) -> Pairs:
    """Read-only, contiguous views: the programs are then compiled once, whatever the caller's arrays allow."""
    return Pairs._make(frozen(part) if isinstance(part, np.ndarray) else part for part in pairs)


def frozen(array: Array) -> Array:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def packed(rows: Array, lanes: int) -> Array:
    """(Q, …) → (blocks, …, lanes); the last block is filled up with copies of the last row."""
    blocks = -(-len(rows) // lanes)
    take = np.minimum(np.arange(blocks * lanes), len(rows) - 1)
    return np.ascontiguousarray(np.moveaxis(rows[take].reshape(blocks, lanes, *rows.shape[1:]), 1, -1))


def unpacked(blocks: Array, rows: int) -> Array:
    """(blocks, …, lanes) → (Q, …)."""
    count, *columns, lanes = blocks.shape
    return np.ascontiguousarray(np.moveaxis(blocks, -1, 1).reshape(count * lanes, *columns)[:rows])


def restored(rows: Array, order: Array) -> Array:
    """Rows that stand in this order, in the caller's again."""
    out = np.empty_like(rows)
    out[order] = rows
    return out


def lane_labels(problem: Problem) -> tuple[Array, Array] | None:
    """Labels renumbered to fit the lanes; only equality counts."""
    if problem.exclude is None:
        return None
    whole = np.dtype(f"i{problem.query.dtype.itemsize}")
    codes = np.unique(np.concatenate(problem.exclude), return_inverse=True)[1].astype(whole)
    return codes[: len(problem.query)], codes[len(problem.query) :]


def _row_scale(problem: Problem) -> Array:
    """A power of two per query that keeps the squares of its distances clear of overflow and underflow."""
    assert isinstance(problem.score, Radial)
    w = np.abs(problem.score.w)
    reach = np.abs(problem.query) + np.abs(problem.key).max(axis=0, initial=0.0)  # (Q, d)
    bound = (reach @ w if w.ndim == 2 else reach * w).max(axis=1, initial=0.0)
    return np.ldexp(1.0, np.minimum(-np.frexp(np.where(bound > 0.0, bound, 1.0))[1], 1000))


def in_score_units(partial: Partial, pairs: Pairs) -> Partial:
    """Hard peaks as distances, so that states of different calls can be merged."""
    if not pairs.hard:
        return partial
    return partial._replace(peak=-np.sqrt(-partial.peak) / unpacked(pairs.scale, pairs.rows))


def overflowed(pairs: Pairs, peak: Array) -> Array | None:
    """Queries so far from every key that their scores cannot tell keys apart."""
    if pairs.hard or pairs.form not in (RADIAL, METRIC) or pairs.direct or pairs.code > LAPLACE:
        return None
    return at_limit(peak, float(pairs.largest), pairs.code == LAPLACE, bool(pairs.bias.size))

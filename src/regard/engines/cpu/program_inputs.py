"""Problems as inputs of the compiled programs: one working precision, queries in blocks, no overflow."""

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
from regard.programs.cpu.lanes import CUTOFF_EXPONENT, LOG2E, block_lanes
from regard.programs.cpu.pair_scores import ADDITIVE, DOT, METRIC, RADIAL, PairInputs

# Fewer queries do not fill the lanes of the fused program.
MIN_QUERIES_TO_FUSE = 32


class GaussianInputs(NamedTuple):
    """A Gaussian score as the fused program takes it."""

    w: Array | None  # (d,) factors of the differences
    c: Any  # weight = 2^(c·u²)
    cutoff: Any  # weights at u² ≥ cutoff are zero


def gaussian_inputs(score: Gaussian, width: int, dtype: np.dtype[Any]) -> GaussianInputs:
    """A moderate scalar w goes into the exponent; otherwise differences are scaled feature by feature."""
    single = score.w.ndim == 0 and 1e-6 < score.w < 1e6
    w = None if single else read_only(np.broadcast_to(score.w, width).astype(dtype))
    c = dtype.type(-0.5 * LOG2E * (score.w**2 if single else 1.0))
    return GaussianInputs(w, c, dtype.type(CUTOFF_EXPONENT[dtype.itemsize] / -float(c)))


def squares_fit(w: float, largest: float, width: int, dtype: np.dtype[Any]) -> bool:
    """Whether no u² of the fused program can overflow, given the largest w and the largest absolute coordinate."""
    extent = 2.0 * largest * w
    return width * extent * extent < 0.25 * float(np.finfo(dtype).max)


def least_mass(keys: int, width: int, dtype: np.dtype[Any]) -> float:
    """A mass so far above what the cutoff removes that the loss is below rounding, and that no such query is far."""
    cutoff_mass = 2.0 ** (30.0 - CUTOFF_EXPONENT[4]) if dtype.itemsize == 4 else 2.0 ** (60.0 - CUTOFF_EXPONENT[8])
    return float(keys * max(cutoff_mass, exp(-far_below(keys, width))))


def in_working_precision(problem: Problem) -> Problem:
    """The problem in the precision it is computed in: float32 only if all intermediate results are representable.

    Hard attention is discontinuous, and products with δ cancel in a fit: both use float64, except for rough fits.
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
    return problem if single else in_float64(problem)


def in_float64(problem: Problem) -> Problem:
    """The problem in float64."""
    cast = {name: getattr(problem, name).astype(np.float64) for name in ("query", "key", "columns")}
    return replace(problem, **cast, rough=False)


def pair_inputs(problem: Problem, base_score: Array | None = None) -> PairInputs:
    """The program inputs of a problem, as read-only arrays; scores relative to ``base_score`` (Q, 2) if given."""
    score, dtype = problem.score, problem.query.dtype
    real, largest = dtype.type, np.finfo(dtype).max
    query, key, code, metric, stretch = problem.query, problem.key, 0, np.empty((0, 0)), 1.0
    hard, compact = isinstance(score, Nearest), False
    if isinstance(score, Radial):
        form, code, compact = RADIAL, score.kernel.code, score.kernel.compact
        w = score.w
        if w.ndim == 2:
            # The identity needs no projection; gradients are still those of a matrix.
            straight = np.array_equal(w, np.eye(key.shape[1]))
            form, metric, w = RADIAL if straight else METRIC, w, np.ones(key.shape[1])
        elif w.ndim == 0:
            # Differences are scaled by a power of two only, without rounding, so that ties are exact.
            power, stretch = power_and_stretch(w)
            w = np.full(key.shape[1], power)
    elif isinstance(score, DotProduct):
        form, w = DOT, np.full(key.shape[1], score.w / np.sqrt(max(key.shape[1], 1)))
    elif isinstance(score, Additive):
        form, w = ADDITIVE, score.w_v
        query, key = query @ score.W_q.T, key @ score.W_k.T
    else:
        raise TypeError(f"score must be a radial score, DotProduct or Additive, got {type(score).__name__}")
    lanes = block_lanes(dtype.itemsize)
    whole = np.dtype(f"i{dtype.itemsize}")
    none, nothing = np.empty(0), np.empty((0, 0))
    mask, bias = problem.mask, nothing
    if mask is not None and mask.dtype != bool:
        if not hard:
            bias = np.where(allowed(mask), np.clip(mask, -largest, largest), -np.inf)
        # Hard attention depends on distances alone: of an additive mask only −inf counts.
        mask = allowed(mask) if hard else None
    weight = problem.sample_weight
    # Weights too small for this precision are added to the scores as logarithms.
    even = weight is None or weight.min(initial=1.0) > (2.0**-60 if dtype.itemsize == 4 else 2.0**-499)
    direct = compact and even and not bias.size and not hard
    labels = lane_labels(problem)
    pairs = PairInputs(
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
        # Base scores are for float64 only: the float32 programs are compiled without them.
        base_score=None
        if dtype == np.float32
        else np.empty((0, 0, 0))
        if base_score is None
        else packed(base_score, lanes),
        scale=packed(_row_scale(problem), lanes) if hard else nothing.astype(dtype),
        key_bias=(none if problem.log_weight is None or direct or hard else problem.log_weight).astype(dtype),
        key_weight=(weight if weight is not None and (direct or hard) else none).astype(dtype),
        mask=np.empty((0, 0), np.uint8) if mask is None else mask.view(np.uint8),
        bias=np.ascontiguousarray(bias, dtype),
        query_labels=np.empty((0, 0), whole) if labels is None else packed(labels[0], lanes),
        key_labels=np.empty(0, whole) if labels is None else labels[1],
        largest=largest,
        cutoff=real(CUTOFF_EXPONENT[dtype.itemsize] / LOG2E),
        log2e=real(LOG2E),
    )
    return read_only_inputs(pairs)


def read_only_inputs(pairs: PairInputs) -> PairInputs:
    """Read-only contiguous views, so that programs are compiled once whatever the flags of the caller's arrays."""
    return PairInputs._make(read_only(part) if isinstance(part, np.ndarray) else part for part in pairs)


def read_only(array: Array) -> Array:
    """A read-only contiguous view of an array."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def packed(rows: Array, lanes: int) -> Array:
    """(Q, …) → (blocks, …, lanes); the last block is padded with copies of the last row."""
    blocks = -(-len(rows) // lanes)
    take = np.minimum(np.arange(blocks * lanes), len(rows) - 1)
    return np.ascontiguousarray(np.moveaxis(rows[take].reshape(blocks, lanes, *rows.shape[1:]), 1, -1))


def unpacked(blocks: Array, rows: int) -> Array:
    """(blocks, …, lanes) → (Q, …), without the padding."""
    count, *columns, lanes = blocks.shape
    return np.ascontiguousarray(np.moveaxis(blocks, -1, 1).reshape(count * lanes, *columns)[:rows])


def unsorted(rows: Array, order: Array) -> Array:
    """Rows sorted by ``order``, in their original order again."""
    out = np.empty_like(rows)
    out[order] = rows
    return out


def lane_labels(problem: Problem) -> tuple[Array, Array] | None:
    """Labels renumbered to integers as wide as the floats; only equality matters. None if nothing is excluded."""
    if problem.exclude is None:
        return None
    whole = np.dtype(f"i{problem.query.dtype.itemsize}")
    codes = np.unique(np.concatenate(problem.exclude), return_inverse=True)[1].astype(whole)
    return codes[: len(problem.query)], codes[len(problem.query) :]


def _row_scale(problem: Problem) -> Array:
    """A power of two per query that keeps the squares of its distances clear of overflow and underflow."""
    assert isinstance(problem.score, Radial)
    w = np.abs(problem.score.w)
    extent = np.abs(problem.query) + np.abs(problem.key).max(axis=0, initial=0.0)  # (Q, d)
    bound = (extent @ w if w.ndim == 2 else extent * w).max(axis=1, initial=0.0)
    return np.ldexp(1.0, np.minimum(-np.frexp(np.where(bound > 0.0, bound, 1.0))[1], 1000))


def hard_peaks_as_distances(partial: Partial, pairs: PairInputs) -> Partial:
    """The state with hard peaks as distances, so that states of different calls can be merged."""
    if not pairs.hard:
        return partial
    return partial._replace(peak=-np.sqrt(-partial.peak) / unpacked(pairs.scale, pairs.rows))


def overflowed(pairs: PairInputs, peak: Array) -> Array | None:
    """Queries so far from every key that all their scores overflow; None if that cannot happen."""
    if pairs.hard or pairs.form not in (RADIAL, METRIC) or pairs.direct or pairs.code > LAPLACE:
        return None
    return at_limit(peak, float(pairs.largest), pairs.code == LAPLACE, bool(pairs.bias.size))

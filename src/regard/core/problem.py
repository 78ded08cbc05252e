"""The Problem: the whole input of an engine, validated once, and the shapes of its results.

An engine averages *columns* (functions of the value: v, v², one-hot, …; the constant 1 is the mass and always
there) and, at degree 1 or 2, their products with δ = key − query. Its moments lie flat in one axis:

    [columns: P] [δ: d] [columns·δ: P·d] [δδᵀ, upper triangle: d(d+1)/2]
     degree 0     ------- degree 1 -----  ---------- degree 2 ----------
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from regard.core.arrays import Array, is_chunked, is_tensor
from regard.core.bounds import LARGEST, Bounds, bounds_of, checked_range, require_finite
from regard.core.labels import own_rows
from regard.core.scores import Additive, Radial, Score
from regard.core.state import Partial

# Number of pairs up to which every engine takes less than a millisecond or so, and the range of the data is not needed.
MAX_PAIRS_UNMEASURED = 1 << 20


@dataclass(frozen=True)
class Sketch:
    """What the planner decides by: sizes, kinds and the range of the data, never the data."""

    queries: int
    keys: int
    width: int
    columns: int
    dtype: np.dtype[Any]
    score: Score
    degree: int = 0
    masked: bool = False
    weighted: bool = False
    excluding: bool = False
    tol: float = 0.0
    # Range of queries and keys along the directions of w, in bandwidths; (): not known
    span: tuple[float, ...] = ()
    # Why labels exclude more than each query's own row, in words; "" if they do not
    others: str = ""
    lightest: float = 1.0  # the smallest sample weight relative to the largest
    batch: tuple[int, ...] = ()  # leading batch axes of tensors
    device: str = ""  # device of tensors

    @property
    def pairs(self) -> int:
        return self.queries * self.keys


@dataclass(frozen=True, eq=False)
class Problem:
    """Queries, keys, columns and the score between them; arrays are finite, C-ordered and of one dtype."""

    query: Array  # (Q, d)
    key: Array  # (K, d)
    columns: Array  # (K, P)
    score: Score
    degree: int = 0  # 0, 1 or 2: which products with δ are averaged too
    mask: Array | None = None  # (Q, K) boolean, True = may attend; or additive float
    sample_weight: Array | None = None  # (K,) float64 in (0, 1], relative to a power of two
    log_weight: Array | None = None  # (K,) its logarithm, precise also if the weight itself would underflow
    weight_shift: float = 0.0  # log of that power of two, to be added to logsumexp
    exclude: tuple[Array, Array] | None = None  # integer labels (Q,), (K,); equal labels may not attend
    tol: float = 0.0
    used_keys: Array | None = None  # (K,) indices of the given keys that any query may attend to; None: all
    rough: bool = False  # moments of degree 2 may be accumulated in single precision: enough for a search

    def sketch(self) -> Sketch:
        measured = self.query.shape[0] * self.key.shape[0] > MAX_PAIRS_UNMEASURED
        return Sketch(
            queries=self.query.shape[0],
            keys=self.key.shape[0],
            width=self.key.shape[1],
            columns=self.columns.shape[1],
            dtype=self.query.dtype,
            score=self.score,
            degree=self.degree,
            masked=self.mask is not None,
            weighted=self.sample_weight is not None,
            excluding=self.exclude is not None,
            tol=self.tol,
            span=self._span if measured else (),
            others=self._others,
            lightest=1.0 if self.sample_weight is None else float(self.sample_weight.min(initial=1.0)),
        )

    @cached_property
    def largest(self) -> float:
        """Largest absolute coordinate of a query or a key; NaN if one is NaN."""
        ends = [float(end()) for part in (self.query, self.key) if part.size for end in (part.min, part.max)]
        return float("nan") if any(end != end for end in ends) else max(map(abs, ends), default=0.0)

    @cached_property
    def query_bounds(self) -> Bounds:
        return bounds_of(self.query)

    @cached_property
    def key_bounds(self) -> Bounds:
        return bounds_of(self.key)

    @cached_property
    def column_bounds(self) -> Bounds:
        return bounds_of(self.columns)

    @cached_property
    def _span(self) -> tuple[float, ...]:
        if not isinstance(self.score, Radial) or not self.query.size or not self.key.size:
            return ()
        w, sides = self.score.w, [self.query_bounds, self.key_bounds]
        with np.errstate(over="ignore", invalid="ignore"):
            if w.ndim == 2:
                sides = [bounds_of(part.astype(np.float64) @ w) for part in (self.query, self.key)]
            span = np.maximum(*(side.high for side in sides)) - np.minimum(*(side.low for side in sides))
            span = span if w.ndim == 2 else span * np.abs(w)
        return tuple(np.nan_to_num(span, nan=np.inf).tolist())

    @cached_property
    def _others(self) -> str:
        own = "" if self.exclude is None else own_rows(self.query, self.key, self.exclude)
        return own if isinstance(own, str) else ""

    def take(self, rows: Array) -> Problem:
        """The same problem for some of the queries only."""
        mask = None if self.mask is None else self.mask[rows]
        exclude = None if self.exclude is None else (self.exclude[0][rows], self.exclude[1])
        return replace(self, query=self.query[rows], mask=mask, exclude=exclude)


class Outcome(NamedTuple):
    """What ``engine.moments`` returns: the state, and the queries whose result is not certified (None: all are)."""

    partial: Partial
    uncertified: Array | None = None  # (Q,) boolean


class Adjoint(NamedTuple):
    """The cotangent of an answer, factored so that one scalar per pair is streamed.

    With x = (1, δ) (just 1 at degree 0) the cotangent of a score is weight·((left·x)·(value·v − right·x) + plain·x).
    """

    left: Array  # (Q, 1) or (Q, 1 + d)
    value: Array  # (Q, P)
    right: Array  # (Q, 1) or (Q, 1 + d)
    plain: Array | None = None  # (Q, 1) or (Q, 1 + d)

    def take(self, rows: Any) -> Adjoint:
        """The same for some of the queries only."""
        return Adjoint(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]

    def astype(self, dtype: DTypeLike) -> Adjoint:
        return Adjoint(*(None if part is None else part.astype(dtype) for part in self))  # type: ignore[arg-type]


class Gradients(NamedTuple):
    """Gradients through the scores; None if not asked for. For ``Additive``, w is (W_q, W_k, w_v)."""

    w: Any = None
    query: Array | None = None  # (Q, d)
    key: Array | None = None  # (K, d)
    value: Array | None = None  # (K, P)


class Moments(NamedTuple):
    """The parts of the flat moment axis."""

    value: Array  # (…, P)
    delta: Array | None  # (…, d)
    value_delta: Array | None  # (…, P, d)
    delta_delta: Array | None  # (…, d, d)


def moment_count(columns: int, width: int, degree: int) -> int:
    """Length of the moment axis.

    >>> [moment_count(1, 2, degree) for degree in (0, 1, 2)]
    [1, 5, 8]
    """
    first = width + columns * width if degree >= 1 else 0
    return columns + first + (width * (width + 1) // 2 if degree >= 2 else 0)


def split_moments(moments: Array, columns: int, width: int, degree: int) -> Moments:
    """The parts of the flat moment axis (…, M)."""
    value, rest = moments[..., :columns], moments[..., columns:]
    if degree == 0:
        return Moments(value, None, None, None)
    delta, rest = rest[..., :width], rest[..., width:]
    value_delta = rest[..., : columns * width].reshape(*moments.shape[:-1], columns, width)
    if degree == 1:
        return Moments(value, delta, value_delta, None)
    return Moments(value, delta, value_delta, rest[..., columns * width :][..., _places(width)])


@lru_cache
def _places(width: int) -> Array:
    """Index (d, d) of each entry of a symmetric matrix in its flattened upper triangle."""
    place = np.empty((width, width), np.intp)
    a, b = np.triu_indices(width)
    place[a, b] = place[b, a] = np.arange(len(a))
    return place


def mean_adjoint(partial: Partial, output: Array, grad_output: Array, grad_logsumexp: Array | None = None) -> Adjoint:
    """Adjoint of the plain mean (degree 0) and of logsumexp: output (Q, P), grad_output (Q, P), grad_logsumexp (Q,)."""
    right = (grad_output * output).sum(axis=1)
    if grad_logsumexp is not None:
        right = right - grad_logsumexp
    return Adjoint(np.ones((partial.mass.shape[0], 1)), grad_output, right[:, None])


def matrix(name: str, given: ArrayLike) -> Array:
    """Real numbers as an array (n, d); one axis means one feature. Finiteness is not checked."""
    if is_chunked(given):
        raise TypeError(
            f"{name} is a dask collection, but this function needs data in memory; call {name}.compute() first "
            f"(regard.pool and the estimators' fit and predict take dask collections)"
        )
    array = np.asanyarray(given)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; pass a plain array and the mask as mask=")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(f"{name} must have shape (rows, features), got {np.shape(given)}")
    return array


def working_dtype(*arrays: Array) -> np.dtype[Any]:
    """float32 when all are at most float32, else float64; integers count as float64."""
    widest: DTypeLike = np.float32
    for array in arrays:
        if array.dtype.kind != "f" or array.dtype.itemsize > 4:
            widest = np.float64
    return np.dtype(widest)


def build(
    query: Array,
    key: Array,
    columns: Array,
    score: Score,
    *,
    degree: int = 0,
    mask: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    exclude: tuple[ArrayLike, ArrayLike] | None = None,
    tol: float | None = None,
) -> Problem:
    """Validate the inputs and return a Problem; keys that no query may attend to are dropped.

    Raises ValueError or TypeError naming the argument, what was given and what is accepted.
    """
    if not isinstance(score, Score):
        raise TypeError(f"score must be a score of regard.scores such as Gaussian(w=1.0), got {score!r}")
    if any(is_tensor(part) for part in vars(score).values()):
        raise TypeError(
            f"the parameters of {type(score).__name__} are torch tensors but query is an array; pass query, key and "
            "value as tensors, or the parameters as numbers or arrays (tensor.detach().numpy())"
        )
    n_query, n_key = query.shape[0], key.shape[0]
    score.check(query.shape[1], key.shape[1])
    if columns.shape[0] != n_key:
        raise ValueError(f"value has {columns.shape[0]} rows but key has {n_key}")
    if degree not in (0, 1, 2) or (degree and isinstance(score, Additive)):
        raise ValueError(f"degree must be 0, 1 or 2, and 0 for an Additive score, got {degree!r}")
    dtype = working_dtype(query, key, columns)
    tol = checked_tol(tol, default=1e-9 if dtype == np.float64 else 1e-5)

    mask_array = _checked_mask(mask, n_query, n_key)
    used = None if mask_array is None else allowed(mask_array).any(axis=0)
    weight = checked_weight(sample_weight, n_key, of="key", all_zero=n_key == 0)
    if weight is not None:
        weight = weight.astype(np.float64)
        used = weight > 0.0 if used is None else used & (weight > 0.0)
    labels = _checked_labels(exclude, n_query, n_key)

    used_keys = None if used is None or used.all() else np.flatnonzero(used)
    keep = slice(None) if used_keys is None else used_keys
    key, columns = key[keep], columns[keep]
    for name, array in (("query", query), ("key", key), ("value", columns)):
        # Longer floats may not fit into float64.
        if array.dtype.itemsize > 8:
            checked_range(name, array)
    relative, logs, shift = (None, None, 0.0) if weight is None else relative_weights(weight[keep])
    problem = Problem(
        query=np.ascontiguousarray(query, dtype),
        key=np.ascontiguousarray(key, dtype),
        columns=np.ascontiguousarray(columns, dtype),
        score=score,
        degree=degree,
        mask=None if mask_array is None else np.ascontiguousarray(mask_array[:, keep]),
        sample_weight=relative,
        log_weight=logs,
        weight_shift=shift,
        exclude=None if labels is None else (labels[0], np.ascontiguousarray(labels[1][keep])),
        tol=float(tol),
        used_keys=used_keys,
    )
    if not problem.largest <= LARGEST:
        require_finite("query", problem.query, problem.query_bounds)
        require_finite("key", problem.key, problem.key_bounds)
    require_finite("value", problem.columns, problem.column_bounds)
    if not isinstance(score, Radial):
        _require_scores_fit(problem)
    return problem


def checked_tol(tol: float | None, *, default: float) -> float:
    """The tolerance, or the default for None."""
    if tol is None:
        return default
    if not (isinstance(tol, Real) and 0.0 <= float(tol) < 1.0):
        raise ValueError(f"tol must be a number in [0, 1), got {tol!r}")
    return float(tol)


def relative_weights(weight: Array) -> tuple[Array, Array, float]:
    """Sample weights relative to the power of two above the largest, their logarithms, and the log of that power.

    Nothing is rounded, so weights of 1e-290 or 1e290 lose no precision. A weight below 2⁻⁵⁰⁰ of the largest is 2⁻⁵⁰⁰ in
    the first array; its logarithm is exact.

    >>> [x.round(3).tolist() for x in relative_weights(np.array([1e-300, 2e-300]))[:2]]
    [[0.335, 0.67], [-1.094, -0.401]]
    """
    mantissa, exponent = np.frexp(weight)
    top = int(exponent.max()) if len(exponent) else 0
    relative = np.ldexp(mantissa, np.maximum(exponent - top, -500))
    return relative, np.log(mantissa) + (exponent - top) * np.log(2.0), top * float(np.log(2.0))


def allowed(mask: Array) -> Array:
    """Boolean view of a mask: True where a pair may attend at all."""
    return mask if mask.dtype == bool else np.asarray(mask > -np.inf)


def _require_scores_fit(problem: Problem) -> None:
    score = problem.score
    with np.errstate(over="ignore"):
        if not score.bound(problem.query_bounds.size, problem.key_bounds.size) <= LARGEST:
            raise ValueError(f"query, key and {type(score).__name__} give scores beyond ±{LARGEST:g}; rescale them")


def _checked_mask(mask: ArrayLike | None, n_query: int, n_key: int) -> Array | None:
    if mask is None:
        return None
    array = np.asarray(mask)
    if array.dtype != bool and array.dtype.kind != "f":
        raise TypeError(
            f"mask must be boolean (True = may attend) or an additive float mask, got dtype {array.dtype}; "
            "integers are not accepted because their meaning differs between libraries"
        )
    try:
        array = np.broadcast_to(array, (n_query, n_key))
    except ValueError:
        raise ValueError(
            f"mask must broadcast to (queries, keys) = {(n_query, n_key)}, got shape {array.shape}"
        ) from None
    if array.dtype != bool and (np.isnan(array).any() or (array == np.inf).any()):
        raise ValueError("an additive mask may contain −inf, but neither NaN nor +inf")
    return array


def checked_weight(sample_weight: Any, rows: int, *, of: str = "row of X", all_zero: bool = False) -> Array | None:
    """Sample weights (rows,) in the dtype given (it says repetitions or importances), or None.

    ``of`` says in errors what has a weight; ``all_zero`` allows that none is above zero.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, np.ma.MaskedArray):
        raise TypeError("sample_weight is a masked array; use a plain array with 0 for rows that do not count")
    weight = np.asarray(sample_weight)
    if weight.dtype == object:
        try:
            weight = weight.astype(np.float64)
        except (TypeError, ValueError):
            raise TypeError("sample_weight must hold real numbers, got objects that are not numbers") from None
    if weight.dtype.kind not in "fiub":
        raise TypeError(f"sample_weight must hold real numbers, got dtype {weight.dtype}")
    if weight.shape != (rows,):
        raise ValueError(f"sample_weight must have one entry per {of}, shape ({rows},), got shape {weight.shape}")
    if not np.isfinite(weight).all() or (weight < 0).any():
        row = int(np.flatnonzero(~np.isfinite(weight) | (weight < 0))[0])
        raise ValueError(f"sample_weight must be finite and not negative, got {weight[row]} in row {row}")
    if not (all_zero or weight.any()):
        raise ValueError("all sample weights are zero")
    return np.array(weight)


def _checked_labels(
    exclude: tuple[ArrayLike, ArrayLike] | None, n_query: int, n_key: int
) -> tuple[Array, Array] | None:
    if exclude is None:
        return None
    try:
        query_labels, key_labels = (np.asarray(labels) for labels in exclude)
    except (TypeError, ValueError):
        raise TypeError("exclude must be a pair (query_labels, key_labels) of integer arrays") from None
    for name, labels, n in (("query", query_labels, n_query), ("key", key_labels, n_key)):
        if labels.dtype.kind not in "iu":
            raise TypeError(f"exclude: {name} labels must be integers, got dtype {labels.dtype}")
        if labels.shape != (n,):
            raise ValueError(f"exclude: {name} labels must have shape ({n},), got {labels.shape}")
    return np.ascontiguousarray(query_labels, np.int64), np.ascontiguousarray(key_labels, np.int64)

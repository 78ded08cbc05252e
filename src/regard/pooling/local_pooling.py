"""Local means and lines of a Problem, and their gradients: ``local_fits`` between an engine's moments and pullback."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regard.core.arrays import Array, as_numpy, like
from regard.core.local_fits import Central, LocalAdjoint, LocalFit, central, line, local_adjoint, local_fit
from regard.core.problem import Adjoint, Gradients, Problem, build, split_moments
from regard.core.scores import Radial
from regard.core.state import Partial, merge
from regard.engines.cpu.prepared import Prepared
from regard.engines.cpu.worker_threads import run_jobs, split_range
from regard.pooling.planner import engine_of_limits
from regard.pooling.runner import available_threads, run_moments, run_pullback, small_matrices

# Rounding error of a line's answer, in units of ε, from which on the line is fitted again from better moments.
MAX_ROUNDING_ERROR = 1e3
# Queries whose lines are fitted together: with fewer, threads wait for the interpreter.
FITTED_ROWS = 2048
# Columns of products held in memory at once when that is done.
COLUMNS_IN_MEMORY = 16


class LocalGradients(NamedTuple):
    """Gradients of the outputs; None if not asked for."""

    w: Array | None
    query: Array | None  # (Q, d)
    log_ridge: float


@dataclass(frozen=True, eq=False)
class LocalPooling:
    """Local fits of one Problem, and what their gradients need."""

    problem: Problem
    ridge: float
    engine: str | Prepared
    partial: Partial
    fit: LocalFit
    settled: Array  # (Q,)  queries whose output does not depend on w: empty rows, and those at the softmax limit
    sloped: Array | None = None  # (d,) boolean: features in which lines have slopes; None: all

    def gradients(self, grad_output: Array, want: frozenset[str], leverage: Array | None = None) -> LocalGradients:
        """Gradients of Σ grad_output·output, and of Σ leverage·left₀/mass if given, w.r.t. ``want`` ⊆ {w, query}.

        grad_output is (Q, P); settled rows count as zero. Scores are radial. left₀/mass is the leverage of a row that
        is one of its own keys, at score 0; its gradient is for ridge = 0.
        """
        back = self.adjoint(grad_output)
        adjoint, score = back.adjoint, self.problem.score
        assert isinstance(score, Radial)
        if leverage is not None:
            mass = np.where(self.partial.mass > 0.0, self.partial.mass, 1.0)
            own = np.where(self.settled, 0.0, leverage * np.exp(-self.partial.peak) / mass)
            adjoint = adjoint._replace(right=adjoint.right + like(own[:, None], self.fit.left) * self.fit.left)
        found = score_gradients(self.problem, self.engine, self.partial, self.settled, adjoint, want)
        w = None if found.w is None else found.w + shaped_like_w(back.w, score.w)
        query = None if found.query is None else found.query + back.query
        return LocalGradients(w, query, back.log_ridge)

    def adjoint(self, grad_output: Array) -> LocalAdjoint:
        """The adjoint of Σ grad_output·output with respect to the scores, and gradients that do not go through them."""
        score, width = self.problem.score, self.problem.key.shape[1]
        assert isinstance(score, Radial)
        W = score.w if score.w.ndim == 2 else np.diag(np.broadcast_to(score.w, width))
        grad = np.where(self.settled[:, None], 0.0, grad_output)
        if self.sloped is None:
            return local_adjoint(self.fit, grad, W, self.ridge)
        found = local_adjoint(self.fit, grad, W * self.sloped[:, None], self.ridge)
        return found._replace(w=found.w * self.sloped[:, None])


def score_gradients(
    problem: Problem, engine: str | Prepared, partial: Partial, settled: Array, adjoint: Adjoint, want: frozenset[str]
) -> Gradients:
    """Gradients through the scores of the queries that are not settled (Q,); those of the others are 0.

    The peak of a query at the softmax limit is not a score.
    """
    # A prepared problem is for all queries, and gives those without mass no weight.
    if isinstance(engine, Prepared) or not settled.any():
        return run_pullback(problem, engine, partial, adjoint, want)
    rows = np.flatnonzero(~settled)
    if not rows.size:
        zeros = {"w": np.zeros_like(problem.score.w), "query": np.zeros(problem.query.shape)}  # type: ignore[attr-defined]
        return Gradients(**{name: zeros[name] for name in want})
    found = run_pullback(problem.take(rows), engine, partial.take(rows), adjoint.take(rows), want)
    if found.query is None:
        return found
    query = np.zeros(problem.query.shape)
    query[rows] = found.query
    return found._replace(query=query)


def fit_local(
    problem: Problem,
    degree: int = 0,
    ridge: float = 0.0,
    engine: str | Prepared = "auto",
    own: Partial | None = None,
    sloped: Array | None = None,
) -> LocalPooling:
    """Local means (degree 0) or lines (degree 1) of every query of a problem; its score is radial.

    ``own`` is merged into the moments: copies of the query among its keys. If ``engine`` is a prepared problem, only
    gradients of w are available. ``sloped`` (d,): features in which lines have slopes; None: all.

    *Empty rows*: output 0, settled. *Cost*: O(Q·K·(d + P)), at degree 1 O(Q·K·d·(d + P)); memory O(Q·d·(d + P)).
    """
    score = problem.score
    assert isinstance(score, Radial)
    problem = replace(problem, degree=2 * degree)
    partial, limit = run_moments(problem, engine)
    if own is not None:
        partial = merge(partial._replace(moments=as_numpy(partial.moments)), own)
    columns, width = problem.columns.shape[1], problem.key.shape[1]
    fit = local_fit(partial, columns, width, degree, score.w, ridge, sloped)
    return LocalPooling(problem, ridge, engine, partial, fit, limit | (partial.mass <= 0.0), sloped)


def pool_local(
    query: Array,
    key: Array,
    value: Array,
    score: Radial,
    *,
    degree: int = 0,
    ridge: float = 0.0,
    sample_weight: ArrayLike | None = None,
    engine: str = "auto",
    tol: float | None = None,
    sloped: Array | None = None,
) -> tuple[Array, Array, LocalPooling]:
    """Outputs (Q, P) of local means or lines in the units of value (K, P), a scale (P,), and the fits, in float64.

    Values are centred and divided by the scale before the fit, because lines lose digits under offsets. *Empty rows*:
    output 0.
    """
    query, key, value = (np.asarray(part, np.float64) for part in (query, key, value))
    centre, scale = centre_and_scale(value, sample_weight)
    problem = build(query, key, (value - centre) / scale, score, sample_weight=sample_weight, tol=tol)
    local = _refitted(fit_local(problem, degree, ridge, engine, sloped=sloped))
    return np.where(local.partial.mass[:, None] > 0.0, centre + scale * local.fit.output, 0.0), scale, local


class LocalOutput(NamedTuple):
    """Outputs of local means or lines, and the queries without a key in reach."""

    output: Array  # (Q, P)
    empty: Array  # (Q,) boolean


def local_output(query: Array, key: Array, value: Array, score: Radial, **options: Any) -> LocalOutput:
    """The outputs of ``pool_local`` alone: lines are fitted in blocks of queries, on several threads.

    *Empty rows*: output 0. *Cost*: as ``pool_local``; memory O(Q·d·(d + P)) for moments and a block of fits.
    """
    degree, engine = options.get("degree", 0), options.get("engine", "auto")
    if not degree or engine == "fused":
        output, _, local = pool_local(query, key, value, score, **options)
        return LocalOutput(output, local.partial.mass <= 0.0)
    ridge, sloped, weight = options.get("ridge", 0.0), options.get("sloped"), options.get("sample_weight")
    query, key, value = (np.asarray(part, np.float64) for part in (query, key, value))
    centre, scale = centre_and_scale(value, weight)
    problem = build(query, key, (value - centre) / scale, score, degree=2, sample_weight=weight, tol=options.get("tol"))
    partial, limit = run_moments(problem, engine)
    settled = limit | (partial.mass <= 0.0)

    def fitted(rows: Any) -> LocalPooling:
        part, columns = partial.take(rows), problem.columns.shape[1]
        fit = local_fit(part, columns, problem.key.shape[1], 1, score.w, ridge, sloped)
        return LocalPooling(problem.take(rows), ridge, engine, part, fit, settled[rows], sloped)

    output, again = np.zeros(partial.moments.shape[:1] + scale.shape), np.zeros(len(settled), bool)

    def run(rows: slice) -> None:
        local = fitted(rows)
        output[rows] = local.fit.output
        again[rows][_extrapolate_far(local)] = True

    blocks = split_range(len(output), FITTED_ROWS)
    with small_matrices() if len(blocks) > 1 else nullcontext():
        run_jobs(run, blocks, available_threads())
    rows = np.flatnonzero(again)
    if rows.size:
        output[rows] = _refitted(fitted(rows)).fit.output
    empty = np.asarray(partial.mass <= 0.0)
    return LocalOutput(np.where(empty[:, None], 0.0, centre + scale * output), empty)


def _extrapolate_far(local: LocalPooling) -> Array:
    """Indices of the lines with so large a rounding error that moments about the mean of all keys are better."""
    fit, problem = local.fit, local.problem
    middle = problem.key.mean(axis=0)
    variance = np.diagonal(fit.covariance, axis1=1, axis2=2)
    reach = np.abs(fit.slope).max(axis=1, initial=0.0) * np.abs(fit.mean)  # (Q, d), of answers of size 1
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        now, then = (
            np.where(variance > 0.0, part**2 * reach / variance, 0.0).max(axis=1, initial=0.0)
            for part in (fit.mean, problem.query + fit.mean - middle)
        )
    return np.flatnonzero((now > MAX_ROUNDING_ERROR) & (then < 0.1 * now) & ~local.settled)


def _refitted(local: LocalPooling) -> LocalPooling:
    """Fit lines that extrapolate far beyond their keys again, from moments about the mean of all keys.

    C = M[δδᵀ] − δ̄δ̄ᵀ cancels for such queries. *Cost*: O(K·d·(d + P)) for each of them, in blocks of columns.
    """
    fit, problem = local.fit, local.problem
    engine = local.engine
    if not problem.degree or engine == "fused" or isinstance(engine, Prepared) or not isinstance(fit.mean, np.ndarray):
        return local
    rows = _extrapolate_far(local)
    if not rows.size:
        return local
    key, middle = problem.key, problem.key.mean(axis=0)
    variance = np.diagonal(fit.covariance, axis1=1, axis2=2)
    unit = np.ldexp(1.0, np.frexp(np.abs(key - middle).max(axis=0))[1])
    means = _means_about(problem.take(rows), (key - middle) / unit, engine)
    about = central(split_moments(means, problem.columns.shape[1], key.shape[1], 2))
    mean, square = about.mean * unit - (problem.query[rows] - middle), fit.mean[rows] ** 2 + variance[rows]
    moved = Central(about.value, mean, square, about.covariance * unit[:, None] * unit, about.cross * unit)
    found = line(moved, problem.score.w, local.ridge, local.sloped)  # type: ignore[attr-defined]
    for whole, part in zip(fit, found, strict=True):
        whole[rows] = part
    return local


def _means_about(problem: Problem, x: Array, engine: str) -> Array:
    """Means of (v, x, v·x, x·x) under the weights of every query, as the moments of degree 2 are laid out."""
    columns, width = problem.columns.shape[1], x.shape[1]
    factors = np.column_stack([np.ones(len(x)), problem.columns, x])
    v, at = 1 + np.arange(columns), 1 + columns + np.arange(width)
    left = np.concatenate([v, at, np.repeat(v, width), at[np.triu_indices(width)[0]]])
    right = np.concatenate([np.zeros(columns + width, int), np.tile(at, columns), at[np.triu_indices(width)[1]]])
    means = []
    for start in range(0, len(left), COLUMNS_IN_MEMORY):
        block = slice(start, start + COLUMNS_IN_MEMORY)
        products = factors[:, left[block]] * factors[:, right[block]]
        exact = replace(problem, columns=products, degree=0, tol=0.0)
        partial = run_moments(exact, engine_of_limits(engine)).partial
        means.append(partial.moments / partial.mass[:, None])
    return np.concatenate(means, axis=1)


def centre_and_scale(value: Array, sample_weight: ArrayLike | None = None) -> tuple[Array, Array]:
    """Weighted mean of every column (P,), and the largest distance from it, 1 if all values are equal."""
    share = np.full(len(value), 1.0) if sample_weight is None else np.asarray(sample_weight, np.float64)
    share = share / share.max()
    centre = share / share.sum() @ value
    largest = np.abs(value[share > 0.0] - centre).max(axis=0, initial=0.0)
    return centre, np.where(largest > 0.0, largest, 1.0)


def shaped_like_w(grad: Array, w: Array) -> Array:
    """The gradient of a matrix W (d, r) in the shape of w: the matrix, its diagonal, or the sum of that."""
    if w.ndim == 2:
        return grad
    diagonal = np.diagonal(grad)
    return np.asarray(diagonal if w.ndim == 1 else diagonal.sum())

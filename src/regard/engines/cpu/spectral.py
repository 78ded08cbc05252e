"""Gaussian attention in up to three features by nonuniform Fourier transforms: all pairs in O(Q + K + N log N).

Values are complex strengths at the keys, 1 + i·v; their spectrum times the transform of the kernel, evaluated at the
queries, gives mass and moment at once, and powers of δ are polynomial factors of the transform (``fourier``). The error
is absolute, E ≤ truncation_error·Σ|c| + shift_error·mass, so a query is certified if

    2E ≤ tol·(mass − E)      and at degree 2 if that, through the conditioning of its local line, is below tol too.

Then |f̂ − f| ≤ tol·range(values), averages of powers of ζ = w∘δ are within tol of 1 + their size, and no gradient is
off by more than tol of the sum of the cotangents. All other queries are computed pair by pair, exactly. A query's own
key is excluded by subtracting its term before the query is certified; queries that exclude several are exact too.

Uses finufft. *Empty rows*: as in every engine, mass 0. *Memory*: O(Q + K + N).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.labels import Rows
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem, split_moments
from regard.core.state import Partial
from regard.engines.costs import require
from regard.engines.cpu import kd_passes, passes
from regard.engines.cpu.fourier import FourierGrid, Power, add_powers, fourier_grid, powers, rows_where, unit_power
from regard.engines.cpu.fourier_gradients import BackwardInputs, gradients_by_fourier
from regard.engines.cpu.program_inputs import in_float64, in_working_precision
from regard.engines.cpu.strengths import OwnKeys, ScaledValues, own_keys, real_columns, scaled_values

# For so few queries, visiting every key is cheaper than sorting the keys.
MAX_QUERIES_UNORDERED = 1 << 10


def _checked(problem: Problem) -> Problem:
    """The problem in float64, after checking that this engine takes it."""
    require("spectral", problem.sketch())
    return in_float64(problem)


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    double = _checked(problem)
    queries = len(double.query)
    if not problem.sketch().pairs:
        return passes.moments(in_working_precision(problem), step)
    state, done = passes.empty_state(double), np.zeros(queries, bool)
    grid = fourier_grid(double, double.degree)
    if grid is not None and grid.queries.any():
        rows = rows_where(grid.queries)
        mass, flat, _, certified = fourier_sums(double, grid, rows, step.threads)
        if certified.all() and len(certified) == queries:
            return Outcome(Partial(np.zeros(queries), mass.copy(), flat))
        rows = np.flatnonzero(grid.queries)[certified]
        state.peak[rows], state.mass[rows], state.moments[rows] = 0.0, mass[certified], flat[certified]
        done[rows] = True
    rest = np.flatnonzero(~done)
    part = in_working_precision(problem.take(rest))
    partial, uncertified = (passes if len(rest) <= MAX_QUERIES_UNORDERED else kd_passes).moments(part, step)
    for whole, found in zip(state[:3], partial[:3], strict=True):
        whole[rest] = found
    if uncertified is not None:
        done[rest] = ~uncertified
    return Outcome(state, ~done if uncertified is not None and uncertified.any() else None)


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    if not problem.sketch().pairs:
        return _pair_pullback(problem, step, partial, adjoint, want)
    double = _checked(problem)
    linear = adjoint.left.shape[1] > 1
    grid = fourier_grid(double, 4 if linear else 2)
    # Without moments of degree 2 the error of a local line cannot be bounded.
    if grid is None or (linear and double.degree < 2):
        return _pair_pullback(problem, step, partial, adjoint, want)
    values, key_rows = scaled_values(double), rows_where(grid.keys)
    spectra = grid.spectrum(grid.angles(double.key, key_rows), values.strengths(key_rows), step.threads)
    certified = _certified_by_state(double, grid, values, grid.error(values.total, grid.magnitude(spectra)), partial)
    rows, rest = rows_where(certified), np.flatnonzero(~certified)
    parts = []
    if certified.any():
        mass = partial.mass[rows] * np.exp(partial.peak[rows])
        inputs = BackwardInputs(double, grid, values, spectra, rows, step.threads)
        parts.append((rows, gradients_by_fourier(inputs, mass, adjoint.take(rows), want)))
    if len(rest):
        left = problem.take(rest), step, partial.take(rest), adjoint.take(rest), want
        parts.append((rest, _pair_pullback(*left)))
    total: dict[str, Any] = {}
    for name in want:
        total[name] = np.zeros(double.query.shape) if name == "query" else 0.0
        for at, part in parts:
            if name == "query":
                total[name][at] = part.query
            else:
                total[name] = total[name] + getattr(part, name)
    return Gradients(**total)


def _certified_by_state(
    problem: Problem, grid: FourierGrid, values: ScaledValues, sum_error: float, partial: Partial
) -> Array:
    """Which queries (Q,) are certified, judged by their state; ``sum_error`` bounds the error of every sum."""
    full = _unscaled_mass(partial)
    own = own_keys(problem, grid, slice(None), values.weight)
    if own is not None:
        full[own.rows] += own.weight
    return grid.queries & _certified(problem, grid, values, own, sum_error + grid.shift_error * full, partial)


def _unscaled_mass(state: Partial) -> Array:
    """Masses relative to a peak of 0."""
    return np.asarray(state.mass * np.exp(np.where(state.mass > 0.0, state.peak, 0.0)))


def _certified(
    problem: Problem, grid: FourierGrid, values: ScaledValues, own: OwnKeys | None, error: Array, state: Partial
) -> Array:
    """Which queries (n,) are certified, given bounds on the errors of their sums."""
    mass = _unscaled_mass(state)
    certified = 2.0 * error <= problem.tol * (mass - error)
    if own is not None and own.several is not None:
        certified &= ~own.several
    if problem.degree == 2:
        at = np.flatnonzero(certified)
        means = state.moments[at] / state.mass[at, None]
        value, delta, value_delta, delta_delta = split_moments(means, problem.columns.shape[1], len(grid.w), 2)
        assert delta is not None
        assert value_delta is not None
        A = np.ones((len(at), 1 + len(grid.w), 1 + len(grid.w)))
        A[:, 0, 1:] = A[:, 1:, 0] = delta * grid.w
        A[:, 1:, 1:] = delta_delta * np.outer(grid.w, grid.w)
        slopes = (value_delta - values.middle[:, None] * delta[:, None, :]) / values.unit[:, None] * grid.w
        b = np.concatenate([((value - values.middle) / values.unit)[:, None], slopes.transpose(0, 2, 1)], axis=1)
        certified[at] = _lines_certified(A, b, error[at] / (mass[at] - error[at]), problem.tol)
    return certified


def _pair_pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients pair by pair."""
    run = passes.pullback if len(problem.query) <= MAX_QUERIES_UNORDERED else kd_passes.pullback
    return passes.pullback_in_precision(run, in_working_precision(problem), step, partial, adjoint, want)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), pair by pair: the series never forms them."""
    require("spectral", problem.sketch())
    return passes.weights(in_working_precision(problem), step)


class FourierSums(NamedTuple):
    """Sums by Fourier series, relative to a peak of 0, and their accuracy."""

    mass: Array  # (n,)
    moments: Array  # (n, M)
    error: Array  # (n,) bound for the mass and, for values within ±1 and in units of ζ, for every moment
    certified: Array  # (n,) boolean


def fourier_sums(problem: Problem, grid: FourierGrid, rows: Rows, threads: int) -> FourierSums:
    """Mass and moments of the queries ``rows`` (n,) over all keys except the one each excludes."""
    values = scaled_values(problem)
    count, r, key_rows = values.columns.shape[1], len(grid.w), rows_where(grid.keys)
    spectra = grid.spectrum(grid.angles(problem.key, key_rows), values.strengths(key_rows), threads)
    wanted = [
        (power, pair)
        for power in powers(r, problem.degree)
        for pair in range(len(spectra))
        if sum(power) < 2 or not pair
    ]
    own = own_keys(problem, grid, rows, values.weight)
    found: dict[Power, Array] = {}
    full = np.zeros(0)
    multiplied = (grid.kernel(spectra[pair], power) for power, pair in wanted)
    angles = grid.angles(problem.query, rows)
    total, magnitude = values.total, grid.magnitude(spectra)
    evaluated = grid.sums(angles, multiplied, grid.tolerance(total, magnitude), threads)
    for (power, pair), sums in zip(wanted, evaluated, strict=True):
        both = real_columns(sums)[:, : count - 2 * pair]
        if not sum(power) and not pair:
            full = both[:, 0].copy()
        if own is not None:
            both[own.rows] -= own.term(power)[:, None] * values.columns[own.keys, 2 * pair : 2 * pair + 2]
        found[power] = np.hstack([found[power], both]) if pair else both
    mass = found[(0,) * r][:, 0]
    error = grid.error(total, magnitude) + grid.shift_error * np.abs(full)
    state = Partial(np.zeros(len(mass)), mass, _flat(problem, grid, values, found))
    return FourierSums(mass, state.moments, error, _certified(problem, grid, values, own, error, state))


def _flat(problem: Problem, grid: FourierGrid, values: ScaledValues, found: dict[Power, Array]) -> Array:
    """Sums in the caller's units, laid out as in ``regard.core.problem``."""
    r = len(grid.w)

    def of_columns(power: Power) -> Array:
        sums = found[power]
        return np.asarray(sums[:, 1:] * values.unit + sums[:, :1] * values.middle)

    flat = [of_columns((0,) * r)]
    if problem.degree:
        firsts = [unit_power(r, a) for a in range(r)]
        flat.append(np.stack([found[p][:, 0] / grid.w[a] for a, p in enumerate(firsts)], axis=1))
        products = np.stack([of_columns(p) / grid.w[a] for a, p in enumerate(firsts)], axis=2)
        flat.append(products.reshape(len(products), -1))
    if problem.degree == 2:
        flat += [
            found[add_powers(unit_power(r, a), unit_power(r, b))][:, :1] / (grid.w[a] * grid.w[b])
            for a in range(r)
            for b in range(a, r)
        ]
    return np.hstack(flat)


def _lines_certified(A: Array, b: Array, loss: Array, tol: float) -> Array:
    """Whether the local line through each query stays within tol of the range, given E/(mass − E) as ``loss`` (n,).

    A (n, 1 + r, 1 + r) averages xxᵀ and b (n, 1 + r, P) averages xv, for x = (1, ζ) and values within ±1, so no entry
    is larger than tr A and none moves by more than loss·(1 + tr A). The intercept β₀ of β = A⁻¹b moves by
    g·(Δb − ΔA·β) with g = A⁻¹e₀, which is at most ‖g‖₁·(1 + ‖β‖₁) times that, but for the second order: the least
    eigenvalue of A is at least det A·(r/tr A)^r.
    """
    size, trace = A.shape[1], np.trace(A, axis1=1, axis2=2)
    move = loss * (1.0 + np.abs(trace))
    least = np.linalg.det(A) * ((size - 1) / trace) ** (size - 1)
    second = size**1.5 * move / np.where(least > 0.0, least, 1.0)
    definite = (least > 0.0) & (second < 0.1)
    right = np.concatenate([np.broadcast_to(np.eye(size)[:, :1], (len(A), size, 1)), b], axis=2)
    solved = np.linalg.solve(np.where(definite[:, None, None], A, np.eye(size)), right)
    norms = np.abs(solved).sum(axis=1)  # (n, 1 + P)
    moved = norms[:, 0] * (1.0 + norms[:, 1:].max(axis=1, initial=0.0)) * move
    return np.asarray(definite & (moved <= tol * (1.0 - np.where(definite, second, 0.0)) ** 2))

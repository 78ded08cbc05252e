"""Gaussian attention in up to three features by plane waves: every query sees every key in O(Q + K + N log N).

The values ride on the keys as complex charges, 1 + i·v; their spectrum times the kernel's transform, evaluated at the
queries, is mass and moment at once, and powers of δ are polynomials in front of the transform (``waves``). The error is
absolute, E ≤ noise·Σ|c| + slip·mass, so a query is vouched for where

    2E ≤ tol·(mass − E)      and at degree 2 where that, through the conditioning of its local line, is below tol too.

Then |f̂ − f| ≤ tol·range(values), averages of powers of ζ = w∘δ are within tol of 1 + their size, and no gradient is
off by more than tol of what the cotangents add up to. All other queries are computed pair by pair, exactly. Keys with
labels of their own are excluded by taking their term away again, before the query is judged; queries that exclude
several keys are computed exactly.

By finufft. *Empty rows*: as in every engine, mass 0. *Memory*: O(Q + K + N).
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
from regard.engines.cpu import arranged, passes
from regard.engines.cpu.charges import Own, Values, own_keys, parted, values_of
from regard.engines.cpu.wave_gradients import Given, pulled
from regard.engines.cpu.waves import Power, Waves, chosen, plus, powers, unit_power, waves_for
from regard.engines.cpu.words import doubled, working

# For so few queries, seeing every key is cheaper than putting the keys in order.
UNORDERED = 1 << 10


def _doubled(problem: Problem) -> Problem:
    require("spectral", problem.sketch())
    return doubled(problem)


def moments(problem: Problem, step: Step) -> Outcome:
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    double = _doubled(problem)
    queries = len(double.query)
    if not problem.sketch().pairs:
        return passes.moments(working(problem), step)
    state, sure = passes.empty_state(double), np.zeros(queries, bool)
    waves = waves_for(double, double.degree)
    if waves is not None and waves.queries.any():
        rows = chosen(waves.queries)
        mass, flat, _, certain = summed(double, waves, rows, step.threads)
        if certain.all() and len(certain) == queries:
            return Outcome(Partial(np.zeros(queries), mass.copy(), flat))
        rows = np.flatnonzero(waves.queries)[certain]
        state.peak[rows], state.mass[rows], state.moments[rows] = 0.0, mass[certain], flat[certain]
        sure[rows] = True
    rest = np.flatnonzero(~sure)
    part = working(problem.take(rest))
    partial, lost = (passes if len(rest) <= UNORDERED else arranged).moments(part, step)
    for whole, found in zip(state[:3], partial[:3], strict=True):
        whole[rest] = found
    if lost is not None:
        sure[rest] = ~lost
    return Outcome(state, ~sure if lost is not None and lost.any() else None)


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    if not problem.sketch().pairs:
        return _exactly(problem, step, partial, adjoint, want)
    double = _doubled(problem)
    linear = adjoint.left.shape[1] > 1
    waves = waves_for(double, 4 if linear else 2)
    # Without moments of degree 2 nobody can tell how a line would move.
    if waves is None or (linear and double.degree < 2):
        return _exactly(problem, step, partial, adjoint, want)
    values, near = values_of(double), chosen(waves.keys)
    spectra = waves.spectrum(waves.angles(double.key, near), values.charges(near), step.threads)
    sure = _still_certain(double, waves, values, waves.error(values.total, waves.loudness(spectra)), partial)
    rows, rest = chosen(sure), np.flatnonzero(~sure)
    parts = []
    if sure.any():
        mass = partial.mass[rows] * np.exp(partial.peak[rows])
        given = Given(double, waves, values, spectra, rows, step.threads)
        parts.append((rows, pulled(given, mass, adjoint.take(rows), want)))
    if len(rest):
        left = problem.take(rest), step, partial.take(rest), adjoint.take(rest), want
        parts.append((rest, _exactly(*left)))
    total: dict[str, Any] = {}
    for name in want:
        total[name] = np.zeros(double.query.shape) if name == "query" else 0.0
        for at, part in parts:
            if name == "query":
                total[name][at] = part.query
            else:
                total[name] = total[name] + getattr(part, name)
    return Gradients(**total)


def _still_certain(problem: Problem, waves: Waves, values: Values, noise: float, partial: Partial) -> Array:
    """Which queries (Q,) are vouched for, told from their state; ``noise`` is the error of every sum."""
    mass = partial.mass * np.exp(np.where(partial.mass > 0.0, partial.peak, 0.0))
    full = mass.copy()
    own = own_keys(problem, waves, slice(None), values.weight)
    if own is not None:
        full[own.rows] += own.weight
    return waves.queries & _certain(problem, waves, values, own, noise + waves.slip * full, mass, partial)


def _certain(
    problem: Problem, waves: Waves, values: Values, own: Own | None, error: Array, mass: Array, state: Partial
) -> Array:
    """Which queries (n,) are vouched for: of this mass relative to a peak of 0, and sums off by no more than this."""
    certain = 2.0 * error <= problem.tol * (mass - error)
    if own is not None and own.several is not None:
        certain &= ~own.several
    if problem.degree == 2:
        at = np.flatnonzero(certain)
        means = state.moments[at] / state.mass[at, None]
        value, delta, value_delta, delta_delta = split_moments(means, problem.columns.shape[1], len(waves.w), 2)
        assert delta is not None
        assert value_delta is not None
        A = np.ones((len(at), 1 + len(waves.w), 1 + len(waves.w)))
        A[:, 0, 1:] = A[:, 1:, 0] = delta * waves.w
        A[:, 1:, 1:] = delta_delta * np.outer(waves.w, waves.w)
        slopes = (value_delta - values.middle[:, None] * delta[:, None, :]) / values.unit[:, None] * waves.w
        b = np.concatenate([((value - values.middle) / values.unit)[:, None], slopes.transpose(0, 2, 1)], axis=1)
        certain[at] = _lines_hold(A, b, error[at] / (mass[at] - error[at]), problem.tol)
    return certain


def _exactly(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients pair by pair."""
    run = passes.pullback if len(problem.query) <= UNORDERED else arranged.pullback
    return passes.precisely(run, working(problem), step, partial, adjoint, want)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:
    """Attention weights (Q, K), pair by pair: they are what this engine never forms."""
    require("spectral", problem.sketch())
    return passes.weights(working(problem), step)


class Summed(NamedTuple):
    """Sums by waves, relative to a peak of 0, and how good they are."""

    mass: Array  # (n,)
    moments: Array  # (n, M)
    error: Array  # (n,) of the mass and, for values within ±1 and in units of ζ, of every moment, at most
    certain: Array  # (n,) boolean: vouched for


def summed(problem: Problem, waves: Waves, rows: Rows, threads: int) -> Summed:
    """Mass and moments of the queries ``rows`` (n,) over all keys but the one each excludes."""
    values = values_of(problem)
    count, r, near = values.columns.shape[1], len(waves.w), chosen(waves.keys)
    spectra = waves.spectrum(waves.angles(problem.key, near), values.charges(near), threads)
    wanted = [
        (power, pair)
        for power in powers(r, problem.degree)
        for pair in range(len(spectra))
        if sum(power) < 2 or not pair
    ]
    own = own_keys(problem, waves, rows, values.weight)
    found: dict[Power, Array] = {}
    full = np.zeros(0)
    turned = (waves.kernel(spectra[pair], power) for power, pair in wanted)
    angles = waves.angles(problem.query, rows)
    total, loudness = values.total, waves.loudness(spectra)
    evaluated = waves.sums(angles, turned, waves.tolerance(total, loudness), threads)
    for (power, pair), sums in zip(wanted, evaluated, strict=True):
        both = parted(sums)[:, : count - 2 * pair]
        if not sum(power) and not pair:
            full = both[:, 0].copy()
        if own is not None:
            both[own.rows] -= own.term(power)[:, None] * values.columns[own.keys, 2 * pair : 2 * pair + 2]
        found[power] = np.hstack([found[power], both]) if pair else both
    mass = found[(0,) * r][:, 0]
    error = waves.error(total, loudness) + waves.slip * np.abs(full)
    state = Partial(np.zeros(len(mass)), mass, _flat(problem, waves, values, found))
    return Summed(mass, state.moments, error, _certain(problem, waves, values, own, error, mass, state))


def _flat(problem: Problem, waves: Waves, values: Values, found: dict[Power, Array]) -> Array:
    """Sums in the caller's units, laid out as ``problem`` says."""
    r = len(waves.w)

    def of_columns(power: Power) -> Array:
        sums = found[power]
        return np.asarray(sums[:, 1:] * values.unit + sums[:, :1] * values.middle)

    flat = [of_columns((0,) * r)]
    if problem.degree:
        firsts = [unit_power(r, a) for a in range(r)]
        flat.append(np.stack([found[p][:, 0] / waves.w[a] for a, p in enumerate(firsts)], axis=1))
        products = np.stack([of_columns(p) / waves.w[a] for a, p in enumerate(firsts)], axis=2)
        flat.append(products.reshape(len(products), -1))
    if problem.degree == 2:
        flat += [
            found[plus(unit_power(r, a), unit_power(r, b))][:, :1] / (waves.w[a] * waves.w[b])
            for a in range(r)
            for b in range(a, r)
        ]
    return np.hstack(flat)


def _lines_hold(A: Array, b: Array, loss: Array, tol: float) -> Array:
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
    firm = (least > 0.0) & (second < 0.1)
    right = np.concatenate([np.broadcast_to(np.eye(size)[:, :1], (len(A), size, 1)), b], axis=2)
    solved = np.linalg.solve(np.where(firm[:, None, None], A, np.eye(size)), right)
    norms = np.abs(solved).sum(axis=1)  # (n, 1 + P)
    moved = norms[:, 0] * (1.0 + norms[:, 1:].max(axis=1, initial=0.0)) * move
    return np.asarray(firm & (moved <= tol * (1.0 - np.where(firm, second, 0.0)) ** 2))

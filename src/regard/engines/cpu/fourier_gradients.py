"""The backward pass by Fourier series: a polynomial in ζ times the weight of each pair, summed over keys or queries.

With x = (1, δ) the cotangent of a score is weight·((left·x)·(value·v − right·x) + plain·x). In ζ = w∘δ and in the
columns (1, (v − middle)/unit) it is weight·Σ_c column_c·Σ_α coef_cα ζ^α, and

    w_a: −Σ_qk g ζ_a²/w_a      query_a: w_a Σ_k g ζ_a      key_a: −w_a Σ_q g ζ_a      value: Σ_q weight·(left·x)·value

are sums of powers of ζ at the queries (from the keys' spectrum) or at the keys (from the spectrum of the coefficients).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.labels import Rows
from regard.core.problem import Adjoint, Gradients, Problem
from regard.engines.cpu.fourier import FourierGrid, Power, add_powers, rows_where, unit_power
from regard.engines.cpu.strengths import OwnKeys, ScaledValues, complex_pairs, own_keys, real_columns

# Coefficients (n, 1 + P) of the columns in front of each power of ζ.
Polynomial = dict[Power, Array]


class BackwardInputs(NamedTuple):
    """Inputs of the backward pass: the problem on its Fourier grid, and the queries to include."""

    problem: Problem
    grid: FourierGrid
    values: ScaledValues
    spectra: list[Array]  # of the keys' strengths
    rows: Rows  # (n,)
    threads: int


def gradients_by_fourier(inputs: BackwardInputs, mass: Array, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients from the queries ``rows`` (n,), whose mass (n,) is relative to a peak of 0; query is (n, d)."""
    problem, grid, values, _, rows, _ = inputs
    polynomial = _polynomial(adjoint, values, grid, mass)
    own = own_keys(problem, grid, rows, values.weight)
    grads: dict[str, Any] = {}
    if want & {"w", "query"}:
        grads["w"], grads["query"] = _over_keys(inputs, polynomial, own, want)
    if want & {"key", "value"}:
        grads["key"], grads["value"] = _over_queries(inputs, polynomial, own, want)
    return Gradients(**{name: grad for name, grad in grads.items() if name in want})


def _polynomial(adjoint: Adjoint, values: ScaledValues, grid: FourierGrid, mass: Array) -> Polynomial:
    """The cotangents as polynomials in ζ: coefficients of each column for each power."""
    r = len(grid.w)
    inverse_mass = 1.0 / mass

    def affine(c: Array) -> dict[Power, Array]:
        terms = {(0,) * r: c[:, 0]}
        for a in range(r if c.shape[1] > 1 else 0):
            terms[unit_power(r, a)] = c[:, 1 + a] / grid.w[a]
        return terms

    count = values.columns.shape[1]
    found: Polynomial = {}

    def add(power: Power, column: int | slice, term: Array) -> None:
        found.setdefault(power, np.zeros((len(mass), count)))[:, column] += term

    left, right = affine(adjoint.left * inverse_mass[:, None]), affine(adjoint.right)
    level = adjoint.value @ values.middle
    for p, l in left.items():
        add(p, slice(1, None), l[:, None] * adjoint.value * values.unit)
        add(p, 0, l * (level - right[(0,) * r]))
        for q, c in right.items():
            if sum(q):
                add(add_powers(p, q), 0, -l * c)
    for p, c in ({} if adjoint.plain is None else affine(adjoint.plain * inverse_mass[:, None])).items():
        add(p, 0, c)
    return found


def _over_keys(
    inputs: BackwardInputs, polynomial: Polynomial, own: OwnKeys | None, want: frozenset[str]
) -> tuple[Array, Array]:
    """Gradients of w and of the queries (n, d)."""
    problem, grid, values, spectra, rows, threads = inputs
    r, scalar = len(grid.w), problem.score.w.ndim == 0  # type: ignore[attr-defined]
    w_sums, query = np.zeros(r), np.zeros(problem.query[rows].shape)
    # Groups of powers of ζ evaluated together, and their uses: a gradient, its feature, and which coefficients.
    uses: dict[tuple[Power, ...], list[tuple[str, int, Power]]] = {}
    for power in polynomial:
        squares = [add_powers(power, unit_power(r, a), 2) for a in range(r)]
        if "w" in want and scalar:
            uses.setdefault(tuple(squares), []).append(("w", 0, power))
        for a in range(r):
            if "w" in want and not scalar:
                uses.setdefault((squares[a],), []).append(("w", a, power))
            if "query" in want:
                uses.setdefault((add_powers(power, unit_power(r, a)),), []).append(("query", a, power))
    wanted = [(group, pair) for group in uses for pair in range(len(spectra))]
    multiplied = (np.asarray(sum(grid.kernel(spectra[pair], p) for p in group)) for group, pair in wanted)
    eps = grid.tolerance(values.total, grid.magnitude(spectra))
    found = grid.sums(grid.angles(problem.query, rows), multiplied, eps, threads)
    for (group, pair), sums in zip(wanted, found, strict=True):
        at = slice(2 * pair, 2 * pair + 2)
        both = real_columns(sums)[:, : values.columns.shape[1] - 2 * pair]
        if own is not None:
            terms = np.sum([own.term(power) for power in group], axis=0)
            both[own.rows] -= terms[:, None] * values.columns[own.keys, at]
        for name, a, factor in uses[group]:
            term = (polynomial[factor][:, at] * both).sum(axis=1)
            if name == "w":
                w_sums[a] += term.sum()
            else:
                query[:, grid.features[a]] += grid.w[a] * term
    w_grad, out = -w_sums / grid.w, np.zeros(problem.score.w.shape)  # type: ignore[attr-defined]
    if scalar:
        # Summed over features already.
        return np.asarray(w_grad[0]), query
    out[grid.features] = w_grad
    return out, query


def _over_queries(
    inputs: BackwardInputs, polynomial: Polynomial, own: OwnKeys | None, want: frozenset[str]
) -> tuple[Array, Array]:
    """Gradients of the keys (K, d) and of the values (K, P)."""
    problem, grid, values, _, rows, threads = inputs
    r, count = len(grid.w), values.columns.shape[1]
    key_rows, pairs = np.flatnonzero(grid.keys), range(-(-count // 2))
    key, value = np.zeros(problem.key.shape), np.zeros((len(problem.key), count - 1))
    strengths = {power: complex_pairs(coef) for power, coef in polynomial.items()}
    flat = grid.spectrum(grid.angles(problem.query, rows), [c for each in strengths.values() for c in each], threads)
    spectra = {power: flat[n * len(pairs) : (n + 1) * len(pairs)] for n, power in enumerate(strengths)}
    # The additional power of ζ: one feature for the gradient of the keys, none for that of the values.
    extras = [unit_power(r, a) for a in range(r) if "key" in want] + ([(0,) * r] if "value" in want else [])
    wanted = [(extra, pair) for extra in extras for pair in pairs]

    def multiplied(extra: Power, pair: int) -> Array:
        return np.asarray(sum(grid.kernel(each[pair], add_powers(power, extra), -1) for power, each in spectra.items()))

    angles = grid.angles(problem.key, rows_where(grid.keys))
    found = grid.sums(angles, (multiplied(*each) for each in wanted), grid.eps, threads)
    for (extra, pair), sums in zip(wanted, found, strict=True):
        at = slice(2 * pair, 2 * pair + 2)
        both = real_columns(sums)[:, : values.columns.shape[1] - 2 * pair]
        both *= values.weight[key_rows, None]
        if own is not None:
            coef = sum(c[own.rows, at] * own.term(add_powers(power, extra))[:, None] for power, c in polynomial.items())
            keys = np.arange(len(problem.key))[own.keys]
            # A key out of range of the box has weight zero, so any valid index will do.
            np.subtract.at(both, np.searchsorted(key_rows, keys).clip(max=len(key_rows) - 1), coef)
        if sum(extra):
            a = extra.index(1)
            key[key_rows, grid.features[a]] -= grid.w[a] * (both * values.columns[key_rows, at]).sum(axis=1)
        else:
            # Column 0 is the constant and has no gradient.
            for c in range(max(2 * pair, 1), min(2 * pair + 2, count)):
                value[key_rows, c - 1] = both[:, c - 2 * pair] / values.unit[c - 1]
    return key, value

"""The adjoint pass by waves: one scalar per pair, a polynomial in ζ times the weight, summed over keys or queries.

With x = (1, δ) the cotangent of a score is weight·((left·x)·(value·v − right·x) + plain·x). In ζ = w∘δ and in the
columns (1, (v − middle)/unit) it is weight·Σ_c column_c·Σ_α coef_cα ζ^α, and

    w_a: −Σ_qk g ζ_a²/w_a      query_a: w_a Σ_k g ζ_a      key_a: −w_a Σ_q g ζ_a      value: Σ_q weight·(left·x)·value

are sums of powers of ζ at the queries (the keys' spectrum) or at the keys (the spectrum of the coefficients).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.labels import Rows
from regard.core.problem import Adjoint, Gradients, Problem
from regard.engines.cpu.charges import Own, Values, own_keys, paired, parted
from regard.engines.cpu.waves import Power, Waves, chosen, plus, unit_power

# Coefficients (n, 1 + P) of the columns in front of each power of ζ.
Polynomial = dict[Power, Array]


class Given(NamedTuple):
    """What the adjoint pass is told: the problem in waves, and the queries it is for."""

    problem: Problem
    waves: Waves
    values: Values
    spectra: list[Array]  # of the keys' charges
    rows: Rows  # (n,)
    threads: int


def pulled(given: Given, mass: Array, adjoint: Adjoint, want: frozenset[str]) -> Gradients:
    """Gradients from the queries ``rows`` (n,), whose mass (n,) is relative to a peak of 0; query is (n, d)."""
    problem, waves, values, _, rows, _ = given
    polynomial = _polynomial(adjoint, values, waves, mass)
    own = own_keys(problem, waves, rows, values.weight)
    total: dict[str, Any] = {}
    if want & {"w", "query"}:
        total["w"], total["query"] = _over_keys(given, polynomial, own, want)
    if want & {"key", "value"}:
        total["key"], total["value"] = _over_queries(given, polynomial, own, want)
    return Gradients(**{name: grad for name, grad in total.items() if name in want})


def _polynomial(adjoint: Adjoint, values: Values, waves: Waves, mass: Array) -> Polynomial:
    r = len(waves.w)
    share = 1.0 / mass

    def affine(c: Array) -> dict[Power, Array]:
        terms = {(0,) * r: c[:, 0]}
        for a in range(r if c.shape[1] > 1 else 0):
            terms[unit_power(r, a)] = c[:, 1 + a] / waves.w[a]
        return terms

    count = values.columns.shape[1]
    found: Polynomial = {}

    def add(power: Power, column: int | slice, term: Array) -> None:
        found.setdefault(power, np.zeros((len(mass), count)))[:, column] += term

    left, right = affine(adjoint.left * share[:, None]), affine(adjoint.right)
    level = adjoint.value @ values.middle
    for p, l in left.items():
        add(p, slice(1, None), l[:, None] * adjoint.value * values.unit)
        add(p, 0, l * (level - right[(0,) * r]))
        for q, c in right.items():
            if sum(q):
                add(plus(p, q), 0, -l * c)
    for p, c in ({} if adjoint.plain is None else affine(adjoint.plain * share[:, None])).items():
        add(p, 0, c)
    return found


def _over_keys(given: Given, polynomial: Polynomial, own: Own | None, want: frozenset[str]) -> tuple[Array, Array]:
    """Gradients of w and of the queries (n, d)."""
    problem, waves, values, spectra, rows, threads = given
    r, scalar = len(waves.w), problem.score.w.ndim == 0  # type: ignore[attr-defined]
    spread, query = np.zeros(r), np.zeros(problem.query[rows].shape)
    # Powers of ζ whose sum is evaluated at once, and what it serves: a gradient, its feature, and which coefficients.
    uses: dict[tuple[Power, ...], list[tuple[str, int, Power]]] = {}
    for power in polynomial:
        squares = [plus(power, unit_power(r, a), 2) for a in range(r)]
        if "w" in want and scalar:
            uses.setdefault(tuple(squares), []).append(("w", 0, power))
        for a in range(r):
            if "w" in want and not scalar:
                uses.setdefault((squares[a],), []).append(("w", a, power))
            if "query" in want:
                uses.setdefault((plus(power, unit_power(r, a)),), []).append(("query", a, power))
    wanted = [(group, pair) for group in uses for pair in range(len(spectra))]
    turned = (np.asarray(sum(waves.kernel(spectra[pair], p) for p in group)) for group, pair in wanted)
    eps = waves.tolerance(values.total, waves.loudness(spectra))
    found = waves.sums(waves.angles(problem.query, rows), turned, eps, threads)
    for (group, pair), sums in zip(wanted, found, strict=True):
        at = slice(2 * pair, 2 * pair + 2)
        both = parted(sums)[:, : values.columns.shape[1] - 2 * pair]
        if own is not None:
            both[own.rows] -= (
                np.sum([own.term(power) for power in group], axis=0)[:, None] * values.columns[own.keys, at]
            )
        for name, a, factor in uses[group]:
            term = (polynomial[factor][:, at] * both).sum(axis=1)
            if name == "w":
                spread[a] += term.sum()
            else:
                query[:, waves.features[a]] += waves.w[a] * term
    w_grad, out = -spread / waves.w, np.zeros(problem.score.w.shape)  # type: ignore[attr-defined]
    if scalar:
        # Summed over features already.
        return np.asarray(w_grad[0]), query
    out[waves.features] = w_grad
    return out, query


def _over_queries(given: Given, polynomial: Polynomial, own: Own | None, want: frozenset[str]) -> tuple[Array, Array]:
    """Gradients of the keys (K, d) and of the values (K, P)."""
    problem, waves, values, _, rows, threads = given
    r, count = len(waves.w), values.columns.shape[1]
    near, pairs = np.flatnonzero(waves.keys), range(-(-count // 2))
    key, value = np.zeros(problem.key.shape), np.zeros((len(problem.key), count - 1))
    charges = {power: paired(coef) for power, coef in polynomial.items()}
    flat = waves.spectrum(waves.angles(problem.query, rows), [c for each in charges.values() for c in each], threads)
    spectra = {power: flat[n * len(pairs) : (n + 1) * len(pairs)] for n, power in enumerate(charges)}
    # What to multiply by ζ once more: a feature for the key's gradient, nothing for the value's.
    extras = [unit_power(r, a) for a in range(r) if "key" in want] + ([(0,) * r] if "value" in want else [])
    wanted = [(extra, pair) for extra in extras for pair in pairs]

    def turned(extra: Power, pair: int) -> Array:
        return np.asarray(sum(waves.kernel(each[pair], plus(power, extra), -1) for power, each in spectra.items()))

    found = waves.sums(
        waves.angles(problem.key, chosen(waves.keys)), (turned(*each) for each in wanted), waves.eps, threads
    )
    for (extra, pair), sums in zip(wanted, found, strict=True):
        at = slice(2 * pair, 2 * pair + 2)
        both = parted(sums)[:, : values.columns.shape[1] - 2 * pair]
        both *= values.weight[near, None]
        if own is not None:
            coef = sum(c[own.rows, at] * own.term(plus(power, extra))[:, None] for power, c in polynomial.items())
            keys = np.arange(len(problem.key))[own.keys]
            # A key out of reach of the box has a weight of zero, wherever it lands.
            np.subtract.at(both, np.searchsorted(near, keys).clip(max=len(near) - 1), coef)
        if sum(extra):
            a = extra.index(1)
            key[near, waves.features[a]] -= waves.w[a] * (both * values.columns[near, at]).sum(axis=1)
        else:
            # Column 0 is the constant: it has no value to move.
            for c in range(max(2 * pair, 1), min(2 * pair + 2, count)):
                value[near, c - 1] = both[:, c - 2 * pair] / values.unit[c - 1]
    return key, value

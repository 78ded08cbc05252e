"""The associative state of attention pooling: its result over some of the keys.

For one query and the keys of a set S,

    peak = max_{i∈S} sᵢ      mass = Σ_{i∈S} exp(sᵢ − peak)      moments = Σ_{i∈S} exp(sᵢ − peak) φᵢ

Two states over disjoint sets add up: with peak = max(peak_a, peak_b),

    mass = mass_a·exp(peak_a − peak) + mass_b·exp(peak_b − peak), and moments likewise.

This ``merge`` is associative and commutative (to rounding) and ``empty`` is its identity, so SIMD lanes,
tiles, threads, streamed batches and machines all add up the same way. Hard attention (``Nearest``) is the
same algebra with exp(gap) replaced by [gap = 0]; its state says so in ``hard``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array


class Partial(NamedTuple):
    """Attention pooling over some of the keys."""

    peak: Array  # (…, Q)     largest score, −inf if there is none
    mass: Array  # (…, Q)     Σ exp(score − peak)
    moments: Array  # (…, Q, P)  Σ exp(score − peak) · φ; a tensor if a GPU computed them for a fit
    hard: bool = False  # only keys at the peak count

    def take(self, rows: Any) -> Partial:
        """The same for some of the queries only."""
        return Partial(self.peak[rows], self.mass[rows], self.moments[rows], self.hard)


class Finished(NamedTuple):
    """Normalised answer: the attention moments and what they were divided by."""

    output: Array  # (…, Q, P)  Σ weight · φ; zero in empty rows
    logsumexp: Array  # (…, Q)   log Σ exp(score); −inf in empty rows


def empty(queries: tuple[int, ...] | int, columns: int, *, hard: bool = False) -> Partial:
    """State without any key: the identity of ``merge``.

    >>> empty(2, 1).peak.tolist()
    [-inf, -inf]
    """
    shape = (queries,) if isinstance(queries, int) else queries
    return Partial(np.full(shape, -np.inf), np.zeros(shape), np.zeros((*shape, columns)), hard)


def decay(gap: Array, hard: bool) -> Array:
    """Factor of a weight when the peak rises by −gap ≥ 0; 0 for an empty state (gap NaN or −inf)."""
    if hard:
        return np.where(gap == 0.0, 1.0, 0.0)
    return np.where(gap == gap, np.exp(np.where(gap == gap, gap, 0.0)), 0.0)


def lift(scores: Array, columns: Array, *, hard: bool = False) -> Partial:
    """State of one tile: scores (…, Q, K) and the columns (K, P) to average.

    *Empty rows*: a row of −inf gives peak −inf and mass 0. Cost: O(Q·K·P).
    """
    peak = scores.max(axis=-1, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        weight = decay(scores - peak[..., None], hard)
    return Partial(peak, weight.sum(axis=-1), weight @ columns, hard)


def merge(a: Partial, b: Partial) -> Partial:
    """State over the union of two disjoint sets of keys.

    >>> one = lift(np.array([[0.0]]), np.array([[1.0]]))
    >>> merge(one, merge(one, empty(1, 1))).mass.tolist()
    [2.0]
    """
    if a.hard != b.hard:
        raise ValueError("cannot merge a hard state with a soft one: they come from different scores")
    peak = np.maximum(a.peak, b.peak)
    with np.errstate(invalid="ignore"):
        keep_a, keep_b = decay(a.peak - peak, a.hard), decay(b.peak - peak, a.hard)
    return Partial(
        peak,
        a.mass * keep_a + b.mass * keep_b,
        a.moments * keep_a[..., None] + b.moments * keep_b[..., None],
        a.hard,
    )


def merge_all(parts: Iterable[Partial]) -> Partial:
    """Merge in the order given, so that results repeat to the last bit."""
    return reduce(merge, parts)


def finish(p: Partial) -> Finished:
    """Divide by the mass.

    *Empty rows*: output 0 and logsumexp −inf. A hard state's scores are 0 or −inf, so its logsumexp is
    the log of the number of nearest keys.

    >>> finish(lift(np.array([[0.0, 0.0]]), np.array([[1.0], [3.0]]))).output.tolist()
    [[2.0]]
    """
    attended = p.mass > 0.0
    mass = np.where(attended, p.mass, 1.0)
    height = np.where(attended, 0.0 if p.hard else p.peak, -np.inf)
    return Finished(np.where(attended[..., None], p.moments / mass[..., None], 0.0), height + np.log(mass))

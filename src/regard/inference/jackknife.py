"""Jackknife+: an interval from what every training row's absence would have changed, and how far off it was left out.

    [lower rank of f_{−i}(x) − |residual_i|,  upper rank of f_{−i}(x) + |residual_i|]

(Barber, Candès, Ramdas and Tibshirani, 2021.) Taking a row out of attention is cheap: with its weight α_i in hand, the
others' weights are α/(1 − α_i). For a line, one row leaves a weighted least-squares problem, which has a formula too;
the ridge is kept as it was.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.inference.ranks import ROUNDING
from regard.lines import LocalFit

Array = NDArray[Any]

# A row that holds nearly all the attention cannot be taken out by a quotient.
ALONE = 1e-6


class Deleted(NamedTuple):
    """Answers without each of the training rows."""

    answer: Array  # (Q, K)  f_{−i}(x)
    alone: Array  # (Q, K) boolean: the formula lost its digits, do these by looking again


def without_each(weights: Array, value: Array, output: Array) -> Deleted:
    """Weighted means (Q, K) without each key, from weights (Q, K), values (K,) and the means (Q,) with all.

    f_{−i} = f − α_i·(v_i − f)/(1 − α_i)
    """
    rest = 1.0 - weights
    alone = rest < ALONE
    error = value - output[:, None]
    return Deleted(output[:, None] - weights * error / np.where(alone, 1.0, rest), alone)


def lines_without_each(
    weights: Array, delta: Array, value: Array, output: Array, fit: LocalFit, inverse: Array, slope: Array
) -> Deleted:
    """Heights (Q, K) of local lines without each key; delta (Q, K, d), inverse (Q, d, d) of the ridged spread.

    f_{−i} = f − ℓ_i·r_i/(1 − h_i): ℓ_i is the effective weight, r_i how far row i lies from this line, and the leverage
    h_i = α_i·(1 + (δ_i − δ̄)ᵀP(δ_i − δ̄)).
    """
    around = delta - np.asarray(fit.mean)[:, None]
    turned = np.einsum("qka,qab->qkb", around, inverse)
    leverage = weights * (1.0 + np.einsum("qkb,qkb->qk", turned, around))
    effective = weights * (1.0 - np.einsum("qkb,qb->qk", turned, np.asarray(fit.mean)))
    error = value - output[:, None] - np.einsum("qka,qa->qk", delta, slope)
    rest = 1.0 - leverage
    alone = rest < ALONE
    return Deleted(output[:, None] - effective * error / np.where(alone, 1.0, rest), alone)


def jackknife_interval(answer: Array, size: Array, counts: Array, coverage: float) -> Array:
    """Ends (Q, 2) from f_{−i} (Q, K), |residual_i| (K,) and what rows count (K,); infinite where they are too few."""
    return np.stack([-_upper(size - answer, counts, coverage), _upper(answer + size, counts, coverage)], axis=1)


def _upper(ends: Array, counts: Array, coverage: float) -> Array:
    """The ⌈coverage·(n + 1)⌉-th smallest end of every row (Q, K) → (Q,)."""
    total = float(counts.sum())
    rank = np.ceil(coverage * (total + 1.0) - ROUNDING)
    if rank > total + ROUNDING:
        return np.full(len(ends), np.inf)
    order = np.argsort(ends, axis=1, kind="stable")
    first = (np.cumsum(counts[order], axis=1) >= rank - ROUNDING).argmax(axis=1)
    return np.asarray(ends[np.arange(len(ends)), order[np.arange(len(ends)), first]])

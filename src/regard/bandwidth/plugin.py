"""The plug-in rule: a bandwidth per feature from a pilot polynomial, without a search.

The best bandwidth balances noise σ² against curvature m'' (Fan and Gijbels, 1996). A pilot fit, one quartic
polynomial per feature added up, estimates both:

    h_j = c · 0.776 · (σ² · (b_j − a_j) / Σ_i m_j''(x_ij)²)^(1/5) · n^(1/5 − 1/(d+4))

with [a_j, b_j] the range of feature j and c = canonical(kernel)/canonical(gaussian). At d = 1 it is their rule of
thumb; with more features each is treated separately and decreases no faster than n^(−1/(d+4)).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from regard.bandwidth.rules import checked_kernel, counted_rows
from regard.core.arrays import Array
from regard.core.scores import KERNELS

# Constant of the rule for the Gaussian kernel and local lines.
CONSTANT = 0.776
DEGREE = 4


def plugin(X: ArrayLike, y: ArrayLike, *, kernel: str = "gaussian", sample_weight: ArrayLike | None = None) -> Array:
    """Plug-in bandwidth (d,), inf for a feature that does not vary, at most a feature's range.

    Parameters
    ----------
    X : array (n, d)
        Rows; more rows with a weight than the pilot has coefficients, 4·d + 1.
    y : array (n,) or (n, P)
        Numbers; with several columns each is divided by its variance.
    kernel : str, default="gaussian"
        Name in ``regard.scores.KERNELS``.
    sample_weight : array (n,), default=None
        Integers are repetitions, floats importances.

    Returns
    -------
    array (d,)

    Raises
    ------
    ValueError
        If there are too few rows.

    *Cost*: O(n·d²).

    >>> x = np.linspace(0.0, 1.0, 200)[:, None]
    >>> plugin(x, np.sin(6.0 * x[:, 0])).round(2).tolist() < [0.2]
    True
    """
    facts = KERNELS[checked_kernel(kernel)]
    rows, counts, n, used = counted_rows(X, sample_weight)
    target = np.asarray(y, np.float64)[used]
    target = target[:, None] if target.ndim == 1 else target
    low, span = rows.min(axis=0), np.ptp(rows, axis=0)
    varying = np.flatnonzero(span > 0.0)
    h = np.full(rows.shape[1], np.inf)
    if not varying.size:
        return h
    terms = DEGREE * len(varying) + 1
    if len(rows) <= terms:
        raise ValueError(f"bandwidth 'plugin' fits {terms} coefficients and needs more rows than that, got {len(rows)}")
    unit = 2.0 * (rows[:, varying] - low[varying]) / span[varying] - 1.0  # [−1, 1]
    design = np.concatenate([np.ones((len(rows), 1)), *(unit**power for power in range(1, DEGREE + 1))], axis=1)
    root = np.sqrt(counts)[:, None]
    target = target - counts / n @ target
    scale = np.sqrt(np.maximum(counts / n @ target**2, 1e-300))
    coefficients = np.linalg.lstsq(design * root, target / scale * root, rcond=None)[0]
    noise = float((counts @ (target / scale - design @ coefficients) ** 2).mean() / max(n - terms, 1.0))
    by_power = coefficients[1:].reshape(DEGREE, len(varying), -1)
    d = len(varying)
    for place, j in enumerate(varying):
        x = unit[:, place, None]
        curve = sum(
            power * (power - 1) * by_power[power - 1, place] * x ** (power - 2) for power in range(2, DEGREE + 1)
        )
        bend = float((counts @ curve**2).mean())
        # In units of half the range, which is 1: the interval is 2 long.
        width = CONSTANT * (2.0 * noise / bend) ** 0.2 if bend > 0.0 else np.inf
        shrink = facts.canonical / KERNELS["gaussian"].canonical * n ** (0.2 - 1.0 / (d + 4))
        h[j] = min(0.5 * width * shrink, 1.0) * span[j]
    return np.asarray(np.maximum(h, np.finfo(np.float64).tiny))

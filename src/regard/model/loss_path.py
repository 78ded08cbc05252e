"""The loss along multiples of w: what a wider and a narrower look would have cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regard.core.arrays import Array
from regard.model.attention_summary import training_error
from regard.model.optimum import left_out_error, scaled
from regard.model.smoother import HeadObjective

# Rows looked at where there are more.
ROWS = 2000


class LossPath(NamedTuple):
    """Losses at multiples of w: mean squared errors in the units of y², several outputs relative to each one's
    variance; log-losses in a classifier."""

    multiple: Array  # (M,)
    training: Array  # (M,)  rows see themselves
    left_out: Array  # (M,)  no row sees itself


def loss_path(heads: Sequence[HeadObjective], multiples: ArrayLike) -> LossPath:
    """Losses of a mix of heads over the same rows, every w times each of ``multiples`` (M,) ≥ 0.

    *Cost*: 2·M passes of O(min(n, 2,000)·n·d) for each head, d² at degree 1; memory O(n·d) and a tile.
    """
    factors = np.asarray(multiples, np.float64)
    if factors.ndim != 1 or not ((factors >= 0.0) & np.isfinite(factors)).all():
        raise ValueError("multiples must be finite numbers (M,), not negative")
    first = heads[0].objective
    rows = np.sort(np.random.default_rng(0).permutation(len(first.key))[:ROWS])
    losses = np.empty((2, len(factors)))
    for i, factor in enumerate(factors):
        there = [scaled(one, factor) for one in heads]
        losses[:, i] = training_error(there, rows), left_out_error(there, rows)
    return LossPath(factors, *(losses * first.loss.unit))

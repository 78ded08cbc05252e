"""Training rows with gaps: what is learned is learned from the rows without, and all rows are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def learn_without_gaps(
    estimator: Any, key: Array, value: Array, weight: Array | None, groups: Any, **options: Any
) -> None:
    """``_learn`` from the rows that lack nothing; then all rows are remembered."""
    whole = ~np.isnan(key).any(axis=1)
    if whole.all() or not isinstance(getattr(estimator, "bandwidth", "loo"), str):
        estimator._learn(key, value, weight, groups, **options)
        return
    learnable = whole if weight is None else whole & (weight > 0)
    if learnable.sum() < 2:
        raise ValueError(
            f"missing='ignore' learns from the rows that lack nothing, and X has {int(learnable.sum())} of them; "
            "drop the columns with most gaps"
        )
    if groups is not None:
        groups = np.asarray(groups)
        if len(groups) != len(key):
            raise ValueError(f"groups must have one entry per row of X ({len(key)}), got {len(groups)}")
        groups = groups[whole]
    estimator._learn(key[whole], value[whole], None if weight is None else weight[whole], groups, **options)
    estimator._remember(key, value, weight)
    if hasattr(estimator, "loo_predictions_"):
        known = estimator.loo_predictions_
        estimator.loo_predictions_ = np.full((len(key), *known.shape[1:]), np.nan)
        estimator.loo_predictions_[whole] = known


def without_gaps(estimator: Any) -> tuple[Array, Array, Array | None]:
    """Keys (n, d), values and weights of the training rows that lack nothing."""
    rows = estimator.key_, estimator.value_, estimator.sample_weight_
    if getattr(estimator, "missing", "refuse") == "refuse":
        return rows
    whole = ~np.isnan(estimator.key_).any(axis=1)
    return rows[0][whole], rows[1][whole], None if rows[2] is None else rows[2][whole]


def whole_rows(estimator: Any) -> tuple[Array, Array]:
    """Training rows that lack nothing (n, d), and what each counts (n,)."""
    key, _, weight = without_gaps(estimator)
    return key.astype(np.float64), np.ones(len(key)) if weight is None else weight.astype(np.float64)


def has_gaps(estimator: Any, query: Array) -> bool:
    """Whether a query or a training row lacks something."""
    if getattr(estimator, "missing", "refuse") == "refuse":
        return False
    return bool(np.isnan(query).any() or np.isnan(estimator.key_).any())

"""What a fitted estimator tells the room that diagnoses it."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.bandwidth import Objective
from regard.bandwidth.rules import counts_repetitions


def data_to_diagnose(estimator: Any, *, degree: int, kernel: str = "gaussian") -> Objective:
    """The leave-one-out objective of the rows that an estimator remembers."""
    weight = estimator.sample_weight_
    rows = len(estimator.key_) if weight is None else int((weight > 0).sum())
    if rows == 1 and not (weight is not None and counts_repetitions(weight) and weight.max() > 1):
        raise ValueError("a diagnosis leaves rows out and needs two of them; this model has 1 training row")
    classes = getattr(estimator, "classes_", None)
    return Objective.of(
        estimator.key_,
        estimator.value_,
        kernel=kernel,
        degree=degree,
        classes=None if classes is None else len(classes),
        sample_weight=estimator.sample_weight_,
        engine=estimator.engine,
        leaning=getattr(estimator, "_leaning", None),
    )


def most_relevant(estimator: Any) -> tuple[int, str]:
    """Number and name of the feature that decides most about nearness."""
    feature, names = int(np.argmax(estimator._relevance())), feature_names(estimator)
    return feature, f"feature {feature}" if names is None else names[feature]


def feature_names(estimator: Any) -> tuple[str, ...] | None:
    """Names of what the columns of ``key_`` are, where they have any."""
    if hasattr(estimator, "coding_"):
        return tuple(estimator.coding_.features)
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))

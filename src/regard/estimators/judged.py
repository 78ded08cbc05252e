"""What a fitted estimator tells the room that diagnoses it."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.bandwidth import Objective
from regard.bandwidth.rules import counts_repetitions
from regard.estimators.gappy import without_gaps


def data_to_diagnose(estimator: Any, *, degree: int, kernel: str = "gaussian") -> Objective:
    """The leave-one-out objective of the rows that an estimator remembers, as far as they lack nothing."""
    key, value, weight = without_gaps(estimator)
    rows = len(key) if weight is None else int((weight > 0).sum())
    if rows < 2 and not (rows and weight is not None and counts_repetitions(weight) and weight.max() > 1):
        whole = " without gaps" if len(key) < len(estimator.key_) else ""
        many = f"{rows} training row{'s' * (rows != 1)}{whole}"
        raise ValueError(f"a diagnosis leaves rows out and needs two of them; this model has {many}")
    classes = getattr(estimator, "classes_", None)
    return Objective.of(
        key,
        value,
        kernel=kernel,
        degree=degree,
        classes=None if classes is None else len(classes),
        sample_weight=weight,
        engine=estimator.engine,
        leaning=getattr(estimator, "_leaning", None),
    )


def rows_with_gaps(estimator: Any) -> float:
    """How many training rows lack something, repetitions counted and those without weight not."""
    if getattr(estimator, "missing", "refuse") == "refuse":
        return 0.0
    lacking, weight = np.isnan(estimator.key_).any(axis=1), estimator.sample_weight_
    if weight is None:
        return float(lacking.sum())
    return float((weight if counts_repetitions(weight) else weight > 0)[lacking].sum())


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

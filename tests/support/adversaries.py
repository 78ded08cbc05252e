"""Every public estimator, quick to fit, with data that are easily spoiled."""

from __future__ import annotations

import inspect
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier

import regard

rng = np.random.default_rng(5)
X = rng.normal(size=(12, 2))
Y = X[:, 0] - X[:, 1] ** 2
LABELS = np.where(Y.argsort().argsort() > 5, "above", "below")
Q = rng.normal(size=(7, 2))
NAMES = ["a", "b"]
FRAME = pd.DataFrame(X, columns=NAMES)

ALL = {
    "AveragePoolingRegressor": regard.AveragePoolingRegressor(),
    "NearestKeyRegressor": regard.NearestKeyRegressor(),
    "NadarayaWatsonRegressor": regard.NadarayaWatsonRegressor(),
    "NadarayaWatsonRegressor, absolute": regard.NadarayaWatsonRegressor(loss="absolute"),
    "LocalLinearRegressor": regard.LocalLinearRegressor(ridge="loo"),
    "KernelRegressor": regard.KernelRegressor(),
    "NadarayaWatsonClassifier": regard.NadarayaWatsonClassifier(),
    "KernelClassifier": regard.KernelClassifier(),
    "AttentionRegressor": regard.AttentionRegressor(max_iter=1, random_state=0),
    "AttentionRegressor, additive": regard.AttentionRegressor("additive", hidden_size=4, max_iter=1, random_state=0),
}
# The same where a width is given, so that nothing is learned.
GIVEN = ALL | {
    "NadarayaWatsonRegressor": regard.NadarayaWatsonRegressor(bandwidth=0.7),
    "LocalLinearRegressor": regard.LocalLinearRegressor(bandwidth=0.7, ridge=0.1),
    "NadarayaWatsonClassifier": regard.NadarayaWatsonClassifier(bandwidth=0.7),
}
GIVEN.pop("NadarayaWatsonRegressor, absolute")
every_estimator = pytest.mark.parametrize("name", ALL)
REGRESSORS = [name for name, model in ALL.items() if not is_classifier(model)]
CLASSIFIERS = [name for name, model in ALL.items() if is_classifier(model)]


def target(model):
    """What an estimator is fitted to: numbers or labels."""
    return LABELS if is_classifier(model) else Y


def answer(model, Q=Q):
    """What an estimator says of rows, as numbers."""
    return model.predict_proba(Q) if is_classifier(model) else model.predict(Q)


@lru_cache
def fitted(name):
    """An estimator of ``ALL`` fitted to X, which is not changed."""
    return clone(ALL[name]).fit(X, target(ALL[name]))


def asking(model):
    """Every public method that asks a fitted model about X, as functions of X alone."""
    for name, method in inspect.getmembers(model, inspect.ismethod):
        taken = inspect.signature(method).parameters
        if name.startswith("_") or "X" not in taken or name in ("fit", "partial_fit"):
            continue
        rest = [one for one, taking in taken.items() if one != "X" and taking.default is taking.empty]
        assert rest in ([], ["y"], ["q"]), f"{name} needs {rest}"
        given = {"y": lambda X: np.resize(target(model), count(X)), "q": lambda X: 0.5}
        yield name, method if not rest else lambda X, ask=method, more=given[rest[0]]: ask(X, more(X))


def count(X):
    """Rows of whatever was given for X."""
    return X.shape[0] if getattr(X, "shape", ()) else len(X) if hasattr(X, "__len__") else 1

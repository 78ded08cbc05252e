"""Fitted models to save: one small one, and one of every kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas

import regard
from regard.data import notes


def fitted() -> Any:
    data = notes()
    return regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(data.x_train[:, None], data.y_train)


rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))
QUERIES = rng.normal(size=(15, 3))
NUMBERS, PAIRS = rng.normal(size=40), rng.normal(size=(40, 2))
FRAME = pandas.DataFrame(X, columns=["a", "b", "c"])
MODELS = {
    "attention": lambda: regard.AttentionRegressor("additive", hidden_size=4, max_iter=1, random_state=0).fit(
        FRAME, NUMBERS
    ),
    "deep kernel": lambda: regard.AttentionRegressor(embed="mlp", max_iter=1, random_state=0).fit(X, PAIRS),
    "average": lambda: regard.AveragePoolingRegressor().fit(X, NUMBERS),
    "nearest": lambda: regard.NearestKeyRegressor().fit(X, NUMBERS),
    "number": lambda: regard.NadarayaWatsonRegressor(bandwidth=0.7).fit(X, NUMBERS),
    "rule": lambda: regard.NadarayaWatsonRegressor(kernel="epanechnikov", bandwidth="silverman").fit(X, NUMBERS),
    "per feature": lambda: regard.NadarayaWatsonRegressor(bandwidth=[0.5, math.inf, 2.0]).fit(X, NUMBERS),
    "array parameter": lambda: regard.NadarayaWatsonRegressor(bandwidth=np.array([0.5, 1.0, 2.0])).fit(X, NUMBERS),
    "several targets": lambda: regard.NadarayaWatsonRegressor().fit(X, PAIRS),
    "float32": lambda: regard.NadarayaWatsonRegressor().fit(X.astype(np.float32), NUMBERS),
    "repetitions": lambda: regard.NadarayaWatsonRegressor().fit(X, NUMBERS, sample_weight=np.arange(40)),
    "importances": lambda: regard.NadarayaWatsonRegressor().fit(X, NUMBERS, sample_weight=np.arange(40) / 7),
    "names": lambda: regard.NadarayaWatsonRegressor().fit(FRAME, NUMBERS),
    "classes": lambda: regard.NadarayaWatsonClassifier().fit(X, NUMBERS > 0),
    "text classes": lambda: regard.NadarayaWatsonClassifier(empty="prior").fit(X, np.where(NUMBERS > 0, "up", "数")),
    "object classes": lambda: regard.NadarayaWatsonClassifier().fit(
        FRAME, np.where(NUMBERS > 0, "u", "d").astype(object)
    ),
}

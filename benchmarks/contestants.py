"""The models that accuracy.py, fit.py and classification.py compare: regard's, as it stands on the path, and
scikit-learn's.

A contestant is a function of training rows that returns a fitted model. regard is imported when it is fitted, so that
the memory of the others does not contain it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern, WhiteKernel
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

Array = NDArray[Any]
Fit = Callable[[Array, Array], Any]

# Rows on which neighbours and support vectors choose their settings.
MAX_TUNING_ROWS = 1_000
# A Gaussian process costs n³ time and n²·d memory for every step of its search.
MAX_PROCESS_ROWS = 1_500

NEIGHBOURS: dict[str, list[Any]] = {
    "kneighborsregressor__n_neighbors": [1, 2, 3, 5, 8, 12, 20],
    "kneighborsregressor__weights": ["uniform", "distance"],
}
CLASS_VECTORS: dict[str, list[Any]] = {
    "svc__C": [0.3, 1.0, 10.0, 100.0],
    "svc__gamma": [0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
}
VECTORS: dict[str, list[Any]] = {
    "transformedtargetregressor__regressor__C": [1.0, 10.0, 100.0],
    "transformedtargetregressor__regressor__gamma": [0.03, 0.1, 0.3, 1.0],
}


def regard(device: str = "cpu") -> Fit:
    """KernelRegressor with its defaults on ``device``."""

    def fit(X: Array, y: Array) -> Any:
        from regard import KernelRegressor

        return (KernelRegressor() if device == "cpu" else KernelRegressor(device=device)).fit(X, y)

    return fit


def boosting(X: Array, y: Array) -> Any:
    return HistGradientBoostingRegressor(random_state=0).fit(X, y)


def forest(X: Array, y: Array) -> Any:
    return RandomForestRegressor(random_state=0, n_jobs=-1).fit(X, y)


def extra_trees(X: Array, y: Array) -> Any:
    return ExtraTreesRegressor(random_state=0, n_jobs=-1).fit(X, y)


def ridge(X: Array, y: Array) -> Any:
    """A line on standardised columns, its penalty by leave-one-out."""
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4.0, 4.0, 25))).fit(X, y)


def tuned(model: Any, grid: dict[str, list[Any]]) -> Fit:
    """Settings by five-fold cross-validation on at most MAX_TUNING_ROWS rows, then a fit on all."""

    def fit(X: Array, y: Array) -> Any:
        rows = np.random.default_rng(0).permutation(len(y))[:MAX_TUNING_ROWS]
        search = GridSearchCV(make_pipeline(StandardScaler(), model), grid, scoring="neg_mean_squared_error", n_jobs=-1)
        return search.fit(X[rows], y[rows]).best_estimator_.fit(X, y)

    return fit


neighbours = tuned(KNeighborsRegressor(), NEIGHBOURS)
vectors = tuned(TransformedTargetRegressor(SVR(epsilon=0.03), transformer=StandardScaler()), VECTORS)


def _squared_exponential(lengths: Array) -> Kernel:
    return RBF(lengths, (1e-2, 1e4))


def _matern(lengths: Array) -> Kernel:
    return Matern(lengths, (1e-2, 1e4), nu=2.5)


def _process(*shapes: Callable[[Array], Kernel]) -> Fit:
    """The Gaussian process of the largest marginal likelihood among kernels with one length per feature and noise."""

    def fit(X: Array, y: Array) -> Any:
        lengths = np.full(X.shape[1], np.sqrt(X.shape[1]))
        models = []
        for shape in shapes:
            kernel = ConstantKernel(1.0, (1e-3, 1e5)) * shape(lengths) + WhiteKernel(0.1, (1e-6, 10.0))
            model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
            models.append(make_pipeline(StandardScaler(), model).fit(X, y))
        return max(models, key=lambda model: model[-1].log_marginal_likelihood_value_)

    return fit


squared_exponential_process = _process(_squared_exponential)
best_process = _process(_squared_exponential, _matern)


def regard_classes(X: Array, y: Array) -> Any:
    """KernelClassifier with its defaults."""
    from regard import KernelClassifier

    return KernelClassifier().fit(X, y)


def boosting_classes(X: Array, y: Array) -> Any:
    return HistGradientBoostingClassifier(random_state=0).fit(X, y)


def forest_classes(X: Array, y: Array) -> Any:
    return RandomForestClassifier(random_state=0, n_jobs=-1).fit(X, y)


def logistic(X: Array, y: Array) -> Any:
    """Logistic regression on standardised columns."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2_000)).fit(X, y)


def vectors_classes(X: Array, y: Array) -> Any:
    """Support vectors with Platt's probabilities; settings by five-fold accuracy on at most MAX_TUNING_ROWS rows.

    They include every row of a class with fewer than ten in a random sample.
    """
    rows = np.random.default_rng(0).permutation(len(y))[:MAX_TUNING_ROWS]
    rare = [label for label in np.unique(y) if (y[rows] == label).sum() < 10]
    rows = np.union1d(rows, np.flatnonzero(np.isin(y, rare)))
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), CLASS_VECTORS, scoring="accuracy", n_jobs=-1)
    best = search.fit(X[rows], y[rows]).best_estimator_
    return best.set_params(svc__probability=True, svc__random_state=0).fit(X, y)

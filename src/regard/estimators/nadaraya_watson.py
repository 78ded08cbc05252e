"""Nadaraya–Watson: attention pooling with a kernel of a given bandwidth, for numbers and for classes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from regard.bandwidth import resolve
from regard.bandwidth.rules import checked_kernel, checked_weight
from regard.estimators.base import Array, KeyPooling, KeyPoolingRegressor
from regard.estimators.inputs import query_array, training_arrays
from regard.scores import RADIAL, Radial


class KernelPooling(KeyPooling):
    """Parameters and widths that the regressor and the classifier share."""

    bandwidth_: Any  # float or (d,)
    w_: Any  # float or (d,)

    _EMPTY: tuple[str, ...] = ("nearest", "nan", "raise")

    def __init__(
        self,
        kernel: str = "gaussian",
        bandwidth: Any = "scott",
        empty: str = "nearest",
        engine: str = "auto",
        tol: float | None = None,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.empty = empty
        self.engine = engine
        self.tol = tol

    @property
    def attention_score_(self) -> Radial:
        """The score between a row of X and a training row: ``kernel`` at ``w_``."""
        check_is_fitted(self)
        return RADIAL[checked_kernel(self.kernel)](self.w_)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        checked_kernel(self.kernel)
        if self.empty not in self._EMPTY:
            raise ValueError(f"empty must be one of {', '.join(map(repr, self._EMPTY))}, got {self.empty!r}")

    def _remember(self, key: Array, value: Array, sample_weight: Array | None) -> None:
        width = resolve(self.bandwidth, key, kernel=self.kernel, sample_weight=sample_weight)
        super()._remember(key, value, sample_weight)
        self.bandwidth_, self.w_ = width


class NadarayaWatsonRegressor(KeyPoolingRegressor, KernelPooling):
    """A weighted average of y in which near training rows count most.

    predict(x) = Σ_k K(‖w∘(x − x_k)‖) y_k / Σ_k K(‖w∘(x − x_k)‖), w = 1/bandwidth

    Parameters
    ----------
    kernel : a name of ``regard.scores.KERNELS``: "gaussian", "epanechnikov", "boxcar", …
    bandwidth : number, (d,) numbers, "scott" or "silverman"
        Numbers are in the units of X: nothing is rescaled. |bandwidth| is what counts, and inf ignores a feature.
        Rules give one number per feature, widened so that all kernels smooth alike; a constant feature is ignored.
        See ``regard.bandwidth.rules``.
    empty : "nearest", "nan" or "raise"
        What a row of X gets with no training row in reach (only kernels that end at the bandwidth have such rows):
        the nearest one's y with a warning, NaN, or an error.
    engine : "auto", or the name of an engine of ``regard.pool``, which then never falls back to another.
    tol : share of its attention mass a query may lose, see ``regard.pool``.

    Attributes
    ----------
    bandwidth_, w_ : h and 1/h, numbers where a number was given, otherwise (d,).
    key_, value_, sample_weight_ : the training rows, (K, d), (K,) or (K, P), and (K,) or None.
    n_features_in_, feature_names_in_ : what ``fit`` saw; names only where X is a dataframe with text names.

    *Empty rows*: as ``empty`` says. *Cost*: ``predict`` takes O(Q·K·d) time, O(Q + K) memory and a tile.

    >>> model = NadarayaWatsonRegressor(bandwidth=1.0).fit([[-1.0], [1.0]], [2.0, 4.0])
    >>> model.predict([[0.0], [1e9]]).tolist()
    [3.0, 4.0]
    """


class NadarayaWatsonClassifier(ClassifierMixin, KernelPooling):  # type: ignore[misc]
    """Class probabilities: the share of attention that the training rows of each class hold.

    P(class c | x) = Σ_{k: y_k = c} K(‖w∘(x − x_k)‖) / Σ_k K(‖w∘(x − x_k)‖), w = 1/bandwidth

    Parameters
    ----------
    kernel, bandwidth, engine, tol : as in ``NadarayaWatsonRegressor``.
    empty : "nearest", "prior", "nan" or "raise"
        What a row of X gets with no training row in reach: the nearest one's class with a warning, the class
        frequencies with a warning, NaN probabilities (``predict`` is then an error), or an error.

    Attributes
    ----------
    classes_ : the labels that occur with a weight above zero, sorted.
    bandwidth_, w_ : h and 1/h, numbers where a number was given, otherwise (d,).
    key_, value_, sample_weight_ : the training rows, (K, d), (K,) positions in ``classes_``, and (K,) or None.
    n_features_in_, feature_names_in_ : what ``fit`` saw; names only where X is a dataframe with text names.

    *Empty rows*: as ``empty`` says. *Cost*: O(Q·K·(d + classes)) time, O((Q + K)·classes) memory and a tile.

    >>> model = NadarayaWatsonClassifier(bandwidth=1.0).fit([[-1.0], [1.0]], ["cat", "dog"])
    >>> model.predict_proba([[0.0]]).tolist(), model.predict([[0.1]]).tolist()
    ([[0.5, 0.5]], ['dog'])
    """

    classes_: Array
    _EMPTY = ("nearest", "prior", "nan", "raise")

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Remember the training rows.

        Parameters
        ----------
        X : (K, d) array or dataframe, y : (K,) labels, numbers or text
        sample_weight : (K,), not negative. Integers count repetitions, floats are importances; 0 deletes the row.

        Returns
        -------
        self. *Cost*: O(K·d), a copy of the data.
        """
        self._check_parameters()
        key, labels = training_arrays(self, X, y, labels=True)
        weight = checked_weight(sample_weight, len(key))
        classes = np.unique(labels if weight is None else labels[weight > 0])
        # A deleted row's label may be no class; it then has a number that is never attended to.
        number = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        self._remember(key, number, weight)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, (Q, classes) in the order of ``classes_``; rows sum to 1.

        *Empty rows*: as ``empty`` says. *Cost*: see the class.
        """
        probability, nobody = self._probability(X)
        self._report(nobody)
        return probability

    def predict(self, X: Any) -> Array:
        """The most probable class of every row of X, (Q,); of equally probable ones the first in ``classes_``.

        *Empty rows*: as ``empty`` says; with "nan" an error, for no class is NaN. *Cost*: as ``predict_proba``.
        """
        probability, nobody = self._probability(X)
        self._report(nobody)
        if self.empty == "nan" and nobody.any():
            raise ValueError(
                f"empty='nan' leaves {int(nobody.sum())} rows of X without a class; "
                "use predict_proba, or empty='nearest' or 'prior'"
            )
        return np.asarray(self.classes_[probability.argmax(axis=1)])

    def _probability(self, X: Any) -> tuple[Array, Array]:
        check_is_fitted(self)
        query = query_array(self, X)
        onehot = np.zeros((len(self.value_), len(self.classes_)), self.key_.dtype)
        onehot[np.arange(len(self.value_)), self.value_] = 1.0
        return self._pooled(query, onehot)

"""The base class of classifiers: class probabilities, calibrated or not, and conformal sets."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin

from regard.bandwidth.distinct import distinct, expand_rows
from regard.bandwidth.losses import as_probabilities
from regard.cluster.cluster_predict import lazy_answers
from regard.core.arrays import Array, is_chunked
from regard.estimators.base import SmoothingEstimator, if_has_partial_fit
from regard.estimators.callbacks import with_callbacks
from regard.model.calibration import Calibration, class_frequencies, learn_calibration, set_bound
from regard.model.drift import Errors, Sample
from regard.model.quantiles import checked_coverage
from regard.model.residual_scale import row_counts
from regard.model.residuals import left_out_answers, objectives_of


class SmoothingClassifier(ClassifierMixin, SmoothingEstimator):  # type: ignore[misc]
    """``predict_proba``, ``predict`` and ``predict_set``.

    Calibration and conformal sets use leave-one-out probabilities. If the bandwidth was learned, these are
    ``loo_predictions_``; otherwise they are computed when first needed and stored as ``left_out_probabilities_``.
    ``calibration_`` is (temperature, weight of the class frequencies).
    """

    calibrate: Any = False
    classes_: Array
    calibration_: tuple[float, float]
    left_out_probabilities_: Array

    _IS_CLASSIFIER = True

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, (Q, classes) in the order of ``classes_``; rows sum to 1.

        Parameters
        ----------
        X : array-like, dataframe or dask collection of shape (Q, d)
            Queries.

        Returns
        -------
        array (Q, classes)

        *Empty rows*: according to ``empty``, if the estimator has it. *Cost*: see the class.
        """
        if is_chunked(X):
            return lazy_answers(self, X, "predict_proba")
        return self._handle_empty_rows(self._probability(X))

    def predict(self, X: Any) -> Array:
        """The most probable class of every row of X, (Q,); ties go to the first in ``classes_``.

        Parameters
        ----------
        X : array-like, dataframe or dask collection of shape (Q, d)
            Queries.

        Returns
        -------
        array (Q,)
            Labels, as in ``classes_``.

        *Empty rows*: according to ``empty``; with "nan" a ValueError. *Cost*: as ``predict_proba``.
        """
        if is_chunked(X):
            return lazy_answers(self, X, "predict")
        probability, empty = self._probability(X)
        self._handle_empty_rows((probability, empty))
        if self.empty == "nan" and empty.any():
            raise ValueError(
                f"{int(empty.sum())} rows of X have no class, since empty='nan'; "
                "use predict_proba, or empty='nearest' or 'prior'"
            )
        return np.asarray(self.classes_[probability.argmax(axis=1)])

    @if_has_partial_fit
    @with_callbacks  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        window: int | None = None,
        forgetting: float | None = None,
    ) -> Self:
        """Append training rows, as ``partial_fit`` of the regressors does.

        Parameters
        ----------
        X : array-like or dataframe of shape (k, d)
            New rows.
        y : array-like of labels, shape (k,)
            Their classes.
        classes : array-like of labels, default=None
            All labels that will ever occur; required by the first call, unless ``fit`` was called before.
        sample_weight : array-like of shape (k,), default=None
            As in ``fit``; rows without a weight have weight 1. If some batches have float weights, all weights are
            importances.
        window : int, default=None
            Keep only the last ``window`` rows, including the new ones; the others are removed as by ``forget``.
        forgetting : float in (0, 1], default=None
            Every new row multiplies the weights of all earlier rows by ``forgetting``.

        Returns
        -------
        self

        *Cost*: as for the regressors.

        >>> from regard import NadarayaWatsonClassifier
        >>> model = NadarayaWatsonClassifier(bandwidth=1.0).partial_fit([[0.0]], ["cat"], classes=["cat", "dog"])
        >>> model.partial_fit([[2.0]], ["dog"]).predict([[0.9], [1.1]]).tolist()
        ['cat', 'dog']
        """
        self._partial_fit(X, y, classes, sample_weight, window, forgetting)
        return self

    def predict_set(self, X: Any, coverage: float = 0.9) -> Array:
        """Conformal sets of classes: (Q, classes) booleans in the order of ``classes_``, including the most probable.

        A class is in the set if its probability is at least the threshold that ⌈coverage·(n + 1)⌉ of the n left-out
        training rows reach with their own class. For exchangeable rows the coverage holds as far as adding one row does
        not change the probabilities; a learned bandwidth depends on the rows, and on a few hundred of them the coverage
        is slightly lower.

        Parameters
        ----------
        X : array-like or dataframe of shape (Q, d)
            Queries.
        coverage : float, default=0.9
            Fraction of new rows whose class is to be in its set, between 0 and 1.

        Returns
        -------
        array (Q, classes) of bool

        *Empty rows*: from the probabilities that ``empty`` gives; with NaN every class is in the set. *Cost*: as
        ``predict_proba``, and at the first call one pass over the training rows if the bandwidth was given.

        >>> from regard import NadarayaWatsonClassifier
        >>> x = [[0.0], [0.1], [0.2], [0.3], [2.0], [2.1], [2.2], [2.3], [1.0], [1.2]]
        >>> model = NadarayaWatsonClassifier(bandwidth=0.3).fit(x, list("aaaabbbbab"))
        >>> model.predict_set([[0.1], [1.1]], 0.8).tolist()
        [[True, False], [True, True]]
        """
        level = checked_coverage(coverage)
        probability = np.asarray(self.predict_proba(X), np.float64)
        bound = set_bound(*self._left_out_probabilities(calibrated=True), level)
        with np.errstate(invalid="ignore"):
            inside = ~(probability < bound)
        inside[np.arange(len(inside)), np.nan_to_num(probability, nan=0.0).argmax(axis=1)] = True
        return inside

    def _encode_target(self, labels: Array, weight: Array | None, classes: Array | None) -> tuple[Array, Array]:
        """Class index of each row, and the classes: ``classes`` if given, else the sorted labels of positive weight.

        A label of positive weight that is not among ``classes`` is an error.
        """
        counted = labels if weight is None else labels[weight > 0]
        if classes is None:
            classes = np.unique(counted)
        elif (unknown := ~np.isin(counted, classes)).any():
            label = counted[int(np.flatnonzero(unknown)[0])]
            raise ValueError(f"y has the label {label!r}, which is not among the classes {classes.tolist()}")
        # The label of a row of zero weight may be no class; its index is arbitrary.
        return np.minimum(np.searchsorted(classes, labels), len(classes) - 1), classes

    def _probability(self, X: Any) -> tuple[Array, Array]:
        probability, empty = self._answer(self._query(X))
        return self._calibrated(probability), empty

    def _calibrated(self, probability: Array) -> Array:
        """Probabilities, calibrated if ``calibrate`` is set."""
        if not isinstance(self.calibrate, bool | np.bool_):
            raise TypeError(f"calibrate must be True or False, got {self.calibrate!r}")
        if not self.calibrate:
            return as_probabilities(probability)
        return np.asarray(self._calibration()(probability.astype(np.float64)), probability.dtype)

    def _calibration(self) -> Calibration:
        left_out, label, counts = self._left_out_probabilities()
        if "calibration_" not in vars(self):
            found = learn_calibration(left_out, label, counts)
            self.calibration_ = found.temperature, found.frequency_weight
        return Calibration(*self.calibration_, class_frequencies(label, counts, left_out.shape[1]))

    def _left_out_rows(self) -> Array:
        """Leave-one-out probabilities (K, C) of the training rows; NaN if not known."""
        known = vars(self).get("loo_predictions_")
        if known is None:
            known = vars(self).get("left_out_probabilities_")
        if known is None:
            table = distinct(self.key_, self.value_, self.sample_weight_)
            answer = left_out_answers(objectives_of(self._configured_smoother, table))
            tempered = self._smoother.tempered(as_probabilities(answer))
            known = self.left_out_probabilities_ = expand_rows(tempered, table.place)
        return np.asarray(known)

    def _left_out_probabilities(self, calibrated: bool = False) -> tuple[Array, Array, Array]:
        """Leave-one-out probabilities (n, C) of the rows that have them, class indices and counts of these rows.

        ``calibrated`` calibrates them if ``calibrate`` is set.
        """
        known = self._left_out_rows()
        answered = ~np.isnan(known).any(axis=1)
        weight = None if self.sample_weight_ is None else self.sample_weight_[answered]
        probability = as_probabilities(known[answered])
        if calibrated and self.calibrate:
            probability = self._calibration()(probability)
        return probability, self.value_[answered], row_counts(weight, int(answered.sum()))

    def _left_out_errors(self) -> Array:
        """Indicator minus leave-one-out probability of every class, (K, C); its root mean square if not known."""
        residual = self._configured_smoother.rows.columns - self._left_out_rows()
        known = ~np.isnan(residual).any(axis=1)
        return np.where(known[:, None], residual, np.sqrt(np.mean(residual[known] ** 2, axis=0)))

    def _to_predictions(self, prediction: Array) -> Array:
        """The most probable class; None for rows of NaN."""
        missing = np.isnan(prediction).any(axis=1)
        answer = np.asarray(self.classes_[np.nan_to_num(self._calibrated(prediction)).argmax(axis=1)])
        if missing.any():
            answer = answer.astype(object)
            answer[missing] = None
        return answer

    def _drift_errors(self, X: Any, y: Any, query: Array) -> Errors:
        """1 minus the probability of the right class, of new rows and of left-out ones."""
        labels = np.asarray(y)
        if labels.shape != (len(query),):
            raise ValueError(f"y must be one label per row of X, shape ({len(query)},), got shape {labels.shape}")
        probability = np.asarray(self.predict_proba(X), np.float64)
        # A label unknown to fit has probability 0.
        right = (probability * (labels[:, None] == self.classes_)).sum(axis=1)
        left_out, label, _ = self._left_out_probabilities(calibrated=True)
        answered = np.asarray(~np.isnan(self._left_out_rows()).any(axis=1))
        sample = Sample.of(self.sample_weight_, len(answered)).among(answered)
        old = 1.0 - left_out[np.arange(len(label)), label]
        return Errors(1.0 - right, np.zeros((len(query), 0)), old, np.zeros((len(old), 0)), sample)

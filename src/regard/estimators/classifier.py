"""What every classifier is: probabilities, calibrated or not, and sets of classes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin

from regard.bandwidth.distinct import distinct, expand_rows
from regard.bandwidth.losses import as_probabilities
from regard.cluster.cluster_predict import lazy_answers
from regard.core.arrays import Array, is_chunked
from regard.estimators.base import SmoothingEstimator, if_appends
from regard.estimators.callbacks import with_callbacks
from regard.model.calibration import Calibration, class_frequencies, learn_calibration, set_bound
from regard.model.drift import Errors, Sample
from regard.model.quantiles import checked_coverage
from regard.model.residual_scale import row_counts
from regard.model.residuals import left_out_answers, objectives_of


class SmoothingClassifier(ClassifierMixin, SmoothingEstimator):  # type: ignore[misc]
    """``predict_proba``, ``predict`` and ``predict_set``.

    ``calibrate`` and sets go by every training row's probabilities as the others give them. Where the bandwidth was
    learned, those are ``loo_predictions_``; otherwise they are computed when first needed and kept as
    ``left_out_probabilities_``. ``calibration_`` is (temperature, share of the class frequencies).
    """

    calibrate: Any = False
    classes_: Array
    calibration_: tuple[float, float]
    left_out_probabilities_: Array

    _LABELS = True

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, (Q, classes) in the order of ``classes_``; rows sum to 1.

        *Empty rows*: as ``empty`` says, where the estimator has it. *Cost*: see the class.
        """
        if is_chunked(X):
            return lazy_answers(self, X, "predict_proba")
        return self._reported(self._probability(X))

    def predict(self, X: Any) -> Array:
        """The most probable class of every row of X, (Q,); of equally probable ones the first in ``classes_``.

        *Empty rows*: as ``empty`` says; with "nan" an error, for no class is NaN. *Cost*: as ``predict_proba``.
        """
        if is_chunked(X):
            return lazy_answers(self, X, "predict")
        probability, empty = self._probability(X)
        self._reported((probability, empty))
        if self.empty == "nan" and empty.any():
            raise ValueError(
                f"empty='nan' leaves {int(empty.sum())} rows of X without a class; "
                "use predict_proba, or empty='nearest' or 'prior'"
            )
        return np.asarray(self.classes_[probability.argmax(axis=1)])

    @if_appends
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
        """Append training rows to those that ``fit`` or earlier calls brought.

        As ``partial_fit`` of the regressors: with a bandwidth given as numbers it is ``fit`` on all rows together, and
        one that is learned is that of the first call.

        Parameters
        ----------
        X : (k, d) array or dataframe, y : (k,) labels, sample_weight : (k,) or None, as in ``fit``.
        classes : every label there will be; the first call needs it, unless ``fit`` came before.
        window, forgetting : as of the regressors.

        Returns
        -------
        self. *Cost*: as of the regressors.

        >>> from regard import NadarayaWatsonClassifier
        >>> model = NadarayaWatsonClassifier(bandwidth=1.0).partial_fit([[0.0]], ["cat"], classes=["cat", "dog"])
        >>> model.partial_fit([[2.0]], ["dog"]).predict([[0.9], [1.1]]).tolist()
        ['cat', 'dog']
        """
        self._partial_fit(X, y, classes, sample_weight, window, forgetting)
        return self

    def predict_set(self, X: Any, coverage: float = 0.9) -> Array:
        """Which classes y may be: (Q, classes) booleans in the order of ``classes_``; the most probable is always one.

        A class is in the set if its probability is at least that which left-out rows gave to their own class in
        ⌈coverage·(n + 1)⌉ of n cases: sets of one class where it is sure, larger ones where it is not. For rows that
        are exchangeable this covers ``coverage`` as far as one row more does not move the probabilities; a learned
        bandwidth has seen the rows, and on a few hundred of them expect a little less.

        *Empty rows*: from the probabilities that ``empty`` gives; NaN ones put every class into the set. *Cost*: as
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

    def _numbered(self, labels: Array, weight: Array | None, classes: Array | None) -> tuple[Array, Array]:
        """Each row's position among the labels that occur with a weight above zero, sorted, and those.

        Or among ``classes``, where they are known before; a label with a weight that is none of them is an error.
        """
        counted = labels if weight is None else labels[weight > 0]
        if classes is None:
            classes = np.unique(counted)
        elif (unknown := ~np.isin(counted, classes)).any():
            label = counted[int(np.flatnonzero(unknown)[0])]
            raise ValueError(f"y holds the label {label!r}, which is not among the classes {classes.tolist()}")
        # A deleted row's label may be no class; it then has a number that is never attended to.
        return np.minimum(np.searchsorted(classes, labels), len(classes) - 1), classes

    def _probability(self, X: Any) -> tuple[Array, Array]:
        share, empty = self._answer(self._query(X))
        return self._calibrated(share), empty

    def _calibrated(self, probability: Array) -> Array:
        """Probabilities as ``calibrate`` asks for them."""
        if not isinstance(self.calibrate, bool | np.bool_):
            raise TypeError(f"calibrate must be True or False, got {self.calibrate!r}")
        if not self.calibrate:
            return as_probabilities(probability)
        return np.asarray(self._calibration()(probability.astype(np.float64)), probability.dtype)

    def _calibration(self) -> Calibration:
        left_out, label, counts = self._left_out_probabilities()
        if "calibration_" not in vars(self):
            found = learn_calibration(left_out, label, counts)
            self.calibration_ = found.temperature, found.share
        return Calibration(*self.calibration_, class_frequencies(label, counts, left_out.shape[1]))

    def _left_out_rows(self) -> Array:
        """Probabilities (K, C) of every training row as the others give them; NaN where that is not known."""
        known = vars(self).get("loo_predictions_")
        if known is None:
            known = vars(self).get("left_out_probabilities_")
        if known is None:
            table = distinct(self.key_, self.value_, self.sample_weight_)
            answer = left_out_answers(objectives_of(self._asked, table))
            known = self.left_out_probabilities_ = expand_rows(as_probabilities(answer), table.place)
        return np.asarray(known)

    def _left_out_probabilities(self, calibrated: bool = False) -> tuple[Array, Array, Array]:
        """Probabilities (n, C) of the rows that were answered, their labels and what they count.

        ``calibrated``: as ``calibrate`` asks for them.
        """
        known = self._left_out_rows()
        answered = ~np.isnan(known).any(axis=1)
        weight = None if self.sample_weight_ is None else self.sample_weight_[answered]
        probability = as_probabilities(known[answered])
        if calibrated and self.calibrate:
            probability = self._calibration()(probability)
        return probability, self.value_[answered], row_counts(weight, int(answered.sum()))

    def _errors_of_rows(self) -> Array:
        """1 or 0 less the left-out probability of every class, (K, C); the root mean square where that is not known."""
        residual = self._asked.rows.columns - self._left_out_rows()
        known = ~np.isnan(residual).any(axis=1)
        return np.where(known[:, None], residual, np.sqrt(np.mean(residual[known] ** 2, axis=0)))

    def _decided(self, prediction: Array) -> Array:
        """The most probable class; None where there is none."""
        nothing = np.isnan(prediction).any(axis=1)
        answer = np.asarray(self.classes_[np.nan_to_num(self._calibrated(prediction)).argmax(axis=1)])
        if nothing.any():
            answer = answer.astype(object)
            answer[nothing] = None
        return answer

    def _drift_errors(self, X: Any, y: Any, query: Array) -> Errors:
        """1 less the probability of the right class, of new rows and of left-out ones."""
        labels = np.asarray(y)
        if labels.shape != (len(query),):
            raise ValueError(f"y must be one label per row of X, shape ({len(query)},), got shape {labels.shape}")
        probability = np.asarray(self.predict_proba(X), np.float64)
        # A label that fit did not know has probability 0.
        right = (probability * (labels[:, None] == self.classes_)).sum(axis=1)
        left_out, label, _ = self._left_out_probabilities(calibrated=True)
        answered = np.asarray(~np.isnan(self._left_out_rows()).any(axis=1))
        sample = Sample.of(self.sample_weight_, len(answered)).among(answered)
        old = 1.0 - left_out[np.arange(len(label)), label]
        return Errors(1.0 - right, np.zeros((len(query), 0)), old, np.zeros((len(old), 0)), sample)

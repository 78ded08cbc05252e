"""How sure is it, for classes: calibrated probabilities and sets of classes."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from regard.bandwidth.distinct import distinct, spread_out
from regard.bandwidth.losses import as_probabilities
from regard.estimators.base import Array
from regard.estimators.learning import LearningClassifier
from regard.inference.calibration import Calibration, learn_calibration, set_bound
from regard.inference.ranks import checked_coverage
from regard.inference.residuals import adaptive_answers, left_out_answers
from regard.inference.spread import row_counts


class UncertainClassifier(LearningClassifier):
    """``calibrate`` and ``predict_set``, from every training row's probabilities as the others give them.

    Where the bandwidth was learned, those are ``loo_predictions_``; otherwise they are computed when first needed and
    kept as ``left_out_probabilities_``. ``calibration_`` is (temperature, share of the class frequencies).
    """

    calibrate: Any = False
    calibration_: tuple[float, float]
    left_out_probabilities_: Array
    predict_proba: Any

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
        left_out, label, counts = self._left_out_probabilities()
        if self.calibrate:
            left_out = self._calibration()(left_out)
        bound = set_bound(left_out, label, counts, level)
        with np.errstate(invalid="ignore"):
            inside = ~(probability < bound)
        inside[np.arange(len(inside)), np.nan_to_num(probability, nan=0.0).argmax(axis=1)] = True
        return inside

    def _calibrated(self, probability: Array) -> Array:
        """Probabilities as ``calibrate`` asks for them."""
        if not isinstance(self.calibrate, bool | np.bool_):
            raise TypeError(f"calibrate must be True or False, got {self.calibrate!r}")
        if not self.calibrate:
            return as_probabilities(probability)
        return self._calibration()(probability.astype(np.float64)).astype(probability.dtype)

    def _calibration(self) -> Calibration:
        left_out, label, counts = self._left_out_probabilities()
        if not hasattr(self, "calibration_"):
            found = learn_calibration(left_out, label, counts)
            self.calibration_ = found.temperature, found.share
        frequency = np.bincount(label, counts / counts.sum(), left_out.shape[1]) + 1e-12
        return Calibration(*self.calibration_, frequency / frequency.sum())

    def _left_out_probabilities(self) -> tuple[Array, Array, Array]:
        """Probabilities (n, C) of the rows that were answered, their labels and what they count."""
        told = getattr(self, "loo_predictions_", None)
        if told is None:
            if not hasattr(self, "left_out_probabilities_"):
                self.left_out_probabilities_ = self._answered()
            told = self.left_out_probabilities_
        seen = ~np.isnan(told).any(axis=1)
        weight = None if self.sample_weight_ is None else self.sample_weight_[seen]
        return as_probabilities(told[seen]), self.value_[seen], row_counts(weight, int(seen.sum()))

    def _answered(self) -> Array:
        table = distinct(self.key_, self.value_, self.sample_weight_)
        model = copy(self)
        model.key_, model.value_, model.sample_weight_ = table.key.astype(np.float64), table.value, table.weight
        model.__dict__.pop("neighbours_", None)
        looks: Any = getattr(model, "_looks", None)
        found = looks()[0] if looks is not None else [model._look("left-out probabilities")]  # type: ignore[attr-defined]
        neighbours = getattr(self, "neighbours_", None)
        answer = left_out_answers(found) if neighbours is None else adaptive_answers(found[0], neighbours)
        return spread_out(as_probabilities(answer), table.place)

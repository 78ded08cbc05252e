"""``fit`` of every regressor and classifier that learns how far to look."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import ClassifierMixin

from regard.bandwidth.rules import checked_weight
from regard.estimators.base import Array, KeyPooling, KeyPoolingRegressor
from regard.estimators.callbacks import CallbackSupportMixin, with_callbacks
from regard.estimators.classes import numbered
from regard.estimators.clustered import anywhere
from regard.estimators.gappy import learn_without_gaps
from regard.estimators.inputs import training_arrays


class LearningRegressor(CallbackSupportMixin, KeyPoolingRegressor):  # type: ignore[misc]
    """Checks what it is given and hands it to ``_learn(key, value, sample_weight, groups)`` of its other base."""

    _learn: Any

    @anywhere
    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Remember the training rows and learn from them what was not given.

        Parameters
        ----------
        X : (K, d) array or dataframe, y : (K,) or (K, P) numbers
        sample_weight : (K,), not negative. Integers count repetitions, floats are importances; 0 deletes the row.
        groups : (K,) labels. While learning, rows of one group do not see each other.

        Returns
        -------
        self. *Cost*: O(K·d) with a bandwidth given; learning takes some 50 to 200 passes of O(K²·d) each, see the
        class. Ctrl-C keeps the best so far, once there is one.
        """
        self._check_parameters()
        key, value = training_arrays(self, X, y, labels=False)
        learn_without_gaps(self, key, value, checked_weight(sample_weight, len(key)), groups)
        return self


class LearningClassifier(CallbackSupportMixin, ClassifierMixin, KeyPooling):  # type: ignore[misc]
    """The same for labels: ``_learn`` is given their numbers and ``classes=``, how many there are."""

    classes_: Array
    _learn: Any

    @anywhere
    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Remember the training rows and learn from them what was not given.

        Parameters
        ----------
        X : (K, d) array or dataframe, y : (K,) labels, numbers or text
        sample_weight : (K,), not negative. Integers count repetitions, floats are importances; 0 deletes the row.
        groups : (K,) labels. While learning, rows of one group do not see each other.

        Returns
        -------
        self. *Cost*: O(K·d) with a bandwidth given; learning takes some 50 to 200 passes of O(K²·(d + classes)) each,
        see the class. Ctrl-C keeps the best so far, once there is one.
        """
        return self._fit(X, y, sample_weight, groups, None)

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any, classes: Array | None) -> Self:
        """``fit``, with ``classes`` where they are known before the rows of all of them are."""
        self._check_parameters()
        key, labels = training_arrays(self, X, y, labels=True)
        weight = checked_weight(sample_weight, len(key))
        classes, number = numbered(labels, weight, classes)
        learn_without_gaps(self, key, number, weight, groups, classes=len(classes))
        self.classes_ = classes
        return self

"""Average pooling: every query sees all training rows alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from regard.estimators.appending import AppendingRegressor
from regard.estimators.base import Array
from regard.estimators.uncertain import UncertainRegressor
from regard.scores import Gaussian, Radial


class AveragePoolingRegressor(UncertainRegressor, AppendingRegressor):
    """The weighted mean of y, whatever X is: attention that ignores the query.

    predict(x) = Σ sample_weight · y / Σ sample_weight. The baseline that every other estimator should beat.

    Attributes
    ----------
    key_, value_, sample_weight_ : the training rows, (K, d), (K,) or (K, P), and (K,) or None.
    n_features_in_, feature_names_in_ : what ``fit`` saw; names only where X is a dataframe with text names.

    *Empty rows*: there are none. *Cost*: ``predict`` takes O(K + Q) time.

    >>> AveragePoolingRegressor().fit([[0.0], [1.0]], [2.0, 4.0]).predict([[9.0]]).tolist()
    [3.0]
    """

    @property
    def attention_score_(self) -> Radial:
        check_is_fitted(self)
        return Gaussian(0.0)

    def _averages(self, query: Array, value: Array) -> tuple[Array, Array]:
        mean, nobody = super()._averages(query[:1], value)  # one query answers for all
        return np.repeat(mean, len(query), axis=0), np.repeat(nobody, len(query))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

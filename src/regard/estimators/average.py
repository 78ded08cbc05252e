"""Average pooling: every query sees all training rows alike."""

from __future__ import annotations

from typing import Any

from regard.core.scores import Gaussian
from regard.estimators.regressor import SmoothingRegressor
from regard.model.smoother import Head


class AveragePoolingRegressor(SmoothingRegressor):
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

    _APPENDS = True

    def _heads(self) -> tuple[Head, ...]:
        return (Head(1.0, Gaussian(0.0)),)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

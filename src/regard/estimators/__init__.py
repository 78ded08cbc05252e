"""Estimators with scikit-learn's conventions: the only place where X and y exist.

They check X and y, learn what was not given, and build a ``Smoother`` of ``regard.model``; all that they say after
that is a function of it. One base class (``base``), one below it for regressors and one for classifiers, thin names.
"""

from regard.estimators.attention import AttentionRegressor
from regard.estimators.local_linear import LocalLinearRegressor
from regard.estimators.mixture import KernelClassifier, KernelRegressor
from regard.estimators.nadaraya_watson import NadarayaWatsonClassifier, NadarayaWatsonRegressor
from regard.estimators.simple import AveragePoolingRegressor, NearestKeyRegressor
from regard.model.attended_rows import Attention

__all__ = [
    "Attention",
    "AttentionRegressor",
    "AveragePoolingRegressor",
    "KernelClassifier",
    "KernelRegressor",
    "LocalLinearRegressor",
    "NadarayaWatsonClassifier",
    "NadarayaWatsonRegressor",
    "NearestKeyRegressor",
]

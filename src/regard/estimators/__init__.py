"""Estimators with scikit-learn's conventions: the only place where X and y exist.

They validate X and y, learn what was not given, and build a ``Smoother`` of ``regard.model``, of which everything after
``fit`` is a function. One base class (``base``), one subclass for regressors and one for classifiers, and thin names.

Constructor signatures are written out in every estimator: scikit-learn's ``get_params`` and ``clone`` inspect them, and
editors show them and the docstrings without running code, so neither is generated.
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

"""Estimators with scikit-learn's conventions: the only place where X and y exist.

They rename X to query and key and y to value, call ``pool``, and follow their ``empty`` parameter where nobody is
in reach. One implementation (``base``), thin names.
"""

from regard.estimators.attend import Attention
from regard.estimators.attention import AttentionRegressor
from regard.estimators.average import AveragePoolingRegressor
from regard.estimators.heads import KernelClassifier, KernelRegressor
from regard.estimators.local_linear import LocalLinearRegressor
from regard.estimators.nadaraya_watson import NadarayaWatsonClassifier, NadarayaWatsonRegressor
from regard.estimators.nearest import NearestKeyRegressor

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

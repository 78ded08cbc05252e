"""Predictions that any model should beat, the mean and the nearest key's value, and the size of errors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.scores import Gaussian, Nearest
from regard.pooling.functions import pool


class NaiveAnswers(NamedTuple):
    """Predictions (Q,) or (Q, P) without learning."""

    mean: Array
    nearest: Array


def naive_answers(query: Array, key: Array, value: Array, exclude: tuple[Array, Array] | None = None) -> NaiveAnswers:
    """The mean of the values, and the value of the nearest key with features divided by their standard deviations.

    ``exclude`` are labels (Q,), (K,) as in ``regard.pool``: with row numbers, a row is predicted from the others.

    *Empty rows*: 0. *Cost*: O(Q·K·d).

    >>> x = np.array([[0.0], [1.0], [3.0]])
    >>> naive_answers(x, x, np.array([1.0, 2.0, 6.0]), (np.arange(3), np.arange(3))).nearest.tolist()
    [2.0, 1.0, 2.0]
    """
    deviation = key.std(axis=0)
    w = np.where(deviation > 0.0, 1.0 / np.where(deviation > 0.0, deviation, 1.0), 0.0)
    scores = (Gaussian(0.0), Nearest(w) if w.any() else Gaussian(0.0))
    return NaiveAnswers(*(np.asarray(pool(query, key, value, score, exclude=exclude).output) for score in scores))


def root_mean_square(values: Array) -> float:
    """√(Σ values²/n) of finite values (n,), scaled by a power of two first so that no square over- or underflows.

    >>> root_mean_square(np.array([3e200, -3e200])), root_mean_square(np.array([3e-200, 3e-200]))
    (3e+200, 3e-200)
    """
    _, power = np.frexp(np.abs(values).max())
    return float(np.ldexp(np.sqrt(np.mean(np.ldexp(values, -power) ** 2)), power))

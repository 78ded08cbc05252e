"""What an answer must beat: the mean of all keys, and the value of the nearest one; and how errors are measured."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.core.scores import Gaussian, Nearest
from regard.pooling.functions import pool


class Simple(NamedTuple):
    """Answers (Q,) or (Q, P) that take no learning."""

    mean: Array
    nearest: Array


def simple_answers(query: Array, key: Array, value: Array, exclude: tuple[Array, Array] | None = None) -> Simple:
    """The mean of the values, and the value of the nearest key with every feature in units of its spread.

    ``exclude`` are labels (Q,), (K,) as in ``regard.pool``: with row numbers, a row is answered by the others.

    *Empty rows*: 0. *Cost*: O(Q·K·d).

    >>> x = np.array([[0.0], [1.0], [3.0]])
    >>> simple_answers(x, x, np.array([1.0, 2.0, 6.0]), (np.arange(3), np.arange(3))).nearest.tolist()
    [2.0, 1.0, 2.0]
    """
    spread = key.std(axis=0)
    w = np.where(spread > 0.0, 1.0 / np.where(spread > 0.0, spread, 1.0), 0.0)
    scores = (Gaussian(0.0), Nearest(w) if w.any() else Gaussian(0.0))
    return Simple(*(np.asarray(pool(query, key, value, score, exclude=exclude).output) for score in scores))


def root_mean_square(values: Array) -> float:
    """√(Σ values²/n) of finite values (n,), divided by a power of two first so that no square leaves float64.

    >>> root_mean_square(np.array([3e200, -3e200])), root_mean_square(np.array([3e-200, 3e-200]))
    (3e+200, 3e-200)
    """
    _, power = np.frexp(np.abs(values).max())
    return float(np.ldexp(np.sqrt(np.mean(np.ldexp(values, -power) ** 2)), power))

"""Classes as numbers and as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def numbered(labels: Array, weight: Array | None) -> tuple[Array, Array]:
    """The labels that occur with a weight above zero, sorted, and each row's position among them.

    >>> numbered(np.array(["b", "a", "b"]), None)[1].tolist()
    [1, 0, 1]
    """
    classes = np.unique(labels if weight is None else labels[weight > 0])
    # A deleted row's label may be no class; it then has a number that is never attended to.
    return classes, np.minimum(np.searchsorted(classes, labels), len(classes) - 1)


def onehot(number: Array, classes: int) -> Array:
    """One column per class (K, classes), 1 where a row is of it."""
    columns = np.zeros((len(number), classes))
    columns[np.arange(len(number)), number] = 1.0
    return columns

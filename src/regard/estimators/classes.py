"""Classes as numbers and as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def numbered(labels: Array, weight: Array | None, classes: Array | None = None) -> tuple[Array, Array]:
    """The labels that occur with a weight above zero, sorted, and each row's position among them.

    Or among ``classes``, sorted, where they are known before; a label with a weight that is none of them is an error.

    >>> numbered(np.array(["b", "a", "b"]), None)[1].tolist()
    [1, 0, 1]
    """
    counted = labels if weight is None else labels[weight > 0]
    if classes is None:
        classes = np.unique(counted)
    elif (unknown := ~np.isin(counted, classes)).any():
        label = counted[int(np.flatnonzero(unknown)[0])]
        raise ValueError(f"y holds the label {label!r}, which is not among the classes {classes.tolist()}")
    # A deleted row's label may be no class; it then has a number that is never attended to.
    return classes, np.minimum(np.searchsorted(classes, labels), len(classes) - 1)


def onehot(number: Array, classes: int) -> Array:
    """One column per class (K, classes), 1 where a row is of it."""
    columns = np.zeros((len(number), classes))
    columns[np.arange(len(number)), number] = 1.0
    return columns

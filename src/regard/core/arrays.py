"""Arrays of numpy, tensors of torch and collections of dask, told apart without importing torch or dask.

What a GPU computed stays there while more is computed from it. Code for both says ``xp = namespace(array)``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def is_tensor(value: Any) -> bool:
    """Whether this is a torch tensor."""
    return hasattr(value, "requires_grad")


def is_chunked(value: Any) -> bool:
    """Whether this is an array or a dataframe of dask."""
    return hasattr(value, "__dask_graph__") and hasattr(value, "to_delayed")


def namespace(array: Any) -> Any:
    """``numpy``, or ``torch`` for its tensors."""
    return sys.modules["torch"] if is_tensor(array) else np


def like(array: Any, other: Any) -> Any:
    """The array as ``other`` is: of numpy, or a tensor of its dtype on its device."""
    if not is_tensor(other):
        return array
    # A copy: torch warns of arrays that cannot be written to.
    given = array if is_tensor(array) else np.array(array)
    return namespace(other).as_tensor(given, dtype=other.dtype, device=other.device)


def as_numpy(array: Any) -> Array:
    """The array in this machine's memory."""
    return np.asarray(array.cpu().numpy() if is_tensor(array) else array)

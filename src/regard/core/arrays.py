"""numpy arrays, torch tensors and dask collections, distinguished without importing torch or dask.

Results of a GPU stay on it while more is computed from them; code for both writes ``xp = namespace(array)``.
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


def is_compiling() -> bool:
    """Whether torch traces this call, for ``torch.compile`` or ``torch.export``."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())


def is_chunked(value: Any) -> bool:
    """Whether this is a dask array or dataframe."""
    return hasattr(value, "__dask_graph__") and hasattr(value, "to_delayed")


def namespace(array: Any) -> Any:
    """``numpy``, or ``torch`` for its tensors."""
    return sys.modules["torch"] if is_tensor(array) else np


def like(array: Any, other: Any) -> Any:
    """The array in the form of ``other``: a numpy array, or a tensor of its dtype on its device."""
    if not is_tensor(other):
        return array
    # A copy: torch warns about arrays that are read-only.
    given = array if is_tensor(array) else np.array(array)
    return namespace(other).as_tensor(given, dtype=other.dtype, device=other.device)


def as_numpy(array: Any) -> Array:
    """The array as a numpy array."""
    return np.asarray(array.cpu().numpy() if is_tensor(array) else array)

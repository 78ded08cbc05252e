"""Arrays cut into chunks in every way."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

# Ways to cut rows: lengths of chunks as shares; empty ones and single rows among them.
CUTS = {
    "one": lambda n: (n,),
    "halves": lambda n: (n // 2, n - n // 2),
    "ragged": lambda n: (0, 1, n // 3, 0, 0, 1, n - n // 3 - 2),
    "rows": lambda n: (1,) * n,
}


def cut(array: Any, how: str, *, unknown: bool = False) -> Any:
    """A dask array of the same rows; ``unknown``: without the lengths of its chunks."""
    array = np.asarray(array)
    lengths = CUTS[how](len(array))
    made = da.from_array(array, chunks=(lengths, *((size,) for size in array.shape[1:])), name=False)
    return without_lengths(made) if unknown else made


def without_lengths(array: Any) -> Any:
    """The same array as if it came from a filter: dask does not know how long its chunks are."""
    made = array.copy()
    made._chunks = ((np.nan,) * len(array.chunks[0]), *array.chunks[1:])
    return made

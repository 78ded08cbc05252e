"""The blocks of rows of dask arrays and dataframes, and of in-memory arrays used beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.core.arrays import is_chunked
from regard.engines.tasks import compute, require_dask, task_for_each

# Rows per block of an in-memory array.
ROWS_PER_BLOCK = 1 << 17


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """The numpy dtype of a column's values; object if numpy has no such dtype (text, categories)."""
    try:
        found: np.dtype[Any] = np.dtype(getattr(dtype, "numpy_dtype", dtype))
        return found
    except TypeError:
        return np.dtype(object)


def _common_dtype(name: str, frame: Any) -> np.dtype[Any]:
    """The common dtype of the columns of a dataframe; object columns may hold numbers and are checked later."""
    found = []
    for column, dtype in frame.dtypes.items():
        plain = _numpy_dtype(dtype)
        if plain.kind not in "fiub" and str(dtype) != "object":
            raise ValueError(
                f"{name} column {column!r} must hold real numbers in a dask dataframe, got dtype {dtype}; encode or "
                f"drop it, or call {name}.compute() first"
            )
        found.append(plain)
    return np.result_type(*found)


class DaskBlocks:
    """The blocks of rows of one argument, a dask collection."""

    def __init__(self, name: str, given: Any, ndim: tuple[int, ...]) -> None:
        self.name, self.ndim = name, given.ndim
        self.is_frame = hasattr(given, "npartitions") and hasattr(given, "map_partitions")
        self.lengths: tuple[int, ...] | None = None  # rows of each block; None if dask does not know them
        if self.is_frame:
            self.width = len(given.columns) if self.ndim == 2 else 1
            self.dtype = _common_dtype(name, given) if self.ndim == 2 else _numpy_dtype(given.dtype)
        else:
            if self.ndim not in ndim:
                raise ValueError(f"{name} must have {' or '.join(map(str, ndim))} axes, got shape {given.shape}")
            # A task needs whole rows.
            given = given.rechunk({1: -1}) if self.ndim == 2 and given.numblocks[1] > 1 else given
            if self.ndim == 2 and given.shape[1] != given.shape[1]:
                raise ValueError(f"{name} has an unknown number of features; call {name}.compute_chunk_sizes() first")
            self.width = int(given.shape[1]) if self.ndim == 2 else 1
            self.dtype = given.dtype
            if not np.isnan(given.chunks[0]).any():
                self.lengths = tuple(map(int, given.chunks[0]))
        self.given = given

    @property
    def count(self) -> int:
        return int(self.given.npartitions if self.is_frame else self.given.numblocks[0])

    def delayed(self) -> list[Any]:
        """One task for each block."""
        if self.is_frame:
            # An optimised dataframe may have fewer blocks for some of its columns than for others.
            return list(self.given.to_delayed(optimize_graph=False))
        return list(np.asarray(self.given.to_delayed()).ravel())

    def split_like(self, other: DaskBlocks) -> DaskBlocks:
        """The same rows in the blocks of ``other``, as far as lengths are known."""
        if self.lengths is not None and other.lengths is not None:
            if sum(self.lengths) != sum(other.lengths):
                raise ValueError(f"{other.name} has {sum(other.lengths)} rows but {self.name} has {sum(self.lengths)}")
            if self.lengths != other.lengths:
                return DaskBlocks(self.name, self.given.rechunk({0: other.lengths}), (1, 2))
        if self.count != other.count:
            raise ValueError(
                f"{other.name} has {other.count} chunks but {self.name} has {self.count}, and some chunk lengths are "
                "unknown; call compute_chunk_sizes() on the dask arrays first"
            )
        return self


def dask_blocks(name: str, given: Any, like: DaskBlocks | None = None, ndim: tuple[int, ...] = (1, 2)) -> DaskBlocks:
    """The blocks of an argument, a dask collection or an array, split like those of ``like`` if given."""
    if not is_chunked(given):
        require_dask()
        import dask.array as da

        array = np.asarray(given)
        if array.ndim not in ndim:
            raise ValueError(f"{name} must have {' or '.join(map(str, ndim))} axes, got shape {array.shape}")
        rows: Any = ROWS_PER_BLOCK
        if like is not None:
            rows = like.lengths or tuple(compute(task_for_each("length", len, zip(like.delayed(), strict=True))))
            if sum(rows) != len(array):
                raise ValueError(f"{like.name} has {sum(rows)} rows but {name} has {len(array)}")
        # By value, so that lost blocks can be made again; name=False avoids hashing, which is slower than sending.
        given = da.from_array(array, chunks=(rows, -1)[: array.ndim], name=False)
    blocks = DaskBlocks(name, given, ndim)
    return blocks if like is None else blocks.split_like(like)

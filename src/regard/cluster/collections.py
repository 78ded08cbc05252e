"""Arrays and dataframes of dask, told from others without importing dask, and cut into blocks of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.core.arrays import is_chunked
from regard.engines.tasks import compute, require_dask, tasks_of

# Rows of an ordinary array that become one block where others are of dask.
ROWS = 1 << 17


def is_frame(given: Any) -> bool:
    """Whether a collection of dask is a dataframe or a series."""
    return hasattr(given, "npartitions") and hasattr(given, "map_partitions")


def lengths_of(given: Any) -> tuple[int, ...] | None:
    """Rows in each block, None where dask does not know them."""
    if is_frame(given):
        return None
    sizes = given.chunks[0]
    return None if any(size != size for size in sizes) else tuple(map(int, sizes))


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """The numpy dtype of a column's values; that of objects where numpy has no such dtype (text, categories)."""
    try:
        found: np.dtype[Any] = np.dtype(getattr(dtype, "numpy_dtype", dtype))
        return found
    except TypeError:
        return np.dtype(object)


def _number_dtype(name: str, frame: Any) -> np.dtype[Any]:
    """The common dtype of the columns of a dataframe; columns of objects may hold numbers, and are checked later."""
    found = []
    for column, dtype in frame.dtypes.items():
        plain = numpy_dtype(dtype)
        if plain.kind not in "fiub" and str(dtype) != "object":
            raise ValueError(
                f"{name} column {column!r} must hold real numbers in a dask dataframe, got dtype {dtype}; encode or "
                f"drop it, or call {name}.compute() first"
            )
        found.append(plain)
    return np.result_type(*found)


class Blocks:
    """The blocks of rows of one argument."""

    def __init__(self, name: str, given: Any, ndim: tuple[int, ...]) -> None:
        self.name, self.frame = name, is_frame(given)
        if self.frame:
            self.ndim, self.width = given.ndim, len(given.columns) if given.ndim == 2 else 1
            self.dtype = _number_dtype(name, given) if given.ndim == 2 else numpy_dtype(given.dtype)
        else:
            self.ndim = given.ndim
            if self.ndim not in ndim:
                raise ValueError(f"{name} must have {' or '.join(map(str, ndim))} axes, got shape {given.shape}")
            # A row is looked at as a whole.
            given = given.rechunk({1: -1}) if self.ndim == 2 and given.numblocks[1] > 1 else given
            if self.ndim == 2 and given.shape[1] != given.shape[1]:
                raise ValueError(f"{name} has an unknown number of features; its compute_chunk_sizes() finds it out")
            self.width = int(given.shape[1]) if self.ndim == 2 else 1
            self.dtype = given.dtype
        self.given, self.lengths = given, lengths_of(given)

    @property
    def count(self) -> int:
        return int(self.given.npartitions if self.frame else self.given.numblocks[0])

    def delayed(self) -> list[Any]:
        """One task for each block."""
        if self.frame:
            # Optimised, some of its columns may come in fewer blocks than others.
            return list(self.given.to_delayed(optimize_graph=False))
        return list(np.asarray(self.given.to_delayed()).ravel())

    def cut_like(self, other: Blocks) -> Blocks:
        """The same rows in the blocks of ``other``, as far as lengths are known."""
        if self.lengths is not None and other.lengths is not None:
            if sum(self.lengths) != sum(other.lengths):
                raise ValueError(f"{other.name} has {sum(other.lengths)} rows but {self.name} has {sum(self.lengths)}")
            if self.lengths != other.lengths:
                return Blocks(self.name, self.given.rechunk({0: other.lengths}), (1, 2))
        if self.count != other.count:
            raise ValueError(
                f"{other.name} comes in {other.count} chunks but {self.name} in {self.count}, and not all of their "
                "lengths are known; compute_chunk_sizes() of dask arrays finds them out"
            )
        return self


def blocks_of(name: str, given: Any, like: Blocks | None = None, ndim: tuple[int, ...] = (1, 2)) -> Blocks:
    """The blocks of an argument, of dask or not, cut like those of another where there is one."""
    if not is_chunked(given):
        require_dask()
        import dask.array as da

        array = np.asarray(given)
        if array.ndim not in ndim:
            raise ValueError(f"{name} must have {' or '.join(map(str, ndim))} axes, got shape {array.shape}")
        rows: Any = ROWS
        if like is not None:
            lengths = like.lengths or _found_lengths(like)
            if sum(lengths) != len(array):
                raise ValueError(f"{like.name} has {sum(lengths)} rows but {name} has {len(array)}")
            rows = lengths
        # By value, so that it can always be made again; never hashed, which takes longer than sending it.
        given = da.from_array(array, chunks=(rows, -1)[: array.ndim], name=False)
    blocks = Blocks(name, given, ndim)
    return blocks if like is None else blocks.cut_like(like)


def _found_lengths(blocks: Blocks) -> tuple[int, ...]:
    """Lengths that dask does not know, counted on the cluster."""
    task = tasks_of("length", len)
    return tuple(compute([task((at,), block) for at, block in enumerate(blocks.delayed())]))

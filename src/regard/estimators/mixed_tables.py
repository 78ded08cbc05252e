"""Mixed tables, of numbers and categories: the kernel of each column, and the encoding of columns as features.

By default text and categories have a kernel of unordered categories, ordered categories one of their steps, and numbers
and booleans a Gaussian; ``kernel``, as a dict or a list, overrides this by column. See ``regard.data.columns``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse

from regard.core.arrays import Array
from regard.core.bounds import checked_range
from regard.data.columns import (
    CATEGORIES,
    NUMBER,
    ORDERED,
    ORDERED_KERNELS,
    Coding,
    Part,
    coding_of_parts,
    is_missing,
    part_of,
)
from regard.estimators.parameters import columns_given

_TEXT_DTYPES = (nw.String, nw.Categorical, nw.Enum)


def column_coding(estimator: Any, X: Any, frame: nw.DataFrame[Any] | None) -> Coding | None:
    """The encoding of this table; None if it is numeric and ``kernel`` gives none by column."""
    if not estimator._ACCEPTS_MIXED_TABLES:
        return None
    kernel = estimator.kernel
    given = kernel if columns_given(kernel) else None
    schema = {} if frame is None else frame.schema
    text_columns = [name for name, dtype in schema.items() if isinstance(dtype, _TEXT_DTYPES)]
    if given is None and not text_columns:
        return None
    if given is None and kernel not in (None, NUMBER):
        raise ValueError(
            f"X column {text_columns[0]!r} is text; for a mixed table kernel must be {NUMBER!r}, or a dict or list of "
            f"kernels by column, got {kernel!r}"
        )
    names, columns, orders = _columns(X, frame)
    kernels: list[Any] = [
        (ORDERED if levels is not None else CATEGORIES) if column.dtype == object else NUMBER
        for column, levels in zip(columns, orders, strict=True)
    ]
    if isinstance(given, Mapping):
        known = {name: number for number, name in enumerate(names)} | dict(enumerate(range(len(names))))
        for name, one in given.items():
            if name not in known:
                raise ValueError(f"kernel has column {name!r}, but the columns of X are {', '.join(map(repr, names))}")
            kernels[known[name]] = one
    elif given is not None:
        if len(given) != len(names):
            raise ValueError(f"kernel has {len(given)} entries but X has {len(names)} columns")
        kernels = list(given)
    facts = zip(kernels, range(len(names)), names, columns, orders, strict=True)
    return coding_of_parts([part_of(*fact) for fact in facts])


def encode_table(estimator: Any, X: Any, frame: nw.DataFrame[Any] | None) -> Array:
    """A table (n, columns) as features (n, D) by ``coding_``; missing cells are NaN, if allowed."""
    coding, (names, columns, _) = estimator.coding_, _columns(X, frame)
    if len(columns) != coding.columns:
        raise ValueError(f"X must have {coding.columns} columns, as in fit, got {len(columns)}")
    for name, column in zip(names, columns, strict=True):
        gaps = is_missing(column)
        if gaps.any() and estimator.missing == "refuse":
            more = f" and {int(gaps.sum()) - 1:,} more" if gaps.sum() > 1 else ""
            raise ValueError(
                f"X column {name!r} has no entry in row {int(gaps.argmax())}{more}; "
                "missing='ignore' compares rows by the columns that both have"
            )
        if column.dtype.kind == "f" and np.isinf(column).any():
            raise ValueError(f"X column {name!r} must be finite, got infinity in row {int(np.isinf(column).argmax())}")
        if column.dtype.kind == "f":
            checked_range("X", column)
    for part in coding.parts:
        if not part.levels:
            _check_numbers(names, columns, part.columns)
        elif part.kernel not in ORDERED_KERNELS:
            _warn_of_unknown_categories(part, columns[part.columns[0]])
    return np.asarray(coding.coded(columns))


def _check_numbers(names: list[str], columns: list[Array], numbers: tuple[int, ...]) -> None:
    for name, column in ((names[j], columns[j]) for j in numbers):
        texts = [cell for cell in column if cell is not None] if column.dtype == object else []
        if texts:
            raise ValueError(f"X column {name!r} must hold numbers, got the text {texts[0]!r}")


def _warn_of_unknown_categories(part: Part, column: Array) -> None:
    unknown = sorted({str(value) for value in set(column[~is_missing(column)].tolist()) - set(part.levels)})
    if unknown:
        warnings.warn(
            f"X column {part.names[0]!r} has the category {unknown[0]!r}, which did not occur in fit; it is treated as "
            "equally distant from all categories",
            UserWarning,
            stacklevel=4,
        )


def _columns(X: Any, frame: nw.DataFrame[Any] | None) -> tuple[list[str], list[Array], list[tuple[Any, ...] | None]]:
    """Names, cells (n,) and, of ordered categories, levels. Text is object with None for missing, all else float64."""
    if frame is not None and not len(frame):
        raise ValueError(f"X must have at least one row, got shape {frame.shape}")
    if frame is None:
        if issparse(X):
            raise TypeError("X is sparse, but dense data is required; call X.toarray() first")
        if isinstance(X, np.ma.MaskedArray):
            raise TypeError("X is a masked array; fill or drop its masked entries first")
        array = np.asarray(X)
        if array.ndim != 2 or not len(array):
            need = "two axes, (rows, columns)" if array.ndim != 2 else "at least one row"
            raise ValueError(f"X must have {need}, got shape {array.shape}")
        columns = [_cells(f"column {j}", array[:, j]) for j in range(array.shape[1])]
        return [f"column {j}" for j in range(len(columns))], columns, [None] * len(columns)
    names, columns, orders = [], [], []
    for series in frame.iter_columns():
        names.append(str(series.name))
        orders.append(_order(series))
        if isinstance(series.dtype, _TEXT_DTYPES):
            cells = np.empty(len(series), object)
            cells[:] = [None if cell is None or cell != cell else str(cell) for cell in series.to_list()]
            columns.append(cells)
        elif series.dtype.is_numeric() or series.dtype == nw.Boolean:
            columns.append(np.asarray(series.cast(nw.Float64).to_numpy(), np.float64))
        else:
            columns.append(_cells(str(series.name), np.asarray(series.to_numpy())))
    return names, columns, orders


def _cells(name: str, column: Array) -> Array:
    """A column of an array as numbers or, if any of its cells is text, as text."""
    if column.dtype.kind in "fiub":
        return column.astype(np.float64)
    if column.dtype.kind == "U" or (column.dtype == object and any(isinstance(cell, str) for cell in column)):
        cells = np.empty(len(column), object)
        cells[:] = [None if cell is None or cell != cell else str(cell) for cell in column.tolist()]
        return cells
    try:
        if column.dtype == object:
            return column.astype(np.float64)
    except (TypeError, ValueError):
        pass
    # Dates and complex numbers would be converted silently.
    raise ValueError(
        f"X column {name!r} must hold numbers or text, got {column.dtype}; "
        f"{'convert it to numbers of days' if column.dtype.kind == 'M' else 'encode or drop it'}"
    )


def _order(series: nw.Series[Any]) -> tuple[Any, ...] | None:
    """Categories in their order, if the column declares one."""
    if isinstance(series.dtype, nw.Enum):
        return tuple(map(str, series.dtype.categories))
    native = getattr(series.to_native(), "dtype", None)
    if native is not None and getattr(native, "ordered", False):
        return tuple(map(str, native.categories))
    return None

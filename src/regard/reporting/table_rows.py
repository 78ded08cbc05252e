"""Rows and cells of arrays and dataframes."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np

from regard.core.arrays import Array


def rows_of(X: Any, rows: Array) -> Any:
    """Rows (m,) of an array or a dataframe, in the type given."""
    frame = nw.from_native(X, pass_through=True)
    return frame[rows.tolist()].to_native() if isinstance(frame, nw.DataFrame) else np.asarray(X)[rows]


def cells_of(X: Any, column: int) -> list[Any]:
    """One column of an array or a dataframe; None for a missing cell."""
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        column_given = frame[:, column].to_list()
    else:
        column_given = np.asarray(X)[:, column].tolist()
    # A gap is None or NaN, and only NaN is not itself.
    return [None if cell is None or cell != cell else cell for cell in column_given]

"""Some rows of a table, some training rows of a model, and cells as a reader knows them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.base import clone

from regard.core.arrays import Array

# Fitted arrays that have an entry for every training row.
_OF_ROWS = (
    "key_",
    "value_",
    "sample_weight_",
    "embedding_",
    "loo_predictions_",
    "left_out_probabilities_",
    "residuals_",
    "standardised_residuals_",
)


def rows_of(X: Any, rows: Array) -> Any:
    """Rows (m,) of an array or a dataframe, as what it is."""
    frame = nw.from_native(X, pass_through=True)
    return frame[rows.tolist()].to_native() if isinstance(frame, nw.DataFrame) else np.asarray(X)[rows]


def cells_of(X: Any, column: int) -> list[Any]:
    """One column of an array or a dataframe; numbers as float, text as it is, None for nothing."""
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        column_given = frame[:, column].to_list()
    else:
        column_given = np.asarray(X)[:, column].tolist()
    # A gap is None or NaN, and only NaN is not itself.
    return [None if cell is None or cell != cell else cell for cell in column_given]


def counted_rows(model: Any) -> Array:
    """Places of the training rows that lack nothing and have a weight."""
    whole = ~np.isnan(model.key_).any(axis=1)
    return np.flatnonzero(whole if model.sample_weight_ is None else whole & (model.sample_weight_ > 0))


def among(model: Any, rows: Array) -> Any:
    """A model with some of its training rows (m,) only; what was learned stays, and rows keep their numbers."""
    if len(rows) == len(model.key_):
        return model
    out, fitted = clone(model), {name: value for name, value in vars(model).items() if name.endswith("_")}
    fitted |= {name: fitted[name][rows] for name in _OF_ROWS if fitted.get(name) is not None}
    vars(out).update(fitted, arrival_=(model.row_ids_[rows], len(model.key_)))
    return out


@contextmanager
def asked_by_us(model: Any) -> Iterator[Any]:
    """A model for rows that nobody but the report has asked about: that none is in reach is no reason to complain."""
    strict = model.empty == "raise" and "empty" in model.get_params(deep=False)
    try:
        if strict:
            model.empty = "nan"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield model
    finally:
        if strict:
            model.empty = "raise"


def without(model: Any, row: int) -> Any:
    """A model that has not seen one of its training rows."""
    return among(model, np.delete(np.arange(len(model.key_)), row))

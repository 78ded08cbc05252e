"""Validation of X and y: arrays, lists and dataframes of any library become plain float arrays.

scikit-learn's own checks run on everything. In addition, dataframes that it cannot convert go through narwhals, and
what it would convert silently (numeric text, dates, masked arrays) is an error that names the argument.
"""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from scipy.sparse import issparse
from sklearn.utils import check_array, check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from regard.core.arrays import Array, is_chunked
from regard.core.bounds import checked_range
from regard.estimators.mixed_tables import column_coding, encode_table

FLOATS = [np.float64, np.float32]


def query_array(estimator: Any, X: Any) -> Array:
    """X of ``predict`` as (Q, d), checked against that of ``fit``; a mixed table as its features."""
    frame, mixed, finite = _frame("X", X), "coding_" in vars(estimator), _finiteness(estimator)
    plain = None if mixed else _table(X, frame)
    if not mixed and frame is None:
        return np.asarray(validate_data(estimator, plain, reset=False, dtype=FLOATS, ensure_all_finite=finite))
    validate_data(estimator, X, reset=False, skip_check_array=True)
    features = encode_table(estimator, X, frame) if mixed else plain
    options = {"dtype": FLOATS, "input_name": "X", "estimator": estimator, "ensure_all_finite": finite}
    return np.asarray(check_array(features, **options))


def training_arrays(estimator: Any, X: Any, y: Any, *, labels: bool, again: bool = False) -> tuple[Array, Array]:
    """X of ``fit`` as keys (K, d), and y as numbers (K,) or (K, P) of the same dtype, or as labels (K,).

    Both are copies, so that later changes of X and y do not affect the estimator. With ``again``, X is checked against
    that of an earlier ``fit``. A mixed table is encoded as features, as recorded in ``coding_``.
    """
    frame = _frame("X", X)
    if not again:
        estimator.__dict__.pop("coding_", None)
        if (coding := column_coding(estimator, X, frame)) is not None:
            estimator.coding_ = coding
    mixed = "coding_" in vars(estimator)
    plain, named = encode_table(estimator, X, frame) if mixed else _table(X, frame), mixed or frame is not None
    target = y if y is None else _labels(y) if labels else _plain("y", y, _frame("y", y))
    if issparse(target):
        raise TypeError("y is sparse, but dense data is required; call y.toarray() first")
    if target is not None and target.ndim and plain.shape[0] != len(target):
        raise ValueError(f"X has {plain.shape[0]} rows but y has {len(target)}")
    if target is not None and not labels:
        checked_range("y", target)
    options = {"dtype": FLOATS, "multi_output": not labels, "y_numeric": not labels}
    options |= {"ensure_all_finite": _finiteness(estimator)}
    if named and target is not None:
        validate_data(estimator, X, skip_check_array=True, reset=not again)
        key, target = check_X_y(plain, target, estimator=estimator, **options)
    else:
        key, target = validate_data(estimator, plain, target, reset=not again, **options)
    key = np.array(key, order="C")
    if labels:
        check_classification_targets(target)
        return key, np.array(target)
    with np.errstate(over="ignore"):
        value = np.array(target, key.dtype, order="C")
    if not np.isfinite(value).all():
        raise ValueError(f"y has values too large for {key.dtype}, the dtype of X; rescale y or pass X as float64")
    return key, value


def _finiteness(estimator: Any) -> Any:
    """scikit-learn's ``ensure_all_finite``: whether X may have missing entries."""
    return "allow-nan" if estimator.missing == "ignore" else True


def _frame(name: str, given: Any) -> nw.DataFrame[Any] | None:
    """The dataframe behind ``given``, if it is one."""
    if type(given) is np.ndarray:
        return None
    if is_chunked(given):
        raise TypeError(
            f"{name} is a dask collection, but this method needs data in memory; call {name}.compute() first"
        )
    try:
        frame = nw.from_native(given, pass_through=True)
    except DuplicateError as error:
        raise ValueError(f"{name} must have distinct column names: {error}") from None
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(f"{name} is a lazy frame; call {name}.collect() first")
    return frame if isinstance(frame, nw.DataFrame) else None


def _table(X: Any, frame: nw.DataFrame[Any] | None) -> Any:
    """X as a real two-dimensional array with at least one row; a sparse X is left for scikit-learn to refuse."""
    array = _plain("X", X, frame)
    if issparse(array):
        return array
    if array.ndim != 2:
        raise ValueError(
            f"X must have two axes, (rows, features), got shape {array.shape}. Reshape your data: "
            "X.reshape(-1, 1) for a single feature, X.reshape(1, -1) for a single row"
        )
    if len(array) == 0:
        raise ValueError(f"X must have at least one row, got shape {array.shape}")
    checked_range("X", array)
    return array


def _plain(name: str, given: Any, frame: nw.DataFrame[Any] | None) -> Any:
    """Real numbers as an array; sparse ones unchanged."""
    if issparse(given):
        return given
    if frame is not None:
        return _stacked(name, frame)
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; fill or drop its masked entries first")
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} must hold real numbers in rows of one length: {error}") from None
    return _real(name, array)


def _stacked(name: str, frame: nw.DataFrame[Any]) -> Array:
    """The columns of a dataframe as an array, with missing entries as NaN."""
    schema = frame.schema
    narrow = bool(schema) and all(dtype == nw.Float32 for dtype in schema.values())
    columns = []
    for column in frame.iter_columns():
        dtype = column.dtype
        if dtype.is_numeric() or dtype == nw.Boolean:
            columns.append(column.cast(nw.Float32 if narrow else nw.Float64).to_numpy())
        elif dtype in (nw.Object, nw.Unknown):
            columns.append(_real(f"{name} column {column.name!r}", np.asarray(column.to_numpy())))
        else:
            advice = "convert it to numbers of days" if dtype.is_temporal() else "encode or drop it"
            raise ValueError(f"{name} column {column.name!r} must hold real numbers, got {dtype}; {advice}")
    return np.column_stack(columns) if columns else np.empty(frame.shape)


def _real(name: str, array: Array) -> Array:
    """Real numbers in native byte order; half precision is converted to single."""
    if array.dtype.kind == "O":
        array = _numbers(name, array)
    if array.dtype.kind == "c":
        raise ValueError(f"{name} must hold real numbers. Complex data not supported")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}; {_advice(name)}")
    if array.dtype == np.float16:
        return array.astype(np.float32)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _advice(name: str) -> str:
    """What to do about text in X or y."""
    classes = ", or take a classifier for classes, such as KernelClassifier" if name == "y" else ""
    return f"encode it as numbers first{classes}"


def _numbers(name: str, array: Array) -> Array:
    """Objects as float64; text is refused, even if it could be parsed as a number."""
    for entry in array.flat:
        if isinstance(entry, str | bytes):
            raise ValueError(f"{name} must hold real numbers, got the text {entry!r}; {_advice(name)}")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} must hold real numbers: {error}") from None


def _labels(y: Any) -> Any:
    """Class labels of one sortable type, without missing entries."""
    if isinstance(y, np.ma.MaskedArray):
        raise TypeError("y is a masked array; drop its masked rows first")
    if issparse(y):
        return y
    frame = _frame("y", y)
    if frame is not None:
        if frame.shape[1] != 1:
            raise ValueError(f"y must be one column of labels, got {frame.shape[1]} columns")
        y = next(iter(frame.iter_columns())).to_numpy()
    array = np.asarray(y)
    if array.dtype == object:
        for row, label in enumerate(array.flat):
            # pandas' NA cannot be compared, only recognised.
            if label is None or type(label).__name__ == "NAType" or (isinstance(label, float) and label != label):
                raise ValueError(f"y must have a label in every row, got {label} in row {row}")
        try:
            np.unique(array)
        except TypeError as error:
            raise TypeError(f"y must hold labels of one type that can be sorted: {error}") from None
    return array

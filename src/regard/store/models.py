"""Save and load: one versioned, checksummed file per model (``data.sealed``), and nothing in it is ever executed.

Parameters are those of ``get_params``; fitted attributes are the public ones that end in ``_``. Loading makes a fresh
estimator of a listed kind and sets them, once ``store.model_schema`` has checked that they are consistent.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array, is_chunked
from regard.data.files import PathLike
from regard.data.packing import pack, unpack
from regard.data.sealed import FileKind, Sealed, read_sealed, write_sealed
from regard.store.model_schema import KINDS, check_classes, kind_of, sizes_of

# Named tuples that a fitted attribute may be: name in files → path of the class.
RECORDS = {
    "Coding": "regard.data.columns.Coding",
    "Head": "regard.bandwidth.learned_heads.LearnedHead",
    "HeadSearch": "regard.bandwidth.learned_heads.HeadSearch",
    "History": "regard.estimators.attention.History",
    "NeighbourSearch": "regard.bandwidth.adaptive.NeighbourSearch",
    "Part": "regard.data.columns.Part",
    "Scaling": "regard.bandwidth.scaling.Scaling",
    "Search": "regard.bandwidth.search.Search",
    "Shelved": "regard.model.mapped.SortedRows",
    "Shelves": "regard.core.block_bounds.BlockBounds",
    "Tempering": "regard.bandwidth.tempering.Tempering",
}


# A second copy of the rows of a large model, in blocks for mapped reading; in files only, never an attribute.
_ROW_BLOCKS = "shelves_"


class StoreError(ValueError):
    """A model that cannot be saved, or a file that is not a model, is damaged, or is of a newer format."""


_KIND = FileKind(
    "regard-model",
    1,
    "regard model",
    {"kind": object, "parameters": dict, "fitted": dict, "metadata": dict, "regard": str},
    StoreError,
)


class Saved(NamedTuple):
    """The contents of a model file."""

    model: Any
    metadata: dict[str, Any]  # what ``save`` was given
    regard_version: str  # that wrote the file


def save(
    model: Any,
    path: PathLike,
    *,
    metadata: Mapping[str, Any] | None = None,
    force: bool = False,
    single: bool = False,
) -> None:
    """Write a fitted estimator to one file, whole or not at all.

    A model of 65,536 rows or more whose queries reach only part of them is written with a second copy of its rows in
    spatial order: twice the size, of which ``load(…, mapped=True)`` then reads what a prediction needs.

    Parameters
    ----------
    model : estimator
        A fitted estimator of ``regard``. Rows on a cluster are fetched: the file contains them.
    path : str or path
        The file; an existing file or link is refused unless ``force``.
    metadata : dict, default=None
        Plain data to store with the model (None, booleans, numbers, text, arrays, lists, tuples, dicts).
    force : bool, default=False
        Replace an existing file. If writing fails, the existing file is unchanged.
    single : bool, default=False
        Store the training rows and their y in single precision: half the size, answers to seven digits.

    Raises
    ------
    StoreError
        A ValueError: the model cannot be saved, or the path cannot be written.

    *Cost*: O(size of the fitted arrays), and of large models O(K·log K·d) for the spatial order.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from regard import NearestKeyRegressor, load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(NearestKeyRegressor().fit([[0.0], [1.0]], [5.0, 6.0]), Path(folder) / "model.regard")
    ...     load(Path(folder) / "model.regard").predict([[0.9]]).tolist()
    [6.0]
    """
    description, arrays = _describe(model, metadata or {}, single=single)
    write_sealed(path, _KIND, description, arrays, force=force)


def load(path: PathLike, *, embed: Any = None, mapped: bool = False) -> Any:
    """The estimator that ``save`` wrote; it predicts the same to the last bit.

    Parameters
    ----------
    path : str or path
        The file that ``save`` wrote.
    embed : torch module, default=None
        For an ``AttentionRegressor`` with a module of your own as ``embed``, a module made in the same way.
    mapped : bool, default=False
        Leave the arrays in the file and read them when they are needed: a large model loads at once, and processes that
        map the same file share its memory. The checksum is not verified. The file must not change: the next call
        detects a file that was truncated or written to, but a change during a call cannot be detected. ``predict`` and
        ``predict_proba`` of a large model read the rows that can affect the answers, or all of them if those are most;
        answers differ from those of the model in memory by rounding.

    Returns
    -------
    estimator
        Fitted, with the parameters and attributes of the saved one.

    Raises
    ------
    StoreError
        A ValueError: the file is damaged, truncated, of a newer format, or not a model.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from regard import NearestKeyRegressor, save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(NearestKeyRegressor().fit([[0.0], [1.0]], [5.0, 6.0]), Path(folder) / "model.regard")
    ...     load(Path(folder) / "model.regard")
    NearestKeyRegressor()
    """
    return load_with_metadata(path, embed=embed, mapped=mapped).model


def load_with_metadata(path: PathLike, *, embed: Any = None, mapped: bool = False) -> Saved:
    """The estimator, the metadata saved with it, and the version of regard that wrote it. Raises as ``load``."""
    return _restored(read_sealed(path, _KIND, mapped=mapped), path, embed, mapped=mapped)


def _describe(model: Any, metadata: Mapping[str, Any], *, single: bool) -> tuple[dict[str, Any], dict[str, Array]]:
    kind = kind_of(model, StoreError)
    model._check_file()
    if is_chunked(vars(model).get("key_")):
        from regard.cluster.cluster_fit import with_rows_in_memory

        model = with_rows_in_memory(model)
    fitted = {name: value for name, value in vars(model).items() if name.endswith("_") and name[0] != "_"}
    if not fitted:
        raise StoreError(f"this {kind} is not fitted; call fit before save")
    if single:
        fitted |= {name: _single(name, fitted[name]) for name in ("key_", "value_") if name in fitted}
    if "key_" in fitted:
        # Imported late to keep this module light; an estimator has loaded what it needs.
        from regard.model.mapped import sorted_rows

        rows = (fitted[name] for name in ("key_", "value_", "sample_weight_"))
        if (blocks := sorted_rows(model._smoother, *rows)) is not None:
            fitted[_ROW_BLOCKS] = blocks
    parameters = getattr(model, "_plain_params", model.get_params)(deep=False)
    arrays: dict[str, Array] = {}
    description = {"kind": kind} | {
        part: {name: pack(f"{part}/{name}", value, arrays, RECORDS, StoreError) for name, value in values.items()}
        for part, values in (("parameters", parameters), ("fitted", fitted))
    }
    description["metadata"] = pack("metadata", dict(metadata), arrays, RECORDS, StoreError)
    try:
        description["sizes"] = sizes_of(kind, parameters, fitted)
    except ValueError as reason:
        raise StoreError(f"this {kind} is inconsistent: {reason}") from None
    return description, arrays


def _single(name: str, array: Array) -> Array:
    """Floats in single precision; class numbers are unchanged."""
    if array.dtype != np.float64:
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    if not np.array_equal(np.isinf(narrow), np.isinf(array)):
        raise StoreError(f"{name} has values too large for single precision; save with single=False")
    return narrow


def _restored(sealed: Sealed, path: PathLike, embed: Any, *, mapped: bool) -> Saved:
    description, arrays, file = sealed
    if description["kind"] not in list(KINDS):  # a list: a forged kind may not be hashable
        raise StoreError(f"{path}: holds a {str(description['kind'])[:60]!r}; only {', '.join(KINDS)} are loaded")
    try:
        parameters, fitted = (
            {name: unpack(value, arrays, RECORDS) for name, value in description[part].items()}
            for part in ("parameters", "fitted")
        )
        metadata = unpack(description["metadata"], arrays, RECORDS)
        blocks = fitted.get(_ROW_BLOCKS)
        model = getattr(import_module("regard"), description["kind"])(**parameters)
        for name, value in fitted.items():
            if not (name.isidentifier() and name.endswith("_") and name[0] != "_"):
                raise ValueError(f"{name!r} is not the name of a fitted attribute")
            if name != _ROW_BLOCKS:
                setattr(model, name, value)
        if file is not None:
            model._file = file
        if mapped and blocks is not None:
            from regard.model.mapped import mapped_rows

            model._make_rows = mapped_rows(blocks, model.key_, model.value_, model.sample_weight_)
        # Files of older versions state no sizes; their arrays are checked against each other.
        sizes_of(description["kind"], parameters, fitted, description.get("sizes"))
        if not mapped:
            check_classes(fitted)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as reason:
        raise _KIND.damaged(path, f"{type(reason).__name__}: {reason}") from None
    try:
        if hasattr(model, "_rebuild"):
            model._rebuild(embed)
        elif embed is not None:
            raise ValueError(f"embed is only for AttentionRegressor, but this file holds a {description['kind']}")
        model._smoother  # noqa: B018  # raises if the attributes do not make a model
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as reason:
        raise StoreError(f"{path}: {reason}") from None
    return Saved(model, metadata, str(description["regard"]))

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
from regard.data.packing import Packer, Unpacker
from regard.data.sealed import Kind, Sealed, read_sealed, write_sealed
from regard.store.model_schema import KINDS, check_classes, kind_of, sizes_of

# Tuples with named fields that a fitted attribute may be: name in files → class.
RECORDS = {
    "Coding": "regard.data.columns.Coding",
    "Head": "regard.bandwidth.heads.LearnedHead",
    "HeadSearch": "regard.bandwidth.heads.HeadSearch",
    "History": "regard.estimators.attention.History",
    "NeighbourSearch": "regard.bandwidth.adaptive.NeighbourSearch",
    "Part": "regard.data.columns.Part",
    "Scaling": "regard.bandwidth.scaling.Scaling",
    "Search": "regard.bandwidth.search.Search",
    "Shelved": "regard.model.mapped.Shelved",
    "Shelves": "regard.core.block_bounds.BlockBounds",
}


# Rows of a large model once more, for whoever maps it; never an attribute.
_SHELVES = "shelves_"


class StoreError(ValueError):
    """A model that cannot be saved, or a file that is no model, is damaged or is not ours to read."""


_KIND = Kind(
    "regard-model",
    1,
    "regard model",
    {"kind": object, "parameters": dict, "fitted": dict, "metadata": dict, "regard": str},
    StoreError,
)


class Saved(NamedTuple):
    """What a model file holds."""

    model: Any
    metadata: dict[str, Any]  # what ``save`` was given
    regard_version: str  # of the library that wrote it


def save(
    model: Any,
    path: PathLike,
    *,
    metadata: Mapping[str, Any] | None = None,
    force: bool = False,
    single: bool = False,
) -> None:
    """Write a fitted estimator to one file, whole or not at all.

    Parameters
    ----------
    model : a fitted estimator of one of ``KINDS``. Rows on a cluster are brought here: the file holds them.
    path : the file; one that exists, or a link, is refused unless ``force``.
    metadata : plain data to keep with the model (None, booleans, numbers, text, arrays, lists, tuples, dicts).
    force : replace what is there. If writing fails, what was there stays.
    single : keep the training rows and their y in single precision: half the file, answers good to seven digits.

    A model of 65,536 rows or more, if a query looks at a part of them only, is written with a second copy of its rows
    in an order of space: twice the file, of which ``load(…, mapped=True)`` then reads what a prediction needs.

    Raises StoreError. *Cost*: O(size of the fitted arrays), and of large models O(K·log K·d) for that order.
    """
    description, arrays = _describe(model, metadata or {}, single=single)
    write_sealed(path, _KIND, description, arrays, force=force)


def load(path: PathLike, *, embed: Any = None, mapped: bool = False) -> Any:
    """The estimator that ``save`` wrote; it predicts the same to the last bit.

    mapped : leave the arrays in the file and read them when they are needed: a large model is there at once, and
        processes that map the same file share its memory. Its checksum is not verified. The file must stay as it is:
        one that was cut short or written to is refused by the next call, but during a call that cannot be caught.
        ``predict`` and ``predict_proba`` of a large model read the rows that can show in the answers, or all of them
        where that is most; answers differ from those of the model in memory by rounding.
    embed : for an ``AttentionRegressor`` whose module is of a class of your own, one made in the same way.

    Raises StoreError for a file that is damaged, cut short, of a newer format, or not a model at all.
    """
    return load_with_metadata(path, embed=embed, mapped=mapped).model


def load_with_metadata(path: PathLike, *, embed: Any = None, mapped: bool = False) -> Saved:
    """The estimator, the metadata saved with it, and the version of regard that wrote it. Raises as ``load``."""
    return _made(read_sealed(path, _KIND, mapped=mapped), path, embed, mapped=mapped)


def _describe(model: Any, metadata: Mapping[str, Any], *, single: bool) -> tuple[dict[str, Any], dict[str, Array]]:
    kind = kind_of(model, StoreError)
    model._check_file()
    if is_chunked(vars(model).get("key_")):
        from regard.cluster.cluster_fit import with_rows_in_memory

        model = with_rows_in_memory(model)
    fitted = {name: value for name, value in vars(model).items() if name.endswith("_") and name[0] != "_"}
    if not fitted:
        raise StoreError(f"this {kind} is not fitted; there is nothing to save")
    if single:
        fitted |= {name: _single(name, fitted[name]) for name in ("key_", "value_") if name in fitted}
    if "key_" in fitted:
        # What it needs is there already: the model is an estimator.
        from regard.model.mapped import shelved

        rows = (fitted[name] for name in ("key_", "value_", "sample_weight_"))
        if (shelves := shelved(model._smoother, *rows)) is not None:
            fitted[_SHELVES] = shelves
    parameters = getattr(model, "_plain_params", model.get_params)(deep=False)
    packer = Packer(RECORDS, StoreError)
    description = {
        "kind": kind,
        "parameters": packer.named("parameters", parameters),
        "fitted": packer.named("fitted", fitted),
        "metadata": packer.pack("metadata", dict(metadata)),
    }
    try:
        description["sizes"] = sizes_of(kind, parameters, fitted)
    except ValueError as reason:
        raise StoreError(f"this {kind} is not as fit left it: {reason}") from None
    return description, packer.arrays


def _single(name: str, array: Array) -> Array:
    """Floats in single precision; numbers of classes stay."""
    if array.dtype != np.float64:
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    if not np.array_equal(np.isinf(narrow), np.isinf(array)):
        raise StoreError(f"{name} holds numbers beyond single precision; save it without single=True")
    return narrow


def _made(sealed: Sealed, path: PathLike, embed: Any, *, mapped: bool) -> Saved:
    description, arrays, file = sealed
    if description["kind"] not in list(KINDS):  # a forged one may have no hash
        raise StoreError(f"{path}: holds a {str(description['kind'])[:60]!r}; only {', '.join(KINDS)} are loaded")
    try:
        unpack = Unpacker(arrays, RECORDS)
        parameters, fitted = unpack.named(description["parameters"]), unpack.named(description["fitted"])
        metadata = unpack.unpack(description["metadata"])
        shelves = fitted.get(_SHELVES)
        model = getattr(import_module("regard"), description["kind"])(**parameters)
        for name, value in fitted.items():
            if not (name.isidentifier() and name.endswith("_") and name[0] != "_"):
                raise ValueError(f"{name!r} is no name of a fitted attribute")
            if name != _SHELVES:
                setattr(model, name, value)
        if file is not None:
            model._file = file
        if mapped and shelves is not None:
            from regard.model.mapped import mapped_rows

            model._make_rows = mapped_rows(shelves, model.key_, model.value_, model.sample_weight_)
        # Files written before sizes were stated have none; their arrays are checked against each other.
        sizes_of(description["kind"], parameters, fitted, description.get("sizes"))
        if not mapped:
            check_classes(fitted)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as reason:
        raise _KIND.damaged(path, f"{type(reason).__name__}: {reason}") from None
    try:
        if hasattr(model, "_rebuild"):
            model._rebuild(embed)
        elif embed is not None:
            raise ValueError(f"embed is for an AttentionRegressor, and this is a {description['kind']}")
        model._smoother  # noqa: B018  # made here: what does not make one is no model
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as reason:
        raise StoreError(f"{path}: {reason}") from None
    return Saved(model, metadata, str(description["regard"]))

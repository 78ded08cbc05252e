"""Values as JSON and back; arrays are stored apart under a name, as members of a file of ``sealed``.

Anything that JSON cannot represent directly is a dict of one entry, tag → content; so plain dicts have a tag too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.sealed import ARRAY_KINDS

Array = NDArray[Any]


def pack(name: str, value: Any, arrays: dict[str, Array], records: Mapping[str, str], error: type[ValueError]) -> Any:
    """A value as JSON.

    Parameters
    ----------
    name : of the value, in the names of its arrays and in errors.
    arrays : its arrays are added here, by name.
    records : named tuples that a value may be: name in files → path of the class.
    error : raised for a value that cannot be stored.
    """

    def inner(part: Any, item: Any) -> Any:
        return pack(f"{name}/{part}", item, arrays, records, error)

    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in ARRAY_KINDS:
        scalar = isinstance(value, np.generic)
        if scalar or type(value) is np.ndarray:
            arrays[f"{name}.npy"] = np.asarray(value)
            return {"scalar" if scalar else "array": f"{name}.npy"}
    if type(value) is np.ndarray and value.dtype == object:
        items = [inner(number, item) for number, item in enumerate(value.ravel().tolist())]
        return {"objects": {"shape": list(value.shape), "items": items}}
    if isinstance(value, tuple) and (record := _record_name(type(value), records)) is not None:
        return {"record": [record, pack(name, tuple(value), arrays, records, error)]}
    if type(value) in (list, tuple):
        items = [inner(number, item) for number, item in enumerate(value)]
        return items if type(value) is list else {"tuple": items}
    if type(value) is dict:
        pairs = enumerate(value.items())
        return {"dict": [[inner(f"{n}/key", key), inner(f"{n}/value", item)] for n, (key, item) in pairs]}
    raise error(f"{name} holds a {type(value).__qualname__}, which a model file cannot hold")


def unpack(value: Any, arrays: Mapping[str, Array], records: Mapping[str, str]) -> Any:
    """The inverse of ``pack``."""

    def inner(item: Any) -> Any:
        return unpack(item, arrays, records)

    if isinstance(value, list):
        return [inner(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "array":
        return arrays[content]
    if tag == "scalar":
        return arrays[content][()]
    if tag == "float":
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]
    if tag == "tuple":
        return tuple(inner(item) for item in content)
    if tag == "record":
        name, items = content
        return _record_class(records[name])(*inner(items))
    if tag == "dict":
        return {inner(key): inner(item) for key, item in content}
    if tag == "objects":
        out = np.empty(len(content["items"]), object)
        out[:] = [inner(item) for item in content["items"]]
        return out.reshape(content["shape"])
    raise ValueError(f"unknown tag {tag!r}")


def _record_name(kind: type, records: Mapping[str, str]) -> str | None:
    """The name in files of a record; None for other classes, even of the same name."""
    return next(
        (name for name, path in records.items() if path.endswith(f".{kind.__name__}") and _record_class(path) is kind),
        None,
    )


def _record_class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)

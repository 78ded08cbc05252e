"""Values as JSON and back; arrays are set aside under a name, for ``sealed`` to hold.

Whatever JSON cannot say plainly is a dict of one entry, tag → content, so plain dicts have a tag too.
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


class Packer:
    """Values as JSON.

    Parameters
    ----------
    records : tuples with named fields that a value may be: name in files → class, with its module.
    error : what a value that cannot be packed raises.
    """

    def __init__(self, records: Mapping[str, str], error: type[ValueError]) -> None:
        self.arrays: dict[str, Array] = {}
        self._records, self._error = records, error

    def named(self, where: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.pack(f"{where}/{name}", value) for name, value in values.items()}

    def pack(self, where: str, value: Any) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.generic) and value.dtype.kind in ARRAY_KINDS:
            return {"scalar": self._aside(where, np.asarray(value))}
        if type(value) is np.ndarray and value.dtype.kind in ARRAY_KINDS:
            return {"array": self._aside(where, value)}
        if type(value) is np.ndarray and value.dtype == object:
            items = [self.pack(f"{where}/{number}", item) for number, item in enumerate(value.ravel().tolist())]
            return {"objects": {"shape": list(value.shape), "items": items}}
        if isinstance(value, tuple) and (name := self._name_of(type(value))) is not None:
            return {"record": [name, self.pack(where, tuple(value))]}
        if type(value) in (list, tuple):
            items = [self.pack(f"{where}/{number}", item) for number, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if type(value) is dict:
            pairs = [
                [self.pack(f"{where}/{number}/key", key), self.pack(f"{where}/{number}/value", item)]
                for number, (key, item) in enumerate(value.items())
            ]
            return {"dict": pairs}
        raise self._error(f"{where} holds a {type(value).__qualname__}, which a model file cannot hold")

    def _name_of(self, kind: type) -> str | None:
        """The name in files of a record; None of other classes, also where they are called alike."""
        called = [name for name, path in self._records.items() if path.rpartition(".")[2] == kind.__name__]
        return next((name for name in called if _record(self._records, name) is kind), None)

    def _aside(self, where: str, array: Array) -> str:
        name = f"{where}.npy"
        self.arrays[name] = array
        return name


class Unpacker:
    """The inverse of ``Packer``, for the arrays it set aside and the records it knew."""

    def __init__(self, arrays: Mapping[str, Array], records: Mapping[str, str]) -> None:
        self._arrays, self._records = arrays, records

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.unpack(value) for name, value in values.items()}

    def unpack(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.unpack(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((tag, content),) = value.items()
        if tag == "array":
            return self._arrays[content]
        if tag == "scalar":
            return self._arrays[content][()]
        if tag == "float":
            return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]
        if tag == "tuple":
            return tuple(self.unpack(item) for item in content)
        if tag == "record":
            name, items = content
            return _record(self._records, name)(*self.unpack(items))
        if tag == "dict":
            return {self.unpack(key): self.unpack(item) for key, item in content}
        if tag == "objects":
            out = np.empty(len(content["items"]), object)
            out[:] = [self.unpack(item) for item in content["items"]]
            return out.reshape(content["shape"])
        raise ValueError(f"{tag!r} is no kind of value")


def _record(records: Mapping[str, str], name: str) -> Any:
    module, _, called = records[name].rpartition(".")
    return getattr(import_module(module), called)

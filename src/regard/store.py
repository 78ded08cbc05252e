"""Save and load: one versioned, checksummed file per model, and nothing in it is ever executed.

The file is an ordinary zip, stored without compression, that any zip tool opens:

    fitted/key_.npy, …   one array each, as plain .npy
    model.json           format and version, kind, parameters, fitted attributes, metadata, SHA-256 of each array
    (zip comment)        "sha256:" and the SHA-256 of every byte before it

so a flipped byte or a missing end is noticed wherever it is. Parameters are those of ``get_params``; fitted
attributes are the public ones that end in ``_``. Loading makes a fresh estimator of a listed kind and sets them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import zipfile
from collections.abc import Mapping
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from regard.data.files import PathLike, atomic_write, open_regular

Array = NDArray[Any]

FORMAT = "regard-model"
VERSION = 1
# Only these classes of ``regard`` are ever made from a file.
KINDS = (
    "AttentionRegressor",
    "AveragePoolingRegressor",
    "KernelClassifier",
    "KernelRegressor",
    "LocalLinearRegressor",
    "NadarayaWatsonClassifier",
    "NadarayaWatsonRegressor",
    "NearestKeyRegressor",
)
# Tuples with named fields that a fitted attribute may be: name → module.
RECORDS = {
    "Head": "regard.bandwidth.heads",
    "HeadSearch": "regard.bandwidth.heads",
    "History": "regard.estimators.attention",
    "NeighbourSearch": "regard.bandwidth.adaptive",
    "Scaling": "regard.bandwidth.scaling",
    "Search": "regard.bandwidth.search",
}
_DESCRIPTION = "model.json"
_SEAL = b"sha256:"
_HEX = 64
_BLOCK = 1 << 20
_ARRAY_KINDS = "biufU"  # booleans, integers, floats, text: what .npy holds without pickle


class StoreError(ValueError):
    """A model that cannot be saved, or a file that is no model, is damaged or is not ours to read."""


class Saved(NamedTuple):
    """What a model file holds."""

    model: Any
    metadata: dict[str, Any]  # what ``save`` was given
    regard_version: str  # of the library that wrote it


def save(model: Any, path: PathLike, *, metadata: Mapping[str, Any] | None = None, force: bool = False) -> None:
    """Write a fitted estimator to one file, whole or not at all.

    Parameters
    ----------
    model : a fitted estimator of one of ``KINDS``.
    path : the file; one that exists, or a link, is refused unless ``force``.
    metadata : plain data to keep with the model (None, booleans, numbers, text, arrays, lists, tuples, dicts).
    force : replace what is there. If writing fails, what was there stays.

    Raises StoreError. *Cost*: O(size of the fitted arrays).
    """
    description, arrays = _describe(model, metadata or {})
    with atomic_write(path, force=force, error=StoreError) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                description["members"][name] = _write_array(archive, name, array)
            text = json.dumps(description, ensure_ascii=False, allow_nan=False, indent=1)
            archive.writestr(_member(_DESCRIPTION), text.encode("utf-8", "surrogatepass"))
            archive.comment = _SEAL + b"0" * _HEX
        end = file.seek(0, os.SEEK_END) - _HEX
        digest = _digest(file, end)
        file.seek(end)
        file.write(digest)


def load(path: PathLike, *, embed: Any = None) -> Any:
    """The estimator that ``save`` wrote; it predicts the same to the last bit.

    embed : for an ``AttentionRegressor`` whose module is of a class of your own, one made in the same way.

    Raises StoreError for a file that is damaged, cut short, of a newer format, or not a model at all.
    """
    return load_with_metadata(path, embed=embed).model


def load_with_metadata(path: PathLike, *, embed: Any = None) -> Saved:
    """The estimator, the metadata saved with it, and the version of regard that wrote it. Raises as ``load``."""
    with open_regular(path, StoreError) as file:
        _check_seal(file, path)
        try:
            with zipfile.ZipFile(file) as archive:
                return _read(archive, os.fstat(file.fileno()).st_size, path, embed)
        except StoreError:
            raise
        except (
            zipfile.BadZipFile,
            struct.error,
            ArithmeticError,
            EOFError,
            OSError,
            RuntimeError,
            ValueError,
        ) as reason:
            raise _damaged(path, str(reason)) from None
        except MemoryError:
            raise StoreError(f"{path}: does not fit into memory") from None


# ---- writing


def _describe(model: Any, metadata: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    kind = type(model).__name__
    if kind not in KINDS or type(model) is not _resolve(kind):
        raise StoreError(f"model must be one of {', '.join(KINDS)} of regard, got {type(model).__qualname__}")
    fitted = {name: value for name, value in vars(model).items() if name.endswith("_") and name[0] != "_"}
    if not fitted:
        raise StoreError(f"this {kind} is not fitted; there is nothing to save")
    packer = _Packer()
    description = {
        "format": FORMAT,
        "version": VERSION,
        "regard": import_module("regard").__version__,
        "kind": kind,
        "parameters": packer.named("parameters", getattr(model, "_plain_params", model.get_params)(deep=False)),
        "fitted": packer.named("fitted", fitted),
        "metadata": packer.pack("metadata", dict(metadata)),
        "members": {},
    }
    return description, packer.arrays


class _Packer:
    """Values as JSON; arrays are set aside under a name.

    Whatever JSON cannot say plainly is a dict of one entry, tag → content, so plain dicts have a tag too.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def named(self, where: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.pack(f"{where}/{name}", value) for name, value in values.items()}

    def pack(self, where: str, value: Any) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.generic) and value.dtype.kind in _ARRAY_KINDS:
            return {"scalar": self._aside(where, np.asarray(value))}
        if type(value) is np.ndarray and value.dtype.kind in _ARRAY_KINDS:
            return {"array": self._aside(where, value)}
        if type(value) is np.ndarray and value.dtype == object:
            items = [self.pack(f"{where}/{number}", item) for number, item in enumerate(value.ravel().tolist())]
            return {"objects": {"shape": list(value.shape), "items": items}}
        if (
            type(value).__name__ in RECORDS
            and isinstance(value, tuple)
            and type(value) is _record(type(value).__name__)
        ):
            return {"record": [type(value).__name__, self.pack(where, tuple(value))]}
        if type(value) in (list, tuple):
            items = [self.pack(f"{where}/{number}", item) for number, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if type(value) is dict:
            pairs = [
                [self.pack(f"{where}/{number}/key", key), self.pack(f"{where}/{number}/value", item)]
                for number, (key, item) in enumerate(value.items())
            ]
            return {"dict": pairs}
        raise StoreError(f"{where} holds a {type(value).__qualname__}, which a model file cannot hold")

    def _aside(self, where: str, array: Array) -> str:
        name = f"{where}.npy"
        self.arrays[name] = array
        return name


def _member(name: str) -> zipfile.ZipInfo:
    # ZipInfo's own date is the same for ever: the same model gives the same bytes.
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o644 << 16
    return info


def _write_array(archive: zipfile.ZipFile, name: str, array: Array) -> dict[str, Any]:
    with archive.open(_member(name), "w", force_zip64=array.nbytes > zipfile.ZIP64_LIMIT // 2) as member:
        hashing = _Hashing(cast(BinaryIO, member))
        np.lib.format.write_array(hashing, array, version=(1, 0), allow_pickle=False)  # type: ignore[arg-type]
    return {"sha256": hashing.sha256.hexdigest(), "bytes": hashing.count}


class _Hashing:
    """A stream that remembers the SHA-256 and the number of all that passed through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.sha256, self.count = stream, hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        self._saw(data)
        return self._stream.write(data)

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._saw(data)
        return data

    def _saw(self, data: Any) -> None:
        self.sha256.update(data)
        self.count += memoryview(data).nbytes


# ---- reading


def _digest(file: BinaryIO, end: int) -> bytes:
    """SHA-256, in hexadecimal, of the first ``end`` bytes."""
    sha256, left = hashlib.sha256(), end
    file.seek(0)
    while left and (block := file.read(min(left, _BLOCK))):
        sha256.update(block)
        left -= len(block)
    return sha256.hexdigest().encode()


def _check_seal(file: BinaryIO, path: PathLike) -> None:
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if file.read(4) != b"PK\x03\x04":
            raise StoreError(f"{path}: is not a regard model" + ("" if size else "; it is empty"))
        file.seek(max(0, size - _HEX - len(_SEAL)))
        seal = file.read()
        if not seal.startswith(_SEAL):
            raise StoreError(f"{path}: is cut short, or not a regard model")
        if _digest(file, size - _HEX) != seal[len(_SEAL) :]:
            raise StoreError(f"{path}: is damaged; its checksum does not match")
        file.seek(0)
    except OSError as reason:
        raise StoreError(f"{path}: cannot be read ({reason.strerror})") from None


def _read(archive: zipfile.ZipFile, size: int, path: PathLike, embed: Any) -> Saved:
    # The seal tells accidents, not intent: whoever made this file could have sealed anything.
    members = {info.filename: info for info in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise _damaged(path, "a member appears twice")
    if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in members.values()):
        raise _damaged(path, "its members must be stored without compression or encryption")
    if sum(info.file_size for info in members.values()) > size:
        raise _damaged(path, "its members claim more bytes than the file has")
    description = _description(archive, members, path)
    listed = cast(dict[str, Any], description["members"])
    if set(listed) != set(members) - {_DESCRIPTION}:
        raise _damaged(path, "its members are not those it lists")
    arrays = {name: _read_array(archive, members[name], listed[name], path) for name in listed}
    try:
        unpack = _Unpacker(arrays)
        parameters, fitted = unpack.named(description["parameters"]), unpack.named(description["fitted"])
        metadata = unpack.unpack(description["metadata"])
        model = _resolve(description["kind"])(**parameters)
        for name, value in fitted.items():
            if not (name.isidentifier() and name.endswith("_") and name[0] != "_"):
                raise ValueError(f"{name!r} is no name of a fitted attribute")
            setattr(model, name, value)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as reason:
        raise _damaged(path, f"{type(reason).__name__}: {reason}") from None
    try:
        if hasattr(model, "_rebuild"):
            model._rebuild(embed)
        elif embed is not None:
            raise ValueError(f"embed is for an AttentionRegressor, and this is a {description['kind']}")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as reason:
        raise StoreError(f"{path}: {reason}") from None
    return Saved(model, metadata, str(description["regard"]))


def _description(archive: zipfile.ZipFile, members: Mapping[str, Any], path: PathLike) -> dict[str, Any]:
    if _DESCRIPTION not in members:
        raise StoreError(f"{path}: is a zip file, but not a regard model")
    try:
        found = json.loads(archive.read(_DESCRIPTION).decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as reason:
        raise _damaged(path, str(reason)) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise StoreError(f"{path}: is a zip file, but not a regard model")
    version = found.get("version")
    if type(version) is not int or version < 1:
        raise _damaged(path, f"{version!r} is no format version")
    if version > VERSION:
        raise StoreError(
            f"{path}: has format version {version}, written by regard {str(found.get('regard'))[:20]}; "
            f"this regard reads up to version {VERSION}"
        )
    if found.get("kind") not in KINDS:
        raise StoreError(f"{path}: holds a {str(found.get('kind'))[:60]!r}; only {', '.join(KINDS)} are loaded")
    entries = {"parameters": dict, "fitted": dict, "metadata": dict, "members": dict, "regard": str}
    if any(not isinstance(found.get(name), kind) for name, kind in entries.items()):
        raise _damaged(path, f"{_DESCRIPTION} lacks one of {', '.join(entries)}")
    return found


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, listed: Any, path: PathLike) -> Array:
    """One .npy member; nothing is allocated before its claimed size is found to be there."""
    with archive.open(info) as member:
        hashing = _Hashing(cast(BinaryIO, member))
        if np.lib.format.read_magic(hashing) != (1, 0):  # type: ignore[arg-type]
            raise _damaged(path, f"{info.filename} has an unknown header")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(hashing)  # type: ignore[arg-type]
        if dtype.kind not in _ARRAY_KINDS or not dtype.itemsize or min(shape, default=0) < 0:
            raise _damaged(path, f"{info.filename} has dtype {dtype} and shape {shape}")
        if math.prod(shape) * dtype.itemsize != info.file_size - hashing.count:
            raise _damaged(path, f"{info.filename} is not as long as its shape {shape} says")
        flat = np.empty(math.prod(shape), dtype)
        view = flat.view(np.uint8)
        for start in range(0, len(view), _BLOCK):
            part = view[start : start + _BLOCK]
            part[:] = np.frombuffer(hashing.read(len(part)), np.uint8)
    if listed != {"sha256": hashing.sha256.hexdigest(), "bytes": hashing.count}:
        raise _damaged(path, f"{info.filename} is not what {_DESCRIPTION} lists")
    return flat.reshape(shape, order="F" if fortran else "C")


class _Unpacker:
    """The inverse of ``_Packer``."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays

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
            return _record(name)(*self.unpack(items))
        if tag == "dict":
            return {self.unpack(key): self.unpack(item) for key, item in content}
        if tag == "objects":
            out = np.empty(len(content["items"]), object)
            out[:] = [self.unpack(item) for item in content["items"]]
            return out.reshape(content["shape"])
        raise ValueError(f"{tag!r} is no kind of value")


def _resolve(kind: str) -> Any:
    return getattr(import_module("regard"), kind)


def _record(name: str) -> Any:
    return getattr(import_module(RECORDS[name]), name)


def _damaged(path: PathLike, reason: str) -> StoreError:
    return StoreError(f"{path}: is damaged or was not written by regard ({reason[:200]})")

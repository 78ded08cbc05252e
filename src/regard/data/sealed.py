"""Sealed files: JSON and arrays in one checksummed file, of which nothing is ever executed.

The file is an ordinary zip archive without compression:

    fitted/key_.npy, …   one array each, as plain .npy
    model.json           format and version, the caller's description, SHA-256 of each array
    (zip comment)        "sha256:" and the SHA-256 of every byte before it

so a changed byte or a truncation is detected anywhere. ``FileKind`` describes which files are read.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import mmap
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from regard import __version__
from regard.data.files import PathLike, atomic_write, open_regular

Array = NDArray[Any]

ARRAY_KINDS = "biufU"  # booleans, integers, floats, text: what .npy holds without pickle
_DESCRIPTION = "model.json"
_SEAL = b"sha256:"
_HEX = 64
_BLOCK = 1 << 20
# The header that numpy writes before an array, version 1.0: it is matched, never evaluated.
_MAGIC = b"\x93NUMPY\x01\x00"
_SIZE = r"-?\d{1,19}"
_HEADER = re.compile(
    r"\{'descr': '([^']{1,20})', 'fortran_order': (True|False), "
    rf"'shape': \(((?:{_SIZE}, ?)*(?:{_SIZE})?)\),? ?\}} *\n",
    re.ASCII,
)
_DTYPE = re.compile(f"[<>|][{ARRAY_KINDS}][0-9]{{1,9}}")


class FileKind(NamedTuple):
    """A kind of sealed file."""

    format: str  # as written in the file
    version: int  # the newest version that is read
    noun: str  # in error messages
    entries: Mapping[str, type]  # required entries of the description
    error: type[ValueError]

    def damaged(self, path: PathLike, reason: str) -> ValueError:
        return self.error(f"{path}: is damaged or was not written by regard ({reason[:200]})")


class MappedFile:
    """A file whose arrays are read when they are needed, and its state when it was mapped."""

    def __init__(self, file: BinaryIO, path: PathLike, kind: FileKind) -> None:
        self._path, self._kind = os.path.abspath(path), kind
        self._then = os.fstat(file.fileno())
        # The map has a descriptor of its own, which stays valid if the file is renamed or deleted.
        self._map = mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)

    def check(self) -> None:
        """Raise an error if the file was truncated or written to: reading beyond its end would kill the process."""
        then, size = self._then, self._map.size()
        if size < then.st_size:
            change = f"was truncated from {then.st_size:,} to {size:,} bytes"
            raise self._kind.error(f"{self._path}: {change} since it was mapped; load it again")
        try:
            now = os.stat(self._path)
        except OSError:
            return  # deleted; the mapping stays valid
        if (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino) and now.st_mtime_ns != then.st_mtime_ns:
            raise self._kind.error(f"{self._path}: was modified since it was mapped; load it again")

    def __reduce__(self) -> Any:
        # A pickle contains the arrays themselves.
        return type(None), ()


class Sealed(NamedTuple):
    """The contents of a sealed file."""

    description: dict[str, Any]
    arrays: dict[str, Array]
    file: MappedFile | None  # if the arrays are mapped


def write_sealed(
    path: PathLike, kind: FileKind, description: Mapping[str, Any], arrays: Mapping[str, Array], *, force: bool
) -> None:
    """Write both to one file, whole or not at all; an existing file is replaced only if ``force``.

    *Cost*: O(size of the arrays).
    """
    content = {"format": kind.format, "version": kind.version, "regard": __version__, **description, "members": {}}
    with atomic_write(path, force=force, error=kind.error) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                content["members"][name] = _write_array(archive, name, array)
            text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1)
            archive.writestr(_member(_DESCRIPTION), text.encode("utf-8", "surrogatepass"))
            archive.comment = _SEAL + b"0" * _HEX
        end = file.seek(0, os.SEEK_END) - _HEX
        digest = _digest(file, end)
        file.seek(end)
        file.write(digest)


def read_sealed(path: PathLike, kind: FileKind, *, mapped: bool = False) -> Sealed:
    """What ``write_sealed`` wrote. Raises ``kind.error`` for a file that is damaged, truncated, newer, or another.

    ``mapped``: arrays stay in the file, which must not change meanwhile, and are read when they are needed. Then only
    the description is checked: a changed byte inside an array is not detected.
    """
    with open_regular(path, kind.error) as file:
        _check_seal(file, path, kind, whole=not mapped)
        try:
            with zipfile.ZipFile(file) as archive:
                return _read(archive, file, path, kind, mapped=mapped)
        except kind.error:
            raise
        except (
            zipfile.BadZipFile,
            struct.error,
            ArithmeticError,
            EOFError,
            LookupError,
            OSError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as reason:
            raise kind.damaged(path, str(reason)) from None
        except MemoryError:
            raise kind.error(f"{path}: does not fit into memory") from None


def _member(name: str) -> zipfile.ZipInfo:
    # The default date of ZipInfo is constant: the same model gives the same bytes.
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o644 << 16
    return info


def _write_array(archive: zipfile.ZipFile, name: str, array: Array) -> dict[str, Any]:
    with archive.open(_member(name), "w", force_zip64=array.nbytes > zipfile.ZIP64_LIMIT // 2) as member:
        hashing = _Hashing(cast(BinaryIO, member))
        np.lib.format.write_array(hashing, array, version=(1, 0), allow_pickle=False)  # type: ignore[arg-type]
    return {"sha256": hashing.sha256.hexdigest(), "bytes": hashing.count, "head": hashing.head}


class _Hashing:
    """A stream that computes the SHA-256 and the number of the bytes read or written."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.sha256, self.count = stream, hashlib.sha256(), 0
        self.head: list[Any] = []  # length and SHA-256 of the first call: of an array, its header

    def write(self, data: Any) -> int:
        self._update(data)
        return self._stream.write(data)

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._update(data)
        return data

    def _update(self, data: Any) -> None:
        self.sha256.update(data)
        self.count += memoryview(data).nbytes
        self.head = self.head or [self.count, self.sha256.hexdigest()]


def _digest(file: BinaryIO, end: int) -> bytes:
    """SHA-256, in hexadecimal, of the first ``end`` bytes."""
    sha256, left = hashlib.sha256(), end
    file.seek(0)
    while left and (block := file.read(min(left, _BLOCK))):
        sha256.update(block)
        left -= len(block)
    return sha256.hexdigest().encode()


def _check_seal(file: BinaryIO, path: PathLike, kind: FileKind, *, whole: bool) -> None:
    try:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if file.read(4) != b"PK\x03\x04":
            raise kind.error(f"{path}: is not a {kind.noun}" + ("" if size else "; it is empty"))
        file.seek(max(0, size - _HEX - len(_SEAL)))
        seal = file.read()
        if not seal.startswith(_SEAL):
            raise kind.error(f"{path}: is truncated, or not a {kind.noun}")
        if whole and _digest(file, size - _HEX) != seal[len(_SEAL) :]:
            raise kind.error(f"{path}: is damaged; its checksum does not match")
        file.seek(0)
    except OSError as reason:
        raise kind.error(f"{path}: cannot be read ({reason.strerror})") from None


def _read(archive: zipfile.ZipFile, file: BinaryIO, path: PathLike, kind: FileKind, *, mapped: bool) -> Sealed:
    """The contents of an archive. Raises ``kind.error`` for a file of another kind, other errors for a damaged one."""
    # The seal detects accidents, not intent: a forged file may have a valid one.
    members = {info.filename: info for info in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise ValueError("a member appears twice")
    if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in members.values()):
        raise ValueError("its members must be stored without compression or encryption")
    if sum(info.file_size for info in members.values()) > os.fstat(file.fileno()).st_size:
        raise ValueError("its members claim more bytes than the file has")
    found = json.loads(archive.read(_DESCRIPTION).decode("utf-8", "surrogatepass")) if _DESCRIPTION in members else None
    if not isinstance(found, dict) or found.get("format") != kind.format:
        raise kind.error(f"{path}: is a zip file, but not a {kind.noun}")
    version = found.get("version")
    if type(version) is not int or version < 1:
        raise ValueError(f"{version!r} is not a format version")
    if version > kind.version:
        raise kind.error(
            f"{path}: has format version {version}, written by regard {str(found.get('regard'))[:20]}; "
            f"this regard reads up to version {kind.version}"
        )
    entries = {**kind.entries, "members": dict}
    if any(not isinstance(found.get(name), wanted) for name, wanted in entries.items()):
        raise ValueError(f"{_DESCRIPTION} lacks one of {', '.join(entries)}")
    listed: dict[str, Any] = found["members"]
    if set(listed) != set(members) - {_DESCRIPTION}:
        raise ValueError("its members are not those it lists")
    arrays = {
        name: _mapped_array(archive, members[name], of, file) if mapped else _read_array(archive, members[name], of)
        for name, of in listed.items()
    }
    return Sealed(found, arrays, MappedFile(file, path, kind) if mapped else None)


def _header(stream: _Hashing, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    """Shape, order and dtype from the header of a .npy member, whose length is checked against them."""
    first = stream.read(len(_MAGIC) + 2)
    text = stream.read(int.from_bytes(first[len(_MAGIC) :], "little"))
    found = _HEADER.fullmatch(text.decode("latin-1"))
    if first[: len(_MAGIC)] != _MAGIC or found is None:
        raise ValueError(f"{info.filename} has an unknown header")
    descr, order, sizes = found.groups()
    shape = tuple(int(size) for size in sizes.split(",") if size.strip())
    known = _DTYPE.fullmatch(descr) is not None
    if not known or min(shape, default=0) < 0 or not np.dtype(descr).itemsize:
        raise ValueError(f"{info.filename} has dtype {'object' if descr == '|O' else descr} and shape {shape}")
    dtype = np.dtype(descr)
    if math.prod(shape) * dtype.itemsize != info.file_size - stream.count:
        raise ValueError(f"{info.filename} is not as long as its shape {shape} says")
    return shape, "F" if order == "True" else "C", dtype


def _mapped_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, listed: Any, file: BinaryIO) -> Array:
    """One .npy member mapped from the file, read-only; its header is checked against the description."""
    with archive.open(info) as member:
        first = member.read(min(listed["head"][0], info.file_size))
    if [len(first), hashlib.sha256(first).hexdigest()] != listed["head"]:
        raise ValueError(f"{info.filename} is not what {_DESCRIPTION} lists")
    stream = _Hashing(io.BytesIO(first))
    shape, order, dtype = _header(stream, info)
    # The local header of a member is 30 bytes, its name, and extra fields.
    file.seek(info.header_offset)
    local = file.read(30)
    start = info.header_offset + 30 + sum(struct.unpack("<HH", local[26:30])) + stream.count
    if not math.prod(shape):
        return np.empty(shape, dtype, order)
    return np.asarray(np.memmap(file, dtype, "r", start, shape, order))


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, listed: Any) -> Array:
    """One .npy member; nothing is allocated before its claimed size is checked."""
    with archive.open(info) as member:
        hashing = _Hashing(cast(BinaryIO, member))
        shape, order, dtype = _header(hashing, info)
        flat = np.empty(math.prod(shape), dtype)
        view = flat.view(np.uint8)
        for start in range(0, len(view), _BLOCK):
            part = view[start : start + _BLOCK]
            part[:] = np.frombuffer(hashing.read(len(part)), np.uint8)
    if (listed["sha256"], listed["bytes"]) != (hashing.sha256.hexdigest(), hashing.count):
        raise ValueError(f"{info.filename} is not what {_DESCRIPTION} lists")
    return flat.reshape(shape, order=order)

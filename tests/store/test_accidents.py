"""Files cut short or flipped, and disks that are full (lines 104, 105 and 107 of the list)."""

from __future__ import annotations

import errno
import os
import random
import resource
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.data import files
from regard.store.models import StoreError, load, save
from support.models import MODELS, fitted
from support.soak import FULL

# ---- 104, 105: accidents


def test_104_cut_short_anywhere(path: Path, content: bytes) -> None:
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(StoreError, match=r"model\.regard: "):
            load(path)


def test_104_with_more_at_the_end(path: Path, content: bytes) -> None:
    for more in (b"\0", b"\n", content):
        path.write_bytes(content + more)
        if more == content:  # two whole files in a row: the last seal covers only its own half
            with pytest.raises(StoreError, match="checksum"):
                load(path)
        else:
            with pytest.raises(StoreError, match="truncated"):
                load(path)


def test_104_cut_short_anywhere_and_mapped(path: Path, content: bytes) -> None:
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(StoreError, match=r"model\.regard: "):
            load(path, mapped=True)


def flipped(content: bytes) -> Iterator[tuple[int, bytearray]]:
    """Every byte of a file changed: in one way, or in a soak bit by bit. Where, and the whole file."""
    damaged = bytearray(content)
    picks = random.Random(0)
    for where in range(len(content)):
        for flip in [1 << bit for bit in range(8)] if FULL else [picks.randrange(1, 256)]:
            damaged[where] ^= flip
            yield where, damaged
            damaged[where] ^= flip


def test_105_every_flipped_byte(path: Path, content: bytes) -> None:
    for _, damaged in flipped(content):
        path.write_bytes(damaged)
        with pytest.raises(StoreError):
            load(path)


def test_105_every_flipped_byte_and_mapped(path: Path, content: bytes) -> None:
    """Dates and such in the zip's own tables are not read; a model that is made is the one that was saved."""
    saved = fitted()
    for _, damaged in flipped(content):
        path.write_bytes(damaged)
        with suppress(StoreError):
            made = load(path, mapped=True)
            assert type(made) is type(saved)
            assert made.get_params() == saved.get_params()
            for name in ("key_", "value_", "w_", "bandwidth_", "n_features_in_"):
                assert np.array_equal(getattr(made, name), getattr(saved, name))


def test_105_flipped_headers_of_long_arrays_that_are_mapped(path: Path) -> None:
    """Of a long array only the header is read: every byte of it counts. What follows is not read."""
    X = np.linspace(0.0, 5.0, 3000)[:, None]
    save(regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(X, X[:, 0]), path)
    content = path.read_bytes()
    start = content.index(b"\x93NUMPY")
    dtype = content.index(b"<f8", start)
    picks = random.Random(0)
    for where in range(start, content.index(b"\n", start) + 1):
        others = [byte for byte in range(256) if byte != content[where]]
        # Among these "<i8" and ">f8", which are as long.
        for byte in others if FULL or dtype <= where < dtype + 3 else picks.sample(others, 1):
            path.write_bytes(content[:where] + bytes([byte]) + content[where + 1 :])
            try:
                made = load(path, mapped=True)
            except StoreError:
                continue
            assert np.array_equal(made.key_, X), where


# ---- 107: writing goes wrong; test_kills has line 106


def full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk:
    """A file whose disk is full after some bytes."""

    def __init__(self, room: int, *place: Any) -> None:
        self._file, self._room = open(*place), room  # noqa: SIM115

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        self._room -= len(data)
        if self._room < 0:
            full_disk()
        return self._file.write(data)


@pytest.mark.parametrize("room", [0, 10, 200, 700, 1500, 2200, None])
@pytest.mark.parametrize("before", [True, False])
def test_107_a_full_disk_leaves_the_old_file(room: int | None, before: bool, path: Path, monkeypatch) -> None:
    if before:
        save(fitted(), path)
    old = path.read_bytes() if before else None
    if room is None:
        monkeypatch.setattr(os, "fsync", full_disk)
    else:
        monkeypatch.setattr(files, "open", partial(FullDisk, room), raising=False)
    with pytest.raises(StoreError, match=r"model\.regard: cannot be written \(no space left on device\)"):
        save(fitted(), path, force=True)
    assert os.listdir(path.parent) == ([path.name] if before else [])
    assert not before or path.read_bytes() == old


def test_107_the_kernel_says_no(path: Path) -> None:
    save(fitted(), path)
    old = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            save(fitted(), path, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_ctrl_c_leaves_nothing_behind(where: str, path: Path, monkeypatch) -> None:
    save(fitted(), path)
    old = path.read_bytes()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, where, interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(MODELS["rule"](), path, force=True)
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]

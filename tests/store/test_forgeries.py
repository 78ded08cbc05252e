"""Model files that regard did not write: whatever is not a whole model is refused (lines 108 and 109 of the list)."""

from __future__ import annotations

import io
import pickle
import random
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.data import packing
from regard.data import sealed as sealed_files
from regard.store import models as store
from regard.store.models import StoreError, load
from support.forgery import archive, forged, sealed
from support.soak import FULL

FLIPS = 20_000 if FULL else 2_000


def npy(header: dict[str, Any], data: bytes) -> bytes:
    text = repr(header).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def test_a_faithful_forgery_loads(path: Path, content: bytes) -> None:
    path.write_bytes(forged(content))
    assert load(path).bandwidth_ == 0.5


FORGERIES = {
    "108 newer format": (
        lambda d: d.update(version=2),
        "format version 2, written by regard .*; this regard reads up to",
    ),
    "108 no version": (lambda d: d.update(version="1"), "not a format version"),
    "108 another format": (lambda d: d.update(format="other"), "not a regard model"),
    "108 wrong kind": (lambda d: d.update(kind="RandomForest"), "holds a 'RandomForest'; only"),
    "108 a name of regard that is no kind": (lambda d: d.update(kind="load"), "holds a 'load'; only"),
    "108 a kind that is no name": (lambda d: d.update(kind=["x"]), "only"),
    "unknown parameter": (lambda d: d["parameters"].update(evil=1), "unexpected keyword"),
    "parameter of another kind": (lambda d: d.update(kind="AveragePoolingRegressor"), "TypeError"),
    "private attribute": (lambda d: d["fitted"].update(__class__="x"), "not the name of a fitted attribute"),
    "method": (lambda d: d["fitted"].update(predict="x"), "not the name of a fitted attribute"),
    "property": (lambda d: d["fitted"].update(attention_score_="x"), "AttributeError"),
    "unknown tag": (lambda d: d["fitted"].update(x_={"call": "os.system"}), "unknown tag"),
    "two tags": (lambda d: d["fitted"].update(x_={"array": "a", "float": "inf"}), "ValueError"),
    "array that is not there": (lambda d: d["fitted"].update(x_={"array": "x"}), "KeyError"),
    "odd float": (lambda d: d["fitted"].update(x_={"float": "1e9"}), "KeyError"),
    "list as a key": (lambda d: d["fitted"].update(x_={"dict": [[[], 1]]}), "TypeError"),
    "shape that does not fit": (
        lambda d: d["fitted"].update(x_={"objects": {"shape": [3], "items": []}}),
        "ValueError",
    ),
    "member not listed": (lambda d: d["members"].pop("fitted/key_.npy"), "members are not those it lists"),
    "member too many": (lambda d: d["members"].update(x={}), "members are not those it lists"),
    "wrong digest": (lambda d: d["members"]["fitted/key_.npy"].update(sha256="0"), "is not what model.json lists"),
    "wrong size": (lambda d: d["members"]["fitted/key_.npy"].update(bytes=1), "is not what model.json lists"),
    "no parameters": (lambda d: d.pop("parameters"), "lacks one of"),
    "members of another type": (lambda d: d.update(members=[]), "lacks one of"),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_108_forged_descriptions(case: str, path: Path, content: bytes) -> None:
    change, words = FORGERIES[case]
    path.write_bytes(forged(content, change))
    with pytest.raises(StoreError, match=words):
        load(path)


ARRAYS = {
    "objects": (npy({"descr": "|O", "fortran_order": False, "shape": (1,)}, pickle.dumps([1])), "dtype object"),
    "larger than it is": (
        npy({"descr": "<f8", "fortran_order": False, "shape": (10**15, 1)}, b"\0" * 8),
        "not as long",
    ),
    "larger than anything": (
        npy({"descr": "<f8", "fortran_order": False, "shape": (2**62, 2**62)}, b""),
        "not as long",
    ),
    "longer than it says": (npy({"descr": "<f8", "fortran_order": False, "shape": (1,)}, b"\0" * 16), "not as long"),
    "negative": (npy({"descr": "<f8", "fortran_order": False, "shape": (-1, -1)}, b"\0" * 8), "shape"),
    "endless nothing": (npy({"descr": "<U0", "fortran_order": False, "shape": (10**15,)}, b""), "dtype"),
    "empty but vast": (npy({"descr": "<f8", "fortran_order": False, "shape": (0, 2**62, 2**62)}, b""), "damaged"),
    "many axes": (npy({"descr": "<f8", "fortran_order": False, "shape": (1,) * 200}, b"\0" * 8), "damaged"),
    "times": (npy({"descr": "<M8[s]", "fortran_order": False, "shape": (1,)}, b"\0" * 8), "dtype"),
    "code": (npy({"descr": "<f8", "fortran_order": False, "shape": "__import__('os')"}, b""), "damaged"),
    "no array": (b"hello", "damaged"),
    "nothing": (b"", "damaged"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_forged_arrays(case: str, path: Path, content: bytes) -> None:
    data, words = ARRAYS[case]
    path.write_bytes(forged(content, key_=data))
    with pytest.raises(StoreError, match=words):
        load(path)


def test_a_zip_bomb_is_not_unpacked(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    path.write_bytes(archive(members, zipfile.ZIP_DEFLATED))
    with pytest.raises(StoreError, match="stored without compression"):
        load(path)


def test_sizes_that_lie(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        info = old.infolist()[0]
    size = info.file_size.to_bytes(4, "little")
    lie = (2**31).to_bytes(4, "little")
    path.write_bytes(sealed(content.replace(size + size, lie + lie)))
    with pytest.raises(StoreError, match="claim more bytes than the file has"):
        load(path)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"readme.txt": b"hello"}, "not a regard model"),
        ({"model.json": b"{"}, "damaged"),
        ({"model.json": b"[" * 100_000}, "damaged"),
        ({"model.json": b"\xff"}, "damaged"),
        ({"model.json": b"[]"}, "not a regard model"),
        ({"model.json": b'{"format": "regard-model", "version": ' + b"9" * 5000 + b"}"}, "damaged"),
    ],
)
def test_other_zips(members: dict[str, bytes], words: str, path: Path) -> None:
    path.write_bytes(archive(members))
    with pytest.raises(StoreError, match=words):
        load(path)


class Trap:
    """Unpickling this would leave a mark."""

    sprung = False

    def __reduce__(self) -> Any:
        return (setattr, (Trap, "sprung", True))


def test_109_a_pickle_by_another_name_is_never_executed(path: Path, content: bytes) -> None:
    trap = pickle.dumps(Trap())
    object_array = io.BytesIO()
    np.save(object_array, np.array([Trap()], object), allow_pickle=True)
    for attempt in (trap, archive({"model.json": trap}), forged(content, key_=trap)):
        path.write_bytes(attempt)
        with pytest.raises(StoreError):
            load(path)
    path.write_bytes(forged(content, key_=object_array.getvalue()))
    with pytest.raises(StoreError, match="dtype object"):
        load(path)
    assert not Trap.sprung
    pickle.loads(trap)
    assert Trap.sprung  # the trap itself works


def test_the_store_knows_no_pickle() -> None:
    for module in (store, sealed_files, packing):
        source = Path(module.__file__).read_text()
        assert "import pickle" not in source
        assert "allow_pickle=True" not in source


def test_damage_with_a_seal_that_fits(path: Path, content: bytes) -> None:
    picks = random.Random(0)
    for _ in range(FLIPS):
        damaged = bytearray(content)
        for _ in range(picks.randrange(1, 4)):
            damaged[picks.randrange(len(content) - 64)] = picks.choice((0, 1, 255, picks.randrange(256)))
        path.write_bytes(sealed(bytes(damaged)))
        # Any other exception than a StoreError fails the test.
        with suppress(StoreError):
            assert type(load(path)).__name__ in store.KINDS

"""Saved models: they come back to the last bit, and whatever is not a whole model is refused (lines 104–109)."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import pickle
import random
import resource
import subprocess
import sys
import zipfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import regard
from regard import store
from regard.data import files, notes
from regard.store import StoreError, load, load_with_metadata, save

FULL = bool(os.environ.get("REGARD_SOAK"))
KILLS = 50 if FULL else 5
FLIPS = 20_000 if FULL else 2_000


def fitted() -> Any:
    data = notes()
    return regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(data.x_train[:, None], data.y_train)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.regard"


@pytest.fixture
def content(path: Path) -> bytes:
    save(fitted(), path)
    return path.read_bytes()


# ---- there and back

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))
QUERIES = rng.normal(size=(15, 3))
NUMBERS, PAIRS = rng.normal(size=40), rng.normal(size=(40, 2))
FRAME = pandas.DataFrame(X, columns=["a", "b", "c"])
MODELS = {
    "average": lambda: regard.AveragePoolingRegressor().fit(X, NUMBERS),
    "nearest": lambda: regard.NearestKeyRegressor().fit(X, NUMBERS),
    "number": lambda: regard.NadarayaWatsonRegressor(bandwidth=0.7).fit(X, NUMBERS),
    "rule": lambda: regard.NadarayaWatsonRegressor(kernel="epanechnikov", bandwidth="silverman").fit(X, NUMBERS),
    "per feature": lambda: regard.NadarayaWatsonRegressor(bandwidth=[0.5, math.inf, 2.0]).fit(X, NUMBERS),
    "array parameter": lambda: regard.NadarayaWatsonRegressor(bandwidth=np.array([0.5, 1.0, 2.0])).fit(X, NUMBERS),
    "several targets": lambda: regard.NadarayaWatsonRegressor().fit(X, PAIRS),
    "float32": lambda: regard.NadarayaWatsonRegressor().fit(X.astype(np.float32), NUMBERS),
    "repetitions": lambda: regard.NadarayaWatsonRegressor().fit(X, NUMBERS, sample_weight=np.arange(40)),
    "importances": lambda: regard.NadarayaWatsonRegressor().fit(X, NUMBERS, sample_weight=np.arange(40) / 7),
    "names": lambda: regard.NadarayaWatsonRegressor().fit(FRAME, NUMBERS),
    "classes": lambda: regard.NadarayaWatsonClassifier().fit(X, NUMBERS > 0),
    "text classes": lambda: regard.NadarayaWatsonClassifier(empty="prior").fit(X, np.where(NUMBERS > 0, "up", "数")),
    "object classes": lambda: regard.NadarayaWatsonClassifier().fit(
        FRAME, np.where(NUMBERS > 0, "u", "d").astype(object)
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model_comes_back_to_the_last_bit(case: str, path: Path) -> None:
    model = MODELS[case]()
    save(model, path)
    back = load(path)
    assert type(back) is type(model)
    assert back.get_params().keys() == model.get_params().keys()
    saved = {name for name in vars(model) if name.endswith("_")}
    assert {name for name in vars(back) if name.endswith("_")} == saved
    for name in saved:
        assert type(getattr(back, name)) is type(getattr(model, name))
        if isinstance(getattr(model, name), np.ndarray):
            assert getattr(back, name).dtype == getattr(model, name).dtype
    queries = pandas.DataFrame(QUERIES, columns=FRAME.columns) if hasattr(model, "feature_names_in_") else QUERIES
    for query in (queries, queries.astype(np.float32)):
        assert np.array_equal(back.predict(query), model.predict(query))
        assert np.array_equal(back.attend(query), model.attend(query))


def test_the_same_model_gives_the_same_bytes(path: Path, content: bytes) -> None:
    save(load(path), path, force=True)
    assert path.read_bytes() == content


def test_any_zip_tool_opens_it(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        described = json.loads(archive.read("model.json"))
        assert np.array_equal(np.load(io.BytesIO(archive.read("fitted/key_.npy"))), fitted().key_)
    assert (described["format"], described["version"], described["regard"]) == ("regard-model", 1, regard.__version__)


def kind_of(value: Any) -> str:
    # An address in a test's name would differ from worker to worker.
    return type(value).__name__


VALUES = [
    *(None, True, False, 0, -(2**70), 0.1, -0.0, math.inf, -math.inf, math.nan, "", "数\n\x00\ud800"),
    *([], [1, [2.5, None]], (), (1, ("a",)), {}, {"a": {1: (2,)}, "array": "x"}, {(1, 2): "tuple key"}),
    *(np.float64(0.1), np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("text")),
    *(np.zeros((0, 3)), np.arange(6).reshape(2, 3).T, np.array(7.5), np.array(["a", "bcd"]), np.array([True])),
    *(np.array([1, 2], ">i2"), np.array([["a", None], [1, 2.5]], object), np.array([np.nan, np.inf, -0.0], np.float16)),
]


@pytest.mark.parametrize("value", VALUES, ids=kind_of)
def test_every_kind_of_value_comes_back(value: Any, path: Path) -> None:
    save(fitted(), path, metadata={"value": value})
    back = load_with_metadata(path).metadata["value"]
    assert type(back) is type(value)
    if isinstance(value, np.ndarray):
        assert (back.dtype, back.shape, back.flags.f_contiguous) == (value.dtype, value.shape, value.flags.f_contiguous)
        assert back.tobytes() == value.tobytes() if value.dtype != object else back.tolist() == value.tolist()
    else:
        assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, b"bytes", 1j, np.array([1j]), np.datetime64("2020"), print, np.array([object()])],
    ids=kind_of,
)
def test_values_a_file_cannot_hold_are_named(value: Any, path: Path) -> None:
    with pytest.raises(StoreError, match="holds a"):
        save(fitted(), path, metadata={"value": value})
    model = fitted()
    model.extra_ = value
    with pytest.raises(StoreError, match="fitted/extra_"):
        save(model, path)
    assert not path.exists()


def test_private_attributes_stay_behind(path: Path) -> None:
    model = fitted()
    model._secret = object()
    model.__secret_ = object()
    save(model, path)
    assert not any("secret" in name for name in vars(load(path)))


def test_only_fitted_estimators_of_ours_are_saved(path: Path) -> None:
    class Mine(regard.NadarayaWatsonRegressor):
        pass

    impostor = type("NadarayaWatsonRegressor", (), {})()
    for model, words in (
        (regard.NadarayaWatsonRegressor(), "not fitted"),
        (Mine().fit(X, NUMBERS), "got .*Mine"),
        (impostor, "got NadarayaWatsonRegressor"),
        ({"a": 1}, "got dict"),
    ):
        with pytest.raises(StoreError, match=words):
            save(model, path)
    assert not path.exists()


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
            with pytest.raises(StoreError, match="cut short"):
                load(path)


def test_105_every_flipped_byte(path: Path, content: bytes) -> None:
    damaged = bytearray(content)
    picks = random.Random(0)
    for where in range(len(content)):
        flip = picks.randrange(1, 256)
        damaged[where] ^= flip
        path.write_bytes(damaged)
        with pytest.raises(StoreError):
            load(path)
        damaged[where] ^= flip


# ---- 106, 107: writing goes wrong

KILLED = """
import os, random, signal, sys, time
import numpy as np
import regard

path, kills = sys.argv[1], int(sys.argv[2])
X = np.random.default_rng(0).normal(size=(20_000, 8))
models = [regard.NadarayaWatsonRegressor(bandwidth=float(h)).fit(X, X[:, 0]) for h in (1, 2)]
regard.save(models[0], path)
found = set()
for number in range(kills):
    child = os.fork()
    if child == 0:
        while True:
            for model in models[::-1]:
                regard.save(model, path, force=True)
    time.sleep(random.Random(number).uniform(0.002, 0.08))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    back = regard.load(path)
    assert np.array_equal(back.key_, X)
    found.add(back.bandwidth_)
print(kills, found <= {1.0, 2.0})
"""


def test_106_killed_while_writing(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(KILLS)], capture_output=True, text=True)
    assert done.stdout == f"{KILLS} True\n", done.stderr
    assert all(name == path.name or name.startswith(".regard-") for name in os.listdir(path.parent))


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


# ---- where files may go


def test_what_is_there_stays_without_force(path: Path, tmp_path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(StoreError, match="already exists"):
        save(fitted(), path)
    assert path.read_text() == "precious"
    path.chmod(0o640)
    save(fitted(), path, force=True)
    assert load(path).bandwidth_ == 0.5
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_is_replaced_by_force_and_its_target_stays(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    path.symlink_to(target)
    with pytest.raises(StoreError, match="is a symbolic link"):
        save(fitted(), path)
    save(fitted(), path, force=True)
    assert not path.is_symlink()
    assert target.read_text() == "precious"


@pytest.mark.parametrize("force", [True, False])
def test_places_that_are_never_replaced(force: bool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for name, words in (
        ("pipe", "is a pipe"),
        ("device", "is a device"),
        (".", "is a directory"),
        ("absent/model", "there is no folder"),
        ("x" * 300, "cannot be written"),
        ("a\0b", "cannot be written"),
    ):
        place = tmp_path / name if name != "." else tmp_path
        with pytest.raises(StoreError, match=words):
            save(fitted(), place, force=force)
    assert sorted(os.listdir(tmp_path)) == ["device", "pipe"]


def test_a_name_taken_meanwhile_is_not_overwritten(path: Path, monkeypatch) -> None:
    real = os.fsync

    def meanwhile(descriptor: int) -> None:
        path.write_text("precious")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(StoreError, match="already exists"):
        save(fitted(), path)
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is a directory"),
        (os.mkfifo, "is a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device"),
    ],
)
def test_only_regular_files_are_loaded(make, words: str, path: Path) -> None:
    make(path)
    with pytest.raises(StoreError, match=words):
        load(path)


# ---- 108, 109: files made by somebody else


def sealed(content: bytes) -> bytes:
    """The same file with a seal that fits."""
    return content[:-64] + hashlib.sha256(content[:-64]).hexdigest().encode()


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as zipped:
        for name, data in members.items():
            zipped.writestr(name, data)
        zipped.comment = b"sha256:" + b"0" * 64
    return sealed(buffer.getvalue())


def forged(content: bytes, change: Any = lambda described: None, **arrays: bytes) -> bytes:
    """A model file with its description changed, some arrays replaced, and every checksum right."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    members |= {f"fitted/{name}.npy": data for name, data in arrays.items()}
    described = json.loads(members["model.json"])
    for name in described["members"]:
        digest = hashlib.sha256(members[name]).hexdigest()
        described["members"][name] = {"sha256": digest, "bytes": len(members[name])}
    change(described)
    members["model.json"] = json.dumps(described).encode()
    return archive(members)


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
    "108 no version": (lambda d: d.update(version="1"), "no format version"),
    "108 another format": (lambda d: d.update(format="other"), "not a regard model"),
    "108 wrong kind": (lambda d: d.update(kind="RandomForest"), "holds a 'RandomForest'; only"),
    "108 a name of regard that is no kind": (lambda d: d.update(kind="load"), "holds a 'load'; only"),
    "108 a kind that is no name": (lambda d: d.update(kind=["x"]), "only"),
    "unknown parameter": (lambda d: d["parameters"].update(evil=1), "unexpected keyword"),
    "parameter of another kind": (lambda d: d.update(kind="AveragePoolingRegressor"), "TypeError"),
    "private attribute": (lambda d: d["fitted"].update(__class__="x"), "no name of a fitted attribute"),
    "method": (lambda d: d["fitted"].update(predict="x"), "no name of a fitted attribute"),
    "property": (lambda d: d["fitted"].update(attention_score_="x"), "AttributeError"),
    "unknown tag": (lambda d: d["fitted"].update(x_={"call": "os.system"}), "no kind of value"),
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
    source = Path(store.__file__).read_text()
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

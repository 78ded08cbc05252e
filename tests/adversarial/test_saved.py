"""Saved models of every kind, damaged in every way: lines 104, 105 and 107 to 109 of the list."""

from __future__ import annotations

import errno
import os
import pickle
import random
from contextlib import suppress
from functools import lru_cache

import numpy as np
import pytest

import regard
from regard.store.models import StoreError
from regard.store.onnx import ExportError, export_onnx
from support.adversaries import ALL, FRAME, LABELS, Q, X, Y, answer, fitted
from support.soak import FULL

# Places of a file that are cut or changed: all, or some of each kind of model.
PLACES = 10**9 if FULL else 60
pytestmark = pytest.mark.usefixtures("brief_learning")

TABLE = FRAME.assign(word=np.resize(["red", "blue", "green"], 12), gap=np.where(Y > 0.5, np.nan, 1.0))
OTHERS = {
    "words": lambda: regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(TABLE[["a", "word"]], Y),
    "words and gaps": lambda: regard.LocalLinearRegressor(bandwidth=0.5, missing="ignore").fit(TABLE, Y),
    "heads of words": lambda: regard.KernelRegressor().fit(TABLE[["a", "word"]], Y),
    "sure": lambda: asked(regard.LocalLinearRegressor(bandwidth=0.5).fit(X, Y)),
    "calibrated": lambda: regard.KernelClassifier(calibrate=True).fit(X, LABELS),
    "adaptive": lambda: regard.NadarayaWatsonRegressor(bandwidth="adaptive").fit(X, Y),
    "more rows": lambda: regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(X, Y).partial_fit(Q, Q[:, 0]),
}
KINDS = [*ALL, *OTHERS]
every_kind = pytest.mark.parametrize("kind", KINDS)


def asked(model):
    model.predict_interval(Q)
    return model


@lru_cache
def model_of(kind):
    return fitted(kind) if kind in ALL else OTHERS[kind]()


def answers_of(kind, model):
    """What a model answers, as numbers."""
    if kind in ("words", "heads of words"):
        return model.predict(TABLE[["a", "word"]])
    return model.predict(TABLE) if kind == "words and gaps" else answer(model)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.regard"


def places(content, seed):
    """Some of the bytes of a file, or all; its ends are always among them."""
    if len(content) <= PLACES:
        return range(len(content))
    picked = random.Random(seed).sample(range(len(content)), PLACES)
    return sorted({*picked, 0, 1, len(content) - 1, len(content) - 2})


@every_kind
def test_a_whole_file_answers_the_same(kind, path):
    regard.save(model_of(kind), path)
    expected = answers_of(kind, model_of(kind))
    for mapped in (False, True):
        assert np.array_equal(answers_of(kind, regard.load(path, mapped=mapped)), expected)


@every_kind
def test_104_cut_short(kind, path):
    regard.save(model_of(kind), path)
    content = path.read_bytes()
    for length in places(content, 0):
        path.write_bytes(content[:length])
        for mapped in (False, True):
            with pytest.raises(StoreError, match=r"model\.regard: "):
                regard.load(path, mapped=mapped)


@every_kind
def test_105_a_flipped_byte(kind, path):
    regard.save(model_of(kind), path)
    content, picks, expected = path.read_bytes(), random.Random(1), None
    for where in places(content, 1):
        damaged = bytearray(content)
        damaged[where] ^= picks.randrange(1, 256)
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"model\.regard: "):
            regard.load(path)
        # Mapped, what is not read is not checked, such as the date of a member: a model that is made is the one saved.
        with suppress(StoreError):
            made = regard.load(path, mapped=True)
            expected = answers_of(kind, model_of(kind)) if expected is None else expected
            assert np.array_equal(answers_of(kind, made), expected), where


class Trap:
    """Unpickling this would leave a mark."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


@every_kind
def test_108_109_another_file_by_this_name(kind, path):
    """A pickle of the very model, of a trap, and its own ONNX graph, where there is one."""
    model = model_of(kind)
    others = [pickle.dumps(model), pickle.dumps(Trap()), b"x,y\n1,2\n"]
    with suppress(ExportError):
        export_onnx(model, path.with_suffix(".onnx"))
        others.append(path.with_suffix(".onnx").read_bytes())
    for content in others:
        path.write_bytes(content)
        for mapped in (False, True):
            with pytest.raises(StoreError, match=r"model\.regard: "):
                regard.load(path, mapped=mapped)
    assert not Trap.sprung


@every_kind
def test_107_a_full_disk_leaves_the_old_file(kind, path, monkeypatch):
    path.write_bytes(b"precious")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="no space left on device"):
        regard.save(model_of(kind), path, force=True)
    assert path.read_bytes() == b"precious"
    assert os.listdir(path.parent) == [path.name]

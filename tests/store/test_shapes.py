"""Arrays of a model that do not fit each other, in files whose checksums are right: each is refused and named."""

from __future__ import annotations

import io
import json
import re
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.store import model_schema
from regard.store.models import StoreError, load, save
from support.adversaries import FRAME, LABELS, Q, X, Y
from support.forgery import forged
from support.models import fitted

pytestmark = pytest.mark.usefixtures("brief_learning")

PAIRS = np.column_stack([Y, -Y])
WORDS = FRAME.assign(word=np.resize(["red", "blue", "green"], 12))
COUNTS = np.arange(12) % 3


def asked(model: Any) -> Any:
    """The same with all that is computed when it is first asked for."""
    (model.predict_set if hasattr(model, "classes_") else model.predict_interval)(Q)
    return model


def attention(score: str, embed: Any = None, **options: Any) -> Any:
    options = {"hidden_size": 4, "embed_size": 3, "max_iter": 2, "random_state": 0} | options
    return regard.AttentionRegressor(score, embed, **options).fit(X, Y)


MODELS = {
    "average": lambda: regard.AveragePoolingRegressor().fit(X, Y),
    "nearest, weighted": lambda: regard.NearestKeyRegressor().fit(X, Y, sample_weight=COUNTS),
    "one width given": lambda: regard.NadarayaWatsonRegressor(bandwidth=0.7).fit(X, PAIRS),
    "widths given": lambda: regard.NadarayaWatsonRegressor(bandwidth=np.array([0.5, 0.7])).fit(FRAME, Y),
    "one width learned": lambda: regard.NadarayaWatsonRegressor(metric="scalar").fit(X, Y),
    "widths learned": lambda: asked(regard.NadarayaWatsonRegressor().fit(X, Y, sample_weight=COUNTS)),
    "matrix": lambda: regard.NadarayaWatsonRegressor(metric="full").fit(X, PAIRS),
    "adaptive": lambda: regard.NadarayaWatsonRegressor(bandwidth="adaptive").fit(X, Y),
    "lines of words": lambda: regard.LocalLinearRegressor().fit(WORDS, Y),
    "classes": lambda: asked(regard.NadarayaWatsonClassifier(bandwidth=0.7, calibrate=True).fit(X, LABELS)),
    "heads": lambda: regard.KernelRegressor().fit(X, PAIRS),
    "heads of classes": lambda: regard.KernelClassifier().fit(X, LABELS),
    "forgotten": lambda: regard.KernelRegressor().fit(X, Y).forget([2]),
    "additive": lambda: attention("additive", early_stopping=True),
    "dot": lambda: attention("dot"),
    "mlp": lambda: attention("gaussian", "mlp"),
    "module": lambda: attention("gaussian", torch.nn.Linear(2, 3)),
}


@lru_cache
def saved(case: str, folder: Path) -> bytes:
    path = folder / "whole.regard"
    save(MODELS[case](), path, force=True)
    return path.read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


def changes(array: np.ndarray) -> dict[str, np.ndarray]:
    """The array with another shape or dtype."""
    found = {"an axis more": array[..., None]}
    if array.ndim:
        found["a row more"] = np.resize(array, (len(array) + 1, *array.shape[1:]))
    if array.size:
        other = np.float64 if array.dtype.kind in "iU" else np.int64
        found["another dtype"] = np.zeros(array.shape, other)
        found |= {"single precision": array.astype(np.float32)} if array.dtype == np.float64 else {}
        found |= {"a row less": array[:-1], "no rows": array[:0], "an axis less": array[0]} if array.ndim else {}
    if array.ndim > 1 and array.size:
        found |= {"a column less": array[:, :-1], "a column more": np.concatenate([array, array[:, :1]], axis=1)}
    return found


def written(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array, order="C"), version=(1, 0))
    return stream.getvalue()


def refused(content: bytes, path: Path) -> None:
    """Every array of a model, changed in every way: refused by a message that names it, also where it is mapped."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        arrays = {name: np.load(io.BytesIO(archive.read(name))) for name in archive.namelist() if name.endswith(".npy")}
    for name, array in arrays.items():
        attribute = name.removesuffix(".npy").split("/")[1]
        for change, changed in changes(array).items():
            path.write_bytes(forged(content, **{name: written(changed)}))
            for mapped in (False, True):
                with pytest.raises(StoreError) as caught:
                    load(path, mapped=mapped)
                # Rows and their copy in blocks may each be called the wrong one.
                assert attribute in str(caught.value) or "shelves_ has other rows than key_" in str(caught.value), (
                    name,
                    change,
                )


@pytest.mark.parametrize("case", MODELS)
def test_a_wrong_shape_is_refused(case: str, folder: Path, path: Path) -> None:
    refused(saved(case, folder), path)


def test_a_wrong_shape_of_block_bounds_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.model.mapped.MIN_ROWS_TO_SORT", 10)
    monkeypatch.setattr("regard.model.mapped.BLOCK_ROWS", 4)
    rows = np.arange(60.0)[:, None]
    save(regard.NadarayaWatsonRegressor(bandwidth=0.1).fit(rows, rows[:, 0], sample_weight=np.ones(60)), path)
    content = path.read_bytes()
    assert b"fitted/shelves_/0.npy" in content
    refused(content, path)


# Files that state the sizes of the changed array: still, arrays do not fit each other.
@pytest.mark.parametrize("case", MODELS)
def test_stated_sizes_are_no_way_round_the_table(case: str, folder: Path, path: Path) -> None:
    content = saved(case, folder)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        key = np.load(io.BytesIO(archive.read("fitted/key_.npy")))
    for change, words in (
        (key[:-1], "(value|sample_weight)_ must"),
        (key[:, :-1], "key_ must"),
        (key[:, :, None], "key_ must"),
    ):
        rows = {"rows": len(change)}
        path.write_bytes(forged(content, lambda d, rows=rows: d["sizes"].update(rows), key_=written(change)))
        with pytest.raises(StoreError, match=words):
            load(path)


@pytest.mark.parametrize("name", ["key_", "value_", "sample_weight_", "n_features_in_", "w_"])
def test_what_a_model_needs_must_be_there(name: str, path: Path, content: bytes) -> None:
    path.write_bytes(forged(content, lambda d: d["fitted"].pop(name)))
    with pytest.raises(StoreError, match=f"a NadarayaWatsonRegressor must have {name}, which is missing"):
        load(path)


def test_sizes_that_no_array_has(path: Path, content: bytes) -> None:
    path.write_bytes(forged(content, lambda d: d["sizes"].update(classes=2)))
    with pytest.raises(StoreError, match="the stated size classes is not that of any array"):
        load(path)


def test_numbers_of_classes_that_there_are_not(folder: Path, path: Path) -> None:
    labels = np.resize(np.int64([0, 1, 2]), 12)
    path.write_bytes(forged(saved("classes", folder), value_=written(labels)))
    with pytest.raises(StoreError, match="value_ must hold class numbers below 2, the length of classes_"):
        load(path)


def test_a_model_that_does_not_fit_itself_is_not_saved(path: Path) -> None:
    model = fitted()
    model.value_ = model.value_[:-1]
    with pytest.raises(StoreError, match=r"is inconsistent: value_ must be of shape"):
        save(model, path)
    assert not path.exists()


def test_every_array_is_in_the_table(folder: Path) -> None:
    """Only modules of one's own hold arrays of which nothing is known but how they were."""
    assert {name for name in regard.estimators.__all__ if name != "Attention"} == set(model_schema.KINDS)
    for case in MODELS:
        with zipfile.ZipFile(io.BytesIO(saved(case, folder))) as archive:
            sizes = json.loads(archive.read("model.json"))["sizes"]
        unknown = [name for name in sizes if re.match(r"dtype of any (?!labels|parameters_\.embed\.)", name)]
        assert not unknown, case
        assert any("parameters_.embed." in name for name in sizes) == (case == "module")

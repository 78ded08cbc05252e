"""Saved models come back to the last bit."""

from __future__ import annotations

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import regard
from regard.store.models import StoreError, load, load_with_metadata, save
from support.models import FRAME, MODELS, NUMBERS, QUERIES, X, fitted

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")


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

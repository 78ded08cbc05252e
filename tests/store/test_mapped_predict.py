"""Mapped models answer from the blocks that queries need: the same answers, and little of the file is read."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
import zipfile
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.model import mapped
from regard.scores import KERNELS
from regard.store.models import StoreError
from support.engines import KERNEL_PATHS, sparse

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

ROWS, SHELF = 900, 16
ENDING = [name for name, kernel in KERNELS.items() if kernel.compact]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(mapped, "MIN_ROWS_TO_SORT", ROWS)
    monkeypatch.setattr(mapped, "BLOCK_ROWS", SHELF)


def table(width: int = 2, offset: float = 0.0) -> tuple[Any, Any]:
    """Rows along a strip, dense enough for lines and long beside any reach, some twice; a y that is not small."""
    rng = np.random.default_rng(width)
    X = rng.uniform(0.0, [ROWS, *[4.0] * (width - 1)], (ROWS, width))
    X[:20] = X[20:40]
    return X + offset, 100.0 + np.sin(X).sum(axis=1) + 0.1 * rng.normal(size=ROWS)


def few(X: Any) -> Any:
    """Queries at one end, so that most blocks are far."""
    rng = np.random.default_rng(1)
    near = X[np.argsort(((X - X.min(axis=0)) ** 2).sum(axis=1))[:40]]
    return np.concatenate([near[:5], near[rng.integers(40, size=12)] + 0.1 * rng.normal(size=(12, X.shape[1]))])


def both(model: Any, path: Path) -> tuple[Any, Any]:
    """The model in memory, and in its file; the second has block bounds."""
    regard.save(model, path, force=True)
    mapped = regard.load(path, mapped=True)
    assert mapped._make_rows is not None
    return regard.load(path), mapped


def in_file(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return {name.split("/")[1] for name in archive.namelist() if name.startswith("fitted/")}


def agree(plain: Any, mapped: Any, Q: Any, *, method: str = "predict", part: float = 0.5) -> None:
    """Same answers to 1e-12 of the range of y, from at most this part of the rows; the same warnings."""
    found = []
    for model in (plain, mapped):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            found.append((getattr(model, method)(Q), [str(one.message) for one in heard]))
    (expected, said), (answer, also_said) = found
    assert answer.dtype == expected.dtype
    assert also_said == said
    if expected.dtype.kind == "f":
        span = np.ptp(plain.value_, axis=0).max() if np.ndim(plain.value_) else 1.0
        assert np.array_equal(np.isnan(answer), np.isnan(expected))
        np.testing.assert_allclose(answer, expected, rtol=0.0, atol=1e-12 * span)
    else:
        assert np.array_equal(answer, expected)
    assert len(mapped._smoother.rows.near(mapped._smoother.heads, np.asarray(Q)).key) <= part * ROWS


WEIGHTS = {
    "none": None,
    "repetitions": np.random.default_rng(5).integers(0, 4, ROWS),
    "importances": np.exp(3.0 * np.random.default_rng(5).normal(size=ROWS)),
}
MEANS_AND_LINES = [regard.NadarayaWatsonRegressor, regard.LocalLinearRegressor]
METRICS = {
    "scalar": 1.0,
    "feature": np.array([0.8, 1.3]),
    "matrix": np.array([[0.9, 0.4], [-0.3, 1.1]]),
}


@sparse("kernel", KERNELS, KERNEL_PATHS, ("weights", WEIGHTS), ("metric", METRICS), ("kind", MEANS_AND_LINES))
def test_means_and_lines_are_the_same(kind, kernel, metric, weights, path):
    X, y = table()
    model = kind(kernel=kernel, bandwidth=1.0).fit(X, y, sample_weight=WEIGHTS[weights])
    # Kernels that end see 20 rows or so: lines of a handful are rounded more than this.
    model.w_ = METRICS[metric] / (1.5 if kernel in ("gaussian", "laplace") else 10.0)
    agree(*both(model, path), few(X))


def test_a_line_leans_on_rows_that_a_mean_does_not_notice(path):
    X = np.concatenate([np.zeros(19 * SHELF), [9.6, 9.7], np.linspace(30.0, 3000.0, ROWS - 19 * SHELF - 2)])
    plain, mapped = both(regard.LocalLinearRegressor(bandwidth=1.0).fit(X[:, None], np.cos(X)), path)
    Q = np.array([[5e-10], [1e-9]])
    agree(plain, mapped, Q)
    assert (np.abs(plain.predict(Q) - 1.0) > 5e-11).all()  # all near rows share a place, where y is 1


@pytest.mark.parametrize("kind", [regard.NadarayaWatsonRegressor, regard.LocalLinearRegressor])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_far_queries_are_answered_by_the_nearest_row(kind, offset, path):
    X, y = table(offset=offset)
    plain, mapped = both(kind(bandwidth=0.5).fit(X, y), path)
    far = few(X) - 1e6 * np.array([1.0, 0.7])
    agree(plain, mapped, far)
    nearest = regard.NearestKeyRegressor().fit(X, y)
    np.testing.assert_allclose(mapped.predict(far), nearest.predict(far), rtol=1e-12)
    agree(plain, mapped, few(X) - 1e200, part=1.0)


@pytest.mark.parametrize("width", [1, 2, 8])
def test_the_nearest_row_is_found(width, path):
    X, y = table(width)
    plain, mapped = both(regard.NearestKeyRegressor().fit(X, np.stack([y, -y], axis=1)), path)
    agree(plain, mapped, few(X))


def test_ties_share_across_blocks(path):
    X = np.stack(np.meshgrid(np.arange(30.0), np.arange(30.0)), axis=-1).reshape(-1, 2)
    y = np.random.default_rng(0).normal(size=ROWS)
    half = np.stack(np.meshgrid(np.arange(8) + 0.5, np.arange(8) + 0.5), axis=-1).reshape(-1, 2)
    for weight in (None, np.random.default_rng(1).integers(0, 3, ROWS)):
        for model in (
            regard.NearestKeyRegressor(),
            regard.NadarayaWatsonRegressor(kernel="boxcar", bandwidth=np.sqrt(0.5)),
            regard.NadarayaWatsonRegressor(kernel="boxcar", bandwidth=np.sqrt(np.float32(12.5))),
        ):
            plain, mapped = both(model.fit(X, y, sample_weight=weight), path)
            agree(plain, mapped, half, part=0.6)
            assert len(np.unique(mapped.predict(half))) > 60  # means of four, not of one


@sparse("kernel", ENDING, ["tricube"], ("empty", ["nearest", "nan", "raise"]), ("kind", MEANS_AND_LINES))
def test_empty_rows_are_reported_as_in_memory(kind, kernel, empty, path):
    X, y = table()
    plain, mapped = both(kind(kernel=kernel, bandwidth=12.0, empty=empty).fit(X, y), path)
    Q = np.concatenate([few(X)[:3], [[-14.0, -4.0], [1.0, 1.0], [-1e6, 0.0]]])
    if empty == "raise":
        for model in (plain, mapped):
            with pytest.raises(ValueError, match=r"2 of 6 rows of X \(the first is row 3\)"):
                model.predict(Q)
        return
    agree(plain, mapped, Q)
    if empty == "nearest":
        with pytest.warns(UserWarning, match=r"2 of 6 rows of X \(the first is row 3\)") as heard:
            mapped.predict(Q)
        assert len(heard) == 1


@pytest.mark.parametrize("empty", ["nearest", "prior", "nan"])
@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_classes_and_their_frequencies_are_the_same(empty, method, path):
    X, y = table()
    label = np.array(["low", "middle", "high"])[np.digitize(y, [99.5, 100.5])]
    for weights in WEIGHTS.values():
        model = regard.NadarayaWatsonClassifier(kernel="epanechnikov", bandwidth=12.0, empty=empty)
        plain, mapped = both(model.fit(X, label, sample_weight=weights), path)
        agree(plain, mapped, few(X), method=method)
        if method == "predict_proba" or empty != "nan":
            agree(plain, mapped, np.concatenate([few(X), [[-99.0, 0.0]]]), method=method)


@pytest.mark.parametrize("kind", [regard.KernelRegressor, regard.KernelClassifier])
def test_heads_are_the_same(kind, path):
    X, y = table()
    X[:, 0] = np.exp(0.003 * X[:, 0])  # a long tail, which heads scale their own ways
    target = y if kind is regard.KernelRegressor else y > 100.0
    model = kind(random_state=0).fit(X[:200], target[:200])
    del model.loo_predictions_  # of other rows than the model gets
    straight = model.heads_[0]._replace(w=np.array([90.0, 1.0]), weight=0.5, share=np.array([0.3, 0.8]))
    turned = straight._replace(w=np.array([[90.0, 1.0], [-1.0, 1.0]]), share=np.array([1.0, 0.0]))
    for heads in ((straight._replace(weight=1.0),), (straight, turned)):
        model.heads_ = heads
        model._set_training_rows(X, target if kind is regard.KernelRegressor else target.astype(int), None)
        plain, mapped = both(model, path)
        agree(plain, mapped, few(X))
        agree(plain, mapped, few(X) - 1e6)
        if kind is regard.KernelClassifier:
            agree(plain, mapped, few(X), method="predict_proba")


def test_single_precision(path):
    X, y = table()
    for kernel, h in (("gaussian", 1.0), ("boxcar", 12.0)):
        regard.save(regard.NadarayaWatsonRegressor(kernel, h).fit(X, y), path, force=True, single=True)
        plain, mapped = regard.load(path), regard.load(path, mapped=True)
        assert mapped._smoother.rows.found.key.dtype == np.float32
        for Q in (few(X), few(X).astype(np.float32)):
            np.testing.assert_allclose(mapped.predict(Q), plain.predict(Q), rtol=1e-6)
            assert len(mapped._smoother.rows.near(mapped._smoother.heads, Q).key) < 0.5 * ROWS


def test_many_queries_ask_the_whole_model(path):
    X, y = table()
    plain, mapped = both(regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(X, y), path)
    smoother = mapped._smoother
    assert smoother.rows.near(smoother.heads, X) is smoother.rows
    assert np.array_equal(mapped.predict(X), plain.predict(X))


def test_rows_with_gaps_ask_the_whole_model(path):
    X, y = table()
    plain, mapped = both(regard.NadarayaWatsonRegressor(bandwidth=0.5, missing="ignore").fit(X, y), path)
    agree(plain, mapped, few(X))
    Q = few(X)
    Q[0] = 700.0, np.nan
    assert np.array_equal(mapped.predict(Q), plain.predict(Q))


def test_a_model_loaded_into_memory_has_no_block_bounds(path):
    X, y = table()
    model = regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(X, y)
    plain, mapped = both(model, path)
    assert "shelves_" in in_file(path)
    assert set(vars(plain)) == set(vars(model))
    assert {name for name in vars(mapped) if name[0] != "_"} == {name for name in vars(model) if name[0] != "_"}
    assert np.array_equal(plain.predict(few(X)), model.predict(few(X)))
    assert np.array_equal(mapped.attend(few(X)), model.attend(few(X)))
    content = path.read_bytes()
    regard.save(mapped, path, force=True)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "model",
    [
        regard.AveragePoolingRegressor(),
        regard.AttentionRegressor("additive", hidden_size=2, max_iter=1, random_state=0),
        regard.NadarayaWatsonRegressor(bandwidth="adaptive"),
        regard.NadarayaWatsonRegressor(bandwidth=np.inf),
        regard.NadarayaWatsonRegressor(bandwidth=200.0),
    ],
    ids=lambda model: f"{type(model).__name__} {getattr(model, 'bandwidth', '')}",
)
def test_models_that_need_all_rows_have_none(model, path):
    X, y = table()
    regard.save(model.fit(X, y), path)
    assert "shelves_" not in in_file(path)
    assert np.array_equal(regard.load(path, mapped=True).predict(few(X)), model.predict(few(X)))


def test_models_with_gaps_or_of_few_rows_get_none(path):
    X, y = table()
    regard.save(regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(X[1:], y[1:]), path)
    assert "shelves_" not in in_file(path)
    X[3, 0] = np.nan
    regard.save(regard.NadarayaWatsonRegressor(bandwidth=0.5, missing="ignore").fit(X, y), path, force=True)
    assert "shelves_" not in in_file(path)


def test_rows_that_come_or_leave_are_known(path):
    X, y = table()

    def same(mapped: Any, plain: Any) -> None:
        assert np.array_equal(mapped.predict(few(X)), plain.predict(few(X)))

    for change in (
        lambda model: model.forget(np.flatnonzero(X[:, 0] < 5.0)),
        lambda model: model.partial_fit(few(X), np.full(17, 1e3)),
        lambda model: model.fit(X[::2], -y[::2]),
    ):
        plain, mapped = both(regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(X, y), path)
        same(change(mapped), change(plain))
    plain, mapped = both(regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(X, y), path)
    for model in (other := copy(mapped), plain):
        model.value_ = -y
    same(other, plain)
    again = pickle.loads(pickle.dumps(mapped))
    assert np.array_equal(again.predict(few(X)), mapped.predict(few(X)))


@pytest.mark.parametrize("forged", ["text", {"tuple": []}, {"record": ["Shelves", {"tuple": [1, 2, 3, 4, 5]}]}])
def test_invalid_block_bounds_are_refused(forged, path, monkeypatch):
    X, y = table()
    model = regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(X, y)
    whole = regard.store.models._describe

    def described(*args: Any, **options: Any) -> Any:
        description, arrays = whole(*args, **options)
        description["fitted"]["shelves_"] = forged
        return description, {name: array for name, array in arrays.items() if "shelves_" not in name}

    monkeypatch.setattr(regard.store.models, "_describe", described)
    regard.save(model, path)
    with pytest.raises(StoreError, match="shelves_ must hold sorted rows"):
        regard.load(path, mapped=True)


READER = """
import ctypes, json, mmap, os, sys
import numpy as np
import regard

path, queries = sys.argv[1], np.array(json.loads(sys.argv[2]))
libc = ctypes.CDLL(None, use_errno=True)

def read():
    # Bytes of the file that the system has in memory.
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapping = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE)
        start, pages = ctypes.c_char.from_buffer(mapping), (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), pages) == 0
        return sum(page & 1 for page in pages) * mmap.PAGESIZE

with open(path, "rb") as file:
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
cached_bytes = [read()]
model = regard.load(path, mapped=True)
cached_bytes.append(read())
answer = model.predict(queries).tolist()
cached_bytes.append(read())
model.attend(queries[:1])
cached_bytes.append(read())
print(json.dumps([answer, cached_bytes]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux which pages are in memory")
def test_a_million_rows_are_not_read_for_ten_queries(path, monkeypatch):
    monkeypatch.undo()  # blocks of the usual size
    rng = np.random.default_rng(0)
    X = rng.random((100, 8))[rng.integers(100, size=1_000_000)] + 0.01 * rng.normal(size=(1_000_000, 8))
    model = regard.NadarayaWatsonRegressor(bandwidth=0.01).fit(X, np.sin(5.0 * X).sum(axis=1))
    regard.save(model, path)
    Q = X[rng.integers(len(X), size=10)] + 0.001
    command = [sys.executable, "-c", READER, str(path), json.dumps(Q.tolist())]
    answer, (cold, loaded, predicted, attended) = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    size = path.stat().st_size
    if cold > 0.01 * size:
        pytest.skip("this file system keeps its files in memory")
    assert np.allclose(answer, model.predict(Q), rtol=0.0, atol=1e-9 * np.ptp(model.value_))
    assert loaded < 0.02 * size
    assert predicted < 0.2 * size
    assert attended > 0.4 * size  # the count sees what is read: weights of all rows need all keys

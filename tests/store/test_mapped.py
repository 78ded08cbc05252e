"""Models whose arrays stay in the file, and models in single precision."""

from __future__ import annotations

import numpy as np
import pytest

import regard
from regard.store.models import StoreError

RNG = np.random.default_rng(0)


def in_the_file(array: np.ndarray) -> bool:
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


@pytest.fixture
def model():
    X = RNG.normal(size=(300, 3))
    return regard.LocalLinearRegressor(bandwidth=0.7).fit(X, X.sum(axis=1))


def test_a_mapped_model_answers_the_same(model, tmp_path):
    path = tmp_path / "m.regard"
    regard.save(model, path)
    mapped = regard.load(path, mapped=True)
    assert in_the_file(mapped.key_)
    assert in_the_file(mapped.value_)
    assert not in_the_file(regard.load(path).key_)
    Q = RNG.normal(size=(20, 3))
    assert np.array_equal(mapped.predict(Q), model.predict(Q))
    assert np.array_equal(mapped.attend(Q), model.attend(Q))
    with pytest.raises(ValueError, match="read-only"):
        mapped.key_[0, 0] = 1.0


@pytest.mark.parametrize(
    "kind",
    [regard.KernelRegressor, regard.KernelClassifier, regard.NearestKeyRegressor, regard.AveragePoolingRegressor],
)
def test_every_kind_can_be_mapped(kind, tmp_path):
    X = RNG.normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int) if kind is regard.KernelClassifier else X.sum(axis=1)
    model = kind().fit(X, y)
    regard.save(model, tmp_path / "m.regard")
    assert np.array_equal(regard.load(tmp_path / "m.regard", mapped=True).predict(X), model.predict(X))


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_mapped_file_that_was_cut_short_is_refused(model, cut, tmp_path):
    path = tmp_path / "m.regard"
    regard.save(model, path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(StoreError):
        regard.load(path, mapped=True)


def test_every_byte_of_a_mapped_description_counts(model, tmp_path):
    path = tmp_path / "m.regard"
    regard.save(model, path)
    whole = path.read_bytes()
    start = whole.index(b'"format"')
    wrong = whole[:start] + b'"formal"' + whole[start + 8 :]
    path.write_bytes(wrong)
    with pytest.raises(StoreError):
        regard.load(path, mapped=True)


def test_single_precision_halves_the_file(model, tmp_path):
    regard.save(model, tmp_path / "double.regard")
    regard.save(model, tmp_path / "single.regard", single=True)
    small, large = ((tmp_path / name).stat().st_size for name in ("single.regard", "double.regard"))
    assert small < 0.7 * large
    Q = RNG.normal(size=(20, 3))
    back = regard.load(tmp_path / "single.regard")
    assert back.key_.dtype == np.float32
    assert np.allclose(back.predict(Q), model.predict(Q), rtol=1e-5, atol=1e-5)
    assert model.key_.dtype == np.float64


def test_numbers_beyond_single_precision_are_refused(tmp_path):
    model = regard.NadarayaWatsonRegressor(bandwidth=1e40).fit([[1e40], [2e40]], [1.0, 2.0])
    with pytest.raises(StoreError, match="key_ has values too large for single precision"):
        regard.save(model, tmp_path / "m.regard", single=True)
    assert not (tmp_path / "m.regard").exists()

"""``partial_fit``: rows that come in batches are rows."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import polars
import pytest
from sklearn.base import clone

import regard
from regard import (
    AveragePoolingRegressor,
    LocalLinearRegressor,
    NadarayaWatsonClassifier,
    NadarayaWatsonRegressor,
    NearestKeyRegressor,
)
from regard.estimators.streams import GrowingArray

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

RNG = np.random.default_rng(5)
X = RNG.normal(size=(120, 2))
Y = np.sin(X[:, 0]) + X[:, 1] + RNG.normal(size=120) * 0.1
LABELS = np.array(["b", "a", "c"])[np.digitize(Y, [-0.5, 0.5])]
NEW = RNG.normal(size=(30, 2))
CUTS = (slice(0, 10), slice(10, 11), slice(11, 90), slice(90, 120))

REGRESSORS = {
    "average": AveragePoolingRegressor(),
    "nearest": NearestKeyRegressor(),
    "nadaraya-watson": NadarayaWatsonRegressor(bandwidth=0.7),
    "per feature": NadarayaWatsonRegressor(bandwidth=[0.5, 2.0]),
    "compact": NadarayaWatsonRegressor(kernel="epanechnikov", bandwidth=3.0),
    "local-linear": LocalLinearRegressor(bandwidth=0.8),
}
every_regressor = pytest.mark.parametrize("name", REGRESSORS)


@pytest.mark.parametrize("weights", [None, "integers", "floats", "late"])
@every_regressor
def test_rows_in_batches_are_the_rows(name, weights):
    weight = None if weights is None else RNG.integers(0, 4, 120) if weights == "integers" else RNG.random(120)
    if weights == "late":
        weight[:11] = 1.0
    whole = clone(REGRESSORS[name]).fit(X, Y, sample_weight=weight)
    parts = clone(REGRESSORS[name])
    for number, rows in enumerate(CUTS):
        given = None if weight is None or (weights == "late" and number < 2) else weight[rows]
        assert parts.partial_fit(X[rows], Y[rows], sample_weight=given) is parts
    assert np.array_equal(parts.key_, X)
    assert np.array_equal(parts.value_, Y)
    assert parts.sample_weight_ is None if weight is None else np.array_equal(parts.sample_weight_, weight)
    np.testing.assert_allclose(parts.predict(NEW), whole.predict(NEW), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(parts.attend(NEW), whole.attend(NEW), rtol=1e-13, atol=1e-13)


def test_labels_in_batches():
    whole = NadarayaWatsonClassifier(bandwidth=0.7).fit(X, LABELS)
    parts = NadarayaWatsonClassifier(bandwidth=0.7)
    parts.partial_fit(X[:3], LABELS[:3], classes=["c", "b", "a"])
    parts.partial_fit(X[3:], LABELS[3:], classes=["a", "b", "c"])
    assert parts.classes_.tolist() == whole.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(parts.predict_proba(NEW), whole.predict_proba(NEW), rtol=1e-13, atol=1e-13)
    assert parts.predict(NEW).tolist() == whole.predict(NEW).tolist()


def test_after_fit_no_classes_are_needed():
    model = NadarayaWatsonClassifier(bandwidth=0.7).fit(X[:60], LABELS[:60]).partial_fit(X[60:], LABELS[60:])
    assert len(model.key_) == 120
    model.partial_fit(X[:1], ["unknown"], sample_weight=[0.0])  # a deleted row may be of any class


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([{"y": LABELS}], "classes must be passed on the first call to partial_fit"),
        ([{"y": LABELS, "classes": ["a", "b"]}], "the label '?c'?|np.str_.'c'"),
        (
            [{"y": LABELS, "classes": list("abc")}, {"y": LABELS, "classes": list("abcd")}],
            "as in the first call",
        ),
        ([{"y": LABELS, "classes": list("abc")}, {"y": ["z"] * 120}], "is not among the classes"),
    ],
)
def test_what_classifiers_refuse(calls, words):
    model = NadarayaWatsonClassifier(bandwidth=0.7)
    for call in calls[:-1]:
        model.partial_fit(X, **call)
    with pytest.raises(ValueError, match=words):
        model.partial_fit(X, **calls[-1])


@pytest.mark.parametrize("bandwidth", ["loo", "scott", "adaptive"])
def test_a_learned_bandwidth_stays(bandwidth):
    model = NadarayaWatsonRegressor(bandwidth=bandwidth).partial_fit(X[:60], Y[:60])
    first = NadarayaWatsonRegressor(bandwidth=bandwidth).fit(X[:60], Y[:60])
    assert np.array_equal(model.w_, first.w_)
    model.partial_fit(X[60:], Y[60:])
    assert np.array_equal(model.w_, first.w_)
    assert len(model.predict(NEW)) == 30
    assert not hasattr(model, "loo_predictions_")
    assert not hasattr(model, "loo_score_")
    again = NadarayaWatsonRegressor(bandwidth=bandwidth).fit(X, Y)
    assert np.array_equal(model.fit(X, Y).w_, again.w_)
    assert not np.array_equal(again.w_, first.w_)


@every_regressor
def test_what_regressors_refuse(name):
    model = clone(REGRESSORS[name]).partial_fit(X, Y)
    with pytest.raises(ValueError, match=r"X has 1 features, but .* is expecting 2 features"):
        model.partial_fit(X[:, :1], Y)
    with pytest.raises(ValueError, match=r"y must have shape \(rows\), as in earlier calls, got \(rows, 2\)"):
        model.partial_fit(X, np.column_stack([Y, Y]))
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((1, 2), np.nan), [1.0])
    with pytest.raises(ValueError, match="sample_weight must be finite and not negative"):
        model.partial_fit(X[:1], Y[:1], sample_weight=[-1.0])
    assert np.array_equal(model.key_, X)  # what was refused left nothing behind
    assert len(model.partial_fit(X[:1], Y[:1], sample_weight=[0.0]).key_) == 121


def test_feature_names_are_checked():
    frame = polars.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    model = NearestKeyRegressor().partial_fit(frame, Y).partial_fit(frame, Y)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame.rename({"b": "c"}), Y)


def test_several_columns_and_float32():
    value = np.column_stack([Y, -Y]).astype(np.float32)
    small = X.astype(np.float32)
    model = NadarayaWatsonRegressor(bandwidth=0.7).partial_fit(small[:50], value[:50])
    model.partial_fit(small[50:], value[50:])
    assert model.key_.dtype == model.value_.dtype == np.float32
    whole = NadarayaWatsonRegressor(bandwidth=0.7).fit(small, value)
    np.testing.assert_allclose(model.predict(small), whole.predict(small), rtol=1e-5)
    assert model.partial_fit(X, value).key_.dtype == np.float64


def test_a_saved_model_goes_on(tmp_path):
    model = NadarayaWatsonRegressor(bandwidth=0.7).partial_fit(X[:50], Y[:50]).partial_fit(X[50:70], Y[50:70])
    regard.save(model, tmp_path / "m.regard")
    whole = NadarayaWatsonRegressor(bandwidth=0.7).fit(X, Y)
    for other in (regard.load(tmp_path / "m.regard"), pickle.loads(pickle.dumps(model))):
        other.partial_fit(X[70:], Y[70:])
        np.testing.assert_allclose(other.predict(NEW), whole.predict(NEW), rtol=1e-13)
    assert len(model.key_) == 70
    # The room for more rows is no part of a pickle.
    many = NearestKeyRegressor().fit(np.zeros((5000, 2)), np.zeros(5000)).partial_fit([[0.0, 0.0]], [0.0])
    assert len(pickle.dumps(many)) < 5001 * 24 + 5000


def test_copies_go_their_own_ways():
    model = NearestKeyRegressor().partial_fit(X[:50], Y[:50]).partial_fit(X[50:60], Y[50:60])
    for make in (copy.copy, copy.deepcopy):
        other: Any = make(model)
        model_now = len(model.key_)
        model.partial_fit(X[60:61], Y[60:61])
        other.partial_fit(X[80:81], Y[80:81])
        assert np.array_equal(model.key_[model_now], X[60])
        assert np.array_equal(other.key_[model_now], X[80])


def test_only_those_that_can_append_do():
    for kind in (regard.KernelRegressor, regard.KernelClassifier, regard.AttentionRegressor):
        assert not hasattr(kind(), "partial_fit")


def test_appending_copies_each_row_a_few_times_at_most():
    """Rooms made while 1,000 rows come one by one: one for each doubling."""
    room, rows, made = GrowingArray(), np.zeros((1, 3)), set()
    for number in range(1, 1000):
        rows = room.extended(rows, np.full((1, 3), number))
        made.add(id(rows.base))
        assert rows[-1, 0] == number
    assert rows[:, 0].tolist() == list(range(1000))
    assert len(made) <= 11


def test_the_third_argument_is_the_weight_of_a_regressor_and_the_classes_of_a_classifier():
    x, weight = [[0.0], [1.0]], np.array([1.0, 3.0])
    assert regard.AveragePoolingRegressor().partial_fit(x, [0.0, 4.0], weight).predict([[0.0]])[0] == pytest.approx(3.0)
    model = regard.NadarayaWatsonClassifier(bandwidth=1.0).partial_fit(x, ["a", "b"], ["a", "b", "c"], weight)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert np.array_equal(model.sample_weight_, weight)

"""Streams: what leaves is gone, and windows and forgetting are refits."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import regard
from regard import (
    AttentionRegressor,
    AveragePoolingRegressor,
    KernelClassifier,
    KernelRegressor,
    LocalLinearRegressor,
    NadarayaWatsonClassifier,
    NadarayaWatsonRegressor,
    NearestKeyRegressor,
)

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

RNG = np.random.default_rng(21)
N = 50
X = RNG.normal(size=(N, 2))
Y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=N)
LABELS = np.array(["b", "a", "c"])[np.digitize(Y, [-0.5, 0.5])]
NEW = RNG.normal(size=(25, 2))
GONE = [3, 17, 40, 49]
LEFT = np.setdiff1d(np.arange(N), GONE)
CUTS = (slice(0, 10), slice(10, 11), slice(11, 40), slice(40, N))

GIVEN = {
    "average": AveragePoolingRegressor(),
    "nearest": NearestKeyRegressor(),
    "mean": NadarayaWatsonRegressor(bandwidth=0.7),
    "compact": NadarayaWatsonRegressor("epanechnikov", bandwidth=3.0),
    "line": LocalLinearRegressor(bandwidth=0.8, ridge=0.01),
    "classes": NadarayaWatsonClassifier(bandwidth=0.7, calibrate=True),
}
WEIGHTS = {"none": None, "integers": RNG.integers(1, 4, N), "floats": RNG.random(N) + 0.1}
every_given = pytest.mark.parametrize("name", GIVEN)
every_weight = pytest.mark.parametrize("weights", WEIGHTS)


def target(name):
    return LABELS if "class" in name else Y


def some(weights, rows):
    return None if weights is None else weights[rows]


def alike(one, other, intervals=False):
    """All that two fitted models say, to 1e-12."""
    for method in ("predict_proba", "predict", "attend"):
        if hasattr(one, method):
            got, wanted = getattr(one, method)(NEW), getattr(other, method)(NEW)
            if np.asarray(got).dtype.kind == "f":
                np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12, err_msg=method)
            else:
                assert got.tolist() == wanted.tolist()
    if intervals and hasattr(one, "predict_interval"):
        np.testing.assert_allclose(one.predict_interval(NEW), other.predict_interval(NEW), rtol=1e-9, atol=1e-10)
    for name in ("key_", "value_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@every_weight
@every_given
def test_forgetting_a_row_is_never_having_had_it(name, weights):
    weight, y = WEIGHTS[weights], target(name)
    model = clone(GIVEN[name]).fit(X, y, sample_weight=weight)
    if hasattr(model, "predict_interval"):
        model.predict_interval(NEW)  # residuals of rows that will leave
    else:
        model.predict_proba(NEW)
    assert model.forget(GONE[:2]) is model
    model.forget(np.array(GONE[2:]))
    alike(model, clone(GIVEN[name]).fit(X[LEFT], y[LEFT], sample_weight=some(weight, LEFT)), intervals=True)
    assert model.row_ids_.tolist() == LEFT.tolist()


LEARNED = {
    "loo": NadarayaWatsonRegressor(),
    "ridge": LocalLinearRegressor(ridge="loo"),
    "full": NadarayaWatsonRegressor(metric="full"),
    "adaptive": LocalLinearRegressor(bandwidth="adaptive", metric="scalar"),
    "rule": NadarayaWatsonRegressor(bandwidth="scott"),
    "class loo": NadarayaWatsonClassifier(),
    "heads": KernelRegressor(),
    "class heads": KernelClassifier(),
    "score": AttentionRegressor(max_iter=2, random_state=0),
    "embedding": AttentionRegressor(embed="mlp", max_iter=1, random_state=0),
}
# What was learned: it stays.
LEARNT = ("w_", "bandwidth_", "ridge_", "neighbours_", "heads_", "parameters_")


@pytest.mark.parametrize(
    ("name", "weights"),
    [*((name, "none") for name in LEARNED), ("loo", "integers"), ("heads", "integers"), ("heads", "floats")],
)
def test_what_was_learned_stays_and_all_else_is_made_anew(name, weights):
    weight, y = WEIGHTS[weights], target(name)
    model = clone(LEARNED[name]).fit(X, y, sample_weight=weight)
    learned = {part: vars(model)[part] for part in LEARNT if part in vars(model)}
    if hasattr(model, "predict_interval"):
        model.predict_interval(NEW)
    model.forget(GONE)
    other = clone(LEARNED[name]).fit(X[LEFT], y[LEFT], sample_weight=some(weight, LEFT))
    scaled = ("w_", "bandwidth_") if name == "score" else ()  # those of a score follow from the scale of the rows left
    for part, value in learned.items():
        if part not in scaled:
            setattr(other, part, value)
            assert pickle.dumps(vars(model)[part]) == pickle.dumps(value)
    if name == "embedding":
        other.embedding_ = other._transform().keys(other.key_)
    for part in ("predict", "attend"):
        got, wanted = getattr(model, part)(NEW), getattr(other, part)(NEW)
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    for part in ("scaling_", "mean_", "scale_"):
        if hasattr(model, part):
            assert pickle.dumps(getattr(model, part)) == pickle.dumps(getattr(other, part))
    assert len(model.explain(NEW)) == 25


def reachable(root):
    """Every array that an object leads to, with what lies behind views."""
    seen, todo, found = set(), [vars(root)], []
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type) or type(one).__name__ in ("module", "function", "method"):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            found.append(one)
            if one.base is not None:
                todo.append(one.base)
            if one.dtype != object:
                continue
        todo.extend(gc.get_referents(one))
    return found


def holds(arrays, number):
    """Whether any of them has this number, also among values kept as raw memory."""
    return any(
        array.dtype.kind == "f" and np.isclose(array.astype(np.float64), number, rtol=1e-9, atol=0.0).any()
        for array in arrays
    )


@pytest.mark.parametrize("name", [*GIVEN, *LEARNED])
def test_nothing_of_a_row_remains(name, tmp_path):
    """Not in arrays or behind views of them, nor in scalings, residuals, searches, pickles or files."""
    kinds = GIVEN | LEARNED
    x, y = X.copy(), target(name).copy()
    x[40] = 0.2718281828, -0.31415926535
    if "class" in name:
        y = y.astype("<U6")
        y[40] = "secret"
        marks = [0.2718281828, -0.31415926535]
    else:
        y[40] = 1.41421356237
        marks = [0.2718281828, -0.31415926535, 1.41421356237]
    model = clone(kinds[name]).fit(x, y)
    if hasattr(model, "predict_interval"):
        model.predict_interval(NEW)
        marks.append(float(np.ravel(model.residuals_)[40]))
    if hasattr(model, "loo_predictions_") and model.loo_predictions_.ndim == 1:
        marks.append(float(model.loo_predictions_[40]))
    if hasattr(model, "partial_fit"):
        model.partial_fit(X[:2], y[:2])
    before = reachable(model)
    assert holds(before, marks[0])
    del before
    model.forget([40])
    after = reachable(model)
    for mark in marks:
        assert not holds(after, mark), mark
    del after
    regard.save(model, tmp_path / "m.regard")
    loaded = regard.load(tmp_path / "m.regard")
    for raw in ((tmp_path / "m.regard").read_bytes(), pickle.dumps(model)):
        for mark in marks:
            assert np.float64(mark).tobytes() not in raw
            assert np.float32(mark).tobytes() not in raw
        assert b"secret" not in raw
        assert "secret".encode("utf-32-le") not in raw
    assert loaded.row_ids_.tolist() == model.row_ids_.tolist()
    assert 40 not in model.row_ids_
    if "class" in name:
        assert "secret" not in model.classes_
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))


def test_categories_of_which_no_row_is_left_go():
    frame = pandas.DataFrame(
        {"size": X[:, 0], "kind": np.where(X[:, 1] > 0, "flat", "house"), "stars": [1.0, 2.0] * 25}
    )
    frame.loc[40, ["kind", "stars"]] = "secret", 1.5
    at = frame[:20]
    stars = {"stars": "li-racine-ordered"}
    given = NadarayaWatsonRegressor(kernel=stars, bandwidth=[0.5, 0.2, 0.3]).fit(frame, Y).forget([40])
    rest = frame.drop(index=40)
    never = NadarayaWatsonRegressor(kernel=stars, bandwidth=[0.5, 0.2, 0.3]).fit(rest, np.delete(Y, 40))
    np.testing.assert_allclose(given.predict(at), never.predict(at), rtol=1e-12)
    assert given.coding_ == never.coding_
    assert b"secret" not in pickle.dumps(given)
    learned = NadarayaWatsonRegressor().fit(frame[["size", "kind"]], Y)
    w = learned.w_[0]
    learned.forget([40])
    assert learned.w_[0] == w
    assert b"secret" not in pickle.dumps(learned)
    assert np.isfinite(learned.predict(at[["size", "kind"]])).all()
    heads = KernelRegressor().fit(frame[["size", "kind"]], Y).forget([40])
    assert b"secret" not in pickle.dumps(heads)
    assert np.isfinite(heads.predict(at[["size", "kind"]])).all()


def test_numbers_never_change():
    model = NearestKeyRegressor().partial_fit(X[:10], Y[:10]).partial_fit(X[10:20], Y[10:20])
    assert model.row_ids_.tolist() == list(range(20))
    model.forget([19, 4])
    assert model.row_ids_.tolist() == [*range(4), *range(5, 19)]
    model.partial_fit(X[20:22], Y[20:22])
    assert model.row_ids_.tolist() == [*range(4), *range(5, 19), 20, 21]  # 19 is not given again
    with pytest.raises(ValueError, match="ids has 4, which is not the id of any of the 20 training rows"):
        model.forget([0, 4])
    assert 0 in model.row_ids_  # nothing was removed
    model.forget(20).forget([])
    np.testing.assert_array_equal(model.key_[-1], X[21])
    assert model.explain(X[21:22]).row[0, 0] == 21
    assert model.fit(X, Y).row_ids_.tolist() == list(range(N))  # fit counts anew


@pytest.mark.parametrize(
    ("ids", "words", "kind"),
    [
        ([N], "ids has 50", ValueError),
        ([-1], "ids has -1", ValueError),
        ([0.0], "whole numbers", TypeError),
        ([True], "whole numbers", TypeError),
        (["0"], "whole numbers", TypeError),
        (np.zeros((1, 1), int), "whole numbers", TypeError),
        (range(N), "at least one must remain", ValueError),
    ],
)
def test_what_forget_refuses(ids, words, kind):
    model = NadarayaWatsonRegressor(bandwidth=0.7).fit(X, Y)
    with pytest.raises(kind, match=words):
        model.forget(ids)
    assert len(model.key_) == N
    with pytest.raises(NotFittedError):
        NadarayaWatsonRegressor().forget([0])


def test_44_the_last_row_that_counts_stays():
    model = AveragePoolingRegressor().fit(X[:3], Y[:3], sample_weight=[0.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="training rows of positive weight"):
        model.forget([1])
    assert model.forget([0, 2]).predict(NEW[:1])[0] == Y[1]
    one = KernelRegressor().fit(X[:5], Y[:5]).forget([0, 1, 2, 4])  # 3: one row is a constant
    np.testing.assert_allclose(one.predict(NEW), Y[3])


def test_classes_that_were_passed_stay():
    model = NadarayaWatsonClassifier(bandwidth=0.7).partial_fit(X[:2], ["a", "b"], classes=["a", "b", "c"])
    model.partial_fit(X[2:3], ["c"]).forget([2])
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert (model.predict_proba(NEW)[:, 2] == 0.0).all()
    assert model.fit(X[:2], ["a", "b"]).forget([0]).classes_.tolist() == ["b"]


@every_weight
@every_given
def test_a_window_is_a_refit_of_its_rows(name, weights):
    weight, y = WEIGHTS[weights], target(name)
    for window in (1, 15, N, 500):
        model = clone(GIVEN[name])
        more = {"classes": ["a", "b", "c"]} if name == "classes" else {}
        for rows in CUTS:
            model.partial_fit(X[rows], y[rows], sample_weight=some(weight, rows), window=window, **more)
        last = slice(max(N - window, 0), N)
        assert model.row_ids_.tolist() == list(range(N))[last]
        if window == 1:
            np.testing.assert_array_equal(model.key_, X[-1:])
            continue
        other = clone(GIVEN[name])
        if name == "classes":
            other.partial_fit(X[last], y[last], ["a", "b", "c"], some(weight, last))
        else:
            other.fit(X[last], y[last], sample_weight=some(weight, last))
        alike(model, other)


@every_weight
@every_given
def test_forgetting_is_a_refit_with_its_weights(name, weights):
    weight, y = WEIGHTS[weights], target(name)
    wanted = (np.ones(N) if weight is None else weight) * 0.95 ** np.arange(N)[::-1]
    model, other = clone(GIVEN[name]), clone(GIVEN[name])
    more = {"classes": ["a", "b", "c"]} if name == "classes" else {}
    for rows in CUTS:
        model.partial_fit(X[rows], y[rows], sample_weight=some(weight, rows), forgetting=0.95, **more)
    np.testing.assert_allclose(model.sample_weight_, wanted, rtol=1e-13)
    other.partial_fit(X, y, sample_weight=wanted, **more)
    alike(model, other)
    both = clone(GIVEN[name])
    for rows in CUTS:
        both.partial_fit(X[rows], y[rows], sample_weight=some(weight, rows), forgetting=0.95, window=30, **more)
    np.testing.assert_allclose(both.sample_weight_, wanted[-30:], rtol=1e-13)


def test_windows_of_learned_bandwidths_and_dataframes():
    frame = pandas.DataFrame(X, columns=["a", "b"])
    model = NadarayaWatsonRegressor().partial_fit(frame, Y, window=30)
    first = NadarayaWatsonRegressor().fit(frame[20:], Y[20:])
    np.testing.assert_array_equal(model.w_, first.w_)
    np.testing.assert_array_equal(model.loo_predictions_, first.loo_predictions_)
    model.partial_fit(frame[:5], Y[:5], window=20)
    np.testing.assert_array_equal(model.w_, first.w_)
    assert model.row_ids_.tolist() == list(range(35, 55))
    assert model.feature_names_in_.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": 0}, "window must be a whole number of at least 1"),
        ({"window": 2.5}, "window must be a whole number of at least 1"),
        ({"window": True}, "window must be"),
        ({"forgetting": 0.0}, "forgetting must be a number in \\(0, 1\\]"),
        ({"forgetting": 1.5}, "forgetting must be"),
        ({"forgetting": np.nan}, "forgetting must be"),
        ({"forgetting": "slow"}, "forgetting must be"),
        ({"window": 1, "sample_weight": [1.0, 0.0]}, "all sample weights are zero after window and forgetting"),
    ],
)
def test_what_windows_and_forgetting_refuse(options, words):
    model = NadarayaWatsonRegressor(bandwidth=0.7).fit(X, Y)
    with pytest.raises(ValueError, match=words):
        model.partial_fit(X[:2], Y[:2], **options)
    with pytest.raises(ValueError, match=words):
        NadarayaWatsonRegressor(bandwidth=0.7).partial_fit(X[:2], Y[:2], **options)
    assert len(model.key_) == N
    assert model.sample_weight_ is None


def test_a_saved_stream_goes_on(tmp_path):
    model = LocalLinearRegressor(bandwidth=0.8).partial_fit(X[:40], Y[:40], window=30).forget([20])
    regard.save(model, tmp_path / "m.regard")
    for other in (regard.load(tmp_path / "m.regard"), pickle.loads(pickle.dumps(model))):
        other.partial_fit(X[40:], Y[40:], window=30)
        assert other.row_ids_.tolist() == [19, *range(21, N)]
    assert len(model.key_) == 29

"""Laws of the estimators, what ``empty`` and ``attend`` promise, and what ``fit`` leaves behind."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.neighbors import KNeighborsRegressor

from regard.bandwidth import RULES
from regard.estimators import (
    Attention,
    AveragePoolingRegressor,
    NadarayaWatsonClassifier,
    NadarayaWatsonRegressor,
    NearestKeyRegressor,
)
from regard.model import attended_rows
from regard.model.smoother import Smoother
from regard.scores import KERNELS, Gaussian, Nearest

rng = np.random.default_rng(11)
X = rng.normal(size=(50, 2))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1]
TWO = np.column_stack([Y, -3.0 * Y + 1.0])
LABELS = np.where(Y > 0.5, "high", np.where(Y < -0.5, "low", "middle"))
Q = rng.normal(size=(20, 2))
COUNTS = rng.integers(0, 4, len(X))
COMPACT = [name for name, kernel in KERNELS.items() if kernel.compact]

ESTIMATORS = {
    "average": AveragePoolingRegressor(),
    "nearest": NearestKeyRegressor(),
    **{name: NadarayaWatsonRegressor(name, bandwidth=4.0) for name in KERNELS},
    **{rule: NadarayaWatsonRegressor(bandwidth=rule) for rule in RULES},
    "per feature": NadarayaWatsonRegressor(bandwidth=[0.5, 2.0]),
    "classifier": NadarayaWatsonClassifier(bandwidth=0.5),
    "box classifier": NadarayaWatsonClassifier("boxcar", bandwidth=4.0),
}
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)


def fitted(estimator, X=X, rows=slice(None), sample_weight=None):
    return clone(estimator).fit(X, (LABELS if is_classifier(estimator) else TWO)[rows], sample_weight=sample_weight)


def answer(model, Q=Q):
    return model.predict_proba(Q) if is_classifier(model) else model.predict(Q)


def values(model):
    """What the weights average: y, or the classes as indicator columns."""
    return (model.value_[:, None] == np.arange(len(model.classes_))) * 1.0 if is_classifier(model) else model.value_


# --- the formula ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_formula(kernel):
    h = np.array([2.0, 5.0])
    u2 = (((Q[:, None] - X[None]) / h) ** 2).sum(-1)
    K = KERNELS[kernel].value(u2)
    expected = (K @ Y) / K.sum(axis=1)
    model = NadarayaWatsonRegressor(kernel, bandwidth=h).fit(X, Y)
    assert np.allclose(model.predict(Q), expected, rtol=1e-12)
    assert type(model.attention_score_).__name__.lower() == kernel


def test_the_notes_bandwidth_is_the_notes_bandwidth():
    x, y = np.sort(rng.uniform(0, 5, 50)), rng.normal(size=50)
    at = np.arange(0, 5, 0.1)
    scores = -0.5 * (at[:, None] - x) ** 2
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    model = NadarayaWatsonRegressor(bandwidth=1.0).fit(x[:, None], y)
    assert np.allclose(model.predict(at[:, None]), weights @ y, rtol=1e-12)
    assert np.allclose(model.attend(at[:, None]), weights, rtol=1e-12)


def test_average_is_the_weighted_mean():
    model = AveragePoolingRegressor().fit(X, TWO, sample_weight=COUNTS)
    assert np.allclose(model.predict(Q), np.average(TWO, axis=0, weights=COUNTS), rtol=1e-14)
    assert np.allclose(model.attend(Q[:3]), COUNTS / COUNTS.sum(), rtol=1e-14)
    assert isinstance(model.attention_score_, Gaussian)


def test_nearest_is_one_neighbour():
    expected = KNeighborsRegressor(1).fit(X, TWO).predict(Q)
    model = NearestKeyRegressor().fit(X, TWO)
    assert np.array_equal(model.predict(Q), expected)
    assert isinstance(model.attention_score_, Nearest)


def test_ties_of_the_nearest_share_by_weight():
    model = NearestKeyRegressor().fit([[0.0], [2.0], [2.0]], [0.0, 6.0, 12.0], sample_weight=[2, 1, 1])
    assert model.predict([[1.0], [2.0]]).tolist() == [4.5, 9.0]
    assert model.attend([[1.0]]).tolist() == [[0.5, 0.25, 0.25]]


def test_probabilities_are_shares_of_attention():
    model = NadarayaWatsonClassifier(bandwidth=0.5).fit(X, LABELS)
    weights = NadarayaWatsonRegressor(bandwidth=0.5).fit(X, Y).attend(Q)
    expected = np.column_stack([weights[:, name == LABELS].sum(axis=1) for name in ("high", "low", "middle")])
    assert model.classes_.tolist() == ["high", "low", "middle"]
    assert np.allclose(model.predict_proba(Q), expected, rtol=1e-12)
    assert np.allclose(model.predict_proba(Q).sum(axis=1), 1.0, rtol=1e-14)
    assert np.array_equal(model.predict(Q), model.classes_[expected.argmax(axis=1)])


def test_equal_probabilities_give_the_first_class():
    model = NadarayaWatsonClassifier(bandwidth=1.0).fit([[-1.0], [1.0]], ["b", "a"])
    assert model.predict([[0.0]]).tolist() == ["a"]


# --- laws -------------------------------------------------------------------------------------------------------


@every_estimator
def test_weights_reproduce_the_answer(estimator):
    model = fitted(estimator, sample_weight=COUNTS)
    weights = model.attend(Q)
    assert weights.shape == (20, 50)
    assert (weights >= 0).all()
    assert not weights[:, COUNTS == 0].any()
    assert np.allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    assert np.allclose(weights @ values(model), answer(model), rtol=1e-10, atol=1e-12)


@every_estimator
def test_order_of_training_rows(estimator):
    order = rng.permutation(len(X))
    assert np.allclose(answer(fitted(estimator, X[order], order)), answer(fitted(estimator)), rtol=1e-10)


@every_estimator
def test_rows_of_queries_do_not_meet(estimator):
    model = fitted(estimator)
    alone = np.concatenate([answer(model, row[None]) for row in Q])
    assert np.allclose(alone, answer(model), rtol=1e-12)


@every_estimator
def test_translation(estimator):
    far = np.array([1e6, -3e5])
    grid, queries = np.round(X * 2**10) / 2**10, np.round(Q * 2**10) / 2**10  # so that moving is exact
    here, there = fitted(estimator, grid), fitted(estimator, grid + far)
    assert np.allclose(answer(there, queries + far), answer(here, queries), rtol=1e-9)


@every_estimator
def test_a_weight_is_copies_and_zero_is_deletion(estimator):
    weighted = fitted(estimator, sample_weight=COUNTS)
    rows = np.arange(len(X)).repeat(COUNTS)
    assert np.allclose(answer(weighted), answer(fitted(estimator, X[rows], rows)), rtol=1e-9)
    once = (COUNTS > 0).astype(float)
    deleted = fitted(estimator, X[COUNTS > 0], COUNTS > 0)
    assert np.allclose(answer(fitted(estimator, sample_weight=once)), answer(deleted), rtol=1e-9)


@every_estimator
@pytest.mark.parametrize("scale", [1e-290, 0.3, 1e290])
def test_importances_are_relative(estimator, scale):
    importance = rng.uniform(0.1, 3.0, len(X))
    plain, scaled = (fitted(estimator, sample_weight=importance * factor) for factor in (1.0, scale))
    assert np.allclose(answer(scaled), answer(plain), rtol=1e-9)


@every_estimator
def test_answers_stay_inside_the_hull(estimator):
    far = Q * np.logspace(0, 150, len(Q))[:, None]
    model = clone(estimator).set_params(**({"empty": "nearest"} if "empty" in estimator.get_params() else {}))
    model = fitted(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = answer(model, far)
    low, high = values(model).min(axis=0), values(model).max(axis=0)
    assert ((low <= got) & (got <= high)).all()


@every_estimator
def test_a_constant_y_is_reproduced(estimator):
    if is_classifier(estimator):
        model = clone(estimator).fit(X, ["only"] * len(X))
        assert (model.predict(Q) == "only").all()
        assert (model.predict_proba(Q) == 1.0).all()
    else:
        assert (clone(estimator).fit(X, np.full(len(X), 0.1)).predict(Q) == 0.1).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_wide_is_the_mean_and_narrow_the_nearest(kernel):
    for h in (1e9, 1e300, np.inf):
        wide = NadarayaWatsonRegressor(kernel, bandwidth=h).fit(X, TWO, sample_weight=COUNTS)
        assert np.allclose(wide.predict(Q), np.average(TWO, axis=0, weights=COUNTS), rtol=1e-7)
    nearest = NearestKeyRegressor().fit(X, TWO).predict(Q)
    for h in (1e-8, 1e-100):
        narrow = NadarayaWatsonRegressor(kernel, bandwidth=h).fit(X, TWO)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert np.allclose(narrow.predict(Q), nearest, rtol=1e-14)


def test_an_infinite_bandwidth_ignores_the_feature():
    one = NadarayaWatsonRegressor(bandwidth=0.4).fit(X[:, :1], Y).predict(Q[:, :1])
    both = NadarayaWatsonRegressor(bandwidth=[0.4, np.inf]).fit(X, Y)
    assert np.allclose(both.predict(Q), one, rtol=1e-13)
    assert both.w_.tolist() == [2.5, 0.0]
    assert both.bandwidth_.tolist() == [0.4, np.inf]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_ignores_a_constant_feature(rule):
    constant = np.hstack([X, np.full((len(X), 1), 0.1)])
    model = NadarayaWatsonRegressor(bandwidth=rule).fit(constant, Y)
    plain = NadarayaWatsonRegressor(bandwidth=rule).fit(X, Y)
    assert model.w_[2] == 0.0
    moved = np.hstack([Q, rng.normal(size=(len(Q), 1))])
    assert np.allclose(model.predict(moved), plain.predict(Q), rtol=1e-13)


# --- no key in reach --------------------------------------------------------------------------------------------

LINE, AT = np.array([[0.0], [1.0], [5.0]]), np.array([[0.5], [3.5], [-9.0]])


@pytest.mark.parametrize("kernel", COMPACT)
def test_empty_nearest_warns_once_with_the_count(kernel):
    model = NadarayaWatsonRegressor(kernel, bandwidth=0.75).fit(LINE, [1.0, 3.0, 7.0])
    with pytest.warns(UserWarning, match=r"2 of 3 rows of X \(the first is row 1\).*nearest") as caught:
        assert model.predict(AT).tolist() == [2.0, 7.0, 1.0]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="2 of 3 rows") as caught:
        assert model.attend(AT).tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="2 of 3 rows"):
        assert model.attend(AT, top=1).index.tolist() == [[0], [2], [0]]
    assert model.predict(AT[:1]).tolist() == [2.0]  # no empty row, no warning


def test_empty_nearest_measures_in_bandwidths():
    model = NadarayaWatsonRegressor("boxcar", bandwidth=[0.01, 10.0]).fit([[0.0, 9.0], [0.5, 0.0]], [1.0, 2.0])
    with pytest.warns(UserWarning, match="1 of 1 rows"):
        assert model.predict([[0.2, 0.0]]).tolist() == [1.0]


def test_empty_nearest_respects_deleted_rows_and_ties():
    model = NadarayaWatsonRegressor("boxcar", bandwidth=0.1).fit(LINE, [1.0, 3.0, 7.0], sample_weight=[1, 3, 0])
    with pytest.warns(UserWarning, match="2 of 2 rows"):
        assert model.predict([[0.5], [6.0]]).tolist() == [2.5, 3.0]


def test_empty_nan():
    model = NadarayaWatsonRegressor("boxcar", bandwidth=0.75, empty="nan").fit(LINE, [[1.0, 0], [3.0, 0], [7.0, 0]])
    assert np.array_equal(model.predict(AT), [[2.0, 0.0], [np.nan] * 2, [np.nan] * 2], equal_nan=True)
    assert model.attend(AT)[1:].tolist() == [[0.0] * 3] * 2
    assert model.attend(AT, top=2).mass.tolist() == [1.0, 0.0, 0.0]


def test_empty_raise():
    model = NadarayaWatsonRegressor("boxcar", bandwidth=0.75, empty="raise").fit(LINE, [1.0, 3.0, 7.0])
    assert model.predict(AT[:1]).tolist() == [2.0]
    for call in (model.predict, model.attend, lambda X: model.attend(X, top=1)):
        with pytest.raises(ValueError, match=r"2 of 3 rows of X .* use a larger bandwidth"):
            call(AT)


def test_empty_in_the_classifier():
    model = NadarayaWatsonClassifier("boxcar", bandwidth=0.75).fit(LINE, ["a", "b", "b"], sample_weight=[1.0, 1.0, 2.0])
    with pytest.warns(UserWarning, match="2 of 3 rows.*nearest") as caught:
        assert model.predict_proba(AT).tolist() == [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]]
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="2 of 3 rows") as caught:
        assert model.predict(AT).tolist() == ["a", "b", "a"]
    assert caught[0].filename == __file__
    model.set_params(empty="prior")
    with pytest.warns(UserWarning, match="2 of 3 rows.*class frequencies"):
        assert model.predict_proba(AT).tolist() == [[0.5, 0.5], [0.25, 0.75], [0.25, 0.75]]
    with pytest.warns(UserWarning, match="2 of 3 rows"):
        assert model.attend(AT).tolist() == [[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]
    model.set_params(empty="nan")
    assert np.isnan(model.predict_proba(AT)).any(axis=1).tolist() == [False, True, True]
    assert model.predict(AT[:1]).tolist() == ["a"]
    with pytest.raises(ValueError, match="2 rows of X have no class, since empty='nan'"):
        model.predict(AT)
    with pytest.raises(ValueError, match="2 of 3 rows of X"):
        model.set_params(empty="raise").predict(AT)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_kernels_without_an_end_are_never_empty(kernel):
    model = NadarayaWatsonRegressor(kernel, bandwidth=1e-3, empty="raise").fit(LINE, [1.0, 3.0, 7.0])
    assert model.predict([[1e12], [-1e12]]).tolist() == [7.0, 1.0]
    # So far away that the training rows are one point to a float64: all are nearest.
    assert np.allclose(model.predict([[1e150]]), 11.0 / 3.0)


# --- attend(top) ------------------------------------------------------------------------------------------------


@every_estimator
@pytest.mark.parametrize("top", [1, 7, 50])
def test_top_keys(estimator, top):
    model = fitted(estimator, sample_weight=COUNTS)
    weights, shown = model.attend(Q), model.attend(Q, top=top)
    assert isinstance(shown, Attention)
    assert shown.index.shape == shown.weight.shape == (20, top)
    order = np.argsort(-weights, axis=1, kind="stable")[:, :top]
    assert np.array_equal(shown.index, order)
    assert np.array_equal(shown.weight, np.take_along_axis(weights, order, axis=1))
    assert np.allclose(shown.mass, shown.weight.sum(axis=1), rtol=1e-14)
    assert (shown.mass <= 1.0).all()


def test_top_keys_break_ties_by_number():
    model = NearestKeyRegressor().fit([[1.0], [-1.0], [3.0], [1.0], [-1.0]], np.arange(5.0))
    shown = model.attend([[0.0], [1.0]], top=3)
    assert shown.index.tolist() == [[0, 1, 3], [0, 3, 1]]
    assert shown.weight.tolist() == [[0.25] * 3, [0.5, 0.5, 0.0]]
    assert shown.mass.tolist() == [0.75, 1.0]


@pytest.mark.parametrize("cells", [1, 50, 130, 5000])
def test_top_keys_never_hold_more_than_a_tile(monkeypatch, cells):
    model = NadarayaWatsonRegressor("boxcar", bandwidth=0.3).fit(X, Y)
    with pytest.warns(UserWarning, match="rows of X"):
        expected = model.attend(Q, top=4)
    seen = []
    original = Smoother.weights

    def watched(self, query):
        seen.append(query.shape[0] * len(self.rows.key))
        return original(self, query)

    monkeypatch.setattr(attended_rows, "TILE_CELLS", cells)
    monkeypatch.setattr(Smoother, "weights", watched)
    with pytest.warns(UserWarning, match="rows of X") as caught:
        tiled = model.attend(Q, top=4)
    assert len(caught) == 1
    assert max(seen) <= max(cells, len(X))
    assert sum(seen) == len(Q) * len(X)
    assert all(np.array_equal(a, b) for a, b in zip(tiled, expected, strict=True))


@pytest.mark.parametrize(
    ("top", "error"),
    [(0, ValueError), (51, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError), ("3", TypeError)],
)
def test_top_must_be_a_count(top, error):
    with pytest.raises(error, match="top must be"):
        NearestKeyRegressor().fit(X, Y).attend(Q, top=top)


# --- what fit leaves --------------------------------------------------------------------------------------------


@every_estimator
def test_training_data_are_copied_and_never_written(estimator):
    key, weight = X.copy(), COUNTS.astype(float)
    y = (LABELS if is_classifier(estimator) else TWO).copy()
    kept = [array.copy() for array in (key, y, weight)]
    model = clone(estimator).fit(key, y, sample_weight=weight)
    before = answer(model)
    assert all(np.array_equal(a, b) for a, b in zip((key, y, weight), kept, strict=True))
    key[:], weight[:] = 7.0, 1.0
    y[:] = y[0]
    assert np.array_equal(answer(model), before)
    queries = Q.copy()
    model.predict(queries)
    model.attend(queries, top=2)
    assert np.array_equal(queries, Q)


@every_estimator
def test_dtypes(estimator):
    single = fitted(estimator, X.astype(np.float32))
    assert single.key_.dtype == np.float32
    assert is_classifier(estimator) or single.value_.dtype == np.float32
    assert answer(single, Q.astype(np.float32)).dtype == np.float32
    assert answer(single, Q).dtype == np.float64
    shown = single.attend(Q.astype(np.float32), top=2)
    assert (shown.weight.dtype, shown.mass.dtype, shown.index.dtype) == (np.float32, np.float32, np.intp)
    assert single.attend(Q.astype(np.float32)).dtype == np.float32
    assert np.allclose(answer(single, Q.astype(np.float32)), answer(fitted(estimator)), atol=1e-4)
    whole = np.round(X * 2).astype(int)
    assert fitted(estimator, whole).key_.dtype == np.float64
    assert answer(fitted(estimator, whole), np.round(Q * 2).astype(int)).dtype == np.float64


def test_a_class_without_weight_is_no_class():
    model = NadarayaWatsonClassifier(bandwidth=1.0).fit(X, LABELS, sample_weight=(LABELS != "low").astype(int))
    assert model.classes_.tolist() == ["high", "middle"]
    assert np.allclose(model.predict_proba(Q).sum(axis=1), 1.0)

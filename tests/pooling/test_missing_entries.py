"""Missing entries: keys that have all columns of the query, distances in these lengthened; refused unless asked for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from regard import KernelRegressor, LocalLinearRegressor, NadarayaWatsonClassifier, NadarayaWatsonRegressor
from regard.pooling.local_pooling import pool_local
from regard.pooling.missing_entries import pool_with_missing, weights_with_missing
from regard.scores import Gaussian, Laplace

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

RNG = np.random.default_rng(11)


def problem(gaps: float, Q: int = 15, K: int = 40, d: int = 3, P: int = 2):
    query, key, value = RNG.normal(size=(Q, d)), RNG.normal(size=(K, d)), RNG.normal(size=(K, P))
    for rows in (query, key):
        lost = RNG.random(rows.shape) < gaps
        lost[lost.all(axis=1), 0] = False
        rows[lost] = np.nan
    return query, key, value


def parts(query, key, w, s=None):
    """Differences, which pairs are compared, and the lengthened u²."""
    delta = key[None] - query[:, None]
    common = ~np.isnan(delta)
    delta = np.where(common, delta, 0.0)
    counted = np.maximum(common.sum(axis=2), 1)
    full = (common | np.isnan(query)[:, None]).all(axis=2) & (True if s is None else s > 0)
    compared = np.where(full.any(axis=1, keepdims=True), full, common.any(axis=2))
    return delta, compared, ((delta * w) ** 2).sum(axis=2) * key.shape[1] / counted


@pytest.fixture(params=["keys without gaps too", "a gap in every key"])
def keys_with_gaps(request):
    """A problem with gaps; if every key has one, complete queries are compared with all keys."""
    query, key, value = problem(0.3)
    if request.param == "a gap in every key":
        key[np.arange(len(key)), np.arange(len(key)) % 3] = np.nan
        key[np.isnan(key).all(axis=1)] = [np.nan, 1.0, -1.0]
        query[:5] = RNG.normal(size=(5, 3))
    return query, key, value


def test_rows_with_gaps_change_nothing_for_complete_queries():
    query, key, value = problem(0.0)
    gappy = np.where(RNG.random((30, 3)) < 0.4, np.nan, 1.0)
    gappy[0] = np.nan
    gappy[1:, 0] = np.nan
    both, values = np.concatenate([key, gappy]), np.concatenate([value, np.full((30, 2), 1e3)])
    w = np.arange(3)
    alone = pool_with_missing(query, key, value, Gaussian(0.7), w, degree=1, ridge=0.1)[0]
    found = pool_with_missing(query, both, values, Gaussian(0.7), w, degree=1, ridge=0.1)[0]
    assert np.allclose(found, alone, rtol=1e-9)
    assert not weights_with_missing(query, both, Gaussian(0.7), w)[:, len(key) :].any()


@pytest.mark.parametrize("weight", [None, "repetitions", "importances"])
def test_means_and_weights_are_the_formula(weight, keys_with_gaps):
    query, key, value = keys_with_gaps
    s = {None: None, "repetitions": RNG.integers(0, 4, len(key)), "importances": 1e6 * RNG.random(len(key))}[weight]
    w = np.array([1.0, 2.0, 0.5])
    _, compared, u2 = parts(query, key, w, s)
    K = np.where(compared, np.exp(-0.5 * u2), 0.0) * (1.0 if s is None else s)
    A = K / K.sum(axis=1, keepdims=True)
    output, _, _ = pool_with_missing(query, key, value, Gaussian(w), np.arange(3), sample_weight=s)
    assert np.allclose(output, A @ value, rtol=1e-12, atol=1e-13)
    found = weights_with_missing(query, key, Gaussian(w), np.arange(3), sample_weight=s)
    assert np.allclose(found, A, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("d", [1, 8, 9, 20])
def test_rows_are_grouped_by_every_column_they_lack(d):
    query, key, value = problem(0.1, d=d)
    w = RNG.uniform(0.2, 0.5, d)
    _, compared, u2 = parts(query, key, w)
    K = np.where(compared, np.exp(-0.5 * u2), 0.0)
    A = K / K.sum(axis=1, keepdims=True)
    assert np.allclose(weights_with_missing(query, key, Gaussian(w), np.arange(d)), A, rtol=1e-10, atol=1e-14)
    assert np.allclose(pool_with_missing(query, key, value, Gaussian(w), np.arange(d))[0], A @ value, rtol=1e-12)
    assert pool_with_missing(query[:0], key, value, Gaussian(w), np.arange(d))[0].shape == (0, 2)


@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_lines_lean_on_what_both_rows_have(ridge):
    query, key, value = problem(0.2)
    w = np.array([0.5, 0.7, 0.4])
    delta, compared, u2 = parts(query, key, w)
    K = np.where(compared, np.exp(-0.5 * u2), 0.0)
    output, _, _ = pool_with_missing(query, key, value, Gaussian(w), np.arange(3), degree=1, ridge=ridge)
    for i in range(len(query)):
        a = K[i] / K[i].sum()
        middle, height = a @ delta[i], a @ value
        C = (delta[i] * a[:, None]).T @ delta[i] - np.outer(middle, middle)
        c = (delta[i] * a[:, None]).T @ value - np.outer(middle, height)
        W = np.diag(w)
        system = W @ C @ W + ridge * (1.0 + ((middle * w) ** 2).sum()) * np.eye(3)
        slope = W @ np.linalg.lstsq(system, W @ c, rcond=1e-12)[0]
        assert np.allclose(output[i], height - middle @ slope, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize(
    "score", [Gaussian(0.8), Laplace(np.array([1.0, 0.3, 2.0])), Gaussian(RNG.normal(size=(3, 2)))]
)
def test_without_gaps_nothing_changes(degree, score):
    query, key, value = problem(0.0)
    plain = pool_local(query, key, value, score, degree=degree, ridge=0.1 * degree)[0]
    assert np.array_equal(
        pool_with_missing(query, key, value, score, np.arange(3), degree=degree, ridge=0.1 * degree)[0], plain
    )


def table(n: int = 80, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "kind": rng.choice(["x", "y", "z"], n)})
    y = X["a"].to_numpy() + 2.0 * (X["kind"] == "y").to_numpy()
    X.loc[rng.random(n) < 0.15, "a"] = np.nan
    X.loc[rng.random(n) < 0.1, "kind"] = None
    return X, y


@pytest.mark.parametrize("kind", [NadarayaWatsonRegressor, LocalLinearRegressor, KernelRegressor])
def test_estimators_learn_from_whole_rows_and_answer_all(kind):
    X, y = table()
    model = kind(missing="ignore").fit(X, y)
    whole = X.notna().all(axis=1).to_numpy()
    alone = kind(missing="ignore").fit(X[whole], y[whole])
    assert np.array_equal(model.feature_relevance_ > 0.0, alone.feature_relevance_ > 0.0)
    assert np.array_equal(np.isnan(model.loo_predictions_), ~whole)
    answer = model.predict(X)
    assert np.isfinite(answer).all()
    assert np.corrcoef(answer, y)[0, 1] > 0.6  # a row without its a can only be guessed
    weights = model.attend(X)
    assert np.allclose(weights.sum(axis=1), 1.0)
    assert np.allclose(model.effective_weights(X) @ y, answer, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="missing entries, for which there are no gradients"):
        model.marginal_effects(X)


def test_plain_arrays_with_nan():
    X = RNG.normal(size=(50, 2))
    y = X.sum(axis=1)
    X[::7, 1] = np.nan
    model = NadarayaWatsonRegressor(bandwidth=0.5, missing="ignore").fit(X, y)
    _, compared, u2 = parts(X, X, 2.0)
    K = np.where(compared, np.exp(-0.5 * u2), 0.0)
    assert np.allclose(model.predict(X), K @ y / K.sum(axis=1), rtol=1e-12)
    labels = np.where(y > 0, "up", "down")
    classes = NadarayaWatsonClassifier(bandwidth=0.5, missing="ignore").fit(X, labels)
    assert np.allclose(classes.predict_proba(X)[:, 1], K @ (y > 0) / K.sum(axis=1), rtol=1e-10)


def test_7_missing_entries_are_refused_unless_asked_for():
    X, y = table()
    with pytest.raises(ValueError, match=r"column 'a' has no entry in row .*missing='ignore' compares"):
        NadarayaWatsonRegressor().fit(X, y)
    with pytest.raises(ValueError, match="contains NaN"):
        NadarayaWatsonRegressor().fit([[1.0], [np.nan]], [1.0, 2.0])
    with pytest.raises(ValueError, match="infinity"):
        NadarayaWatsonRegressor(missing="ignore").fit([[1.0], [np.inf]], [1.0, 2.0])


def test_rows_that_have_nothing_in_common_and_tables_without_a_whole_row():
    model = NadarayaWatsonRegressor(bandwidth=1.0, missing="ignore").fit([[1.0, 2.0], [2.0, np.nan]], [1.0, 2.0])
    with pytest.raises(ValueError, match="row 1 of X has no column in common with any training row"):
        model.predict([[1.0, 1.0], [np.nan, np.nan]])
    with pytest.raises(ValueError, match="needs at least 2 of them, got 0"):
        NadarayaWatsonRegressor(missing="ignore").fit([[1.0, np.nan], [np.nan, 1.0], [np.nan, 2.0]], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="a kernel of unbounded support"):
        NadarayaWatsonRegressor(kernel="boxcar", missing="ignore").fit([[1.0], [2.0]], [1.0, 2.0])


def test_how_sure_it_is_is_known_from_the_whole_rows():
    X, y = table()
    y = y + 0.1 * RNG.normal(size=len(y))
    model = NadarayaWatsonRegressor(bandwidth=[0.5, 2.0, 0.1], missing="ignore").fit(X, y)
    whole = X.notna().all(axis=1).to_numpy()
    alone = NadarayaWatsonRegressor(bandwidth=[0.5, 2.0, 0.1]).fit(X[whole], y[whole])
    for method in ("local", "conformal"):
        ends = model.predict_interval(X, method=method)
        assert np.isfinite(ends).all()
        width, other = np.diff(ends[whole])[:, 0], np.diff(alone.predict_interval(X[whole], method=method))[:, 0]
        assert np.allclose(width, other, rtol=1e-12)
    assert np.array_equal(np.isnan(model.residuals_), ~whole)
    assert np.allclose(model.residuals_[whole], alone.residuals_, rtol=1e-12)
    with pytest.raises(ValueError, match="'jackknife' does not support missing entries"):
        model.predict_interval(X, method="jackknife")


def test_bandwidths_may_be_an_array():
    X, y = table()
    model = NadarayaWatsonRegressor(bandwidth=np.array([0.5, 2.0, 0.1]), missing="ignore").fit(X, y)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (NadarayaWatsonRegressor, {"bandwidth": [0.5, 2.0, 0.1]}),
        (LocalLinearRegressor, {}),
        (KernelRegressor, {}),
        (NadarayaWatsonClassifier, {"bandwidth": [0.01, 0.01, 0.1]}),
    ],
)
def test_a_diagnosis_is_that_of_the_whole_rows_and_says_so(kind, options):
    X, y = table()
    y = y > 0.5 if kind is NadarayaWatsonClassifier else y
    whole = X.notna().all(axis=1).to_numpy()
    model = kind(missing="ignore", **options).fit(X, y)
    alone = kind(**options).fit(X[whole], y[whole])
    found, expected = model.diagnose(), alone.diagnose()
    lacking = float((~whole).sum())
    assert (expected.rows_with_gaps, found.rows_with_gaps, found.rows) == (0.0, lacking, whole.sum())
    assert found == expected._replace(rows_with_gaps=lacking)
    assert str(found) == f"{expected}\n  (evaluated on the rows without missing entries, {whole.sum()} of {len(X)})"
    for ours, theirs in zip(model.loss_path([0.5, 2.0]), alone.loss_path([0.5, 2.0]), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(("weight", "rows"), [([1, 3, 2, 0, 5], (4.0, 7.0)), ([1.0, 3.0, 2.0, 0.0, 5.0], (2.0, 2.0))])
def test_rows_not_judged_are_counted_as_the_others_are(weight, rows):
    X = [[1.0, 2.0], [2.0, 1.0], [2.0, np.nan], [np.nan, 1.0], [np.nan, 1.5]]
    model = NadarayaWatsonRegressor(bandwidth=1.0, missing="ignore").fit(X, np.arange(5.0), sample_weight=weight)
    found = model.diagnose()
    assert (found.rows, found.rows_with_gaps) == rows


@pytest.mark.parametrize("count", [0, 1])
def test_a_diagnosis_needs_two_whole_rows(count):
    X = np.array([[1.0, np.nan], [np.nan, 2.0], [3.0, np.nan]])
    X[:count] = 1.0
    model = NadarayaWatsonRegressor(bandwidth=1.0, missing="ignore").fit(X, [1.0, 2.0, 3.0])
    for judge in (model.diagnose, lambda: model.loss_path([1.0])):
        with pytest.raises(ValueError, match=f"2 training rows without missing entries, but this model has {count}"):
            judge()


def test_keys_of_weight_zero_that_lack_the_same_columns_are_deleted():
    """All rows of one pattern of missing columns weigh nothing: there is no pair of theirs to pool."""
    query, key, value = problem(0.0)
    key[:10, 1] = np.nan
    weight = np.where(np.isnan(key[:, 1]), 0.0, 1.0)
    options = {"score": Gaussian(1.3), "part_of": np.arange(3)}
    found = pool_with_missing(query, key, value, sample_weight=weight, **options)[0]
    expected = pool_with_missing(query, key[10:], value[10:], **options)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert not weights_with_missing(query, key, sample_weight=weight, **options)[:, :10].any()

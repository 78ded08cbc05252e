"""Tables of more than numbers: every column's kernel against its formula, learned together, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import narwhals as nw
import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest

from regard import (
    AveragePoolingRegressor,
    KernelClassifier,
    KernelRegressor,
    LocalLinearRegressor,
    NadarayaWatsonClassifier,
    NadarayaWatsonRegressor,
    NearestKeyRegressor,
    load,
    save,
)
from regard.bandwidth import Objective
from regard.data.columns import EARTH_RADIUS
from regard.estimators.mixed_tables import column_coding

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
RNG = np.random.default_rng(8)
N = 60


def table(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "kind": rng.choice(["cat", "dog", "owl"], n),
            "grade": pd.Categorical(rng.choice(["low", "mid", "high"], n), ["low", "mid", "high"], ordered=True),
        }
    )


def target(X: pd.DataFrame) -> np.ndarray:
    return X["size"].to_numpy() + 2.0 * (X["kind"] == "dog").to_numpy() + X["grade"].cat.codes.to_numpy()


def aitchison_aitken(a, b, lam, count):
    return np.where(a[:, None] == b[None], 1.0 - lam, lam / (count - 1))


def li_racine(a, b, lam):
    return np.where(a[:, None] == b[None], 1.0, lam)


def steps(a, b):
    return np.abs(np.asarray(a, float)[:, None] - np.asarray(b, float)[None])


def wang_van_ryzin(a, b, lam):
    d = steps(a, b)
    return np.where(d == 0, 1.0 - lam, 0.5 * (1.0 - lam) * lam**d)


def gaussian(a, b, h):
    return np.exp(-0.5 * ((np.asarray(a, float)[:, None] - np.asarray(b, float)[None]) / h) ** 2)


def mean(K, y):
    return K @ y / K.sum(axis=1)


def codes(X):
    return X["kind"].to_numpy(), X["grade"].cat.codes.to_numpy()


@pytest.mark.parametrize("kernel", ["aitchison-aitken", "li-racine"])
@pytest.mark.parametrize("order", ["li-racine-ordered", "wang-van-ryzin"])
@pytest.mark.parametrize("lam", [0.0, 0.1, 0.6])
def test_means_are_those_of_the_product_of_kernels(kernel, order, lam):
    X, Q = table(), table(20, 1)
    y = target(X) + RNG.normal(size=N)
    model = NadarayaWatsonRegressor(kernel={"kind": kernel, "grade": order}, bandwidth=[0.7, lam, 0.3]).fit(X, y)
    (kind, grade), (q_kind, q_grade) = codes(X), codes(Q)
    K = gaussian(Q["size"], X["size"], 0.7)
    K = K * (aitchison_aitken(q_kind, kind, lam, 3) if kernel == "aitchison-aitken" else li_racine(q_kind, kind, lam))
    K = K * (0.3 ** steps(q_grade, grade) if order == "li-racine-ordered" else wang_van_ryzin(q_grade, grade, 0.3))
    assert np.allclose(model.predict(Q), mean(K, y), rtol=1e-12, atol=1e-12)
    assert np.allclose(model.bandwidth_, [0.7, lam, 0.3], rtol=1e-12, atol=1e-300)
    assert np.allclose(model.attend(Q), K / K.sum(axis=1, keepdims=True), rtol=1e-10, atol=1e-14)


def test_the_widest_lambda_ignores_a_column():
    X = table()
    y = target(X)
    with_it = NadarayaWatsonRegressor(bandwidth=[0.7, 2.0 / 3.0, 1.0]).fit(X, y)
    without = NadarayaWatsonRegressor(bandwidth=0.7).fit(X[["size"]], y)
    assert np.allclose(with_it.predict(X), without.predict(X[["size"]]), rtol=1e-12)


def test_hours_and_angles_are_compared_around_the_clock():
    hour, q = RNG.uniform(0.0, 24.0, N), np.array([0.1, 23.9, 12.0])
    y = np.cos(2.0 * np.pi * hour / 24.0)
    X, Q = hour[:, None], q[:, None]
    model = NadarayaWatsonRegressor(kernel=[("periodic", 24)], bandwidth=2.0).fit(X, y)
    chord = 24.0 / np.pi * np.sin(np.pi * (q[:, None] - hour[None]) / 24.0)
    K = np.exp(-0.5 * (chord / 2.0) ** 2)
    assert np.allclose(model.predict(Q), mean(K, y), rtol=1e-12)
    assert np.allclose(model.predict(Q), model.predict(Q + 24.0), rtol=1e-12)
    step = 1e-5
    slope = (model.predict(Q + step) - model.predict(Q - step)) / (2.0 * step)
    assert np.allclose(model.marginal_effects(Q)[:, 0], slope, rtol=1e-6, atol=1e-9)


def test_places_are_compared_on_the_globe():
    rng = np.random.default_rng(3)
    X = pd.DataFrame({"lon": rng.uniform(170.0, 190.0, N), "lat": rng.uniform(-80.0, 80.0, N)})
    y = np.sin(np.radians(X["lat"].to_numpy())) + X["lon"].to_numpy() / 100.0
    Q = pd.DataFrame({"lon": [-179.0, 175.0], "lat": [10.0, -70.0]})
    kernel = {"lat": "latitude", "lon": "longitude"}
    model = NadarayaWatsonRegressor(kernel=kernel, bandwidth=1500.0).fit(X, y)
    a, b = np.radians(Q["lat"].to_numpy())[:, None], np.radians(X["lat"].to_numpy())[None]
    turn = np.radians(Q["lon"].to_numpy()[:, None] - X["lon"].to_numpy()[None])
    angle = 2.0 * np.arcsin(np.sqrt(np.sin((a - b) / 2.0) ** 2 + np.cos(a) * np.cos(b) * np.sin(turn / 2.0) ** 2))
    K = np.exp(-0.5 * (2.0 * EARTH_RADIUS * np.sin(angle / 2.0) / 1500.0) ** 2)
    assert np.allclose(model.predict(Q), mean(K, y), rtol=1e-10)
    assert model.bandwidth_.tolist() == pytest.approx([1500.0, 1500.0])
    around = Q.assign(lon=Q["lon"] + 360.0)
    assert np.allclose(model.predict(around), model.predict(Q), rtol=1e-12)
    effects, step = model.marginal_effects(Q), 1e-4
    for j, name in enumerate(["lon", "lat"]):
        high, low = Q.assign(**{name: Q[name] + step}), Q.assign(**{name: Q[name] - step})
        slope = (model.predict(high) - model.predict(low)) / (2.0 * step)
        assert np.allclose(effects[:, j], slope, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_lines_lean_on_numbers_alone(ridge):
    X, Q = table(), table(15, 1)
    y = target(X) + RNG.normal(size=N)
    model = LocalLinearRegressor(bandwidth=[0.7, 0.2, 0.4], ridge=ridge).fit(X, y)
    (kind, grade), (q_kind, q_grade) = codes(X), codes(Q)
    K = gaussian(Q["size"], X["size"], 0.7) * aitchison_aitken(q_kind, kind, 0.2, 3) * 0.4 ** steps(q_grade, grade)
    expected = []
    for weight, at in zip(K / K.sum(axis=1, keepdims=True), Q["size"], strict=True):
        delta = X["size"].to_numpy() - at
        middle, height = weight @ delta, weight @ y
        spread = weight @ delta**2 - middle**2
        slope = (weight @ (delta * y) - middle * height) / (spread + ridge * (0.49 + middle**2))
        expected.append(height - middle * slope)
    assert np.allclose(model.predict(Q), expected, rtol=1e-9)
    assert np.allclose(model.effective_weights(Q) @ y, model.predict(Q), rtol=1e-9)


@pytest.mark.parametrize("degree", [0, 1])
def test_the_objective_and_its_slope(degree):
    X = table()
    y = target(X) + RNG.normal(size=N)
    coding = column_coding(NadarayaWatsonRegressor(kernel={"grade": "wang-van-ryzin"}), X, nw.from_native(X))
    assert coding is not None
    columns = [X["size"].to_numpy(), X["kind"].to_numpy(object), X["grade"].astype(str).to_numpy(object)]
    objective = Objective.of(coding.coded(columns), y, degree=degree, coding=coding, sloped=coding.numbers)
    w = np.array([1.3, 0.8, 1.1])
    found = objective(w, 0.1, gradient=True)
    (kind, grade), lam = codes(X), coding.bandwidth_of(w)
    K = gaussian(X["size"], X["size"], lam[0]) * aitchison_aitken(kind, kind, lam[1], 3)
    K = K * wang_van_ryzin(grade, grade, lam[2])
    np.fill_diagonal(K, 0.0)
    if not degree:
        assert objective.in_units_of_y(found.value) == pytest.approx(np.mean((y - mean(K, y)) ** 2), rel=1e-12)
    for j in range(3):
        step = np.zeros(3)
        step[j] = 1e-6
        slope = (objective(w + step, 0.1).value - objective(w - step, 0.1).value) / 2e-6
        assert found.w[j] == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_categories_that_matter_are_found_and_others_are_smoothed_out():
    rng = np.random.default_rng(5)
    X = table(200, 5)
    X["noise"] = rng.choice(["a", "b", "c", "d"], 200)
    y = 3.0 * (X["kind"] == "dog").to_numpy() + np.sin(3.0 * X["size"].to_numpy()) + 0.1 * rng.normal(size=200)
    model = NadarayaWatsonRegressor().fit(X, y)
    assert model.bandwidth_[1] < 0.05
    assert model.bandwidth_[3] > 0.3  # of 0.75 at most
    assert model.loo_score_ > 0.95
    share = dict(zip(X.columns, model.feature_relevance_, strict=True))
    assert share["kind"] > share["noise"]
    assert sum(share.values()) == pytest.approx(1.0)


def test_effects_of_categories_are_jumps_from_the_first():
    X = table()
    y = target(X)
    model = NadarayaWatsonRegressor(bandwidth=[0.7, 0.1, 0.2]).fit(X, y)
    effects = model.marginal_effects(X)
    first = X.assign(kind="cat")
    assert np.allclose(effects[:, 1], model.predict(X) - model.predict(first), atol=1e-13)
    assert not effects[(X["kind"] == "cat").to_numpy(), 1].any()
    step = 1e-6
    slope = (model.predict(X.assign(size=X["size"] + step)) - model.predict(X.assign(size=X["size"] - step))) / (2e-6)
    assert np.allclose(effects[:, 0], slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", [KernelRegressor, NadarayaWatsonRegressor])
def test_polars_and_pandas_and_saved_models_agree(kind, tmp_path):
    X = table().drop(columns="grade")
    y = X["size"].to_numpy() + 2.0 * (X["kind"] == "dog").to_numpy()
    model = kind().fit(X, y)
    other = kind().fit(polars.DataFrame({name: X[name].tolist() for name in X}), y)
    assert np.array_equal(model.predict(X), other.predict(polars.DataFrame({name: X[name].tolist() for name in X})))
    save(model, tmp_path / "m.regard")
    assert np.array_equal(load(tmp_path / "m.regard").predict(X), model.predict(X))
    assert model.feature_relevance_.shape == model.bandwidth_.shape == (2,)
    assert model.n_features_in_ == 2
    assert model.marginal_effects(X[:3]).shape == (3, 2)


@pytest.mark.parametrize("kind", [KernelClassifier, NadarayaWatsonClassifier])
def test_classes_from_a_mixed_table(kind):
    X = table(120)
    y = np.where((X["kind"] == "dog") & (X["size"] > 0), "yes", "no")
    model = kind().fit(X, y)
    assert (model.predict(X) == y).mean() > 0.95
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_laws_permutation_and_copies():
    X = table()
    y = target(X) + RNG.normal(size=N)
    order = RNG.permutation(N)
    model = NadarayaWatsonRegressor().fit(X, y)
    turned = NadarayaWatsonRegressor().fit(X.iloc[order], y[order])
    assert np.allclose(model.bandwidth_, turned.bandwidth_, rtol=1e-4, atol=1e-6)
    twice = np.where(np.arange(N) < 10, 2, 1)
    rows = np.repeat(np.arange(N), twice)
    weighted = NadarayaWatsonRegressor(bandwidth=[0.7, 0.1, 0.2]).fit(X, y, sample_weight=twice)
    copied = NadarayaWatsonRegressor(bandwidth=[0.7, 0.1, 0.2]).fit(X.iloc[rows], y[rows])
    assert np.allclose(weighted.predict(X), copied.predict(X), rtol=1e-12)


def test_a_category_that_fit_never_saw_is_as_far_from_all():
    X = table()
    model = NadarayaWatsonRegressor(bandwidth=[0.7, 0.1, 1.0]).fit(X, target(X))
    with pytest.warns(UserWarning, match="has the category 'yak', which did not occur in fit"):
        found = model.predict(X.assign(kind="yak"))
    assert np.allclose(found, NadarayaWatsonRegressor(bandwidth=0.7).fit(X[["size"]], target(X)).predict(X[["size"]]))
    with pytest.raises(ValueError, match="must hold one of the 3 ordered categories of fit"):
        model.predict(X.assign(grade=pd.Categorical(["top"] * N, ["top"], ordered=True)))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kernel": {"kind": "boxcar"}}, "kernel of column 'kind' must be one of"),
        ({"kernel": {"age": "gaussian"}}, "kernel has column 'age', but the columns of X are"),
        ({"kernel": ["gaussian", "li-racine"]}, "kernel has 2 entries but X has 3 columns"),
        ({"kernel": {"kind": "gaussian"}}, "column 'kind' is text, but kernel 'gaussian' takes numbers"),
        ({"kernel": {"size": "periodic"}}, r"must be \('periodic', period\)"),
        ({"kernel": {"size": ("periodic", -1)}}, "the period must be a positive number"),
        ({"kernel": {"size": "latitude"}}, "kernel must name one column 'latitude' and one 'longitude'"),
        ({"kernel": "epanechnikov"}, "kernel must be 'gaussian'"),
        ({"metric": "full"}, "metric must be 'feature' for a mixed table, got 'full'"),
        ({"bandwidth": "adaptive"}, "bandwidth='adaptive' does not support mixed tables"),
        ({"bandwidth": "scott"}, "must be 'loo', 'aicc', 'gcv', a number"),
        ({"bandwidth": [1.0, 0.1]}, "bandwidth has 2 numbers but X has 3 columns"),
        ({"bandwidth": [1.0, 0.9, 0.1]}, "between 0 and 0.666667"),
        ({"bandwidth": [0.0, 0.1, 0.1]}, "bandwidth of column .* must be above 0, got 0.0"),
        ({"bandwidth": [-1.0, 0.1, 0.1]}, "bandwidth of column .* must be above 0, got -1.0"),
        ({"missing": "drop"}, "missing must be one of 'refuse', 'ignore'"),
    ],
)
def test_what_is_refused_and_how(options, match):
    X = table()
    with pytest.raises(ValueError, match=match):
        NadarayaWatsonRegressor(**options).fit(X, target(X))


def test_too_many_categories_are_refused():
    X = pd.DataFrame({"id": [f"row {i}" for i in range(100)]})
    with pytest.raises(ValueError, match="must have at most 64 categories, got 100"):
        NadarayaWatsonRegressor().fit(X, np.arange(100.0))


def test_ordered_numbers_count_their_own_steps():
    if not SHARED.exists():
        pytest.skip("the reference data are not here")
    data = json.loads((SHARED / "reference" / "inputs.json").read_text())["Italy[1:50] (np)"]
    X, y = np.array(data["year"], float)[:, None], np.array(data["gdp"])
    model = NadarayaWatsonRegressor(kernel=["li-racine-ordered"]).fit(X, y)
    year = X[:, 0]

    def loo(lam):
        K = lam ** steps(year, year)
        np.fill_diagonal(K, 0.0)
        return np.mean((y - mean(K, y)) ** 2)

    grid = [loo(lam) for lam in np.linspace(1e-3, 0.999, 999)]
    assert model.search_.value <= min(grid) * (1.0 + 1e-6)
    assert model.search_.value == pytest.approx(loo(model.bandwidth_[0]), rel=1e-10)


def test_wages_of_r_np_have_no_better_bandwidths_around():
    """Two numbers and two factors, as R's npregbw has them: a random search finds nothing better."""
    if not SHARED.exists():
        pytest.skip("the reference data are not here")
    data = json.loads((SHARED / "reference" / "inputs.json").read_text())["wage1[1:150] (np)"]
    names = {name: np.array(column) for name, column in data.items()}
    y = names.pop("lwage")
    X = pd.DataFrame({name.split("(")[0]: column for name, column in names.items()})
    kernel = {"female": "aitchison-aitken", "married": "aitchison-aitken"}
    model = NadarayaWatsonRegressor(kernel=kernel).fit(X, y)
    columns = [X[name].to_numpy() for name in X]

    def loo(h):
        K = gaussian(columns[0], columns[0], h[0]) * gaussian(columns[1], columns[1], h[1])
        for column, lam in zip(columns[2:], h[2:], strict=True):
            K = K * aitchison_aitken(column, column, lam, 2)
        np.fill_diagonal(K, 0.0)
        return np.mean((y - mean(K, y)) ** 2)

    assert model.search_.value == pytest.approx(loo(model.bandwidth_), rel=1e-9)
    rng = np.random.default_rng(0)
    low, high = np.log([0.2, 0.5]), np.log([20.0, 60.0])
    tries = (loo([*np.exp(rng.uniform(low, high)), *rng.uniform(0.0, 0.5, 2)]) for _ in range(2000))
    assert model.search_.value <= min(tries) * (1.0 + 1e-6)


# Estimators that learn compare the words of a dataframe as categories; those that only remember do not.
NUMBERS = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6.0)})
WORDS = [
    (NUMBERS.assign(b="text"), "X column 'b' must hold real numbers, got String"),
    (NUMBERS.assign(b=pd.Categorical(["1", "2"] * 3)), "X column 'b' must hold real numbers, got Categorical"),
    (polars.DataFrame({"a": ["x"], "b": [1]}), "X column 'a' must hold real numbers, got String"),
    (pyarrow.table({"a": ["x"], "b": [1]}), "X column 'a' must hold real numbers, got String"),
]


@pytest.mark.parametrize("kind", [AveragePoolingRegressor, NearestKeyRegressor])
@pytest.mark.parametrize(("bad", "match"), WORDS)
def test_10_words_are_no_numbers(bad, match, kind):
    with pytest.raises(ValueError, match=match):
        kind().fit(bad, np.zeros(len(bad)))

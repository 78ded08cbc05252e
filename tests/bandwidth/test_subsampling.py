"""Learning from many rows: evaluated rows, subsamples, and what is reported. Limits are lowered for speed."""

from __future__ import annotations

import numpy as np
import pytest

import regard
from regard import LocalLinearRegressor, NadarayaWatsonClassifier, NadarayaWatsonRegressor
from regard.bandwidth import Objective, learn
from regard.bandwidth.subsampling import averaged_searches, learn_from_subsamples
from support.engines import sparse

pytestmark = pytest.mark.usefixtures("light_search")


def data(n, d=1, seed=0):
    rng = np.random.default_rng([n, d, seed])
    X = rng.uniform(0.0, 5.0, (n, d))
    return X, np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.fixture
def batches(monkeypatch):
    for name, value in {"MAX_ROWS_ALL_EVALUATED": 800, "EVALUATED_ROWS": 500, "MAX_SPECTRAL_FEATURES": 0}.items():
        monkeypatch.setattr(f"regard.bandwidth.subsampling.{name}", value)


@pytest.fixture
def subsamples(monkeypatch):
    borders = {
        "MAX_ROWS_ALL_EVALUATED": 500,
        "EVALUATED_ROWS": 400,
        "MAX_ROWS_ALL_KEYS": 1500,
        "SUBSAMPLES": 4,
        "SUBSAMPLE_ROWS": 800,
        "ANSWERED_ROWS": 600,
    }
    borders["MAX_SPECTRAL_FEATURES"] = 0
    for name, value in borders.items():
        monkeypatch.setattr(f"regard.bandwidth.subsampling.{name}", value)


def test_a_batch_finds_what_all_rows_find(batches):
    X, y = data(1500, 2)
    objective = Objective.of(X, y)
    some, every = learn_from_subsamples(objective), learn(objective)
    assert some.looked_at == 500
    assert every.looked_at is None
    assert some.value <= 1.01 * every.value
    # The answers are those of all rows, exactly, at the w that was found.
    assert some.value == pytest.approx(objective.in_units_of_y(objective(some.w).value), rel=1e-12)
    assert np.allclose(some.answer, objective(some.w).answer, rtol=1e-12)
    assert "evaluating 500 of 1,500 rows" in str(some)


@pytest.fixture
def quick(monkeypatch):
    """As if every engine were as fast as the fastest."""
    for name, value in {
        "MAX_ROWS_ALL_EVALUATED": 800,
        "MAX_SECONDS_PER_ROW": np.inf,
        "FIRST_SUBSAMPLE_ROWS": 400,
    }.items():
        monkeypatch.setattr(f"regard.bandwidth.subsampling.{name}", value)


@sparse("kernel", ["gaussian", "epanechnikov", "laplace", "boxcar"], ["gaussian"], ("metric", ["scalar", "feature"]))
def test_all_rows_are_evaluated_where_that_is_quick(quick, kernel, metric):
    X, y = data(1500, 2 if kernel == "gaussian" else 1)
    objective = Objective.of(X, y, kernel=kernel)
    found, every = learn_from_subsamples(objective, metric), learn(objective, metric)
    assert found.looked_at is None
    assert found.evaluations == len(found.path) == len(found.places)
    assert np.isfinite(found.answer).all()
    assert objective(found.w).value <= objective(every.w).value * (1.0 + (2e-3 if kernel == "boxcar" else 1e-6))
    assert found.value == pytest.approx(objective.in_units_of_y(objective(found.w).value), rel=1e-7)


def test_lines_and_their_ridge_where_that_is_quick(quick):
    X, y = data(1500)
    objective = Objective.of(X, y, degree=1)
    for ridge in (0.1, None):
        found, every = learn_from_subsamples(objective, ridge=ridge), learn(objective, ridge=ridge)
        assert objective(found.w, found.ridge).value <= objective(every.w, every.ridge).value * (1.0 + 1e-4)


def test_a_useless_feature_stays_smoothed_out(quick):
    rng = np.random.default_rng(5)
    X, y = data(2000)
    found = learn_from_subsamples(Objective.of(np.c_[X, rng.normal(size=2000)], y))
    assert found.w[0] > 1.0
    assert found.w[1] < 0.2


def test_interrupted_while_all_rows_are_evaluated(quick):
    """Ctrl-C keeps the best of what was evaluated on all rows."""
    X, y = data(1500)
    objective = Objective.of(X, y)
    whole, seen = learn_from_subsamples(objective), []

    def stop(count, value):
        seen.append(value)
        if count == whole.evaluations - 1:
            raise KeyboardInterrupt

    found = learn_from_subsamples(objective, progress=stop)
    assert found.interrupted
    assert found.value <= 1.05 * whole.value


def test_few_rows_are_all_evaluated(batches):
    X, y = data(700)
    one, two = learn_from_subsamples(Objective.of(X, y)), learn(Objective.of(X, y))
    assert one.value == two.value
    assert one.looked_at is None


def test_subsamples_find_the_bandwidth_of_all_rows(subsamples):
    X, y = data(3000)
    objective = Objective.of(X, y)
    some, every = learn_from_subsamples(objective), learn(objective)
    assert some.looked_at == 1600
    assert np.allclose(some.w, every.w, rtol=0.4)
    assert objective(some.w).value <= 1.01 * objective(every.w).value
    answered = ~np.isnan(some.answer[:, 0])
    assert answered.sum() == 600
    assert np.allclose(some.answer[answered], objective(some.w).answer[answered])


def test_subsamples_are_averaged_and_rescaled():
    """The best bandwidth of m rows is wider than that of n, by (n/m)^(1/(d + 4))."""
    X, y = data(100, 3)
    one = learn(Objective.of(X, y))
    searches = [one._replace(w=np.array(w)) for w in ([1.0, 2.0, 0.0], [4.0, 2.0, 0.0], [2.0, 2.0, 0.1])]
    joined = averaged_searches(searches, 64.0)
    assert np.allclose(joined.w, [4.0, 4.0, 0.0])
    assert joined.evaluations == 3 * one.evaluations
    matrices = [one._replace(w=np.diag([1.0, 2.0, 3.0])), one._replace(w=np.diag([3.0, 4.0, 5.0]))]
    assert np.allclose(averaged_searches(matrices, 2.0**7).w, 2.0 * np.diag([2.0, 3.0, 4.0]))


def test_a_useless_feature_is_smoothed_out_by_most_subsamples(subsamples):
    rng = np.random.default_rng(5)
    X, y = data(2000)
    found = learn_from_subsamples(Objective.of(np.c_[X, rng.normal(size=2000)], y))
    assert found.w[1] * 1.0 < 0.2
    assert found.w[0] > 1.0


@pytest.mark.parametrize("border", ["batches", "subsamples"])
def test_estimators(border, request, tmp_path):
    request.getfixturevalue(border)
    X, y = data(2000)
    model = NadarayaWatsonRegressor().fit(X, y)
    assert model.loo_score_ == pytest.approx(0.84, abs=0.06)
    assert np.isnan(model.loo_predictions_).sum() == (1400 if border == "subsamples" else 0)
    assert (NadarayaWatsonRegressor().fit(X, y).w_ == model.w_).all()
    other = NadarayaWatsonRegressor(random_state=1).fit(X, y)
    assert (other.w_ != model.w_).all()
    assert (NadarayaWatsonRegressor(random_state=1).fit(X, y).w_ == other.w_).all()
    regard.save(model, tmp_path / "m.regard")
    assert regard.load(tmp_path / "m.regard").search_.looked_at == model.search_.looked_at
    line = LocalLinearRegressor(ridge="loo").fit(X, y)
    assert line.loo_score_ > 0.8
    assert 0.0 < line.ridge_ < np.inf
    labels = NadarayaWatsonClassifier().fit(X, y > 0.0)
    assert (labels.predict(X) == (y > 0.0)).mean() > 0.8


def test_repetitions_and_groups_go_along(subsamples):
    X, y = data(2000)
    rng = np.random.default_rng(1)
    times, groups = rng.integers(1, 4, 2000), rng.integers(0, 500, 2000)
    for options in ({"sample_weight": times}, {"groups": groups}, {"sample_weight": times.astype(float)}):
        found = learn_from_subsamples(Objective.of(X, y, **options))
        # One of a row's copies leaves and tells it from the others, which makes some errors nothing at all.
        assert 0.01 < found.value < 0.13


def test_a_matrix(subsamples):
    X, y = data(2000, 2)
    found = learn_from_subsamples(Objective.of(X, y), "full")
    assert found.w.shape == (2, 2)
    assert found.value < 0.12

"""Every row's own bandwidth: laws, borders, and the data that a fixed bandwidth cannot serve."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import regard
from regard import LocalLinearRegressor, NadarayaWatsonClassifier, NadarayaWatsonRegressor
from regard.bandwidth import Objective
from regard.bandwidth.adaptive import Neighbourhood, learn_neighbours

every_estimator = pytest.mark.parametrize("kind", [NadarayaWatsonRegressor, LocalLinearRegressor])

pytestmark = pytest.mark.usefixtures("light_search")


def data(n=120, d=2, seed=0):
    rng = np.random.default_rng([n, d, seed])
    X = rng.gamma(1.0, 2.0, size=(n, d))
    return X, np.sin(X).sum(axis=1) + 0.1 * rng.normal(size=n)


def uneven(n, seed):
    """Nine tenths of the rows, and the quick wiggles, in a tenth of the range."""
    rng = np.random.default_rng(seed)
    x = np.r_[rng.uniform(0.0, 1.0, 9 * n // 10), rng.uniform(1.0, 10.0, n - 9 * n // 10)]
    return x[:, None], wiggles(x) + 0.2 * rng.normal(size=n)


def wiggles(x):
    return np.where(x < 1.0, np.sin(12.0 * np.pi * x), np.sin(x - 1.0))


def fitted(kind=NadarayaWatsonRegressor, X=None, y=None, **options):
    X, y = (X, y) if X is not None else data()
    return kind(bandwidth="adaptive", **options).fit(X, y)


def test_it_serves_where_a_fixed_bandwidth_fails():
    grid = np.r_[np.linspace(0.0, 1.0, 200), np.linspace(1.0, 10.0, 200)][:, None]
    errors = {name: [] for name in ("adaptive", "loo")}
    for seed in range(5):
        X, y = uneven(400, seed)
        for name in errors:
            model = NadarayaWatsonRegressor(bandwidth=name).fit(X, y)
            errors[name].append(np.sqrt(np.mean((model.predict(grid) - wiggles(grid[:, 0])) ** 2)))
    assert np.mean(errors["adaptive"]) < 0.85 * np.mean(errors["loo"])


@every_estimator
def test_leaving_out_is_deleting(kind):
    X, y = data()
    model = fitted(kind)
    for i in (0, 17, 63):
        other = fitted(kind)
        other.key_, other.value_ = np.delete(X, i, axis=0), np.delete(y, i)
        assert other.predict(X[i : i + 1])[0] == pytest.approx(model.loo_predictions_[i], rel=1e-9)


def test_leaving_a_group_out_is_deleting_it():
    X, y = data()
    groups = np.arange(len(X)) // 3
    model = NadarayaWatsonRegressor(bandwidth="adaptive").fit(X, y, groups=groups)
    other = fitted()
    other.w_, other.neighbours_ = model.w_, model.neighbours_
    for i in (0, 40, 119):
        kept = groups != groups[i]
        other.key_, other.value_ = X[kept], y[kept]
        assert other.predict(X[i : i + 1])[0] == pytest.approx(model.loo_predictions_[i], rel=1e-9)


@every_estimator
def test_answers_are_those_of_a_fixed_bandwidth_at_every_row(kind):
    X, _ = data()
    model = fitted(kind)
    query = np.array([[0.3, 0.2], [9.0, 8.0]])
    z = X * model.w_
    for q in query:
        reach = np.sort(np.linalg.norm(z - q * model.w_, axis=1))[model.neighbours_ - 1] / 3.0
        fixed = kind(bandwidth=2.0 ** (np.rint(8 * np.log2(reach)) / 8) / model.w_).fit(*data())
        assert model.predict(q[None])[0] == pytest.approx(fixed.predict(q[None])[0], rel=1e-12)
        assert np.allclose(model.attend(q[None]), fixed.attend(q[None]), rtol=1e-12)
        assert np.allclose(model.effective_weights(q[None]) @ model.value_, model.predict(q[None]), rtol=1e-10)


@every_estimator
def test_marginal_effects_are_slopes_of_the_predictions(kind):
    model = fitted(kind)
    query = np.array([[0.7, 1.1], [2.0, 3.0], [5.0, 0.5]])
    effects = model.marginal_effects(query)
    step = 1e-6
    for a in range(2):
        up, down = (model.predict(query + sign * step * np.eye(2)[a]) for sign in (1.0, -1.0))
        assert np.allclose(effects[:, a], (up - down) / (2.0 * step), rtol=1e-5, atol=1e-6)


def test_order_place_and_units_do_not_matter():
    X, y = data()
    model = fitted()
    query = X[:20] + 0.05
    order = np.random.default_rng(1).permutation(len(X))
    moved = fitted(X=X[order], y=y[order])
    assert moved.neighbours_ == model.neighbours_
    assert np.allclose(moved.predict(query), model.predict(query), rtol=1e-9)
    units = np.array([1024.0, 2.0**-20])
    scaled = fitted(X=X * units, y=y)
    assert np.allclose(scaled.predict(query * units), model.predict(query), rtol=1e-6)
    far = fitted(X=X + 64.0, y=y)
    assert far.neighbours_ == model.neighbours_
    assert np.allclose(far.predict(query + 64.0), model.predict(query), rtol=1e-6)


def test_weight_k_is_k_copies():
    X, y = data(60)
    times = np.random.default_rng(2).integers(0, 4, len(X))
    weighted = NadarayaWatsonRegressor(bandwidth="adaptive").fit(X, y, sample_weight=times)
    copied = fitted(X=X.repeat(times, axis=0), y=y.repeat(times))
    assert weighted.neighbours_ == copied.neighbours_
    assert np.allclose(weighted.predict(X), copied.predict(X), rtol=1e-9)
    assert np.isnan(weighted.loo_predictions_[times == 0]).all()


def test_importances_count_as_rows_and_weigh_as_given():
    X, y = data(60)
    weight = np.random.default_rng(3).uniform(0.0, 2.0, len(X))
    weight[:5] = 0.0
    model = NadarayaWatsonRegressor(bandwidth="adaptive").fit(X, y, sample_weight=weight)
    assert np.allclose(model.predict(X[:9]), model.attend(X[:9]) @ y, rtol=1e-10)
    assert (model.attend(X)[:, :5] == 0.0).all()


@pytest.mark.parametrize("engine", ["reference", "tiled"])
def test_engines_agree(engine):
    X, _ = data()
    assert np.allclose(fitted(engine=engine).predict(X), fitted().predict(X), rtol=1e-6)


@pytest.mark.parametrize("kernel", ["epanechnikov", "laplace", "boxcar", "tricube"])
def test_other_kernels(kernel):
    X, _ = data()
    model = fitted(kernel=kernel)
    assert model.loo_score_ > 0.5
    if kernel != "laplace":
        # Those that end do so at the k-th neighbour, give or take half a step of the widths.
        seen = (model.attend(X[:40] + 0.01) > 0.0).sum(axis=1)
        assert abs(np.median(seen) - model.neighbours_) <= 0.3 * model.neighbours_ + 2


def test_classes_and_several_outputs():
    X, y = data()
    model = NadarayaWatsonClassifier(bandwidth="adaptive").fit(X, y > 0.5)
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert (model.predict(X) == (y > 0.5)).mean() > 0.85
    both = fitted(X=X, y=np.c_[y, -y])
    assert np.allclose(both.predict(X)[:, 0], -both.predict(X)[:, 1])


def test_equal_rows_take_the_distance_to_the_nearest_that_differs():
    hood = Neighbourhood.of(np.array([[0.0]] * 5 + [[2.0]]), np.array([1.0]), "boxcar")
    assert hood.widths(np.array([[0.0], [1.0]]), np.array([1.0]), 2).tolist() == [8, 0]
    X = np.repeat([[0.0], [1.0], [2.0]], 4, axis=0)
    model = fitted(X=X, y=np.repeat([0.0, 1.0, 4.0], 4))
    assert np.isfinite(model.predict([[0.0], [0.5], [9.0]])).all()


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[0.0], [1.0]], [1.0, 2.0]),
        ([[0.0], [1.0], [5.0]], [1.0, 2.0, 3.0]),
        ([[1.0]] * 6, np.arange(6.0)),
        (np.arange(8.0)[:, None], np.full(8, 3.0)),
        (np.c_[np.arange(8.0), np.full(8, 2.0)], np.arange(8.0)),
        (1e9 + np.arange(8.0)[:, None], np.arange(8.0)),
    ],
    ids=["two rows", "three rows", "one place", "one value", "a constant feature", "far away"],
)
def test_borders(X, y):
    model = fitted(X=np.asarray(X, float), y=np.asarray(y, float))
    out = model.predict(X)
    assert np.isfinite(out).all()
    assert (out >= np.min(y) - 1e-9).all()
    assert (out <= np.max(y) + 1e-9).all()


def test_the_search_is_reported_and_stored(tmp_path):
    model = fitted()
    found = model.search_
    assert found.path[np.flatnonzero(found.tried == model.neighbours_)[0]] == found.path.min()
    assert found.value == pytest.approx(np.mean((model.loo_predictions_ - data()[1]) ** 2))
    assert f"k = {model.neighbours_}" in str(found)
    regard.save(model, tmp_path / "m.regard")
    again = regard.load(tmp_path / "m.regard")
    X, y = data()
    assert (again.predict(X) == model.predict(X)).all()
    fixed = clone(model).set_params(bandwidth=1.0).fit(X, y)
    assert not hasattr(fixed, "neighbours_")
    model.set_params(bandwidth=1.0).fit(X, y)
    assert (model.predict(X) == fixed.predict(X)).all()


def test_large_data_evaluate_a_subsample(monkeypatch):
    monkeypatch.setattr("regard.bandwidth.adaptive.MAX_EVALUATED_ROWS", 60)
    X, y = data(200)
    one, two = fitted(X=X, y=y, random_state=3), fitted(X=X, y=y, random_state=3)
    assert one.neighbours_ == two.neighbours_
    assert len(one.loo_predictions_) == 200
    monkeypatch.undo()
    assert one.search_.value <= 1.1 * fitted(X=X, y=y).search_.value


def test_errors():
    with pytest.raises(ValueError, match="diagnose needs a fixed bandwidth"):
        fitted().diagnose()
    with pytest.raises(ValueError, match="ridge='loo' needs bandwidth='loo'"):
        fitted(LocalLinearRegressor, ridge="loo")
    with pytest.raises(ValueError, match="'sgd'"):
        fitted(optimizer="sgd")


@pytest.mark.parametrize("kind", [NadarayaWatsonRegressor, LocalLinearRegressor])
@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
def test_a_given_k_is_its_definition(kind, kernel):
    """In one feature: an ordinary fit at the distance to the k-th row, rounded to eight widths per doubling."""
    X, y = data(n=80, d=1)
    end = {"gaussian": 3.0, "epanechnikov": 1.0}[kernel]
    model = fitted(kind, X, y, kernel=kernel, neighbours=12)
    assert model.neighbours_ == 12
    assert model.search_.tried.tolist() == [12]
    scale = 1.0 / X.std()
    for query in np.linspace(0.3, 6.0, 7):
        reach = np.sort(np.abs(X[:, 0] - query))[11] * scale
        h = 2.0 ** (np.rint(8.0 * np.log2(reach / end)) / 8.0) / scale
        plain = kind(kernel=kernel, bandwidth=h).fit(X, y)
        assert model.predict([[query]])[0] == pytest.approx(plain.predict([[query]])[0], rel=1e-9)


def test_the_learned_k_given_is_the_same_model():
    X, y = data()
    learned = fitted(X=X, y=y)
    given = fitted(X=X, y=y, neighbours=learned.neighbours_)
    np.testing.assert_allclose(given.predict(X[:20] + 0.1), learned.predict(X[:20] + 0.1), rtol=1e-12)
    assert given.loo_score_ == pytest.approx(learned.loo_score_, rel=1e-12)
    np.testing.assert_allclose(given.w_, learned.w_)


def test_a_span_is_a_fraction_of_the_rows():
    X, y = data(n=100)
    assert fitted(X=X, y=y, neighbours=0.25).neighbours_ == 25
    assert fitted(X=X, y=y, neighbours=0.001).neighbours_ == 1
    assert fitted(X=X, y=y, neighbours=0.9999).neighbours_ == 99
    repeated = NadarayaWatsonRegressor(bandwidth="adaptive", neighbours=0.25)
    assert repeated.fit(X, y, sample_weight=np.full(100, 2)).neighbours_ == 50


def test_a_given_k_classifies():
    X, y = data()
    model = NadarayaWatsonClassifier(bandwidth="adaptive", neighbours=9).fit(X, y > 0.0)
    assert model.neighbours_ == 9
    assert model.score(X, y > 0.0) > 0.8


@pytest.mark.parametrize("bad", [0, -1, 1.0, 0.0, 1.5, True, "9", np.nan])
def test_neighbours_that_mean_nothing(bad):
    with pytest.raises(ValueError, match="neighbours must be None, a whole number of at least 1, or a fraction"):
        fitted(neighbours=bad)


def test_neighbours_that_do_not_fit():
    X, y = data(n=30)
    with pytest.raises(ValueError, match="neighbours must be at most the 29 other rows, got 30"):
        fitted(X=X, y=y, neighbours=30)
    with pytest.raises(ValueError, match="neighbours needs bandwidth='adaptive', got bandwidth='loo'"):
        NadarayaWatsonRegressor(neighbours=5).fit(X, y)


def test_a_given_k_is_saved(tmp_path):
    X, y = data()
    model = fitted(X=X, y=y, neighbours=0.2)
    regard.save(model, tmp_path / "model.regard")
    again = regard.load(tmp_path / "model.regard")
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_stop_keeps_the_best_k_so_far():
    X, y = data(d=1)
    objective, calls = Objective.of(X, y), []

    def stop(*found):
        calls.append(found)
        if len(calls) == 3:
            raise KeyboardInterrupt

    found = learn_neighbours(objective, progress=stop)
    assert found.interrupted
    assert found.evaluations == 3
    assert found.value == min(found.path)
    assert "interrupted: this is the best so far" in str(found)


def test_a_search_says_where_it_ended():
    """On a constant every k is as good."""
    x = np.r_[np.linspace(0.0, 1.0, 30), 9.0][:, None]
    found = learn_neighbours(Objective.of(x, np.ones(31), kernel="epanechnikov"))
    assert found.edge
    assert f"at k = {found.neighbours} after {found.evaluations} evaluations; k is the smallest or the" in str(found)

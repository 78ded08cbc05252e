"""Heads, scalings, distinct rows, the plug-in rule and the notes' recipe."""

from __future__ import annotations

import numpy as np
import pytest

from regard import KernelClassifier, KernelRegressor, NadarayaWatsonRegressor, load, save
from regard.bandwidth import Objective, follow_the_notes, line_heads, plugin
from regard.bandwidth.distinct import distinct, expand_rows
from regard.bandwidth.head_search import learn_heads
from regard.bandwidth.scaling import KNOTS, Scaling
from regard.data import notes

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=80), np.exp(2.0 * RNG.normal(size=80))])
Y = np.sin(X[:, 0]) + np.log(X[:, 1]) + 0.1 * RNG.normal(size=80)
AT = X[::7] * 1.05


@pytest.fixture(scope="module")
def model():
    return KernelRegressor().fit(X, Y)


# ---- scaling


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0])
def test_a_scaling_rises_and_its_slope_is_its_derivative(t):
    x = np.exp(2.0 * RNG.normal(size=(5000, 1)))
    scaling, share = Scaling.of(x, np.ones(5000)), np.array([t])
    assert len(scaling.knots[0]) <= KNOTS
    grid = np.linspace(-5.0, 2.0 * x.max(), 4001)[:, None]
    z = scaling(grid, share)
    assert (np.diff(z[:, 0]) > 0.0).all()
    middle = 0.5 * (grid[1:] + grid[:-1])
    step = np.full_like(middle, 1e-6)
    between = np.abs(middle - scaling.knots[0]).min(axis=1) > 1e-5
    slope = (scaling(middle + step, share) - scaling(middle - step, share)) / 2e-6
    assert np.allclose(slope[between], scaling.slope(middle, share)[between], rtol=1e-5)


def test_standard_and_rank_scores():
    x = RNG.exponential(size=(400, 1))
    scaling = Scaling.of(x, np.ones(400))
    standard, ranks = (scaling(x, np.array([t]))[:, 0] for t in (1.0, 0.0))
    assert np.allclose(standard, (x[:, 0] - x.mean()) / x.std())
    assert np.array_equal(np.argsort(ranks), np.argsort(x[:, 0]))
    assert abs(ranks.mean()) < 1e-12
    assert ranks.std() == pytest.approx(1.0)
    assert abs(np.mean(ranks**3)) < 0.01  # symmetric, as a normal is


def test_repetitions_are_copies_to_a_scaling():
    counts = np.arange(80) % 3 + 1
    weighted, copied = Scaling.of(X, counts.astype(float)), Scaling.of(X.repeat(counts, axis=0), np.ones(counts.sum()))
    for t in (0.0, 1.0):
        assert np.allclose(weighted(AT, np.full(2, t)), copied(AT, np.full(2, t)), rtol=1e-12)


# ---- distinct rows


def test_copies_and_weights_are_the_same_distinct_rows():
    counts = RNG.integers(0, 4, 80)
    order = RNG.permutation(80)
    weighted = distinct(X[order], Y[order], counts[order])
    copied = distinct(X.repeat(counts, axis=0), Y.repeat(counts), None)
    for a, b in zip(weighted[:3], copied[:3], strict=True):
        assert np.array_equal(a, b)
    answers = expand_rows(weighted.value[:, None], weighted.place)[:, 0]
    assert np.array_equal(np.isnan(answers), counts[order] == 0)
    assert np.array_equal(answers[counts[order] > 0], Y[order][counts[order] > 0])


# ---- the plug-in rule


def test_plugin_follows_units_noise_and_curvature():
    x = np.linspace(0.0, 1.0, 300)[:, None]
    noise = RNG.normal(size=300)
    h = plugin(x, np.sin(6.0 * x[:, 0]) + 0.1 * noise)
    assert np.allclose(plugin(7.0 * x + 3.0, 5.0 * (np.sin(6.0 * x[:, 0]) + 0.1 * noise)), 7.0 * h)
    assert plugin(x, np.sin(6.0 * x[:, 0]) + 0.4 * noise) > h
    assert plugin(x, np.sin(3.0 * x[:, 0]) + 0.1 * noise) > h
    assert plugin(np.hstack([x, np.ones_like(x)]), noise)[1] == np.inf
    best = NadarayaWatsonRegressor().fit(x, np.sin(6.0 * x[:, 0]) + 0.1 * noise).bandwidth_
    assert 0.4 < h[0] / best[0] < 2.5
    with pytest.raises(ValueError, match="needs more rows"):
        plugin(x[:5], noise[:5])


# ---- the notes' recipe


def test_the_notes_recipe_step_by_step():
    """Softmax of −½((x − xᵢ)w)² over the other rows, summed squared error, five steps of 0.5."""
    data = notes(seed=0)
    x, y = data.x_train, data.y_train
    w, path = 0.3, []
    difference = x[:, None] - x[None, :]
    for _ in range(5):
        score = np.where(np.eye(len(x), dtype=bool), -np.inf, -0.5 * (difference * w) ** 2)
        alpha = np.exp(score - score.max(axis=1, keepdims=True))
        alpha /= alpha.sum(axis=1, keepdims=True)
        f = alpha @ y
        path.append(((y - f) ** 2).sum())
        slope = -(difference**2) * w  # of the scores by w
        by_w = (alpha * slope * (y[None, :] - f[:, None])).sum(axis=1)
        w = w - 0.5 * (-2.0 * (y - f) * by_w).sum()
    found = follow_the_notes(Objective.of(x, y), 0.3)
    assert np.allclose(found.path, path, rtol=1e-9)
    assert float(found.w) == pytest.approx(abs(w), rel=1e-9)
    model = NadarayaWatsonRegressor(metric="scalar", optimizer="sgd", random_state=3).fit(x[:, None], y)
    start = np.random.RandomState(3).random_sample()
    assert model.w_ == pytest.approx(float(follow_the_notes(Objective.of(x, y), start).w), rel=1e-9)


# ---- the estimators


def test_attention_and_effective_weights_of_a_mix(model):
    attention = model.attend(AT)
    assert (attention >= 0.0).all()
    assert np.allclose(attention.sum(axis=1), 1.0)
    assert np.allclose(model.effective_weights(AT) @ Y, model.predict(AT), rtol=1e-9)
    assert sum(head.weight for head in model.heads_) == pytest.approx(1.0)
    assert model.feature_relevance_.sum() == pytest.approx(1.0)


def test_marginal_effects_are_the_slope_of_predict(model):
    step = 1e-6 * np.eye(2)
    numeric = np.stack([(model.predict(AT + e) - model.predict(AT - e)) / 2e-6 for e in step], axis=1)
    assert np.allclose(model.marginal_effects(AT), numeric, rtol=1e-4, atol=1e-6)


def test_units_do_not_matter(model):
    scale, shift = np.array([1e3, 2.0**-20]), np.array([5.0, -7.0])
    other = KernelRegressor().fit(X * scale + shift, 1e6 + 1e3 * Y)
    assert np.allclose((other.predict(AT * scale + shift) - 1e6) / 1e3, model.predict(AT), rtol=1e-4, atol=1e-4)


def test_better_than_one_bandwidth_on_a_skewed_column(model):
    assert model.loo_score_ > NadarayaWatsonRegressor().fit(X, Y).loo_score_
    assert np.mean((model.loo_predictions_ - Y) ** 2) == pytest.approx(model.search_.value)


@pytest.mark.parametrize("kind", [KernelRegressor, KernelClassifier])
def test_saved_and_loaded(kind, tmp_path):
    fitted = kind().fit(X, Y > 0 if kind is KernelClassifier else Y)
    save(fitted, tmp_path / "m.regard")
    again = load(tmp_path / "m.regard")
    assert np.array_equal(again.predict(AT), fitted.predict(AT))
    assert again.search_.evaluations == fitted.search_.evaluations


def test_a_stop_keeps_the_best_so_far():
    class Stop:
        """A callback that has seen enough."""

        def __init__(self, after):
            self.left = after

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context, **_):
            pass

        def on_fit_task_end(self, estimator, context, **_):
            self.left -= 1
            return self.left == 0

    stopped = KernelRegressor().set_callbacks(Stop(100)).fit(X, Y)
    assert stopped.search_.interrupted
    assert len(stopped.heads_) >= 1
    assert np.isfinite(stopped.predict(AT)).all()


@pytest.mark.parametrize("kind", [KernelRegressor, KernelClassifier])
def test_many_rows_are_learned_by_the_gradient_of_a_named_engine(kind):
    """As well as by products of matrices; one column varies in two orders of magnitude."""
    rng = np.random.default_rng(12)
    many = np.column_stack([rng.normal(size=2600), np.exp(2.0 * rng.normal(size=2600))])
    y = np.sin(2.0 * many[:, 0]) + np.log(many[:, 1]) + 0.3 * rng.normal(size=2600)
    y = y > 0.0 if kind is KernelClassifier else y
    named, usual = (kind(engine=engine).fit(many, y) for engine in ("tiled", "auto"))
    assert named.loo_score_ == pytest.approx(usual.loo_score_, abs=0.02)
    at = many[::50] * 1.01
    answer = "predict_proba" if kind is KernelClassifier else "predict"
    found, wanted = (getattr(model, answer)(at) for model in (named, usual))
    assert np.sqrt(np.mean((found - wanted) ** 2)) < 0.1 * np.std(wanted)


@pytest.mark.parametrize(("y", "options"), [(Y, {"degree": 1}), ((Y > 0.0).astype(int), {"classes": 2})])
def test_a_search_that_is_stopped_at_once_found_nothing(y, options):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn_heads(X, y, progress=stop, **options)


def test_groups_leave_together():
    copies, groups = X.repeat(2, axis=0), np.arange(80).repeat(2)
    grouped = KernelRegressor().fit(copies, Y.repeat(2), groups=groups)
    alone = KernelRegressor().fit(copies, Y.repeat(2))
    assert np.sqrt(grouped.search_.value) > 2.0 * np.sqrt(alone.search_.value)  # a copy gives its twin away


def test_a_given_bandwidth_forgets_what_was_learned():
    model = NadarayaWatsonRegressor().fit(X, Y)
    model.set_params(bandwidth=1.0).fit(X, Y)
    assert not any(hasattr(model, name) for name in ("search_", "loo_predictions_", "loo_score_"))


@pytest.mark.parametrize("kind", [KernelRegressor, KernelClassifier])
@pytest.mark.parametrize("repeated", [False, True])
def test_a_full_metric_needs_rows_for_its_numbers(kind, repeated):
    """Both sides of the bound; a row that counts twice is two rows."""
    rng, d = np.random.default_rng(5), 4
    enough = int(line_heads.ROWS_PER_PARAMETER * d**2)
    for n, full in ((enough, True), (enough - 1 - repeated, False)):
        x = rng.normal(size=(n, d))
        y = x[:, 0] * x[:, 1] + 0.1 * rng.normal(size=n)
        y = y if kind is KernelRegressor else y > 0.0
        rows, weight = (n // 2, np.full(n // 2, 2)) if repeated else (n, None)
        model = kind().fit(x[:rows], y[:rows], sample_weight=weight)
        assert any(head.w.shape == (d, d) for head in model.heads_) == full
        assert np.isfinite(model.loo_predictions_).all()

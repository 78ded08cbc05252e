"""Heads of class attention: criterion, logistic regression, cross-fitting, sharpness, weights and interruption."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_blobs, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from regard import KernelClassifier, load, save
from regard.bandwidth import Objective, class_heads
from regard.bandwidth.class_heads import ClassHeadKind, _ClassSearch, discriminants, logistic_regression, random_folds
from regard.bandwidth.head_search import learn_heads
from regard.bandwidth.learned_heads import HeadSearchLog
from regard.bandwidth.scaling import Scaling

RNG = np.random.default_rng(5)
X = RNG.normal(size=(150, 3))
LABEL = ((X[:, 0] + 0.5 * X[:, 1] + 0.5 * RNG.normal(size=150)) > 0.0).astype(int) + (X[:, 2] > 1.0)


def search_of(**options):
    objective = Objective.of(X, LABEL, classes=3, **options)
    return _ClassSearch(
        objective, Scaling.of(objective.key, objective.counts), random_folds(objective, 0), HeadSearchLog(None)
    )


# ---- the criterion and the discriminants


@pytest.mark.parametrize("metric", ["scalar", "feature", "full"])
@pytest.mark.parametrize("options", [{}, {"sample_weight": RNG.integers(1, 4, 150)}], ids=["plain", "repetitions"])
def test_the_gradient_is_a_finite_difference(metric, options):
    search, kind = search_of(**options), ClassHeadKind(0.5, metric)
    criterion = search.criterion(kind, search.placed(0.5)[1])
    x = criterion.space.uniform(1.5) + 0.1 * RNG.normal(size=criterion.space.size)
    loss, found = criterion(x, single=False)
    assert loss < found.value  # the price is positive
    for j in range(len(x)):
        step = np.zeros(len(x))
        step[j] = 1e-6
        up, down = (criterion(x + sign * step, single=False)[1].value for sign in (1.0, -1.0))
        assert found.gradient[j] == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-8)
    assert np.linalg.eigvalsh(found.curvature).min() > -1e-12


@pytest.mark.parametrize("penalty", [0.1, 10.0])
def test_logits_are_those_of_scikit_learn(penalty):
    columns, counts = np.eye(3)[LABEL], RNG.uniform(0.5, 2.0, 150)
    found = logistic_regression(X, columns, counts, penalty)
    logit = np.column_stack([X, np.ones(150)]) @ found
    p = np.exp(logit - logit.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    theirs = LogisticRegression(C=1.0 / penalty, tol=1e-10, max_iter=10_000).fit(X, LABEL, sample_weight=counts)
    np.testing.assert_allclose(p, theirs.predict_proba(X), atol=2e-3)


def test_distances_between_discriminants_are_those_of_logits():
    coefficients = RNG.normal(size=(6, 4))
    slopes = coefficients[:-1] - coefficients[:-1].mean(axis=1, keepdims=True)
    points = RNG.normal(size=(8, 5))
    projection = discriminants(coefficients)
    assert projection.shape == (5, 3)
    for part in (points @ projection, points @ slopes):
        np.testing.assert_allclose(
            ((part[:, None] - part[None]) ** 2).sum(axis=2),
            (((points @ slopes)[:, None] - (points @ slopes)[None]) ** 2).sum(axis=2),
            atol=1e-9,
        )


# ---- the estimator


def test_left_out_probabilities_come_from_searches_without_the_fold():
    """Labels of a fold do not matter to what is learned for it: flipped labels change no other search."""
    search = search_of()
    kind = ClassHeadKind(0.5, "feature")
    list(search.fit(ClassHeadKind(0.5, "scalar")))
    list(search.fit(kind))
    inside = search.fold == 0
    flipped = Objective.of(X, np.where(inside, (LABEL + 1) % 3, LABEL), classes=3)
    other = _ClassSearch(flipped, search.scaling, search.fold, HeadSearchLog(None))
    list(other.fit(ClassHeadKind(0.5, "scalar")))
    list(other.fit(kind))
    frequency = flipped.loss.frequency, search.objective.loss.frequency
    assert not np.allclose(*frequency)  # which only smooths the loss
    np.testing.assert_allclose(search.found[kind][1][0], other.found[kind][1][0], atol=0.05)
    assert not np.allclose(search.found[kind][0], other.found[kind][0], atol=0.05)


def test_probabilities_are_effective_weights_of_the_classes():
    model = KernelClassifier().fit(X, LABEL)
    at = 1.5 * RNG.normal(size=(40, 3))
    p, weights = model.predict_proba(at), model.effective_weights(at)
    assert model.tempering_.temperature != 1.0
    np.testing.assert_allclose(weights @ np.eye(3)[model.value_], p, atol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert (weights >= 0.0).all()
    weighted = KernelClassifier().fit(X, LABEL, sample_weight=RNG.uniform(0.2, 2.0, 150))
    p, weights = weighted.predict_proba(at), weighted.effective_weights(at)
    np.testing.assert_allclose(weights @ np.eye(3)[weighted.value_], p, atol=1e-12)


def test_marginal_effects_are_the_slope_of_probabilities():
    model = KernelClassifier(tol=0.0).fit(X, LABEL)
    at, step = X[::10] * 1.01, 1e-6
    for j, away in enumerate(step * np.eye(3)):
        numeric = (model.predict_proba(at + away) - model.predict_proba(at - away)) / (2.0 * step)
        np.testing.assert_allclose(model.marginal_effects(at)[:, :, j], numeric, rtol=1e-4, atol=1e-5)
    mean = model.average_effects(at)
    np.testing.assert_allclose(mean.effect, model.marginal_effects(at).mean(axis=0), atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_noise_is_not_learned(classes, seed):
    """With labels that X says nothing about, the log-loss is that of the class frequencies but for a small margin."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(160, 5)), rng.integers(0, classes, 160)
    new, truth = rng.normal(size=(1000, 5)), rng.integers(0, classes, 1000)
    model = KernelClassifier().fit(x[:80], y[:80])
    frequency = np.bincount(y[:80], minlength=classes) / 80
    plain = log_loss(truth, np.tile(frequency, (1000, 1)))
    assert log_loss(truth, model.predict_proba(new)) < plain + 0.06
    assert -model.loo_score_ < plain + 0.06


def test_the_left_out_log_loss_is_that_of_new_rows():
    reported, found = [], []
    for seed in range(5):
        x, y = make_moons(1200, noise=0.3, random_state=seed)
        model = KernelClassifier().fit(x[:200], y[:200])
        reported.append(-model.loo_score_)
        found.append(log_loss(y[200:], model.predict_proba(x[200:])))
        assert log_loss(y[:200], model.loo_predictions_) == pytest.approx(reported[-1], rel=0.03)
    assert np.mean(reported) == pytest.approx(np.mean(found), rel=0.2)


def test_classes_that_lines_separate_are_predicted_with_confidence():
    x, y = load_iris(return_X_y=True)
    p = cross_val_predict(KernelClassifier(), x, y, cv=StratifiedKFold(5), method="predict_proba")
    assert log_loss(y, p) < 0.16
    assert (p.argmax(axis=1) == y).mean() > 0.93


def test_many_classes_of_few_rows_have_wide_attention(monkeypatch):
    """Ten rows tell where the centre of a round class is, but not how dense it is: wide attention compares centres."""
    x, y = make_blobs(900, 6, centers=20, cluster_std=3.0, random_state=2)

    def learned():
        model = KernelClassifier().fit(x[:200], y[:200])
        p = model.predict_proba(x[200:])
        return (
            model.tempering_.temperature,
            -model.loo_score_,
            log_loss(y[200:], p),
            (p.argmax(axis=1) != y[200:]).mean(),
        )

    wide = learned()
    monkeypatch.setattr(class_heads, "FACTORS_OF_W", (1.0,))
    plain = learned()
    assert wide[0] < 0.8 * plain[0]  # sharpened more
    assert (np.array(wide[1:]) < 0.99 * np.array(plain[1:])).all()


def test_repetitions_are_copies():
    times = RNG.integers(1, 3, 60)
    at = RNG.normal(size=(20, 3))
    weighted = KernelClassifier().fit(X[:60], LABEL[:60], sample_weight=times)
    copied = KernelClassifier().fit(X[:60].repeat(times, axis=0), LABEL[:60].repeat(times))
    np.testing.assert_allclose(weighted.predict_proba(at), copied.predict_proba(at), atol=1e-9)


@pytest.mark.parametrize(
    "label", [np.r_[0, np.ones(39, int)], np.r_[0, 0, 0, 1, 1, np.full(35, 2)], np.arange(40) % 20]
)
def test_classes_with_fewer_rows_than_folds(label):
    model = KernelClassifier().fit(X[:40], label)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (p > 0.0).all()  # unlikely, not impossible
    assert np.isfinite(model.loo_predictions_).all()
    assert np.isfinite(model.loo_score_)


def test_groups_leave_together():
    copies, groups = X[:70].repeat(2, axis=0), np.arange(70).repeat(2)
    grouped = KernelClassifier().fit(copies, LABEL[:70].repeat(2), groups=groups)
    alone = KernelClassifier().fit(copies + 1e-9 * RNG.normal(size=copies.shape), LABEL[:70].repeat(2))
    assert grouped.loo_score_ < alone.loo_score_ - 0.05  # a copy reveals the class of the row it copies


def test_many_rows_are_judged_at_some(monkeypatch):
    monkeypatch.setattr(class_heads, "MAX_ROWS_CROSS_FITTED", 500)
    x, y = make_moons(3000, noise=0.3, random_state=1)
    model = KernelClassifier().fit(x[:2000], y[:2000])
    p = model.predict_proba(x[2000:])
    known = ~np.isnan(model.loo_predictions_).any(axis=1)
    assert 300 < known.sum() < 1000
    assert log_loss(y[2000:], p) < 0.25
    monkeypatch.undo()
    all_rows = KernelClassifier().fit(x[:2000], y[:2000])
    assert log_loss(y[2000:], p) == pytest.approx(log_loss(y[2000:], all_rows.predict_proba(x[2000:])), rel=0.05)
    same = log_loss(y[:2000][known], all_rows.loo_predictions_[known])
    assert -model.loo_score_ == pytest.approx(same, rel=0.1)


def test_a_stop_keeps_the_kinds_of_heads_that_are_complete():
    objective, calls = Objective.of(X, LABEL, classes=3), []

    def stop(number, value, done):
        calls.append(done)
        if number == 40:
            raise KeyboardInterrupt

    found = learn_heads(objective.key, LABEL, classes=3, degree=0, progress=stop)
    assert found.search.interrupted
    assert found.heads
    assert (np.diff(calls) >= 0.0).all()
    np.testing.assert_allclose(found.answer.sum(axis=1), 1.0)


def test_calibration_of_tempered_probabilities_does_not_hurt():
    plain, again = KernelClassifier().fit(X, LABEL), KernelClassifier(calibrate=True).fit(X, LABEL)
    left_out, label, _ = again._left_out_probabilities(calibrated=True)
    assert log_loss(label, left_out) <= -plain.loo_score_ + 1e-6


def test_saved_with_its_tempering_and_forgotten_rows(tmp_path):
    model = KernelClassifier().fit(X, np.array(["a", "b", "c"])[LABEL])
    save(model, tmp_path / "m.regard")
    again = load(tmp_path / "m.regard")
    assert again.tempering_.temperature == model.tempering_.temperature
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    again.forget(np.flatnonzero(LABEL == 2))
    p = again.predict_proba(X)
    assert p.shape == (150, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert again.tempering_.frequency.tolist() == (np.bincount(LABEL[LABEL < 2]) / (LABEL < 2).sum()).tolist()

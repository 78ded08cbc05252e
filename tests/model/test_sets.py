"""Classes: calibration never hurts left-out rows, sets hold the class as often as asked."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import regard
from regard.model.calibration import Calibration, learn_calibration
from support.soak import FULL

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

rng = np.random.default_rng(8)
X = rng.normal(size=(120, 2))
Y = np.where(X[:, 0] + 0.8 * rng.normal(size=120) > 0.0, "up", np.where(X[:, 1] > 0.8, "aside", "down"))
NEW = rng.normal(size=(9, 2))
MODELS = {
    "given": lambda **options: regard.NadarayaWatsonClassifier(bandwidth=0.15, **options),
    "learned": lambda **options: regard.NadarayaWatsonClassifier(**options),
    "heads": lambda **options: regard.KernelClassifier(**options),
}


def log_loss(probability, label, n):
    """With the pinch that keeps a left-out class possible."""
    frequency = np.bincount(label) / n
    mixed = (n * probability + frequency) / (n + 1.0)
    return -np.log(mixed[np.arange(n), label]).mean()


@pytest.mark.parametrize("name", MODELS)
def test_calibration_never_hurts_left_out_rows(name):
    model = MODELS[name](calibrate=True).fit(X, Y)
    model.predict_proba(NEW)
    left_out, label, _counts = model._left_out_probabilities()
    calibrated = model._calibration()(left_out)
    after = -np.log(calibrated[np.arange(120), label]).mean()
    assert after <= log_loss(left_out, label, 120) + 1e-9
    assert np.allclose(model.predict_proba(NEW).sum(axis=1), 1.0)


def test_calibration_helps_new_rows_where_attention_is_too_sharp():
    draw = np.random.default_rng(9)
    A, B = draw.normal(size=(200, 2)), draw.normal(size=(2000, 2))
    a, b = (rows[:, 0] + draw.normal(size=len(rows)) > 0.0 for rows in (A, B))
    losses = []
    for calibrate in (False, True):
        p = regard.NadarayaWatsonClassifier(bandwidth=0.1, calibrate=calibrate).fit(A, a).predict_proba(B)[:, 1]
        losses.append(-np.log(np.maximum(np.where(b, p, 1.0 - p), 1e-6)).mean())
    assert losses[1] < 0.7 * losses[0]


def test_probabilities_that_are_right_stay():
    truth = rng.random(5000)
    label = (rng.random(5000) < truth).astype(int)
    found = learn_calibration(np.column_stack([1.0 - truth, truth]), label, np.ones(5000))
    assert found.temperature == pytest.approx(1.0, abs=0.1)
    assert found.frequency_weight < 0.05


def test_a_temperature_is_undone():
    truth = rng.random((5000, 1)) * 0.98 + 0.01
    label = (rng.random(5000) < truth[:, 0]).astype(int)
    sharp = Calibration(0.5, 0.0, np.full(2, 0.5))(np.hstack([1.0 - truth, truth]))
    assert learn_calibration(sharp, label, np.ones(5000)).temperature == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("calibrate", [False, True])
def test_sets_grow_with_coverage_and_hold_the_most_probable(name, calibrate):
    model = MODELS[name](calibrate=calibrate).fit(X, Y)
    sets = [model.predict_set(NEW, coverage) for coverage in (0.5, 0.8, 0.9, 0.99, 0.995)]
    for small, large in itertools.pairwise(sets):
        assert (large | ~small).all()
    best = model.predict_proba(NEW).argmax(axis=1)
    assert sets[0][np.arange(9), best].all()
    assert sets[-1].all()  # 120 rows know nothing of one in two hundred


def test_sets_hold_the_class_as_often_as_asked():
    draw = np.random.default_rng(10)
    times, hits = (200 if FULL else 30), 0
    for _ in range(times):
        rows = draw.normal(size=(150, 1))
        label = (rows[:, 0] + draw.normal(size=150) > 0.0).astype(int) + (draw.random(150) > 0.9)
        model = regard.NadarayaWatsonClassifier(bandwidth=0.4).fit(rows[:100], label[:100])
        inside = model.predict_set(rows[100:], 0.9)
        # A class that no training row has is in no set.
        hits += sum(int(inside[label[100:] == known, at].sum()) for at, known in enumerate(model.classes_))
    error = np.sqrt(0.09 / (50 * times) + 0.09 / (100 * times))
    assert abs(hits / (50 * times) - 0.9) < 5.0 * error + 0.01


def test_a_weight_of_k_is_k_copies():
    times = 1 + np.arange(120) % 3
    weighted = MODELS["given"](calibrate=True).fit(X, Y, sample_weight=times)
    copied = MODELS["given"](calibrate=True).fit(np.repeat(X, times, axis=0), np.repeat(Y, times))
    assert np.allclose(weighted.predict_proba(NEW), copied.predict_proba(NEW), atol=1e-4)
    assert np.array_equal(weighted.predict_set(NEW), copied.predict_set(NEW))


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match="calibrate must be True or False"):
        MODELS["given"](calibrate="yes").fit(X, Y).predict_proba(NEW)
    for bad in (0.0, 1.0, float("nan"), "0.9"):
        with pytest.raises((TypeError, ValueError), match="coverage"):
            MODELS["given"]().fit(X, Y).predict_set(NEW, bad)


def test_one_class_is_certain():
    model = regard.NadarayaWatsonClassifier(bandwidth=1.0, calibrate=True).fit(X[:20], np.full(20, "only"))
    assert np.allclose(model.predict_proba(NEW), 1.0)
    assert model.predict_set(NEW).all()


def test_a_saved_classifier_keeps_its_calibration(tmp_path):
    model = MODELS["given"](calibrate=True).fit(X, Y)
    wanted = model.predict_proba(NEW)
    regard.save(model, tmp_path / "m.regard")
    back = regard.load(tmp_path / "m.regard")
    assert back.calibration_ == model.calibration_
    assert np.array_equal(back.predict_proba(NEW), wanted)

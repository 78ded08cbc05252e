"""The loss along multiples of w, and its picture."""

from __future__ import annotations

import numpy as np
import pytest

from regard import (
    AttentionRegressor,
    KernelRegressor,
    LocalLinearRegressor,
    NadarayaWatsonClassifier,
    NadarayaWatsonRegressor,
)
from regard.bandwidth import loo_objective
from regard.model.residuals import left_out_answers
from regard.plot import BandwidthPathDisplay
from regard.scores import Gaussian

RNG = np.random.default_rng(3)
X = RNG.random((50, 2))
Y = np.sin(5 * X[:, 0]) + 0.2 * RNG.normal(size=50)


def test_the_path_is_the_loss_with_every_w_multiplied():
    model = NadarayaWatsonRegressor().fit(X, Y)
    path = model.loss_path([0.5, 1.0, 3.0])
    for multiple, training, left_out in zip(*path, strict=True):
        w = multiple * model.w_
        assert left_out == pytest.approx(loo_objective(X, Y, Gaussian(w)), rel=1e-9)
        with np.errstate(divide="ignore"):
            at = NadarayaWatsonRegressor(bandwidth=1.0 / w).fit(X, Y)
        assert training == pytest.approx(np.mean((at.predict(X) - Y) ** 2), rel=1e-9)
    assert path.left_out[1] == pytest.approx(model.search_.value, rel=1e-9)


def test_lines_follow_the_same_path():
    """Every left-out line fitted on its own."""
    model = LocalLinearRegressor(bandwidth=[0.2, 0.9]).fit(X, Y)
    path = model.loss_path([1.0, 2.0])
    for multiple, left_out in zip(path.multiple, path.left_out, strict=True):
        errors = []
        for i in range(len(X)):
            others = np.arange(len(X)) != i
            at = LocalLinearRegressor(bandwidth=model.bandwidth_ / multiple).fit(X[others], Y[others])
            errors.append(at.predict(X[i : i + 1])[0] - Y[i])
        assert left_out == pytest.approx(np.mean(np.square(errors)), rel=1e-6)


def test_heads_and_classes_have_a_path_too():
    heads = KernelRegressor().fit(X, Y)
    path = heads.loss_path([1.0, 20.0])
    left_out = left_out_answers(heads._smoother.objectives())[:, 0]
    assert path.left_out[0] == pytest.approx(np.mean((left_out - Y) ** 2), rel=1e-6)
    assert path.training[0] == pytest.approx(np.mean((heads.predict(X) - Y) ** 2), rel=1e-6)
    assert path.left_out[0] < path.left_out[1]
    classes = NadarayaWatsonClassifier().fit(X, Y > 0)
    assert classes.loss_path([1.0]).left_out[0] == pytest.approx(-classes.loo_score_, rel=1e-6)


def test_one_w_is_drawn_as_itself(line):
    display = BandwidthPathDisplay.from_estimator(line, multiples=[0.5, 2.0])
    w = float(line.w_[0])
    np.testing.assert_allclose(display.line_.get_xdata(), [0.5 * w, w, 2.0 * w], rtol=1e-12)
    np.testing.assert_array_equal(display.line_.get_ydata(), line.loss_path([0.5, 1.0, 2.0]).left_out)
    np.testing.assert_array_equal(display.training_line_.get_ydata(), line.loss_path([0.5, 1.0, 2.0]).training)
    assert display.ax_.get_xscale() == "log"
    np.testing.assert_array_equal(display.chosen_line_.get_xdata(), [w, w])
    assert display.chosen_point_.get_ydata()[0] == pytest.approx(line.search_.value, rel=1e-9)
    assert display.chosen_text_.get_text() == f"chosen: {w:.3g}"


def test_several_w_are_drawn_as_multiples(table):
    display = BandwidthPathDisplay.from_estimator(table, labels={"multiple": "倍数"})
    x = display.line_.get_xdata()
    assert (x[0], x[-1], len(x)) == (1 / 16, 16.0, 33)
    assert display.chosen_point_.get_xdata()[0] == 1.0
    assert display.ax_.get_xlabel() == "倍数"
    assert display.chosen_text_.get_text() == "the learned w"


def test_extreme_losses_do_not_hide_the_minimum():
    display = BandwidthPathDisplay([1.0, 2.0, 4.0, 8.0], [1.0, 0.5, 2.0, 1e6], chosen=2.0).plot()
    assert display.ax_.get_ylim()[1] < 10.0
    calm = BandwidthPathDisplay([1.0, 2.0, 4.0], [1.0, 0.5, 2.0]).plot()
    assert calm.ax_.get_ylim()[1] > 2.0
    assert (calm.chosen_line_, calm.training_line_) == (None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"w": [0.0, 1.0]}, "w must hold positive finite numbers"),
        ({"left_out": [1.0]}, r"left_out must be as long as w \(2\), got 1"),
        ({"training": [1.0]}, r"training must be as long as w \(2\), got 1"),
        ({"chosen": 0.0}, r"chosen must be a positive finite number or None, got 0\.0"),
    ],
)
def test_path_errors_name_the_argument(given, message):
    with pytest.raises(ValueError, match=message):
        BandwidthPathDisplay(**({"w": [1.0, 2.0], "left_out": [1.0, 2.0]} | given))


def test_path_errors_about_the_estimator(line):
    with pytest.raises(TypeError, match=r"estimator must have loss_path, .* got AttentionRegressor"):
        BandwidthPathDisplay.from_estimator(AttentionRegressor("dot"))
    with pytest.raises(ValueError, match="multiples must be finite numbers"):
        line.loss_path([-1.0])
    adaptive = NadarayaWatsonRegressor(bandwidth="adaptive").fit(X[:, :1], Y)
    with pytest.raises(ValueError, match="loss_path needs a fixed bandwidth"):
        BandwidthPathDisplay.from_estimator(adaptive)

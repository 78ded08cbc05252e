"""Curves and maps of predictions, by what their artists hold."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from regard import NadarayaWatsonClassifier, NadarayaWatsonRegressor
from regard.plot import RegressionCurveDisplay, SurfaceDisplay

X = np.array([3.0, 1.0, 2.0])
GRID = np.array([0.0, 1.0, 2.0])


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_curve_holds_what_it_is_given_in_the_order_of_x():
    display = RegressionCurveDisplay(
        X, [30.0, 10.0, 20.0], truth=X, x_train=[5.0, 4.0], y_train=[1.0, 2.0], lower=X - 1, upper=X + 1
    ).plot()
    np.testing.assert_array_equal(display.line_.get_xydata(), [[1, 10], [2, 20], [3, 30]])
    np.testing.assert_array_equal(display.truth_line_.get_xydata(), [[1, 1], [2, 2], [3, 3]])
    np.testing.assert_array_equal(display.training_line_.get_xydata(), [[5, 1], [4, 2]])
    corners = {tuple(corner) for corner in display.band_.get_paths()[0].vertices.tolist()}
    assert {(1.0, 0.0), (1.0, 2.0), (3.0, 2.0), (3.0, 4.0)} <= corners
    assert legend(display.ax_) == ["Truth", "Pred", "Training", "Interval"]
    low, high = display.ax_.get_ylim()
    assert low < 0.0 < 30.0 < high


def test_a_bare_curve_has_nothing_else():
    display = RegressionCurveDisplay(X, X).plot()
    assert (display.truth_line_, display.training_line_, display.band_) == (None, None, None)
    assert legend(display.ax_) == ["Pred"]


def test_a_curve_of_one_feature_is_what_predict_says(line):
    display = RegressionCurveDisplay.from_estimator(line, truth=np.sin)
    x, y = display.line_.get_data()
    assert (x[0], x[-1]) == (line.key_.min(), line.key_.max())
    np.testing.assert_array_equal(y, line.predict(x[:, None]))
    np.testing.assert_array_equal(display.truth_line_.get_ydata(), np.sin(x))
    np.testing.assert_array_equal(display.training_line_.get_data(), (line.key_[:, 0], line.value_))
    assert display.ax_.get_xlabel() == "x"


@pytest.mark.parametrize("feature", [None, 1, "high $"])
def test_other_features_stand_at_their_median(table, feature):
    display = RegressionCurveDisplay.from_estimator(table, feature=feature)
    x, y = display.line_.get_data()
    query = np.tile(np.median(table.key_, axis=0), (len(x), 1))
    query[:, 1] = x
    with pytest.warns(UserWarning, match="feature names"):
        np.testing.assert_array_equal(y, table.predict(query))
    assert display.ax_.get_xlabel() == r"high \$ (other features at their median)"


def test_rows_given_are_drawn_instead_of_those_remembered(line):
    display = RegressionCurveDisplay.from_estimator(line, [[1.0], [2.0]], [7.0, 8.0])
    np.testing.assert_array_equal(display.training_line_.get_xydata(), [[1, 7], [2, 8]])


def test_labels_can_be_in_any_language():
    labels = {"predicted": "预测", "x": "输入", "y": "输出"}
    display = RegressionCurveDisplay(X, X, labels=labels).plot(Figure().subplots())
    assert legend(display.ax_) == ["预测"]
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("输入", "输出")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"predicted": [1.0]}, r"predicted must be as long as x \(3\), got 1"),
        ({"truth": [1.0]}, r"truth must be as long as x \(3\), got 1"),
        ({"lower": X}, "upper must be given with lower"),
        ({"upper": X}, "lower must be given with upper"),
        ({"x_train": X}, "y_train must be given with x_train"),
        ({"x_train": X, "y_train": [1.0]}, r"y_train must be as long as x_train \(3\), got 1"),
        ({"x": np.zeros((3, 2))}, r"x must have one axis .*got shape \(3, 2\)"),
        ({"labels": {"pred": "?"}}, "labels must be among 'truth', .* got pred"),
    ],
)
def test_curve_errors_name_the_argument(given, message):
    with pytest.raises(ValueError, match=message):
        RegressionCurveDisplay(**({"x": X, "predicted": X} | given))


def test_curve_errors_about_the_estimator(table):
    with pytest.raises(ValueError, match="feature must be one of 'low'"):
        RegressionCurveDisplay.from_estimator(table, feature="middle")
    with pytest.raises(ValueError, match="feature must be a name or a number from 0 to 2, got 3"):
        RegressionCurveDisplay.from_estimator(table, feature=3)
    with pytest.raises(ValueError, match=r"has no training rows .*not fitted"):
        RegressionCurveDisplay.from_estimator(NadarayaWatsonRegressor())
    with pytest.raises(ValueError, match="y must be given with X"):
        RegressionCurveDisplay.from_estimator(table, [[1.0]])
    with pytest.raises(TypeError, match="predicts classes"):
        RegressionCurveDisplay.from_estimator(NadarayaWatsonClassifier(bandwidth=1.0).fit([[0.0], [1.0]], [0, 1]))
    several = NadarayaWatsonRegressor(bandwidth=1.0).fit([[0.0], [1.0]], [[0.0, 1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="one number per row"):
        RegressionCurveDisplay.from_estimator(several)
    with pytest.raises(TypeError, match="ax must be matplotlib axes or None, got Figure"):
        RegressionCurveDisplay(X, X).plot(Figure())


def test_a_map_is_what_predict_says(table):
    display = SurfaceDisplay.from_estimator(table)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == (r"high \$", "low"), "the most relevant first"
    assert display.ax_.get_title() == "other features at their median"
    for i, j in [(0, 0), (3, 50), (69, 12)]:
        query = np.median(table.key_, axis=0)
        query[[1, 0]] = display.x0[j], display.x1[i]
        with pytest.warns(UserWarning, match="feature names"):
            assert display.predicted[i, j] == pytest.approx(table.predict(query[None])[0], rel=1e-12)
    np.testing.assert_array_equal(display.points_.get_offsets(), table.key_[:, [1, 0]])
    np.testing.assert_array_equal(display.points_.get_array(), table.value_)
    assert display.points_.norm is display.contours_.norm, "dots and map share their colours"
    assert display.contours_.levels[0] <= display.predicted.min()
    assert display.contours_.levels[-1] >= display.predicted.max()


def test_a_map_of_a_constant_and_of_gaps_is_drawn():
    flat = SurfaceDisplay(GRID, GRID, np.full((3, 3), 2.0)).plot()
    assert flat.contours_.levels[0] < 2.0 < flat.contours_.levels[-1]
    assert flat.points_ is None
    SurfaceDisplay(GRID, GRID, np.full((3, 3), np.nan)).plot()


def test_map_errors_name_the_argument(line, table):
    with pytest.raises(ValueError, match=r"predicted must have shape .* = \(2, 3\), got \(3, 2\)"):
        SurfaceDisplay(GRID, GRID[:2], np.zeros((3, 2)))
    with pytest.raises(ValueError, match="x1 must hold at least two increasing numbers"):
        SurfaceDisplay(GRID, GRID[::-1], np.zeros((3, 3)))
    with pytest.raises(ValueError, match="train1, y_train must be given too"):
        SurfaceDisplay(GRID, GRID, np.zeros((3, 3)), train0=GRID)
    with pytest.raises(ValueError, match="two features or more"):
        SurfaceDisplay.from_estimator(line)
    with pytest.raises(ValueError, match="features must be two numbers or names, got 'low'"):
        SurfaceDisplay.from_estimator(table, features="low")
    with pytest.raises(ValueError, match="two different ones"):
        SurfaceDisplay.from_estimator(table, features=["low", 0])

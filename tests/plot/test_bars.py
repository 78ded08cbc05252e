"""Relevance of features and neighbours of a prediction, by what their bars hold."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from regard import KernelClassifier, NadarayaWatsonRegressor, NearestKeyRegressor
from regard.plot import FeatureRelevanceDisplay, NeighbourDisplay


def widths(display):
    return [bar.get_width() for bar in display.bars_]


def names(display):
    return [label.get_text() for label in display.ax_.get_yticklabels()]


def words(display):
    return [text.get_text() for text in display.texts_]


def test_features_are_sorted_and_named(table):
    display = FeatureRelevanceDisplay.from_estimator(table)
    relevance = table.feature_relevance_
    assert widths(display) == [relevance[1], relevance[0], 0.0]
    assert names(display) == [r"high \$", "low", "same"]
    assert words(display)[2] == "constant"
    assert display.ax_.get_ylim()[0] > display.ax_.get_ylim()[1], "the most relevant on top"


def test_a_feature_smoothed_out_is_said_in_words():
    rng = np.random.default_rng(0)
    x = rng.random((80, 2))
    model = NadarayaWatsonRegressor().fit(x, np.sin(6 * x[:, 0]))
    assert model.search_.smoothed_out.tolist() == [False, True]
    assert words(FeatureRelevanceDisplay.from_estimator(model)) == ["100 %", "smoothed out"]
    zh = FeatureRelevanceDisplay.from_estimator(model, labels={"smoothed_out": "被抹平"})
    assert words(zh) == ["100 %", "被抹平"]


def test_many_features_share_a_last_bar():
    share = np.arange(1.0, 41.0) / 820.0
    display = FeatureRelevanceDisplay(share, top=5).plot()
    assert names(display) == ["feature 39", "feature 38", "feature 37", "feature 36", "feature 35", "35 others"]
    assert sum(widths(display)) == pytest.approx(1.0)
    assert names(FeatureRelevanceDisplay(share[:6], top=5).plot())[-1] == "feature 0", "one more is no crowd"


def test_no_relevance_at_all_is_drawn():
    display = FeatureRelevanceDisplay([0.0, 0.0]).plot()
    assert words(display) == ["0 %", "0 %"]
    assert display.ax_.get_xlim()[1] > 0.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"relevance": [-1.0, 2.0]}, "relevance must hold shares of at least 0"),
        ({"names": ["a"]}, "names must hold 2 strings, got 1"),
        ({"names": "ab"}, "names must hold 2 strings, got 'ab'"),
        ({"smoothed_out": [0, 1]}, "smoothed_out must be 2 booleans, got dtype int64"),
        ({"constant": [True]}, r"constant must be 2 booleans, .*shape \(1,\)"),
        ({"top": 0}, "top must be an integer of at least 1, got 0"),
    ],
)
def test_relevance_errors_name_the_argument(given, message):
    with pytest.raises(ValueError, match=message):
        FeatureRelevanceDisplay(**({"relevance": [0.5, 0.5]} | given))


def test_an_estimator_without_relevance_is_named():
    with pytest.raises(TypeError, match="have feature_relevance_, got NearestKeyRegressor"):
        FeatureRelevanceDisplay.from_estimator(NearestKeyRegressor().fit([[0.0], [1.0]], [0.0, 1.0]))


def test_neighbours_are_what_attend_says(line):
    display = NeighbourDisplay.from_estimator(line, [[2.0]], top=4)
    seen = line.attend([[2.0]], top=4)
    assert display.index.tolist() == seen.index[0].tolist()
    np.testing.assert_allclose(widths(display), [*seen.weight[0], 1.0 - seen.mass[0]], rtol=1e-9)
    best = seen.index[0, 0]
    assert names(display)[0] == f"row {best}: x = {line.key_[best, 0]:.3g}, y = {line.value_[best]:.3g}"
    attended = int((line.attend([[2.0]]) > 0).sum())
    assert names(display)[-1] == f"{attended - 4} others"


def test_one_feature_shows_the_rows_where_they_stand(line):
    display = NeighbourDisplay.from_estimator(line, [[2.0]])
    np.testing.assert_array_equal(display.points_.get_offsets(), np.column_stack([line.key_[:, 0], line.value_]))
    assert display.points_.get_sizes().argmax() == display.index[0]
    np.testing.assert_array_equal(display.query_line_.get_xdata(), [2.0, 2.0])
    assert display.prediction_point_.get_ydata()[0] == line.predict([[2.0]])[0]
    assert display.x_ax_.get_title() == f"{line.predict([[2.0]])[0]:.3g} predicted at x = 2"


def test_axes_given_are_used(line):
    bars, along = Figure().subplots(2, 1)
    only = NeighbourDisplay.from_estimator(line, [[2.0]], ax=bars)
    assert (only.ax_, only.x_ax_) == (bars, None)
    both = NeighbourDisplay.from_estimator(line, [[2.0]], ax=[bars, along])
    assert (both.ax_, both.x_ax_) == (bars, along)


def test_several_features_and_classes_are_written_out(table):
    display = NeighbourDisplay.from_estimator(table, table.key_[:1])
    assert display.x_ax_ is None
    row = table.key_[display.index[0]]
    assert f"low = {row[0]:.3g}, high \\$ = {row[1]:.3g}, same = 1, y = " in names(display)[0]
    classes = KernelClassifier().fit([[0.0], [1.0], [2.0], [3.0]], ["cat", "cat", "dog", "dog"])
    display = NeighbourDisplay.from_estimator(classes, [[0.2]], top=1)
    assert names(display)[0] == "row 0: x = 0, y = cat"
    assert display.ax_.get_title() == "cat predicted at x = 0.2"


def test_empty_rows_are_no_error():
    model = NadarayaWatsonRegressor(kernel="boxcar", bandwidth=1.0, empty="nan").fit([[0.0], [1.0]], [0.0, 1.0])
    display = NeighbourDisplay.from_estimator(model, [[9.0]])
    assert widths(display) == [0.0]


def test_bars_of_attention_computed_elsewhere(line):
    seen = line.attend([[2.0]], top=3)
    display = NeighbourDisplay(seen.index[0], seen.weight[0], labels={"row": "第 {row} 行"}).plot()
    assert names(display)[0] == f"第 {seen.index[0, 0]} 行"
    assert widths(display) == seen.weight[0].tolist()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"index": [1]}, r"index must be as long as weight \(2\), got 1"),
        ({"words": ["a"]}, "words must hold 2 strings, got 1"),
        ({"weight": [], "index": []}, "weight must hold at least one row"),
        ({"x": [1.0]}, "x, y and x_weight must be given together"),
        ({"x": [1.0], "y": [1.0, 2.0], "x_weight": [1.0]}, r"y must be as long as x \(1\), got 2"),
    ],
)
def test_neighbour_errors_name_the_argument(given, message):
    with pytest.raises(ValueError, match=message):
        NeighbourDisplay(**({"index": [0, 1], "weight": [0.6, 0.4]} | given))


def test_neighbour_errors_about_the_question(line, table):
    with pytest.raises(ValueError, match=r"X must be one row, shape \(1, 1\), got shape \(2, 1\)"):
        NeighbourDisplay.from_estimator(line, [[1.0], [2.0]])
    with pytest.raises(ValueError, match="top must be an integer of at least 1, got 0"):
        NeighbourDisplay.from_estimator(line, [[1.0]], top=0)
    with pytest.raises(ValueError, match="ax must be one pair of axes, or two where the model has one feature, got 2"):
        NeighbourDisplay.from_estimator(table, table.key_[:1], ax=Figure().subplots(2))

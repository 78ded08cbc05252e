"""Attention maps: order, cells, axes and colours."""

from __future__ import annotations

import numpy as np
import pytest

from regard import NadarayaWatsonRegressor
from regard.plot import AttentionMapDisplay, attention_map, show_heatmaps


def shown(axis):
    labels = [label.get_text() for label in axis.get_ticklabels()]
    return list(zip(map(float, axis.get_ticklocs()), labels, strict=True))


def test_rows_are_sorted_by_their_inputs(line):
    display = AttentionMapDisplay.from_estimator(line)
    order = np.argsort(line.key_[:, 0])
    weights = line.attend(line.key_)[np.ix_(order, order)]
    np.testing.assert_array_equal(display.image_.get_array(), weights)
    assert display.image_.get_clim() == (0.0, weights.max())
    assert display.colorbar_.ax.get_ylabel() == "weight"
    assert display.ax_.get_xlabel() == "keys, sorted by x"


def test_unsorted_rows_stay_and_carry_their_own_inputs(line):
    display = AttentionMapDisplay.from_estimator(line, sort=False)
    np.testing.assert_array_equal(display.image_.get_array(), line.attend(line.key_))
    for place, text in shown(display.ax_.xaxis):
        assert float(text) == pytest.approx(line.key_[int(place), 0], rel=5e-3)


def test_round_numbers_stand_where_they_belong_among_sorted_rows():
    key = np.array([0.0, 1.0, 4.0, 9.0, 10.0])
    display = AttentionMapDisplay(np.eye(5), query=key, key=key).plot()
    ticks = {text: place for place, text in shown(display.ax_.xaxis)}
    assert ticks["0"] == 0.0
    assert ticks["4"] == 2.0
    assert ticks["2"] == pytest.approx(1 + 1 / 3)
    assert ticks["10"] == 4.0
    assert display.ax_.get_ylim() == (4.5, -0.5), "queries go down"


def test_without_inputs_rows_are_numbered():
    display = AttentionMapDisplay(np.eye(3)).plot()
    np.testing.assert_array_equal(display.image_.get_array(), np.eye(3))
    assert display.ax_.get_xlabel() == "keys, by row number"


@pytest.mark.parametrize("tile", [1, 5000, 1 << 22])
@pytest.mark.parametrize("aggregate", ["max", "mean"])
def test_thousands_of_keys_share_cells(monkeypatch, tile, aggregate):
    """Against the plain reduction of blocks, whatever fits at once."""
    monkeypatch.setattr(attention_map, "MAX_WEIGHTS_PER_TILE", tile)
    weights = np.random.default_rng(1).random((650, 2000))
    display = AttentionMapDisplay(weights, aggregate=aggregate).plot()
    assert display.pooled == (3, 8)
    assert display.cells.shape == (217, 250)
    reduce = getattr(np, aggregate)
    for i, j in [(0, 0), (100, 77), (216, 249)]:  # the last row of cells has two queries only
        block = weights[3 * i : 3 * i + 3, 8 * j : 8 * j + 8]
        assert display.cells[i, j] == pytest.approx(reduce(block), rel=1e-12)
    word = {"max": "largest", "mean": "mean"}[aggregate]
    assert display.colorbar_.ax.get_ylabel() == f"weight ({word} of 3 × 8 in a cell)"
    assert display.ax_.get_xlim() == (-0.5, 1999.5)
    assert display.ax_.get_ylim() == (649.5, -0.5)
    assert display.image_.get_extent() == [-0.5, 1999.5, 650.5, -0.5], "every cell stands over its rows"


def test_an_estimator_is_asked_some_queries_at_a_time(monkeypatch):
    monkeypatch.setattr(attention_map, "MAX_WEIGHTS_PER_TILE", 900)
    rng = np.random.default_rng(2)
    x = rng.random((600, 1))
    model = NadarayaWatsonRegressor(bandwidth=0.1).fit(x, x[:, 0])
    asked = []
    attend = model.attend
    model.attend = lambda X: asked.append(len(X)) or attend(X)
    display = AttentionMapDisplay.from_estimator(model, np.linspace(0, 1, 7)[:, None], aggregate="mean")
    assert asked == [1] * 7
    whole = attend(np.linspace(0, 1, 7)[:, None])[:, np.argsort(x[:, 0])]
    np.testing.assert_allclose(display.cells, whole.reshape(7, 200, 3).mean(axis=2), rtol=1e-12)


def test_the_feature_on_the_axes_is_the_most_relevant_or_the_one_named(table):
    assert AttentionMapDisplay.from_estimator(table).ax_.get_xlabel() == r"keys, sorted by high \$"
    assert AttentionMapDisplay.from_estimator(table, feature="low").ax_.get_xlabel() == "keys, sorted by low"


def test_two_maps_can_share_one_scale():
    first = AttentionMapDisplay([[0.2, 0.8]]).plot()
    second = AttentionMapDisplay([[0.1, 0.1]]).plot(norm=first.image_.norm, colorbar=False)
    assert second.image_.get_clim() == (0.0, 0.8)
    assert second.colorbar_ is None


def test_gaps_are_masked_and_empty_rows_white():
    display = AttentionMapDisplay([[np.nan, 0.5], [0.0, 0.0]]).plot()
    assert np.ma.getmaskarray(display.image_.get_array()).tolist() == [[True, False], [False, False]]
    assert display.image_.get_clim() == (0.0, 0.5)


def test_labels_can_be_in_any_language(line):
    labels = {"key": "键", "query": "查询", "sorted": "{side}（按 {name} 排序）", "weight": "权重"}
    display = AttentionMapDisplay.from_estimator(line, labels=labels)
    assert display.ax_.get_xlabel() == "键（按 x 排序）"
    assert display.colorbar_.ax.get_ylabel() == "权重"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weights": np.zeros(3)}, r"weights must have two axes .*got shape \(3,\)"),
        ({"weights": np.zeros((0, 3))}, "not be empty"),
        ({"query": [1.0]}, r"query must be as long as the rows of weights \(2\), got 1"),
        ({"key": [1.0]}, r"key must be as long as the columns of weights \(3\), got 1"),
        ({"aggregate": "sum"}, "aggregate must be one of 'max', 'mean', got 'sum'"),
        ({"labels": {"weights": "?"}}, "labels must be among"),
    ],
)
def test_map_errors_name_the_argument(given, message):
    with pytest.raises(ValueError, match=message):
        AttentionMapDisplay(**({"weights": np.zeros((2, 3))} | given))


def test_map_errors_about_the_estimator(line):
    with pytest.raises(ValueError, match=r"X must have shape \(queries, 1\), got \(1, 2\)"):
        AttentionMapDisplay.from_estimator(line, [[1.0, 2.0]])
    with pytest.raises(TypeError, match="estimator must have attend, got object"):
        AttentionMapDisplay.from_estimator(object())


def test_heatmaps_carry_tokens():
    figure = show_heatmaps(np.zeros((1, 2, 2, 3)), key_labels=["the", "cat", "$"], query_labels=["die", "Katze"])
    for ax in figure.axes[:2]:
        assert [text.get_text() for text in ax.get_xticklabels()] == ["the", "cat", r"\$"]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["die", "Katze"]
    assert not figure.axes[1].get_yticklabels(), "once for the whole line of panels"
    with pytest.raises(ValueError, match="key_labels must hold 3 strings, got 2"):
        show_heatmaps(np.zeros((1, 1, 2, 3)), key_labels=["a", "b"])

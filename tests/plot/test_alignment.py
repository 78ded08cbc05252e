"""The alignment of a translation, by the artists: every weight, every token, every letter."""

from __future__ import annotations

from io import BytesIO
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from regard.plot import AlignmentDisplay, fonts, show_heatmaps
from regard.plot.alignment_display import MAX_FIGURE_SIDE, MAX_TOKEN_WIDTH, MIN_FONT_SIZE, text_width
from regard.seq2seq.alignment import entropy


def uneven(targets: int, sources: int) -> np.ndarray:
    raw = np.random.default_rng(targets).random((targets, sources)) ** 4
    return raw / raw.sum(1, keepdims=True)


def texts(labels) -> list[str]:
    return [label.get_text() for label in labels]


def drawn(display: AlignmentDisplay) -> None:
    """Save it; a letter that the fonts lack would be a warning, hence an error."""
    display.figure_.savefig(BytesIO(), format="png")


def test_weights_and_tokens_are_where_they_belong():
    weights = uneven(2, 3)
    given = SimpleNamespace(weights=weights, tokens=("05", "<eos>"), source_tokens=("3", "mai", "août$"))
    display = AlignmentDisplay.from_translation(given)
    ax = display.ax_
    np.testing.assert_array_equal(display.image_.get_array(), weights)
    assert display.image_.get_clim() == (0.0, 1.0), "alignments are compared on one scale"
    assert texts(ax.get_xticklabels()) == ["3", "mai", r"août\$"]
    assert texts(ax.get_yticklabels()) == ["05", "<eos>"]
    assert ax.xaxis.get_ticks_position() == ax.xaxis.get_label_position() == "top"
    assert ax.yaxis_inverted(), "the first token said stands on top"
    assert display.entropy_ is None
    assert display.colorbar_.ax.get_ylabel() == "weight"
    drawn(display)


def test_entropy_bars_are_the_entropies():
    weights = uneven(4, 5)
    weights[1] = 0.2
    weights[2] = np.eye(5)[3]
    display = AlignmentDisplay(weights, list("abcd"), list("vwxyz"), entropy=True).plot(colorbar=False)
    bars = [bar.get_width() for bar in display.entropy_]
    np.testing.assert_allclose(bars, entropy(weights), atol=1e-15)
    side = display.entropy_[0].axes
    assert side.get_xlim() == pytest.approx((0.0, np.log(5)))
    assert side.get_shared_y_axes().joined(side, display.ax_)
    assert display.colorbar_ is None
    drawn(display)


def test_entropy_of_a_single_source_token():
    display = AlignmentDisplay([[1.0]], ["a"], ["b"], entropy=True).plot()
    assert display.entropy_[0].get_width() == 0.0
    drawn(display)


def test_long_words_are_shortened_and_spaces_seen():
    display = AlignmentDisplay(
        np.eye(2, 4),
        ["a\tb", "anticonstitutionnellement"],
        [" ", "exactly-14-let", "exactly-15-lett", "二〇二一年五月三十一日"],
    ).plot()
    source, target = texts(display.ax_.get_xticklabels()), texts(display.ax_.get_yticklabels())
    assert source[:3] == ["␣", "exactly-14-let", "exactly-15-le…"]
    assert source[3].endswith("…")
    assert target == ["a\\tb", "anticonstitut…"]
    assert all(text_width(word) <= MAX_TOKEN_WIDTH for word in (*source, *target))
    assert display.tokens[1] == "anticonstitutionnellement", "kept whole"


def test_tokens_are_turned_only_where_they_would_touch():
    def turned(words):
        display = AlignmentDisplay(uneven(3, len(words)), list("abc"), words).plot()
        return display.ax_.get_xticklabels()[0].get_rotation()

    assert turned(list("le 3 mai 2021 à minuit, heure d'été")) == 0.0
    assert turned(list("二〇二一年五月三日二〇二一年五月三日")) == 0.0
    assert turned(["le", "3", "mai"]) == 0.0
    assert turned(["histoire"] * 12) == 90.0


@pytest.mark.parametrize(("targets", "sources"), [(1, 1), (11, 35), (40, 42), (90, 120)])
def test_tokens_do_not_run_into_each_other(targets, sources):
    words = ["très", "œuvre", "l'", "Donaudampfschifffahrt", "à"]
    display = AlignmentDisplay(
        uneven(targets, sources), [words[t % 5] for t in range(targets)], [words[s % 5] for s in range(sources)]
    ).plot()
    drawn(display)
    assert max(display.figure_.get_size_inches()) <= MAX_FIGURE_SIDE
    boxes = [label.get_window_extent() for label in display.ax_.get_xticklabels()]
    assert all(a.x1 <= b.x0 + 1 for a, b in pairwise(boxes))
    boxes = [label.get_window_extent() for label in display.ax_.get_yticklabels()]
    assert all(a.y0 >= b.y1 - 1 for a, b in pairwise(boxes))
    assert min(label.get_fontsize() for label in display.ax_.get_xticklabels()) >= MIN_FONT_SIZE


def test_chinese_is_lettered_without_a_setting_of_the_reader():
    source = list("星期一 二〇二一年五月三日")
    display = AlignmentDisplay(uneven(2, len(source)), ["2", "0"], source).plot()
    drawn(display)
    assert fonts.CHINESE in display.ax_.get_xticklabels()[0].get_fontfamily()
    heat = show_heatmaps(uneven(2, len(source))[None, None], key_labels=source, query_labels=["二", "〇"])
    heat.savefig(BytesIO(), format="png")


def test_axes_given_are_used():
    ax = Figure(figsize=(3, 2)).subplots()
    given = SimpleNamespace(weights=np.eye(2), tokens=("a", "b"), source_tokens=("c", "d"))
    assert AlignmentDisplay.from_translation(given, ax=ax).ax_ is ax


@pytest.mark.parametrize(
    ("weights", "tokens", "source", "message"),
    [
        (np.zeros((0, 0)), [], [], r"not be empty, got shape \(0, 0\)"),
        (np.ones(3), ["a"], ["b"], r"weights must have two axes"),
        (np.eye(2), ["a"], ["b", "c"], "tokens must hold 2 strings, got 1"),
        (np.eye(2), ["a", "b"], "bc", "source_tokens must hold 2 strings, got 'bc'"),
    ],
)
def test_errors_name_the_argument(weights, tokens, source, message):
    with pytest.raises(ValueError, match=message):
        AlignmentDisplay(weights, tokens, source)


def test_a_translation_is_asked_for():
    with pytest.raises(TypeError, match="translation must have weights, got str"):
        AlignmentDisplay.from_translation("2021-05-03")

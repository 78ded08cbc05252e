"""The measure that tests of figures use: texts that cover each other."""

from __future__ import annotations

from regard.plot import style
from support.figure_texts import overlapping_texts


def test_texts_that_cover_each_other_are_found():
    figure = style.picture(4, 3)
    ax = style.dress(figure.subplots())
    ax.set(title="a title", xlabel="x", ylabel="y")
    ax.text(0.5, 0.5, "here", ha="center", va="center")
    assert overlapping_texts(figure) == []
    ax.text(0.5, 0.52, "there", ha="center", va="center")
    ax.text(0.5, 0.5, "not shown", ha="center", va="center", visible=False)
    assert overlapping_texts(figure) == [("here", "there")]

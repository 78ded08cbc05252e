"""Texts of a figure that cover each other."""

from __future__ import annotations

from unittest import mock

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

# Points by which boxes of texts may meet: a box is a little larger than its letters.
SLACK = 1.0


def overlapping_texts(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that are drawn over each other, by their extents when the figure is drawn."""
    drawn: list[Text] = []
    draw = Text.draw

    def listed(text, renderer):
        if text.get_visible() and text.get_text().strip():
            drawn.append(text)
        draw(text, renderer)

    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # the layout settles
    with mock.patch.object(Text, "draw", listed):
        canvas.draw()
    renderer, slack = canvas.get_renderer(), SLACK * figure.dpi / 72
    boxes = [(text.get_text(), Text.get_window_extent(text, renderer).padded(-slack)) for text in drawn]
    return [
        (one, other)
        for i, (one, a) in enumerate(boxes)
        for other, b in boxes[i + 1 :]
        if min(a.x1, b.x1) > max(a.x0, b.x0) and min(a.y1, b.y1) > max(a.y0, b.y0)
    ]

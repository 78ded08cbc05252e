"""The README's pictures: ``python -m regard.tour.pictures docs/images`` draws them again."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from regard import attention_weights, pool
from regard.data import notes, notes_truth
from regard.plot import fonts, plot_kernel_reg, style
from regard.scores import Gaussian
from regard.tour.station import Visit
from regard.tour.stations import cues, moredata

DPI = 150
# A bandwidth that suits the notes' data better than their 1.
BANDWIDTH = 0.35


def hero() -> Figure:
    """The prediction over its data, beside the attention it paid."""
    data = notes()
    score = Gaussian(w=1.0 / BANDWIDTH)
    fine = np.linspace(0.0, 5.0, 501)
    figure = style.picture(10.4, 4.0)
    left, right = figure.subplots(1, 2, width_ratios=(1.55, 1.0))
    predicted = pool(fine, data.x_train, data.y_train, score).output
    names = ("truth", f"attention pooling, h = {BANDWIDTH:g}", "training data")
    plot_kernel_reg(fine, notes_truth(fine), predicted, data.x_train, data.y_train, left, labels=names)
    left.set_title("every answer is a weighted average of values …")
    style.dress(right, grid=False)
    image = right.imshow(
        attention_weights(data.x_test, data.x_train, score), cmap=style.WEIGHTS, vmin=0.0, interpolation="none"
    )
    right.set(title="… weighted by attention", xlabel="keys (training inputs)", ylabel="queries (test inputs)")
    bar = figure.colorbar(image, ax=right, pad=0.02)
    bar.outline.set_edgecolor(style.HAIRLINE)
    bar.ax.tick_params(colors=style.MUTED, labelcolor=style.INK, labelsize=9)
    return figure


def draw(out: Path) -> list[Path]:
    """Write every picture into the folder ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["font.family"] = [fonts.LATIN]
        visit = Visit(notes(), seed=0, lettering="en")
        for name, figure in (
            ("hero", hero()),
            ("query-key-value", cues.tell(visit).drawings[0].figure),
            ("more-data", moredata.tell(visit).drawings[0].figure),
        ):
            path = out / f"{name}.png"
            figure.savefig(path, dpi=DPI, metadata={"Software": None})
            paths.append(path)
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m regard.tour.pictures FOLDER")
    for written in draw(Path(sys.argv[1])):
        print(written)

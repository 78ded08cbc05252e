"""Pictures of the README and the documentation: ``python -m regard.tour.pictures docs/images`` draws them again."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from regard import NadarayaWatsonRegressor, attention_weights, pool
from regard.core.scores import Gaussian
from regard.data import notes, notes_truth
from regard.plot import plot_kernel_reg, style
from regard.plot.printing import lettered
from regard.tour.station import Visit
from regard.tour.stations import cues, date_translation, moredata

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
    left.set_title("each prediction is a weighted average of values …")
    style.dress(right, grid=False)
    image = right.imshow(
        attention_weights(data.x_test, data.x_train, score), cmap=style.WEIGHTS, vmin=0.0, interpolation="none"
    )
    right.set(title="… weighted by attention", xlabel="keys (training inputs)", ylabel="queries (test inputs)")
    style.colorbar(image, right, shrink=1.0)
    return figure


def uncertainty() -> Figure:
    """A curve through points that are noisier to the right, with the interval that says so: docs/uncertainty.md."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.random((300, 1)) * 5, axis=0)
    y = 2 * np.sin(x[:, 0]) + 0.1 * (1 + x[:, 0] ** 2 / 3) * rng.normal(size=300)
    model = NadarayaWatsonRegressor().fit(x, y)
    fine = np.linspace(0.0, 5.0, 301)[:, None]
    figure = style.picture(7.2, 3.8)
    ax = figure.subplots()
    style.dress(ax)
    low, high = model.predict_interval(fine, coverage=0.9).T
    ax.fill_between(fine[:, 0], low, high, color=style.BLUE, alpha=0.18, linewidth=0, label="90 % interval")
    ax.plot(fine[:, 0], model.predict(fine), color=style.BLUE, label="prediction")
    ax.plot(x[:, 0], y, ".", color=style.MUTED, markersize=4, label="training data")
    ax.set(xlabel="x", ylabel="y", title="wider where the noise is larger")
    ax.legend(frameon=False)
    return figure


def draw(out: Path) -> list[Path]:
    """Write every picture into the folder ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    with lettered():
        visit = Visit(notes(), seed=0, lang="en")
        query_key_value, stages = (drawing.figure for drawing in cues.STATION.compute(visit).drawings)
        for name, figure in (
            ("hero", hero()),
            ("query-key-value", query_key_value),
            ("attention-stages", stages),
            ("sequence-to-sequence", date_translation.draw_architecture(visit)),
            ("more-data", moredata.STATION.compute(visit).drawings[0].figure),
            ("uncertainty", uncertainty()),
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

"""Three scoring functions side by side: Gaussian, additive and dot product, each learned on the notes' data."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard import AttentionRegressor
from regard.model.naive_answers import root_mean_square
from regard.plot import plot_kernel_reg, style
from regard.tour.station import Findings, Station, Visit, findings, needs_torch
from regard.tour.stations.sharper import weight_maps
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/scoring")

SCORES = ("gaussian", "additive", "dot")


def learned(visit: Visit, score: str, embed: str | None = None) -> AttentionRegressor:
    """Attention with this score, learned by leaving out each of the notes' points in turn."""
    model = AttentionRegressor(score, embed, hidden_size=32, max_iter=10, learning_rate=0.03, random_state=visit.seed)
    return model.fit(visit.data.x_train[:, None], visit.data.y_train)


@needs_torch
def compute(visit: Visit) -> Findings:
    models = [learned(visit, score) for score in SCORES]
    embedded = learned(visit, "dot", embed="mlp")
    y_train, x_test, y_truth = visit.data.y_train, visit.data.x_test[:, None], visit.data.y_truth
    curves = [model.predict(x_test) for model in models]
    errors = {score: root_mean_square(curve - y_truth) for score, curve in zip(SCORES, curves, strict=True)}
    names, weights = [visit.label(TEXTS[score]) for score in SCORES], [model.attend(x_test) for model in models]
    return findings(
        TEXTS,
        {
            "curves": _curves(visit, curves),
            "weights": weight_maps(visit, weights, names, figsize=(10.4, 4.0)),
            "losses": _losses(visit, [model.history_.loss for model in models]),
        },
        **errors,
        mean=root_mean_square(y_train.mean() - y_truth),
        embedded=root_mean_square(embedded.predict(x_test) - y_truth),
        left_out=[1.0 - model.loo_score_ for model in models],
    )


def _curves(visit: Visit, curves: list[NDArray[Any]]) -> Figure:
    figure = style.picture(10.4, 3.5)
    data = visit.data
    for ax, curve, score in zip(figure.subplots(1, 3, sharey=True), curves, SCORES, strict=True):
        plot_kernel_reg(data.x_test, data.y_truth, curve, data.x_train, data.y_train, ax, labels=visit.lines)
        ax.set_title(visit.label(TEXTS[score]))
    for ax in figure.axes[1:]:
        ax.set_ylabel("")
    # The last panel has room for it, with some more at the top.
    figure.axes[-1].set_ylim(top=5.4)
    for ax in figure.axes[:-1]:
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
    return figure


def _losses(visit: Visit, losses: list[NDArray[Any]]) -> Figure:
    figure = style.picture(6.4, 3.4)
    ax = style.dress(figure.subplots())
    for loss, score, colour, dash in zip(losses, SCORES, style.CYCLE, style.DASHES, strict=False):
        epochs = np.arange(1, len(loss) + 1)
        ax.plot(epochs, loss, "o", linestyle=dash, color=colour, linewidth=2.2, label=visit.label(TEXTS[score]))
    ax.axhline(1.0, color=style.INK, linestyle=":", linewidth=1.6, label=visit.label(TEXTS["mean"]))
    ax.set(xlabel=visit.label(TEXTS["epoch"]), ylabel=visit.label(TEXTS["loss"]), ylim=(0.0, 1.1))
    ax.set_xticks(np.arange(1, len(losses[0]) + 1))
    style.legend(ax, loc="center right")
    return figure


STATION = Station("scoring", TEXTS, compute)

"""Shapes of w: one number, one per feature, a full matrix, and what each counts as near."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard import NadarayaWatsonRegressor
from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/shape_of_w")

ROWS = 150
NOISE = 0.3
# Waves per unit of each feature: both matter, the first one more.
WAVES = np.array([1.6, 0.4])
METRICS = ("scalar", "feature", "full")
QUERY = np.array([0.5, 0.5])


def rippled(seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two features in the unit square, and a wave that runs across both, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.random((ROWS, 2))
    return X, np.sin(2 * np.pi * X @ WAVES) + NOISE * rng.standard_normal(ROWS)


def compute(visit: Visit) -> Findings:
    X, y = rippled(visit.seed)
    models = [NadarayaWatsonRegressor(metric=metric).fit(X, y) for metric in METRICS]
    errors = [float(np.sqrt(model.search_.value)) for model in models]
    # A turned W gives the same distances, so of d × d entries the d (d + 1) / 2 of the symmetric W Wᵀ are free.
    d = X.shape[1]
    sizes = [d * (d + 1) // 2 if np.ndim(model.w_) == 2 else int(np.size(model.w_)) for model in models]
    figure = style.picture(8.4, 4.0, squares=True)
    for ax, model, metric, size, error in zip(figure.subplots(1, 3), models, METRICS, sizes, errors, strict=True):
        _draw(ax, visit, X, y, np.asarray(model.w_))
        shape = np.shape(model.w_)
        title = visit.label(TEXTS["panel"], name=TEXTS[metric], shape=shape, size=size, error=error)
        ax.set_title(title, size=10.5)
    by_metric = dict(zip(METRICS, errors, strict=True))
    return findings(TEXTS, {"shapes": figure}, rows=ROWS, noise=NOISE, size=sizes, **by_metric)


def _draw(ax: Axes, visit: Visit, X: NDArray[Any], y: NDArray[Any], w: NDArray[Any]) -> None:
    style.dress(ax, grid=False)
    side = np.linspace(0.0, 1.0, 201)
    place = np.stack(np.meshgrid(side, side), axis=-1)
    wave = np.sin(2 * np.pi * place @ WAVES)
    ax.imshow(wave, cmap=style.WEIGHTS, alpha=0.3, extent=(0, 1, 0, 1), origin="lower", interpolation="none")
    ax.scatter(X[:, 0], X[:, 1], c=y, cmap=style.WEIGHTS, s=26, edgecolors=style.MUTED, linewidths=0.5)
    delta = place - QUERY
    scaled = delta @ w if w.ndim == 2 else delta * w
    ax.contour(side, side, (scaled**2).sum(axis=-1), levels=[1.0], colors=[style.VERMILION], linewidths=2.4)
    ax.plot(*QUERY, "P", color=style.VERMILION, markersize=9, markeredgecolor=style.PAPER)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    ax.set_xlabel(visit.label(TEXTS["feature_1"]))
    if ax.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        ax.set_ylabel(visit.label(TEXTS["feature_2"]))


STATION = Station("shapes", TEXTS, compute)

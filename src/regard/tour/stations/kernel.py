"""The kernel K(u) for several w: how far a key has weight."""

from __future__ import annotations

import numpy as np

from regard import attention_weights
from regard.core.scores import Gaussian
from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/kernel")

W_VALUES = (0.5, 1.0, 2.0, 4.0)
QUERY = 2.5


def compute(visit: Visit) -> Findings:
    u = np.linspace(-4.0, 4.0, 401)
    figure = style.picture(6.4, 4.0)
    ax = style.dress(figure.subplots())
    effective_keys = {}
    for w, colour, dash in zip(W_VALUES, style.CYCLE, style.DASHES, strict=False):
        score = Gaussian(w=w)
        height = np.exp(score(np.zeros((1, 1)), u[:, None])[0]) / np.sqrt(2 * np.pi)
        ax.plot(u, height, color=colour, linestyle=dash, linewidth=2.4, label=f"w = {w:g}  (h = {1 / w:g})")
        weights = attention_weights([QUERY], visit.data.x_train, score)[0]
        effective_keys[w] = 1.0 / float((weights**2).sum())
    ax.set(
        xlabel=visit.label(TEXTS["distance"]),
        ylabel="K(w·(x − xᵢ))",
        xlim=(-4, 4),
        ylim=(0, 0.43),
    )
    style.legend(ax, loc="upper right")
    return findings(
        TEXTS,
        {"kernel": figure},
        query=QUERY,
        n=len(visit.data.x_train),
        keys_at_1=effective_keys[1.0],
        keys_at_4=effective_keys[4.0],
    )


STATION = Station("kernel", TEXTS, compute)

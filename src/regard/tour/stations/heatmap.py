"""The heatmap of attention weights, sorted and unsorted."""

from __future__ import annotations

import numpy as np

from regard import attention_weights
from regard.core.scores import Gaussian
from regard.plot import show_heatmaps
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/heatmap")


def compute(visit: Visit) -> Findings:
    from scipy.stats import spearmanr

    x_train, x_test = visit.data.x_train, visit.data.x_test
    rng = np.random.default_rng(visit.seed)
    keys, queries = rng.permutation(x_train), rng.permutation(x_test)
    tidy = attention_weights(x_test, x_train, Gaussian(w=1.0))
    mixed = attention_weights(queries, keys, Gaussian(w=1.0))
    figure = show_heatmaps(
        [[tidy, mixed]],
        xlabel=visit.label(TEXTS["keys"]),
        ylabel=visit.label(TEXTS["queries"]),
        titles=[visit.label(TEXTS["sorted"]), visit.label(TEXTS["shuffled"])],
        figsize=(8.2, 4.0),
    )
    # Rank correlations of a query's row, or of the query, with the column, or the key, that it attends to most.
    rows = np.arange(len(queries))
    sorted_places, shuffled_places = (
        float(spearmanr(rows, weights.argmax(axis=1)).statistic) for weights in (tidy, mixed)
    )
    return findings(
        TEXTS,
        {"heatmap": figure},
        sorted_places=sorted_places,
        shuffled_places=shuffled_places,
        numbers=float(spearmanr(queries, keys[mixed.argmax(axis=1)]).statistic),
    )


STATION = Station("heatmap", TEXTS, compute)

"""Figures of the attention of training rows: effective neighbours, entropy, leverage, and whether it is diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.bandwidth.rules import counts_repetitions
from regard.core.arrays import Array
from regard.core.problem import build
from regard.model.smoother import HeadObjective, tiles
from regard.pooling.functions import attention_weights
from regard.pooling.local_pooling import fit_local

# Weights in one tile. With the temporaries computed from them, a tile stays around 32 MB.
TILE_CELLS = 1 << 19
# Attended positions closer than this fraction of the feature's range are treated as equal.
POSITION_RESOLUTION = 1e-10


class AttentionSummary(NamedTuple):
    """Attention of some of the training rows over all of them, themselves included as in ``predict``."""

    neighbours: Array  # (Q,)  1/Σα²
    entropy: Array  # (Q,)  −Σ α·log α
    attended: Array  # (Q,)  Σ α·position
    leverage: Array  # (Q,)  ∂prediction/∂y of the row itself
    error: float  # mean loss of the predictions, with y scaled to unit variance


def summarise(heads: Sequence[HeadObjective], rows: Array, position: Array) -> AttentionSummary:
    """Attention of the mixture at ``rows`` (Q,); ``position`` (n,) are the training rows along one feature.

    A row of k repetitions counts as k rows. *Cost*: O(Q·n·d), at degree 1 O(Q·n·d²), per head; memory O(Q·d²) and a
    tile.
    """
    first = heads[0].objective
    copies = np.ones(len(first.key))
    if first.weight is not None and counts_repetitions(first.weight):
        copies = first.counts
    answer, lean = _answers(heads, rows)
    squares, entropy, attended, leverage = (np.empty(len(rows)) for _ in range(4))
    for part in tiles(len(rows), len(copies), TILE_CELLS):
        here = rows[part]
        weights, own = np.zeros((len(here), len(copies))), np.zeros(len(here))
        for (head, objective), left in zip(heads, lean, strict=True):
            one = head.mix * attention_weights(
                objective.key[here], objective.key, head.score, sample_weight=objective.weight, engine=objective.engine
            )
            own += one[np.arange(len(here)), here] * left[part]
            weights += one
        each = weights / copies
        squares[part] = (weights * each).sum(axis=1)
        entropy[part] = -(weights * np.log(np.where(each > 0.0, each, 1.0))).sum(axis=1)
        attended[part] = weights @ position
        leverage[part] = own
    error = first.loss(answer, rows, first.counts[rows]).value
    return AttentionSummary(1.0 / squares, np.maximum(entropy, 0.0), attended, leverage, error)


def training_error(heads: Sequence[HeadObjective], rows: Array) -> float:
    """Mean loss of the mixture at ``rows`` (Q,), each predicted from all rows, with y scaled to unit variance."""
    first = heads[0].objective
    return first.loss(_answers(heads, rows)[0], rows, first.counts[rows]).value


def _answers(heads: Sequence[HeadObjective], rows: Array) -> tuple[Array, list[Array]]:
    """Predictions (Q, P) from all rows, and for each head the factor (Q,) from a row's own weight to its leverage."""
    answer: Any = 0.0
    lean = []
    for head, objective in heads:
        key, columns = objective.key, objective.loss.columns
        problem = build(key[rows], key, columns, head.score, sample_weight=objective.weight)
        fit = fit_local(problem, objective.degree, head.ridge, objective.engine, sloped=objective.sloped).fit
        answer = answer + head.mix * fit.output
        lean.append(fit.left[:, 0])
    return np.asarray(answer), lean


def straightness(position: Array, attended: Array, counts: Array) -> float:
    """Rank correlation of positions (Q,) with attended positions (Q,), weighted by counts (Q,); 0 if undefined.

    1 is a straight diagonal in the heatmap: attention is on rows of similar position.

    >>> straightness(np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 2.5]), np.ones(3))
    1.0
    """
    span = float(np.ptp(position))
    if span == 0.0:
        return 0.0
    weight = counts / counts.sum()
    # Rounding must not order equal positions.
    steps = np.round((attended - position.min()) / span / POSITION_RESOLUTION)
    a, b = (ranks - weight @ ranks for ranks in (_ranks(position, weight), _ranks(steps, weight)))
    size = float(np.sqrt((weight @ a**2) * (weight @ b**2)))
    return float(np.clip(weight @ (a * b) / size, -1.0, 1.0)) if size > 1e-12 else 0.0


def _ranks(x: Array, weight: Array) -> Array:
    """Weighted ranks between 0 and 1; ties have their mean rank."""
    _, place = np.unique(x, return_inverse=True)
    weight = np.bincount(place, weight)
    return np.asarray((np.cumsum(weight) - 0.5 * weight)[place])

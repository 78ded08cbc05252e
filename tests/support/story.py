"""The tour's numbers, computed a second time in plain numpy."""

from __future__ import annotations

import re

import numpy as np

NAMES = ["cues", "average", "hard", "soft", "kernel", "heatmap", "batch", "softmax", "moredata"]
NAMES += ["learned", "sharper", "diagnosis", "density", "edges", "growth", "shapes"]
NAMES += ["scoring", "root_d", "reinforcement", "homes", "seq2seq"]
# Figures of each station, in the order of the page; most have one, named like the station.
_SEVERAL = {
    "cues": ["cues", "stages"],
    "batch": ["batch_shapes", "batch"],
    "learned": ["loss", "learned"],
    "density": ["density", "smoothness", "uneven"],
    "scoring": ["curves", "weights", "losses"],
    "root_d": ["root_d", "attention_shapes"],
    "reinforcement": ["training", "gradient"],
    "seq2seq": ["architecture", "seq2seq", "lengths"],
}
FIGURES = [(number, figure) for number, name in enumerate(NAMES, 1) for figure in _SEVERAL.get(name, [name])]
CJK = re.compile(r"[\u4e00-\u9fff]")


def error(predicted, truth):
    return np.sqrt(np.mean((predicted - truth) ** 2))


def attention(query, key, w=1.0):
    e = np.exp(-0.5 * (w * (query[:, None] - key[None, :])) ** 2)
    return e / e.sum(axis=1, keepdims=True)


def left_out(X, y, w):
    """Every row as the others answer it; X is (n, d), w a number, (d,) or (d, r)."""
    w = np.asarray(w)
    place = X @ w if w.ndim == 2 else X * w
    score = -0.5 * ((place[:, None, :] - place[None, :, :]) ** 2).sum(axis=2)
    np.fill_diagonal(score, -np.inf)
    e = np.exp(score - score.max(axis=1, keepdims=True))
    return e @ y / e.sum(axis=1)

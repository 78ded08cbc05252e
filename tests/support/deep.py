"""AttentionRegressors that learn quickly, their data, and modules to embed with."""

from __future__ import annotations

import numpy as np
from torch import nn

import regard
from regard import AttentionRegressor

SCORES = ("gaussian", "additive", "dot")
DATA = regard.data.notes(seed=0)
CURVE, HEIGHT = DATA.x_train[:, None], DATA.y_train
rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2)) * [1.0, 50.0] + [5.0, 0.0]
Y = np.sin(X[:, 0]) + X[:, 1] / 50.0
QUERIES = rng.normal(size=(9, 2)) * [1.0, 50.0] + [5.0, 0.0]


def small(score="gaussian", embed=None, **given):
    """A few quick epochs."""
    return AttentionRegressor(
        score, embed, **{"max_iter": 2, "hidden_size": 4, "embed_size": 2, "random_state": 0} | given
    )


class Doubled(nn.Module):
    """A class of the user's own: two outputs for two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 2)

    def forward(self, rows):
        return 2.0 * self.line(rows)


def layers():
    return nn.Sequential(
        nn.Linear(2, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Dropout(0.2), nn.Linear(4, 3, bias=False), nn.LayerNorm(3)
    )


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def scored(model, query, key):
    """Scores (Q, K) from the learned arrays alone."""
    p = {name: array.astype(np.float64) for name, array in model.parameters_.items()}

    def place(rows):
        z = (rows - model.mean_) / model.scale_
        if model.embed == "mlp":
            a = z
            for number in (0, 2, 4):
                a = a @ p[f"embed.net.{number}.weight"].T + p[f"embed.net.{number}.bias"]
                a = a / (1.0 + np.exp(-a)) if number < 4 else a
            z = np.hstack([z, a])
        return z

    q, k = place(query), place(key)
    if "score.log_w" in p:
        return -0.5 * ((np.exp(p["score.log_w"]) * (q[:, None] - k[None])) ** 2).sum(-1)
    if "score.W" in p:
        return q @ p["score.W"] @ k.T
    hidden = np.tanh((q @ p["score.W_q.weight"].T)[:, None] + (k @ p["score.W_k.weight"].T)[None])
    return hidden @ p["score.w_v.weight"][0]

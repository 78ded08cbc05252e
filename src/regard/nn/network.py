"""The network of ``AttentionRegressor``: an embedding of rows, and a score between embedded rows.

``network`` creates both, initialised; ``embedding`` rebuilds the first from learned arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.arrays import Array
from regard.nn.additive import AdditiveScore
from regard.nn.recipes import with_parameters
from regard.nn.score_layers import BilinearScore

# Rows embedded at once after learning.
_ROWS_PER_BLOCK = 1 << 16


class LogGaussian(nn.Module):
    """−½‖w∘(q − k)‖² with w = exp(log_w), by products instead of differences: O(Q·K) memory for every d.

    The term −½‖w∘q‖², common to all keys of a query, is left out, which does not change the softmax. In float32 this is
    accurate for keys up to ten thousand bandwidths apart: enough for learning, while predictions use
    ``regard.scores.Gaussian``.
    """

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.log_w = nn.Parameter(w.log())

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        w = self.log_w.exp()
        centre = keys.detach().mean(-2, keepdim=True)
        queries, keys = (queries - centre) * w, (keys - centre) * w
        with_one = torch.cat([queries, torch.ones_like(queries[..., :1])], -1)
        with_size = torch.cat([keys, -0.5 * keys.square().sum(-1, keepdim=True)], -1)
        return with_one @ with_size.transpose(-2, -1)  # q·k − ½‖k‖²


class FeaturesAndMlp(nn.Module):
    """The features, concatenated with the output of a network with two hidden layers.

    (n, features) → (n, features + embed_size). The features themselves keep distances in, say, geographic position
    exact; the network adds similarities that they do not express.
    """

    def __init__(self, features: int, hidden_size: int, embed_size: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, hidden_size),
            nn.SiLU(),
            nn.Linear(hidden_size, hidden_size),
            nn.SiLU(),
            nn.Linear(hidden_size, embed_size),
        )

    def forward(self, rows: Tensor) -> Tensor:
        return torch.cat([rows, self.net(rows)], -1)


def network(score: str, embed: Any, inputs: Tensor, hidden_size: int, embed_size: int) -> nn.ModuleDict:
    """Modules "embed" and "score" for inputs (n, d), in float32, initialised.

    A Gaussian starts at Scott's bandwidth of the embedded rows, a dot product at q·k/√r. A module given as ``embed``
    is copied with its parameters.
    """
    if embed is None:
        first: nn.Module = nn.Identity()
    elif embed == "mlp":
        first = FeaturesAndMlp(inputs.shape[1], hidden_size, embed_size)
    else:
        first = deepcopy(embed)
    first = first.float().to(inputs.device)
    with torch.no_grad():
        start = _embed(first, inputs)  # (n, r)
    r = start.shape[1]
    if score == "additive":
        second: nn.Module = AdditiveScore(r, r, hidden_size)
    elif score == "dot":
        second = BilinearScore(r, r)
        with torch.no_grad():
            second.W.copy_(torch.eye(r) / sqrt(r))
    else:
        # One w for all coordinates, so that those with a small initial variance have little influence at first.
        scale = float(start.var(0, unbiased=False).mean().sqrt()) or 1.0
        second = LogGaussian(torch.full((r,), len(start) ** (1.0 / (r + 4)) / scale))
    return nn.ModuleDict({"embed": first, "score": second.to(inputs.device)})


def embedding(embed: Any, learned: Mapping[str, Array]) -> nn.Module:
    """The learned embedding in float64, from its arrays; ``embed`` is the argument of ``network``."""
    if embed == "mlp":
        hidden_size, features = learned["net.0.weight"].shape
        with torch.device("meta"):
            module: nn.Module = FeaturesAndMlp(features, hidden_size, len(learned["net.4.weight"]))
    else:
        module = deepcopy(embed).cpu()
    return with_parameters(module, learned).double().eval()


def embedded(module: nn.Module, rows: Array) -> Array:
    """Embedded rows (n, r) of rows (n, d), in float64. *Cost*: that of the module, 65,536 rows at a time."""
    module.eval()
    with torch.no_grad():
        parts = [_embed(module, part) for part in torch.split(torch.tensor(rows, dtype=torch.float64), _ROWS_PER_BLOCK)]
    result = torch.cat(parts).numpy()
    if not np.isfinite(result).all():
        raise ValueError("embed must return finite numbers, got NaN or infinity")
    return np.asarray(result)


def _embed(module: nn.Module, rows: Tensor) -> Tensor:
    result = module(rows)
    if not isinstance(result, Tensor) or not result.is_floating_point() or result.shape[:-1] != rows.shape[:1]:
        got = f"{result.dtype} {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"embed must map rows (n, {rows.shape[1]}) to floats (n, r), got {got} for n={len(rows)}")
    return result

"""What a regressor by attention learns: an embedding, and a score between embedded rows.

``network`` makes both and says where learning starts; ``embedding`` makes the first again from learned arrays.
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
from regard.nn.recipes import weighed
from regard.nn.scores import BilinearScore

# Rows embedded at once after learning.
_ROWS = 1 << 16


class LogGaussian(nn.Module):
    """−½‖w∘(q − k)‖² with w = exp(log_w), by products instead of differences: O(Q·K) memory whatever d.

    What all keys of a query have in common is left out, which no softmax notices. In units of the bandwidth, keys ten
    thousand apart are the limit of float32 here: this is for learning, and ``regard.scores.Gaussian`` for answers.
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


class Beside(nn.Module):
    """The features themselves, and beside them what a network with two hidden layers makes of them.

    (n, features) → (n, features + embed_size). The features stay because a place that must be known to the street
    is no smooth function of anything; the network adds what is alike elsewhere.
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
    """Modules "embed" and "score" for inputs (n, d), in float32, at the start of learning.

    A Gaussian starts with Scott's bandwidth of the embedded rows, a dot product as q·k/√r. A module given as ``embed``
    is copied and starts as it is.
    """
    if embed is None:
        first: nn.Module = nn.Identity()
    elif embed == "mlp":
        first = Beside(inputs.shape[1], hidden_size, embed_size)
    else:
        first = deepcopy(embed)
    first = first.float().to(inputs.device)
    with torch.no_grad():
        place = _placed(first, inputs)  # (n, r)
    r = place.shape[1]
    if score == "additive":
        second: nn.Module = AdditiveScore(r, r, hidden_size)
    elif score == "dot":
        second = BilinearScore(r, r)
        with torch.no_grad():
            second.W.copy_(torch.eye(r) / sqrt(r))
    else:
        # One w for all, so that what starts small stays in the background until it has learned something.
        spread = float(place.var(0, unbiased=False).mean().sqrt()) or 1.0
        second = LogGaussian(torch.full((r,), len(place) ** (1.0 / (r + 4)) / spread))
    return nn.ModuleDict({"embed": first, "score": second.to(inputs.device)})


def embedding(embed: Any, learned: Mapping[str, Array]) -> nn.Module:
    """The learned embedding in float64, from its arrays; ``embed`` as ``network`` was given it."""
    if embed == "mlp":
        hidden_size, features = learned["net.0.weight"].shape
        with torch.device("meta"):
            module: nn.Module = Beside(features, hidden_size, len(learned["net.4.weight"]))
    else:
        module = deepcopy(embed).cpu()
    return weighed(module, learned).double().eval()


def embedded(module: nn.Module, rows: Array) -> Array:
    """Where an embedding puts rows (n, d): (n, r) in float64. *Cost*: that of the module, some 65,000 rows at once."""
    module.eval()
    with torch.no_grad():
        parts = [_placed(module, part) for part in torch.split(torch.tensor(rows, dtype=torch.float64), _ROWS)]
    place = torch.cat(parts).numpy()
    if not np.isfinite(place).all():
        raise ValueError("embed must give finite numbers, got NaN or infinity")
    return np.asarray(place)


def _placed(module: nn.Module, rows: Tensor) -> Tensor:
    place = module(rows)
    if not isinstance(place, Tensor) or not place.is_floating_point() or place.shape[:-1] != rows.shape[:1]:
        told = f"{place.dtype} {tuple(place.shape)}" if isinstance(place, Tensor) else type(place).__name__
        raise ValueError(f"embed must turn rows (n, {rows.shape[1]}) into floats (n, r), got {told} for n={len(rows)}")
    return place

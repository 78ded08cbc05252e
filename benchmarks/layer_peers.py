"""The layers of ``layers.py`` as a careful user of torch writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn import AdditiveScore, BilinearScore, ConcatenatedScore, DotProductScore, GaussianScore

# w of the Gaussian layers: with 64 features of unit variance some tens of keys matter to a query.
W = 0.3
SCORES: dict[str, Callable[[int, int], nn.Module]] = {
    "gaussian": lambda d, h: GaussianScore(W),  # noqa: ARG005
    "gaussian of features": lambda d, h: GaussianScore([W] * d),  # noqa: ARG005
    "dot": lambda d, h: DotProductScore(),  # noqa: ARG005
    "bilinear": lambda d, h: BilinearScore(d, d),  # noqa: ARG005
    "additive": lambda d, h: AdditiveScore(d, d, h),
    "concatenated": lambda d, h: ConcatenatedScore(d, d, h),
}
Result = Tensor | tuple[Tensor, Tensor]
# Queries, keys, values and the parameters of the layer in; the output, and the weights if they are asked for.
Formula = Callable[[Any, Tensor, Tensor, Tensor, float, bool], Result]


@dataclass(frozen=True)
class Peer:
    """One way to write a layer, and what it cannot do."""

    formula: Formula
    compiled: bool = False
    has_weights: bool = True
    has_dropout: bool = True
    only_cuda: bool = False

    def refuses(self, mode: str, device: str, compiler: bool) -> str:
        if mode == "weights" and not self.has_weights:
            return "returns no weights"
        if mode == "dropout" and not self.has_dropout:
            return "has no dropout"
        if self.only_cuda and device != "cuda":
            return "has a backward pass on CUDA only"
        return "no compiler" if self.compiled and not compiler else ""

    def made(self, layer: Any, dropout: float, weights: bool) -> Callable[..., Result]:
        def run(q: Tensor, k: Tensor, v: Tensor) -> Result:
            return self.formula(layer, q, k, v, dropout, weights)

        return torch.compile(run, dynamic=False) if self.compiled else run


def averaged(scores: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:
    alpha = torch.softmax(scores, -1)
    output = (F.dropout(alpha, dropout) if dropout else alpha) @ v
    return (output, alpha) if weights else output


def scaled(layer: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    w = layer.score.w if isinstance(layer.score.w, Tensor) else W
    return q * w, k * w


def by_cdist(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:
    q, k = scaled(layer, q, k)
    return averaged(-0.5 * torch.cdist(q, k).square(), v, dropout, weights)


def by_products(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:
    # ‖q‖² is left out: it changes no weight.
    q, k = scaled(layer, q, k)
    return averaged(torch.baddbmm(-0.5 * k.square().sum(-1)[:, None], q, k.mT), v, dropout, weights)


def by_sdpa_of_gaussian(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:  # noqa: ARG001
    q, k = scaled(layer, q, k)
    padding = -(q.shape[-1] + 1) % 8
    wide_q = F.pad(torch.cat([q, torch.ones_like(q[..., :1])], -1), (0, padding))
    wide_k = F.pad(torch.cat([k, -0.5 * k.square().sum(-1, keepdim=True)], -1), (0, padding))
    wide_v = F.pad(v, (0, padding + 1))
    output = F.scaled_dot_product_attention(
        wide_q[:, None], wide_k[:, None], wide_v[:, None], dropout_p=dropout, scale=1.0
    )
    return output[:, 0, :, : v.shape[-1]]


def by_flex_of_gaussian(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:  # noqa: ARG001
    from torch.nn.attention.flex_attention import flex_attention

    q, k = scaled(layer, q, k)
    size = 0.5 * k.square().sum(-1)

    def score(product: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:  # noqa: ARG001
        return product - size[b, j]

    output: Any = flex_attention(q[:, None], k[:, None], v[:, None], score_mod=score, scale=1.0)
    return output[:, 0]  # type: ignore[no-any-return]


def dot_by_softmax(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:  # noqa: ARG001
    return averaged(torch.bmm(q * q.shape[-1] ** -0.5, k.mT), v, dropout, weights)


def dot_by_sdpa(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:  # noqa: ARG001
    return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], dropout_p=dropout)[:, 0]


def dot_by_flex(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:  # noqa: ARG001
    from torch.nn.attention.flex_attention import flex_attention

    output: Any = flex_attention(q[:, None], k[:, None], v[:, None])
    return output[:, 0]  # type: ignore[no-any-return]


def bilinear_by_softmax(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:
    return averaged(torch.bmm(q, (k @ layer.score.W.T).mT), v, dropout, weights)


def bilinear_by_sdpa(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:  # noqa: ARG001
    k = k @ layer.score.W.T
    return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], dropout_p=dropout, scale=1.0)[:, 0]


def additive(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:
    s = layer.score
    if isinstance(s, ConcatenatedScore):
        left, right = s.W.weight[:, : q.shape[-1]], s.W.weight[:, q.shape[-1] :]
    else:
        left, right = s.W_q.weight, s.W_k.weight
    hidden = torch.tanh((q @ left.T)[:, :, None] + (k @ right.T)[:, None])
    return averaged(hidden @ s.w_v.weight[0], v, dropout, weights)


def heads_by_sdpa(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:
    def split(rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:-1], layer.heads, -1).transpose(1, 2)

    q, k, v = (split(W(x)) for W, x in ((layer.W_q, q), (layer.W_k, k), (layer.W_v, v)))
    if weights:
        found = averaged((q * q.shape[-1] ** -0.5) @ k.mT, v, dropout, True)
        return layer.W_o(found[0].transpose(1, 2).flatten(-2)), found[1]
    output = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    return layer.W_o(output.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


def heads_by_softmax(layer: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, weights: bool) -> Result:
    def split(rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:-1], layer.heads, -1).transpose(1, 2)

    q, k, v = (split(W(x)) for W, x in ((layer.W_q, q), (layer.W_k, k), (layer.W_v, v)))
    found = averaged((q * q.shape[-1] ** -0.5) @ k.mT, v, dropout, True)
    output = layer.W_o(found[0].transpose(1, 2).flatten(-2))
    return (output, found[1]) if weights else output


def products(formula: Formula) -> dict[str, Peer]:
    """Products in plain torch, and the same compiled."""
    return {"torch, products": Peer(formula), "torch.compile": Peer(formula, compiled=True)}


_GAUSSIAN = {
    "torch, cdist": Peer(by_cdist),
    **products(by_products),
    "SDPA": Peer(by_sdpa_of_gaussian, has_weights=False),
    "FlexAttention": Peer(by_flex_of_gaussian, compiled=True, has_weights=False, has_dropout=False, only_cuda=True),
}
_DOT = {
    **products(dot_by_softmax),
    "SDPA": Peer(dot_by_sdpa, has_weights=False),
    "FlexAttention": Peer(dot_by_flex, compiled=True, has_weights=False, has_dropout=False, only_cuda=True),
}
_ADDITIVE = products(additive)
PEERS: dict[str, dict[str, Peer]] = {
    "gaussian": _GAUSSIAN,
    "gaussian of features": _GAUSSIAN,
    "dot": _DOT,
    "bilinear": {**products(bilinear_by_softmax), "SDPA": Peer(bilinear_by_sdpa, has_weights=False)},
    "additive": _ADDITIVE,
    "concatenated": _ADDITIVE,
    "multi_head": {**products(heads_by_softmax), "SDPA": Peer(heads_by_sdpa, has_weights=False)},
    "pool gaussian": _GAUSSIAN,
    "pool dot": _DOT,
}

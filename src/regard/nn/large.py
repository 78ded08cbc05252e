"""Large problems: the fused programs, which never form (query, key), where the score is one that they know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from regard.core.scores import Additive, DotProduct, Gaussian, Score
from regard.nn.additive import AdditiveScore
from regard.nn.inputs import Inputs
from regard.nn.precision import full_precision, widened
from regard.nn.scores import BilinearScore, DotProductScore, GaussianScore, fits, same_width
from regard.tensors import planner, pooled
from regard.tensors.inputs import LAYER, batch_of
from regard.tensors.inputs import Inputs as Given


def fused(score: Callable[[Tensor, Tensor], Tensor], inputs: Inputs) -> Tensor | None:
    """The output (…, Q, P) without its (…, Q, K) weights; None where plain torch is the way.

    That is a score of another class, a small problem, or a mask that is learned.
    """
    known = _KNOWN.get(type(score))
    if known is None or planner.layer_is_dense(_numbers(score, inputs), inputs.mask):
        return None
    with full_precision(inputs.queries.device):
        queries, keys, plain = known(score, inputs.queries, inputs.keys)
        plain.check(queries.shape[-1], keys.shape[-1])
        batch = batch_of(LAYER, queries, keys, inputs.values)
        output, _ = pooled(Given(queries, keys, inputs.values, batch, inputs.mask), plain, look=True)
    return inputs.told(output)


def _numbers(score: Any, inputs: Inputs) -> int:
    pairs = inputs.queries.shape[:-1].numel() * inputs.keys.shape[-2]
    if isinstance(score, AdditiveScore):
        return pairs * score.w_v.in_features
    return pairs * (inputs.keys.shape[-1] if isinstance(score, GaussianScore) else 1)


def _gaussian(score: GaussianScore, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
    same_width(queries, keys)
    queries, keys, w = widened(queries, keys, score.w)
    return queries, keys, Gaussian(w)


def _dot_product(score: DotProductScore, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:  # noqa: ARG001
    same_width(queries, keys)
    return queries, keys, DotProduct(1.0)


def _bilinear(score: BilinearScore, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
    fits(queries, keys, *score.W.shape)
    queries, keys, W = widened(queries, keys, score.W)
    return queries, keys @ W.T, DotProduct(W.shape[0] ** 0.5)


def _additive(score: AdditiveScore, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Score]:
    fits(queries, keys, score.W_q.in_features, score.W_k.in_features)
    queries, keys, W_q, W_k, w_v = widened(queries, keys, score.W_q.weight, score.W_k.weight, score.w_v.weight)
    return queries, keys, Additive(W_q, W_k, w_v[0])


_KNOWN: dict[type, Callable[..., tuple[Tensor, Tensor, Score]]] = {
    AdditiveScore: _additive,
    BilinearScore: _bilinear,
    DotProductScore: _dot_product,
    GaussianScore: _gaussian,
}

"""Attention pooling of torch tensors, with gradients: ``fused_pool``, which ``regard.pool`` calls for tensors.

f(q) = Σᵢ softmaxᵢ(score(q, kᵢ)) vᵢ without ever forming the (query, key) matrix: output, peak and mass are kept, tiles
are computed again in the backward pass. Small problems are a few lines of plain torch instead.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.arrays import is_tensor
from regard.scores import Additive, DotProduct, Radial, Score
from regard.tensors.inputs import checked
from regard.tensors.plain import ADDITIVE, DOT, plain

Tensor = torch.Tensor

__all__ = ["fused_pool"]

# Numbers in the scores' intermediate results up to which plain torch is faster than waking the programs: 4 MB and, on
# a GPU, which wakes slower, 16 MB.
SMALL = 1 << 20
SMALL_ON_GPU = 1 << 22


def fused_pool(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Score,
    *,
    mask: Tensor | None = None,
    valid_lens: Tensor | None = None,
    bias: Tensor | None = None,
    exclude: tuple[Tensor, Tensor] | None = None,
    sample_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Weighted averages of the values, one per query, and the logarithm of their mass.

    output[q] = Σ_k softmax_k(score(query[q], key[k]) + bias[q, k] + log sample_weight[k]) value[k]

    Parameters
    ----------
    query : (…, Q, d), key : (…, K, d), value : (…, K, P), floating tensors on one device; batch shapes broadcast.
    score : a score of ``regard.scores`` but ``Nearest``; its parameters may be tensors, with gradients.
    mask : broadcasts to (…, Q, K); boolean, True = may attend, or floats to add to the scores (−inf = may not).
    valid_lens : integers (…,) or (…, Q); only the first so many keys may be attended to.
    bias : floats that broadcast to (…, Q, K), added to the scores; like a mask it takes no gradient.
    exclude : (query_labels (…, Q), key_labels (…, K)), integers; a pair with equal labels may not attend.
    sample_weight : (…, K), not negative; weight 0 is deletion.

    Returns
    -------
    output (…, Q, P) in the query's dtype and logsumexp (…, Q), in float32 at least: so are all sums.

    *Empty rows*: output 0, logsumexp −inf, gradients 0. *Cost*: O(Q·K·(d + P)) time, and about three times that more
    for the gradients; memory O((Q + K)·(d + P)).

    >>> from regard.scores import Gaussian
    >>> w = torch.tensor(1.0, requires_grad=True)
    >>> keys, values = torch.tensor([[-1.0], [1.0]]), torch.tensor([[2.0], [4.0]])
    >>> fused_pool(torch.tensor([[0.0]]), keys, values, Gaussian(w))[0].tolist()
    [[3.0]]
    """
    options = (mask, valid_lens, bias, exclude, sample_weight)
    if isinstance(score, DotProduct) and not is_tensor(score.w) and all(part is None for part in options):
        from regard.tensors.flash import flash_pool

        found = flash_pool(query, key, value, float(score.w))
        if found is not None:
            return found
    if bias is None and exclude is None and sample_weight is None:
        from regard.tensors.layer import layer_pool

        found = layer_pool(query, key, value, score, mask, valid_lens)
        if found is not None:
            return found
    given = checked(query, key, value, score, *options)
    q, k, w, code = _canonical(given.query, given.key, score)
    if _is_small(q, k, given.value, given.shape):
        output, logsumexp = plain(q, k, given.value, w, code, *given.who)
    else:
        from regard.tensors.route import run

        came_in = query.dtype if query.dtype == key.dtype == value.dtype else q.dtype
        output, logsumexp = run(q, k, w, code, given, came_in)
    if given.log_heaviest is not None:
        logsumexp = logsumexp + given.log_heaviest.to(logsumexp.dtype)
    output = output.reshape(*given.shape, *output.shape[1:]).to(query.dtype)
    return (output[..., 0] if value.ndim == 1 else output), logsumexp.reshape(*given.shape, logsumexp.shape[1])


def _canonical(query: Tensor, key: Tensor, score: Score) -> tuple[Tensor, Tensor, Tensor, int]:
    """Both sides, the one parameter and the code that the operators know."""

    def parameter(given: Any) -> Any:
        # A score's own arrays are read-only, and torch would warn of that.
        given = given if isinstance(given, Tensor) else torch.tensor(given.tolist(), dtype=torch.float64)
        return given.to(device=query.device, dtype=query.dtype)

    if isinstance(score, Additive):
        W_q, W_k, w_v = (parameter(part) for part in (score.W_q, score.W_k, score.w_v))
        return query @ W_q.T, key @ W_k.T, w_v, ADDITIVE
    assert isinstance(score, Radial | DotProduct)
    w = parameter(score.w)
    if isinstance(score, DotProduct):
        return query, key, w / max(query.shape[2], 1) ** 0.5, DOT
    if w.ndim == 2:
        # Seen from their middle, projections round least; what a mask hides must not move it.
        centre = torch.where(torch.isfinite(key), key, 0.0).detach().mean((0, 1))
        return (query - centre) @ w, (key - centre) @ w, query.new_ones(()), score.kernel.code
    return query, key, w, score.kernel.code


def _is_small(query: Tensor, key: Tensor, value: Tensor, shape: torch.Size) -> bool:
    pairs = shape.numel() * query.shape[1] * key.shape[1]
    few = SMALL_ON_GPU if query.is_cuda else SMALL
    return pairs == 0 or pairs * max(query.shape[2], value.shape[2]) <= few

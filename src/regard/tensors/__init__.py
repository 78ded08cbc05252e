"""Attention pooling of torch tensors, with gradients: ``pool_tensors``, which ``regard.pool`` calls for tensors.

f(q) = Σᵢ softmaxᵢ(score(q, kᵢ)) vᵢ, checked by ``inputs``, decided by ``planner``, and computed by plain torch, torch's
own attention, or programs that never form the (query, key) matrix: output, peak and mass are kept, tiles are computed
again in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.core.scores import Score
from regard.engines.gpu.lay import ADDITIVE, ADDITIVE_ALONE, DOT, DOT_ROWS, GAUSSIAN_ROWS, Batch
from regard.pooling.planner import Plan
from regard.tensors import ops, planner
from regard.tensors.flash import flash_pool
from regard.tensors.forms import canonical, far
from regard.tensors.inputs import Inputs, Laid, can_branch, checked, laid, require_finite
from regard.tensors.layer import layer_pool
from regard.tensors.plain import plain

Tensor = torch.Tensor

__all__ = ["explain_tensors", "fused_pool", "pool_tensors"]


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

    On CUDA the host never waits, so numbers are not checked: a query that may attend to NaN gets NaN, and one whose
    squared distances overflow gets no answer. ``pool_tensors`` checks first.

    *Empty rows*: output 0, logsumexp −inf, gradients 0. *Cost*: O(Q·K·(d + P)) time, and about three times that more
    for the gradients; memory O((Q + K)·(d + P)).

    >>> from regard.scores import Gaussian
    >>> w = torch.tensor(1.0, requires_grad=True)
    >>> keys, values = torch.tensor([[-1.0], [1.0]]), torch.tensor([[2.0], [4.0]])
    >>> fused_pool(torch.tensor([[0.0]]), keys, values, Gaussian(w))[0].tolist()
    [[3.0]]
    """
    given = checked(query, key, value, score, mask, valid_lens, bias, exclude, sample_weight)
    return _shaped(*pooled(given, score, look=not planner.on_programs(query)), value)


def pool_tensors(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Score,
    *,
    mask: Tensor | None = None,
    sample_weight: Tensor | None = None,
    exclude: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """As ``fused_pool``, but for any numbers: it waits for the device to check them, unless a graph is captured.

    What is not finite is an error as it is for arrays. Queries so far from the keys, or with so large a w, that the
    programs' scores would round to each other or overflow are answered in plain torch, block by block.
    """
    given = checked(query, key, value, score, mask, None, None, exclude, sample_weight, look=True)
    return _shaped(*pooled(given, score, look=True), value)


def explain_tensors(query: Tensor, key: Tensor, value: Tensor, score: Score, **options: Any) -> Plan:
    """How ``pool_tensors`` of the same arguments computes this, and why. *Cost*: that of checking the numbers."""
    given = checked(query, key, value, score, **options, look=True)
    way, members, flat = planner.choose(given, score), [], laid(given)
    require_finite(flat)
    it = canonical(flat, score)
    if way == "compiled":
        members = ops.plans(it)
    elif way == "products" and it.code != DOT and not planner.loses_little(it):
        way = "fused"
    return planner.explained(given, score, way, members)


def pooled(given: Inputs, score: Score, *, look: bool) -> tuple[Tensor, Tensor]:
    """output (…, Q, P) in the query's dtype and logsumexp (…, Q) of checked inputs, by the way the planner chooses.

    ``look``: numbers are examined first, where code may branch on them; what is not finite is an error then.
    """
    way, flat, it = planner.choose(given, score), None, None
    if look and can_branch(given.query):
        flat = laid(given)
        require_finite(flat)
        if planner.on_programs(given.query):
            it = canonical(flat, score)
            outside = far(it) if planner.may_be_far(it.code, way) else None
            if outside is not None and bool(outside.any()):
                return _reshaped(*_apart(it, outside, given), flat, given)
    if way in ("flash", "cudnn"):
        return flash_pool(*given[:3], float(score.w), way)  # type: ignore[attr-defined]
    if way == "layer":
        return layer_pool(given, score)
    flat = flat or laid(given)
    return _reshaped(*_run(way, it or canonical(flat, score), given), flat, given)


def _run(way: str, it: Batch, given: Inputs) -> tuple[Tensor, Tensor]:
    """output (B, Q, P) and logsumexp (B, Q) of rows that are laid out."""
    if way == "dense":
        return plain(it)
    if way == "products" and it.code == DOT:
        # Numbers that came in half precision are exact in it.
        dtype = given.query.dtype if len({part.dtype for part in given[:3]}) == 1 else it.query.dtype
        it = Batch(DOT_ROWS, it.query.to(dtype), it.key.to(dtype), it.value.to(dtype), it.w, it.who)
    elif way == "products" and planner.loses_little(it):
        it = it._replace(code=GAUSSIAN_ROWS)
    elif way == "fused" and it.code == ADDITIVE:
        pulled = torch.is_grad_enabled() and any(part.requires_grad for part in it[1:5])
        it = it if pulled else it._replace(code=ADDITIVE_ALONE)
    output, logsumexp, _ = ops.pool_op(*it[1:5], it.code, *it.who[:6])
    return output, logsumexp


def _apart(it: Batch, outside: Tensor, given: Inputs) -> tuple[Tensor, Tensor]:
    """The same where some queries (Q,) lie so far outside that plain torch answers them, block by block."""
    near, away, members = (~outside).nonzero()[:, 0], outside.nonzero()[:, 0], given.batch.numel()
    found = []
    if len(near):
        way = planner.of_rows(given, it.code, it.query.shape[2], members * len(near))
        found.append(_run(way, it.take(near), given))
    each = members * it.key.shape[1] * max(it.key.shape[2], it.value.shape[2])  # numbers that a query takes
    size = max(1, planner.SMALL["cuda"] // max(1, each))
    found += [plain(it.take(rows)) for rows in torch.split(away, size)]
    order = torch.cat([near, away]).argsort()
    output, logsumexp = (torch.cat(parts, 1)[:, order] for parts in zip(*found, strict=True))
    return output, logsumexp


def _reshaped(output: Tensor, logsumexp: Tensor, flat: Laid, given: Inputs) -> tuple[Tensor, Tensor]:
    """In the batch and dtype of the caller."""
    if flat.log_heaviest is not None:
        logsumexp = logsumexp + flat.log_heaviest.to(logsumexp.dtype)
    output = output.reshape(*given.batch, *output.shape[1:]).to(given.query.dtype)
    return output, logsumexp.reshape(*given.batch, logsumexp.shape[1])


def _shaped(output: Tensor, logsumexp: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Values of one axis have answers of one axis."""
    return (output[..., 0] if value.ndim == 1 else output), logsumexp

"""Attention pooling of torch tensors, with gradients: ``pool_tensors``, which ``regard.pool`` calls for tensors.

f(q) = Σᵢ softmaxᵢ(score(q, kᵢ)) vᵢ, validated by ``tensor_inputs``, planned by ``tensor_planner`` and computed by plain
torch, torch's own attention, or programs that never form the (query, key) matrix: output, peak and mass are saved, and
tiles are computed again in the backward pass.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from regard.core.kernels import GAUSSIAN
from regard.core.problem import checked_tol
from regard.core.scores import Score
from regard.engines.gpu.layout import (
    ADDITIVE,
    ADDITIVE_FORWARD_ONLY,
    DOT,
    DOT_PRODUCTS,
    GAUSSIAN_PRODUCTS,
    LoweredBatch,
    largest_batch,
)
from regard.engines.gpu.lowering import lower
from regard.pooling.planner import Plan
from regard.tensors import operators, tensor_planner
from regard.tensors.dense import dense_pool, dense_weights
from regard.tensors.flash import flash_pool
from regard.tensors.gaussian_products import gaussian_sides
from regard.tensors.layer_autograd import layer_pool
from regard.tensors.query_blocks import Dropout, block_pool
from regard.tensors.quick_pooling import quick_pool
from regard.tensors.tensor_inputs import (
    FlatInputs,
    TensorInputs,
    are_ordinary,
    can_branch,
    checked_inputs,
    flattened,
    require_finite,
)

Tensor = torch.Tensor

__all__ = ["explain_tensors", "fused_pool", "pool_tensors", "weights_of_tensors"]


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

    On CUDA the host never waits for the device, so numbers are not checked: a query that may attend to NaN gets NaN,
    and one whose squared distances overflow has no meaningful answer. ``pool_tensors`` checks first.

    *Empty rows*: output 0, logsumexp −inf, gradients 0. *Cost*: O(Q·K·(d + P)) time, and about three times that more
    for the gradients; memory O((Q + K)·(d + P)).

    >>> from regard.scores import Gaussian
    >>> w = torch.tensor(1.0, requires_grad=True)
    >>> keys, values = torch.tensor([[-1.0], [1.0]]), torch.tensor([[2.0], [4.0]])
    >>> fused_pool(torch.tensor([[0.0]]), keys, values, Gaussian(w))[0].tolist()
    [[3.0]]
    """
    given = checked_inputs(query, key, value, score, mask, valid_lens, bias, exclude, sample_weight)
    return _shaped(*pool_inputs(given, score, check_numbers=not tensor_planner.on_programs(query)), value)


def pool_tensors(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Score,
    *,
    mask: Tensor | None = None,
    sample_weight: Tensor | None = None,
    exclude: tuple[Tensor, Tensor] | None = None,
    tol: float | None = None,
) -> tuple[Tensor, Tensor]:
    """As ``fused_pool``, for any finite numbers: it waits for the device to check them, unless a graph is captured.

    Numbers that are not finite are an error, as for arrays. Queries so far from the keys, or with so large a w, that
    the programs' scores would round to each other or overflow are computed in plain torch, block by block.

    ``tol`` is the share of its attention mass that a query may lose, by default 0. The engines of a CPU use it to skip
    pairs; everything else is exact to rounding at any ``tol``.
    """
    share = checked_tol(tol, default=0.0)
    if mask is None and sample_weight is None and exclude is None and _is_quick(query, key, value):
        found = quick_pool(query, key, value, score)
        if found is not None:
            return found
    given = checked_inputs(query, key, value, score, mask, None, None, exclude, sample_weight, check_numbers=True)
    return _shaped(*pool_inputs(given._replace(tol=share), score, check_numbers=True), value)


def weights_of_tensors(
    query: Tensor,
    key: Tensor,
    score: Score,
    *,
    mask: Tensor | None = None,
    sample_weight: Tensor | None = None,
    exclude: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The weights (…, Q, K) in the query's dtype, with gradients; arguments as in ``pool_tensors``.

    *Empty rows*: zeros. *Cost*: O(Q·K·d) time; O(Q·K) memory, O(Q·K·d) where scores are taken by differences.
    """
    no_values = torch.as_tensor(key).new_empty(*key.shape[: max(1, key.ndim - 1)], 0)
    given = checked_inputs(query, key, no_values, score, mask, None, None, exclude, sample_weight, check_numbers=True)
    flat, checked = flattened(given), can_branch(query, key)
    if checked:
        require_finite(flat)
    it = lower(*flat[:3], score, flat.visibility._replace(finite=checked))
    weights, _ = dense_weights(it)
    weights = weights.expand(prod(given.batch), -1, -1)
    return weights.reshape(*given.batch, *weights.shape[1:]).to(query.dtype)


def explain_tensors(
    query: Tensor, key: Tensor, value: Tensor, score: Score, *, tol: float | None = None, **options: Any
) -> Plan:
    """How ``pool_tensors`` of the same arguments computes this, and why. *Cost*: that of checking the numbers."""
    given = checked_inputs(query, key, value, score, **options, check_numbers=True)
    given = given._replace(tol=checked_tol(tol, default=0.0))
    path, members, flat = tensor_planner.choose(given, score), [], flattened(given)
    require_finite(flat)
    it = lower(*flat[:3], score, flat.visibility)
    if path in ("blocks", "dense") and _needs_differences(it):
        path = tensor_planner.choose(given, score, by_products=False)
    if path == "compiled":
        members = operators.plans(it, given.tol)
    elif path == "products" and it.code != DOT and not tensor_planner.products_are_accurate(it):
        path = "fused"
    return tensor_planner.explained(given, score, path, members)


def pool_inputs(
    given: TensorInputs, score: Score, *, check_numbers: bool, finite: bool = False, need_logsumexp: bool = True
) -> tuple[Tensor, Tensor | None]:
    """output (…, Q, P) in the query's dtype and logsumexp (…, Q) of validated inputs, by the path the planner chooses.

    ``check_numbers``: numbers are checked first, if code may branch on them, and must be finite then. ``finite``: it is
    known that they are. Without ``need_logsumexp`` it may be None, where it would cost something.
    """
    path, flat, it = tensor_planner.choose(given, score), None, None
    check_numbers = check_numbers and can_branch(*given[:3])
    if check_numbers or not tensor_planner.on_programs(given.query):
        flat = flattened(given)
        if check_numbers and not finite:
            require_finite(flat)
        # The programs see to what is not finite themselves; a projection of finite numbers may overflow.
        known = (finite or check_numbers) and not tensor_planner.on_programs(given.query)
        it = lower(*flat[:3], score, flat.visibility._replace(finite=known))
        if path == "blocks":
            found = block_pool(it, need_logsumexp=need_logsumexp)
            if found is not None:
                return _reshaped(*found, flat, given)
        if path == "blocks" or (path == "dense" and _needs_differences(it)):
            path = tensor_planner.choose(given, score, by_products=False)
        if check_numbers and tensor_planner.may_be_far(it.code, path):
            far = tensor_planner.far_queries(it)
            if bool(far.any()):
                return _reshaped(*_pool_with_far(it, far, given), flat, given)
    if path in ("flash", "cudnn"):
        return flash_pool(*given[:3], float(score.w), path)  # type: ignore[attr-defined]
    if path == "layer":
        return layer_pool(given, score)
    flat = flat or flattened(given)
    return _reshaped(*_pool_flat(path, it or lower(*flat[:3], score, flat.visibility), given), flat, given)


def pool_with_dropout(given: TensorInputs, score: Score, probability: float) -> Tensor | None:
    """output (…, Q, P) of validated, finite inputs, or None unless products of matrices compute the score accurately.

    Each weight is set to zero with this probability, and the others are scaled up to compensate.

    *Cost*: O(Q·K·(d + P)) time; memory O((Q + K)·(d + P)) and that of a block.
    """
    flat = flattened(given)
    found = block_pool(
        lower(*flat[:3], score, flat.visibility._replace(finite=True)), Dropout.drawn(probability), need_logsumexp=False
    )
    return None if found is None else _reshaped(*found, flat, given)[0]


def _pool_flat(path: str, it: LoweredBatch, given: TensorInputs) -> tuple[Tensor, Tensor]:
    """output (B, Q, P) and logsumexp (B, Q) of a lowered batch."""
    if path == "dense":
        return dense_pool(it)
    if path == "products" and it.code == DOT:
        # Numbers that came in half precision are exact in it.
        dtype = given.query.dtype if len({part.dtype for part in given[:3]}) == 1 else it.query.dtype
        query, key, value = (part.to(dtype) for part in it[1:4])
        it = it._replace(code=DOT_PRODUCTS, query=query, key=key, value=value)
    elif path == "products" and tensor_planner.products_are_accurate(it):
        it = it._replace(code=GAUSSIAN_PRODUCTS)
    elif path == "fused" and it.code == ADDITIVE:
        differentiated = torch.is_grad_enabled() and any(part.requires_grad for part in it[1:5])
        it = it if differentiated else it._replace(code=ADDITIVE_FORWARD_ONLY)
    output, logsumexp, _ = operators.pool_op(*it[1:5], it.code, *it.visibility[:6], given.tol)
    return output, logsumexp


def _pool_with_far(it: LoweredBatch, far: Tensor, given: TensorInputs) -> tuple[Tensor, Tensor]:
    """The same if some queries (Q,) are so far from the keys that plain torch computes them, block by block."""
    near, away, members = (~far).nonzero()[:, 0], far.nonzero()[:, 0], prod(given.batch)
    found = []
    if len(near):
        queries = members * len(near)
        path = tensor_planner.path_of_rows(given, it.code, it.query.shape[2], queries, by_products=False)
        found.append(_pool_flat(path, it.take(near), given))
    each = members * it.key.shape[1] * max(it.key.shape[2], it.value.shape[2])  # numbers that a query takes
    size = max(1, tensor_planner.MAX_DENSE["cuda"] // max(1, each))
    found += [dense_pool(it.take(rows)) for rows in torch.split(away, size)]
    order = torch.cat([near, away]).argsort()
    output, logsumexp = (torch.cat(parts, 1)[:, order] for parts in zip(*found, strict=True))
    return output, logsumexp


def _needs_differences(it: LoweredBatch) -> bool:
    """Whether this Gaussian problem takes differences, and so many that engines may be faster than plain torch."""
    if it.code != GAUSSIAN or not can_branch(*it[1:3]):
        return False
    numbers = largest_batch(*it[1:3]) * it.query.shape[1] * it.key.shape[1] * it.key.shape[2]
    return numbers > tensor_planner.MAX_DENSE["cpu"] and gaussian_sides(*it[1:3], it.w) is None


def _reshaped(
    output: Tensor, logsumexp: Tensor | None, flat: FlatInputs, given: TensorInputs
) -> tuple[Tensor, Tensor | None]:
    """In the batch and dtype of the caller."""
    output = output.reshape(*given.batch, *output.shape[1:]).to(given.query.dtype)
    if logsumexp is None:
        return output, None
    if flat.log_heaviest is not None:
        logsumexp = logsumexp + flat.log_heaviest.to(logsumexp.dtype)
    return output, logsumexp.reshape(*given.batch, logsumexp.shape[1])


def _is_quick(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether these are tensors (B, rows, features) that ``quick_pool`` takes; their numbers cannot be too large."""
    fits = are_ordinary(query, key, value) and query.ndim == 3 and query.dtype is torch.float32
    return fits and not tensor_planner.on_programs(query)


def _shaped(output: Tensor, logsumexp: Tensor | None, value: Tensor) -> tuple[Tensor, Tensor]:
    """Values of one axis have outputs of one axis."""
    assert logsumexp is not None
    return (output[..., 0] if value.ndim == 1 else output), logsumexp

"""Attention pooling of torch tensors, with gradients: ``pool_tensors``, which ``regard.pool`` calls for tensors.

f(q) = Σᵢ softmaxᵢ(score(q, kᵢ)) vᵢ without ever forming the (query, key) matrix: output, peak and mass are kept, tiles
are computed again in the backward pass. Small problems are a few lines of plain torch instead.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.core.arrays import is_tensor
from regard.core.scores import Additive, DotProduct, Radial, Score
from regard.tensors.decay import can_branch, shifted
from regard.tensors.inputs import Inputs, checked, require_finite
from regard.tensors.plain import ADDITIVE, DOT, GAUSSIAN, LAPLACE, plain

Tensor = torch.Tensor

__all__ = ["fused_pool", "pool_tensors"]

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
    from regard.tensors.ops import on_programs

    given = checked(query, key, value, score, *options)
    if not on_programs(query) and can_branch(query):
        require_finite(given)
    came_in = query.dtype if query.dtype == key.dtype == value.dtype else given.query.dtype
    return _shaped(*_run(given, *_canonical(given.query, given.key, score), came_in), given, query, value)


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
    from regard.tensors.ops import on_programs

    options = {"mask": mask, "exclude": exclude, "sample_weight": sample_weight}
    if not (is_tensor(query) and on_programs(query) and can_branch(query)):
        return fused_pool(query, key, value, score, **options)  # type: ignore[arg-type]
    given = checked(query, key, value, score, mask, None, None, exclude, sample_weight)
    require_finite(given)
    q, k, w, code = _canonical(given.query, given.key, score)
    far = _far(q.detach(), k.detach(), w.detach()) if code in (GAUSSIAN, LAPLACE) and k.shape[1] else None
    if far is None or not bool(far.any()):
        return fused_pool(query, key, value, score, **options)  # type: ignore[arg-type]
    near, outside = (~far).nonzero()[:, 0], far.nonzero()[:, 0]
    found = []
    if len(near):
        found.append(_run(given.take(near), q[:, near], k, w, code, q.dtype))
    size = max(1, SMALL_ON_GPU // max(1, given.shape.numel() * k.shape[1] * max(k.shape[2], value.shape[-1])))
    found += [plain(q[:, rows], k, given.value, w, code, *given.take(rows).who) for rows in torch.split(outside, size)]
    order = torch.cat([near, outside]).argsort()
    output, logsumexp = (torch.cat(parts, 1)[:, order] for parts in zip(*found, strict=True))
    return _shaped(output, logsumexp, given, query, value)


def _run(given: Inputs, q: Tensor, k: Tensor, w: Tensor, code: int, came_in: torch.dtype) -> tuple[Tensor, Tensor]:
    """output (B, Q, P) and logsumexp (B, Q) by plain torch or programs; ``came_in`` is the dtype of the tensors."""
    if _is_small(q, k, given.value, given.shape):
        return plain(q, k, given.value, w, code, *given.who)
    from regard.tensors.route import run

    return run(q, k, w, code, given, came_in)


def _shaped(output: Tensor, logsumexp: Tensor, given: Inputs, query: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """In the shapes and dtypes of the caller."""
    if given.log_heaviest is not None:
        logsumexp = logsumexp + given.log_heaviest.to(logsumexp.dtype)
    output = output.reshape(*given.shape, *output.shape[1:]).to(query.dtype)
    return (output[..., 0] if value.ndim == 1 else output), logsumexp.reshape(*given.shape, logsumexp.shape[1])


def _far(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    """Queries (Q,) for which the programs' squares of distances, or of w, may round to each other or overflow."""
    limits = torch.finfo(query.dtype)
    low, high = key.amin(1, keepdim=True), key.amax(1, keepdim=True)
    nearest, farthest = (
        (low - query).clamp(min=0.0) + (query - high).clamp(min=0.0),
        torch.maximum(high - query, query - low),
    )
    near, far = (((part * w) ** 2).sum(2) for part in (nearest, farthest))  # (B, Q)
    size = w.abs()
    extreme = ((size > 0.0) & ~((size > limits.tiny**0.48) & (size < limits.max**0.48))).any()
    ordinary: Tensor = (near <= 1.0 / limits.eps) & (far <= limits.max**0.96)
    return torch.any(~ordinary | extreme, 0)


def _canonical(query: Tensor, key: Tensor, score: Score) -> tuple[Tensor, Tensor, Tensor, int]:
    """Both sides, the one parameter and the code that the operators know."""

    def parameter(given: Any) -> Any:
        limits = torch.finfo(query.dtype)
        if isinstance(given, Tensor):
            return given.to(device=query.device, dtype=query.dtype).clamp(limits.min, limits.max)
        within = given.clip(limits.min, limits.max)
        # A number is filled in, not copied: a graph that is being captured cannot wait for the host.
        made: dict[str, Any] = {"dtype": query.dtype, "device": query.device}
        return torch.tensor(within.tolist(), **made) if given.ndim else torch.full((), float(within), **made)

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
        # A power of two stays outside: products of numbers and a large w would overflow.
        power = torch.frexp(w.detach().abs().amax() if w.numel() else w.new_zeros(())).exponent
        w = shifted(w, -power)
        return (query - centre) @ w, (key - centre) @ w, shifted(query.new_ones(()), power), score.kernel.code
    return query, key, w, score.kernel.code


def _is_small(query: Tensor, key: Tensor, value: Tensor, shape: torch.Size) -> bool:
    pairs = shape.numel() * query.shape[1] * key.shape[1]
    few = SMALL_ON_GPU if query.is_cuda else SMALL
    return pairs == 0 or pairs * max(query.shape[2], value.shape[2]) <= few

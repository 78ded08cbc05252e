"""Two torch operators, ``regard::pool`` and ``regard::pool_backward``: opaque to autograd and to torch.compile.

On CUDA they launch the Triton programs, on a CPU the compiled programs of the tiled and pruned engines. Saved for the
backward pass: inputs, output, and peak and mass of every query. Second derivatives are computed in plain torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from regard.core.kernels import GAUSSIAN
from regard.core.problem import Problem, build, mean_adjoint
from regard.core.scores import RADIAL, Additive, DotProduct, Nearest, Score
from regard.core.state import Partial, finish
from regard.engines.gpu.batch_passes import backward_batch, forward_batch
from regard.engines.gpu.launch import ForwardResult
from regard.engines.gpu.layout import (
    ADDITIVE,
    ADDITIVE_FORWARD_ONLY,
    DOT,
    DOT_PRODUCTS,
    GAUSSIAN_PRODUCTS,
    LoweredBatch,
    Tensor,
    Visibility,
    largest_batch,
)
from regard.pooling.planner import Plan, plan
from regard.pooling.runner import available_threads, run_moments, run_pullback
from regard.tensors import tensor_planner
from regard.tensors.dense import dense_again
from regard.tensors.second_derivatives import differentiable_again

_SIDES = "Tensor query, Tensor key, Tensor value, Tensor w, int code, "
_VISIBILITY = "Tensor? mask, Tensor? bias, Tensor? lens, Tensor? query_labels, Tensor? key_labels, Tensor? log_weight"
_NAMES = ("query", "key", "value", "w")
# Codes that say how a score is computed, and those of the same scores in plain torch.
UNLOWERED = {DOT_PRODUCTS: DOT, GAUSSIAN_PRODUCTS: GAUSSIAN, ADDITIVE_FORWARD_ONLY: ADDITIVE}
_KERNELS = {score.kernel.code: score for score in RADIAL.values()}


def _real(query: Tensor) -> torch.dtype:
    return torch.promote_types(query.dtype, torch.float32)


def _state_dtype(query: Tensor) -> torch.dtype:
    """The compiled programs of a CPU keep peak and mass in float64, whatever they compute in."""
    return _real(query) if tensor_planner.on_programs(query) else torch.float64


@torch.library.custom_op(
    "regard::pool", mutates_args=(), schema=f"({_SIDES}{_VISIBILITY}, float tol) -> (Tensor, Tensor, Tensor)"
)
def pool_op(query: Tensor, key: Tensor, value: Tensor, w: Tensor, code: int, *rest: Any) -> Any:
    """output (B, Q, P), logsumexp (B, Q) and state (B, 2, Q): peak and mass of every query.

    query (B, Q, d), key (B, K, d), value (B, K, P), of one dtype, float32 or float64, or half for dot products by rows;
    a batch of 1 is shared. w and code as in ``engines.gpu.layout``. Output is float32 at least.
    """
    *visibility, tol = rest
    it = LoweredBatch(code, query, key, value, w, Visibility(*visibility))
    if tensor_planner.on_programs(query):
        found = forward_batch(it)
        return found.output, found.logsumexp, found.state[:, :, : query.shape[1]].contiguous()
    return _forward_numpy(it, tol)


@pool_op.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, w: Tensor, code: int, *rest: Any) -> Any:  # noqa: ARG001
    batch = largest_batch(query, key, value, *rest[:-1])
    return (
        query.new_empty(batch, query.shape[1], value.shape[2], dtype=_real(query)),
        query.new_empty(batch, query.shape[1], dtype=_real(query)),
        query.new_empty(batch, 2, query.shape[1], dtype=_state_dtype(query)),
    )


@torch.library.custom_op(
    "regard::pool_backward",
    mutates_args=(),
    schema=f"({_SIDES}{_VISIBILITY}, Tensor output, Tensor state, Tensor grad_output, Tensor grad_logsumexp, "
    "float tol, bool[] want) -> (Tensor, Tensor, Tensor, Tensor)",
)
def pool_backward_op(query: Tensor, key: Tensor, value: Tensor, w: Tensor, code: int, *rest: Any) -> Any:
    """Gradients of query, key, value and w; empty where not wanted."""
    *visibility, output, state, grad_output, grad_logsumexp, tol, want = rest
    names = frozenset(name for name, wanted in zip(_NAMES, want, strict=True) if wanted)
    it = LoweredBatch(code, query, key, value, w, Visibility(*visibility))
    if tensor_planner.on_programs(query):
        found = ForwardResult(output, grad_logsumexp, state)
        grads = backward_batch(it, found, grad_output, grad_logsumexp, names)
    else:
        grads = _backward_numpy(it, output, state, grad_output, grad_logsumexp, names, tol)
    sizes = dict(zip(_NAMES, (query, key, value, w), strict=True))
    return tuple(
        grads[n].to(sizes[n].dtype).reshape(sizes[n].shape).contiguous() if n in names else sizes[n].new_empty(0)
        for n in _NAMES
    )


@pool_backward_op.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, w: Tensor, code: int, *rest: Any) -> Any:  # noqa: ARG001
    given = (query, key, value, w)
    return tuple(x.new_empty(x.shape if want else 0) for x, want in zip(given, rest[-1], strict=True))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    query, key, value, w, ctx.code, *visibility, ctx.tol = inputs
    ctx.save_for_backward(query, key, value, w, *visibility, output[0], output[2])


def _backward(ctx: Any, grad_output: Tensor, grad_logsumexp: Tensor, _: Tensor) -> tuple[Any, ...]:
    query, key, value, w, *visibility, output, state = ctx.saved_tensors
    want = list(ctx.needs_input_grad[:4])
    sides, cotangents = (query, key, value, w), (grad_output.contiguous(), grad_logsumexp.contiguous())
    with torch.no_grad():
        grads = pool_backward_op(*sides, ctx.code, *visibility, output, state, *cotangents, ctx.tol, want)
    found = [grad if wanted else None for grad, wanted in zip(grads, want, strict=True)]
    code = UNLOWERED.get(ctx.code, ctx.code)

    def plain(query: Tensor, key: Tensor, value: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return dense_again(LoweredBatch(code, query, key, value, w, Visibility(*visibility)))

    return (*differentiable_again(found, plain, sides, cotangents), *[None] * 8)


pool_op.register_autograd(_backward, setup_context=_setup)


# ---- on a CPU, one member of the batch after another


def _problems(it: LoweredBatch, tol: float) -> Iterator[Problem]:
    """Every member of a batch as a problem of the engines."""
    w = it.w.detach().numpy()
    score: Score
    if it.code == DOT:
        score = DotProduct(w * np.sqrt(max(it.query.shape[2], 1)))
    elif it.code == ADDITIVE:
        score = Additive(np.eye(len(w)), np.eye(len(w)), w)
    else:
        score = _KERNELS[it.code](w)
    parts: tuple[Any, ...] = (*it[1:4], *it.visibility[:6])
    for b in range(largest_batch(*parts)):
        arrays: list[Any] = [None if part is None else _member(part.detach(), b).numpy() for part in parts]
        query, key, value, mask, bias, lens, query_labels, key_labels, log_weight = arrays
        if lens is not None:
            valid = np.arange(len(key)) < lens[:, None]
            mask = valid if mask is None else mask & valid
        if bias is not None:
            mask = bias if mask is None else np.where(mask, bias, -np.inf)
        weight = None if log_weight is None else np.exp(log_weight)
        exclude = None if query_labels is None or key_labels is None else (query_labels, key_labels)
        yield build(query, key, value, score, mask=mask, sample_weight=weight, exclude=exclude, tol=tol)


def plans(it: LoweredBatch, tol: float) -> list[Plan]:
    """How ``regard::pool`` computes every member of a batch on a CPU."""
    return [plan(problem.sketch(), "auto", available_threads()) for problem in _problems(it, tol)]


def _forward_numpy(it: LoweredBatch, tol: float) -> Any:
    found, lowest = [], torch.finfo(it.query.dtype).min
    for problem in _problems(it, tol):
        partial, limit = run_moments(problem, "auto")
        output, logsumexp = finish(partial)
        # A limit depends on its values alone: it is marked by a negative mass.
        mass = np.where(limit, -partial.mass, partial.mass)
        state = np.stack([np.where(partial.mass > 0.0, partial.peak, 0.0), mass])
        clipped = np.where(logsumexp > -np.inf, np.maximum(logsumexp + problem.weight_shift, lowest), -np.inf)
        found.append((output, np.where(limit, lowest, clipped), state))
    averages, logs, states = (torch.from_numpy(np.stack(part)) for part in zip(*found, strict=True))
    return averages.to(it.query.dtype), logs.to(it.query.dtype), states


def _backward_numpy(
    it: LoweredBatch,
    output: Tensor,
    state: Tensor,
    grad_output: Tensor,
    grad_logsumexp: Tensor,
    want: frozenset[str],
    tol: float,
) -> dict[str, Tensor]:
    total = {name: np.zeros(getattr(it, name).shape) for name in want}
    w, root = it.w.numpy(), np.sqrt(max(it.query.shape[2], 1))
    for b, problem in enumerate(_problems(it, tol)):
        mean, grad_mean, grad_log = (part[b].numpy() for part in (output, grad_output, grad_logsumexp))
        peak, mass = state[b].numpy().astype(np.float64)
        rows, keys = np.flatnonzero(mass > 0.0), slice(None) if problem.used_keys is None else problem.used_keys
        partial = Partial(np.where(mass > 0.0, peak, -np.inf)[rows], mass[rows], mean.astype(np.float64)[rows])
        adjoint = mean_adjoint(partial, mean[rows], grad_mean[rows], grad_log[rows])
        found = run_pullback(problem.take(rows), "auto", partial, adjoint, want)
        for name in want:
            grad = getattr(found, name)
            if name == "w":
                # Radial scores take |w|, dot products divide by the root of d.
                total["w"] += grad[2] if it.code == ADDITIVE else grad * (root if it.code == DOT else np.sign(w))
            else:
                _member(total[name], b)[rows if name == "query" else keys] += grad
        limit = np.flatnonzero(mass < 0.0)
        if "value" in want and limit.size:
            hard = replace(problem.take(limit), score=Nearest(w))
            partial = run_moments(hard, "auto").partial
            adjoint = mean_adjoint(partial, mean[limit], grad_mean[limit])
            _member(total["value"], b)[keys] += run_pullback(hard, "auto", partial, adjoint, frozenset({"value"})).value
    return {name: _clipped_to(torch.from_numpy(grad), getattr(it, name).dtype) for name, grad in total.items()}


def _member(part: Any, b: int) -> Any:
    """One member of a batch, or what all share."""
    return part[b if part.shape[0] > 1 else 0]


def _clipped_to(grad: Tensor, dtype: torch.dtype) -> Tensor:
    """In a dtype of smaller range, clipped to its largest number."""
    return grad.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype)

"""A problem placed on the device: its tensors, lowered for the Triton programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from regard.core.arrays import is_tensor
from regard.core.problem import Problem
from regard.core.scores import Additive, Radial, Score
from regard.engines.gpu.batch_passes import omitted_constant
from regard.engines.gpu.layout import LoweredBatch, Tensor, TileScore, Visibility, tile_score
from regard.engines.gpu.lowering import centre_of, lower


def device() -> torch.device:
    """Where the programs run."""
    if not torch.cuda.is_available():
        raise RuntimeError(
            "engine 'fused' needs a CUDA device, but torch.cuda.is_available() is False; use engine='tiled', or "
            "set_params(device='cpu') on an estimator"
        )
    return torch.device("cuda")


class PlacedProblem(NamedTuple):
    """A problem as tensors on the device."""

    query: Tensor  # (Q, d)
    key: Tensor  # (K, d)
    parameters: tuple[Tensor, ...]  # of the score, float64
    batch: LoweredBatch  # of one
    score: TileScore
    constant: float  # what the programs leave out of every score

    @property
    def is_single(self) -> bool:
        return self.query.dtype == torch.float32

    def put(self, array: Any) -> Tensor:
        return _put(array, self.query.dtype)


# Kept as long as a problem exists: its gradients are computed after its moments.
_PLACED: WeakKeyDictionary[Problem, PlacedProblem] = WeakKeyDictionary()


def placed_once(problem: Problem) -> PlacedProblem:
    """The problem on the device, in the precision that it needs."""
    placed = _PLACED.get(problem)
    if placed is None:
        placed = _PLACED[problem] = place(as_double(problem) if _needs_double(problem) else problem)
    return placed


def _needs_double(problem: Problem) -> bool:
    """Whether it takes float64: products with δ, which cancel in a fit, and a w beyond the range of float32."""
    if problem.degree or not isinstance(problem.score, Radial):
        return problem.degree > 0
    w = np.abs(problem.score.w[problem.score.w != 0.0])
    return not ((w > 1e-18) & (w < 1e18)).all()


def as_double(problem: Problem) -> Problem:
    cast = {name: getattr(problem, name).astype(np.float64) for name in ("query", "key", "columns")}
    return replace(problem, **cast)


def _put(array: Any, dtype: torch.dtype) -> Tensor:
    return torch.as_tensor(array if is_tensor(array) else np.array(array), dtype=dtype, device=device())


def place(problem: Problem) -> PlacedProblem:
    """Tensors in the problem's own precision."""
    score, dtype = problem.score, torch.float64 if problem.query.dtype == np.float64 else torch.float32
    query, key = _put(problem.query, dtype), _put(problem.key, dtype)
    bias = mask = delta = None
    labels: tuple[Tensor | None, Tensor | None] = (None, None)
    if problem.mask is not None and problem.mask.dtype == bool:
        mask = torch.tensor(problem.mask[None], device=device())
    elif problem.mask is not None:
        bias = _put(problem.mask[None], dtype)
    if problem.exclude is not None:
        labels = tuple(torch.tensor(part[None], device=device()) for part in problem.exclude)  # type: ignore[assignment]
    log_weight = None if problem.log_weight is None else _put(problem.log_weight[None], dtype)
    visibility = Visibility(mask, bias, None, *labels, log_weight, finite=True)
    arrays = (score.W_q, score.W_k, score.w_v) if isinstance(score, Additive) else (score.w,)  # type: ignore[attr-defined]
    parameters = tuple(_put(array, torch.float64) for array in arrays)
    value = _put(problem.columns[None], dtype)
    batch = lower(query[None], key[None], value, type(score)(*parameters), visibility)
    if isinstance(score, Radial) and score.w.ndim == 2:
        centre = centre_of(key[None])
        delta = (query - centre)[None], (key - centre)[None]
    tiles = replace(tile_score(batch.code, batch.query, batch.key, batch.w), delta=delta)
    return PlacedProblem(query, key, parameters, batch, tiles, float(omitted_constant(tiles, batch.w)))


def through_lowering(
    placed: PlacedProblem,
    score: Score,
    want: frozenset[str],
    gradients: Callable[[frozenset[str]], dict[str, Tensor]],
) -> dict[str, Any]:
    """Gradients w.r.t. queries, keys, values and the score's parameters, by autograd through the lowering.

    ``gradients`` computes those of the lowered batch, given the names of its parts.
    """
    leaves = {"query": (placed.query,), "key": (placed.key,), "w": placed.parameters}
    leaves = {name: tuple(x.detach().requires_grad_(name in want) for x in parts) for name, parts in leaves.items()}
    (query,), (key,), parameters = leaves.values()
    with torch.enable_grad():
        value, visibility = placed.batch.value, placed.batch.visibility
        batch = lower(query[None], key[None], value, type(score)(*parameters), visibility)
    outputs = {name: part for name in ("query", "key", "w") if (part := getattr(batch, name)).requires_grad}
    found = gradients(frozenset(outputs) | (want & {"value"}))
    out: dict[str, Any] = {name: found[name][0] for name in want & {"value"}}
    inputs = [leaf for name in sorted(want & set(leaves)) for leaf in leaves[name]]
    if inputs:
        cotangents = [found[name].to(part.dtype).reshape(part.shape) for name, part in outputs.items()]
        grads = iter(torch.autograd.grad(list(outputs.values()), inputs, cotangents, materialize_grads=True))
        for name in sorted(want & set(leaves)):
            parts = tuple(next(grads) for _ in leaves[name])
            out[name] = parts if isinstance(score, Additive) and name == "w" else parts[0]
    return out

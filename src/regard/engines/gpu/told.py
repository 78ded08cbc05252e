"""A problem as the Triton programs are told it: tensors on the device, and the chain rule behind their gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from regard.core.arrays import is_tensor
from regard.core.problem import Problem
from regard.core.scores import Additive, DotProduct, Radial, Score
from regard.engines.gpu.lay import ADDITIVE, DOT, Form, Tensor, Who, form_of


def device() -> torch.device:
    """Where the programs run."""
    if not torch.cuda.is_available():
        raise RuntimeError(
            "engine 'fused' needs a CUDA device, and torch finds none; engine='tiled' runs on any CPU, and so does an "
            "estimator after set_params(device='cpu')"
        )
    return torch.device("cuda")


class Told(NamedTuple):
    """A problem as tensors."""

    form: Form
    value: Tensor  # (1, K, P)
    who: Who
    w: Tensor
    constant: float  # what the programs leave out of every score
    query: Tensor  # (Q, d)  seen from the middle of the keys where a matrix w projects
    key: Tensor  # (K, d)

    @property
    def single(self) -> bool:
        return self.value.dtype == torch.float32

    def put(self, array: Any) -> Tensor:
        return _put(array, self.value.dtype)


# As long as a problem is there: its gradients are asked for after its moments.
_TOLD: WeakKeyDictionary[Problem, Told] = WeakKeyDictionary()


def told_of(problem: Problem) -> Told:
    """Placed on the device once, in the precision that it needs."""
    told = _TOLD.get(problem)
    if told is None:
        told = _TOLD[problem] = placed(doubled(problem) if _is_fine(problem) else problem)
    return told


def _is_fine(problem: Problem) -> bool:
    """Whether it takes float64: products with δ, which cancel in a fit, and where float32 does not reach."""
    if problem.degree or not isinstance(problem.score, Radial):
        return problem.degree > 0
    w = np.abs(problem.score.w[problem.score.w != 0.0])
    return not ((w > 1e-18) & (w < 1e18)).all()


def doubled(problem: Problem) -> Problem:
    cast = {name: getattr(problem, name).astype(np.float64) for name in ("query", "key", "columns")}
    return replace(problem, **cast)


def _put(array: Any, dtype: torch.dtype) -> Tensor:
    return torch.as_tensor(array if is_tensor(array) else np.array(array), dtype=dtype, device=device())


def placed(problem: Problem) -> Told:
    """Tensors of the problem's own precision."""
    score, d = problem.score, problem.key.shape[1]
    dtype = torch.float64 if problem.query.dtype == np.float64 else torch.float32
    query, key = _put(problem.query, dtype), _put(problem.key, dtype)
    sides, apart, w = (query, key), None, getattr(score, "w", None)
    if isinstance(score, Additive):
        code, w = ADDITIVE, score.w_v
        sides = query @ _put(score.W_q.T, dtype), key @ _put(score.W_k.T, dtype)
    elif isinstance(score, DotProduct):
        code, w = DOT, score.w / np.sqrt(max(d, 1))
    elif isinstance(score, Radial):
        code = score.kernel.code
        if score.w.ndim == 2:
            # Seen from the middle of the keys, projections round least.
            centre, w = key.mean(0) if len(key) else key.new_zeros(d), np.float64(1.0)
            query, key = query - centre, key - centre
            apart, sides = (query[None], key[None]), (query @ _put(score.w, dtype), key @ _put(score.w, dtype))
    else:
        raise TypeError(f"no Triton program knows the score {type(score).__name__}")
    bias = mask = None
    labels: tuple[Tensor | None, Tensor | None] = (None, None)
    if problem.mask is not None and problem.mask.dtype == bool:
        mask = torch.tensor(problem.mask[None], device=device())
    elif problem.mask is not None:
        bias = _put(problem.mask[None], dtype)
    if problem.exclude is not None:
        labels = tuple(torch.tensor(part[None], device=device()) for part in problem.exclude)  # type: ignore[assignment]
    log_weight = None if problem.log_weight is None else _put(problem.log_weight[None], dtype)
    w = _put(w, dtype)
    form = replace(form_of(code, sides[0][None], sides[1][None], w), apart=apart)
    constant = 0.0 if form.sign is None else float((form.sign[: len(w)] * w).sum())
    who = Who(mask, bias, None, *labels, log_weight, finite=True)
    return Told(form, _put(problem.columns[None], dtype), who, w, constant, query, key)


def through(score: Score, told: Told, out: dict[str, Tensor | None]) -> dict[str, Any]:
    """The chain rule through a matrix w, the projections of an additive score, or the root of a dot product's width."""
    found: dict[str, Any] = dict(out)
    query, key, w = out["query"], out["key"], out["w"]
    if isinstance(score, DotProduct) and w is not None:
        found["w"] = w / max(told.key.shape[1], 1) ** 0.5
    elif isinstance(score, Radial) and score.w.ndim == 2:
        if query is not None and key is not None:
            found["w"] = told.query.T @ query + told.key.T @ key
        for name in ("query", "key"):
            found[name] = None if out[name] is None else out[name] @ told.put(score.w.T)  # type: ignore[operator]
    elif isinstance(score, Additive):
        if w is not None and query is not None and key is not None:
            found["w"] = (query.T @ told.query, key.T @ told.key, w)
        for name, projection in (("query", score.W_q), ("key", score.W_k)):
            found[name] = None if out[name] is None else out[name] @ told.put(projection)  # type: ignore[operator]
    return found

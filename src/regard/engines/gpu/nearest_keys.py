"""Hard attention in plain torch, block by block, in float64: the nearest keys of the fused engine.

*Cost*: O(Q·K·d) time, ``MAX_DIFFERENCES`` numbers of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from regard.core.arrays import Array
from regard.core.problem import Adjoint, Gradients, Problem, allowed, moment_count
from regard.core.scores import Nearest
from regard.core.state import Partial

Tensor = torch.Tensor

# Numbers held at once in the differences of a block: 256 MB.
MAX_DIFFERENCES = 1 << 25


class QueryBlock(NamedTuple):
    """Some of the queries: how far their nearest keys are (q,), what each key weighs (q, K), and δ (q, K, d)."""

    rows: slice
    distance: Tensor
    weight: Tensor
    delta: Tensor


def query_blocks(problem: Problem, device: torch.device) -> Iterator[QueryBlock]:
    """Ties share; sample weights divide the answer among them."""
    score = problem.score
    assert isinstance(score, Nearest)

    def put(array: Array) -> Tensor:
        return torch.tensor(np.asarray(array, np.float64), device=device)

    query, key, w = put(problem.query), put(problem.key), put(score.w)
    size = max(1, MAX_DIFFERENCES // max(problem.key.size, 1))
    for start in range(0, len(problem.query), size):
        rows = slice(start, min(start + size, len(problem.query)))
        delta = key[None] - query[rows, None]  # (q, K, d)
        scaled = (delta @ w if w.ndim == 2 else delta * w).abs()
        largest = scaled.amax((1, 2)) if scaled[0].numel() else scaled.new_zeros(len(delta))
        # A power of two near the largest: squares neither overflow nor vanish, and nothing is rounded.
        unit = torch.exp2(torch.frexp(largest).exponent.clamp(-1000, 1000).to(torch.float64))
        distance = unit[:, None] * ((scaled / unit[:, None, None]) ** 2).sum(2).sqrt()
        hidden = torch.zeros(distance.shape, dtype=torch.bool, device=device)
        if problem.mask is not None:
            hidden |= ~torch.tensor(allowed(problem.mask[rows]), device=device)
        if problem.exclude is not None:
            labels = [torch.tensor(part, device=device) for part in (problem.exclude[0][rows], problem.exclude[1])]
            hidden |= labels[0][:, None] == labels[1]
        distance = distance.masked_fill(hidden, torch.inf)
        least = distance.amin(1) if distance.shape[1] else distance.new_full((len(distance),), torch.inf)
        near = (distance == least[:, None]) & ~hidden
        weight = near.to(torch.float64)
        if problem.sample_weight is not None:
            weight = weight * put(problem.sample_weight)
        yield QueryBlock(rows, least, weight, delta)


def nearest_moments(problem: Problem, device: torch.device) -> Partial:
    """The state of hard attention: only keys at the peak count."""
    width, columns = problem.key.shape[1], torch.tensor(np.asarray(problem.columns, np.float64), device=device)
    peak, mass = np.full(len(problem.query), -np.inf), np.zeros(len(problem.query))
    moments = np.zeros((len(problem.query), moment_count(columns.shape[1], width, problem.degree)))
    upper = torch.triu_indices(width, width, device=device)
    for rows, distance, e, delta in query_blocks(problem, device):
        flat = [e @ columns]
        if problem.degree >= 1:
            flat += [torch.einsum("qk,qka->qa", e, delta), torch.einsum("qk,kp,qka->qpa", e, columns, delta).flatten(1)]
        if problem.degree >= 2:
            flat.append(torch.einsum("qk,qka,qkb->qab", e, delta, delta)[:, upper[0], upper[1]])
        peak[rows], mass[rows] = (-distance).cpu().numpy(), e.sum(1).cpu().numpy()
        moments[rows] = torch.cat(flat, 1).cpu().numpy()
    return Partial(peak, mass, moments, hard=True)


def nearest_gradients(problem: Problem, adjoint: Adjoint, want: frozenset[str], device: torch.device) -> Gradients:
    """Only the values move the answer."""
    zeros = {"w": np.zeros_like(problem.score.w)}  # type: ignore[attr-defined]
    zeros |= {name: np.zeros(getattr(problem, name).shape) for name in ("query", "key")}
    value = np.zeros(problem.columns.shape)
    left, grad = (torch.tensor(np.asarray(part, np.float64), device=device) for part in (adjoint.left, adjoint.value))
    for rows, _, e, delta in query_blocks(problem, device) if "value" in want else ():
        mass = e.sum(1, keepdim=True)
        line = left[rows, :1]
        if left.shape[1] > 1:
            line = line + torch.einsum("qa,qka->qk", left[rows, 1:], delta)
        alpha = e / torch.where(mass > 0.0, mass, 1.0) * line
        value += (alpha.T @ grad[rows]).cpu().numpy()
    return Gradients(**{name: grad for name, grad in (zeros | {"value": value}).items() if name in want})

"""The GPU's engine: the Triton programs over every pair, numpy in and numpy out. Chosen by name or by device.

Exact to rounding in the precision that ``words.working`` picks: float64 for products with δ, float32 where float32 came
in. Rows that float32 cannot tell apart are done again in float64. Hard attention is plain torch, block by block.

*Cost*: O(Q·K·d) time; O((Q + K)·(d + P)) memory, on the device too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Outcome, Problem
from regard.core.scores import Additive, Nearest, Radial
from regard.core.state import Partial
from regard.engines.gpu.batches import pulled
from regard.engines.gpu.hard import hard_gradients, hard_moments
from regard.engines.gpu.launch import attend, spread
from regard.engines.gpu.lay import LOG2E, Tensor
from regard.engines.gpu.told import Told, device, doubled, placed, through, told_of

# Scores below this lie too far from every key for float32.
DEEP = -64.0


def moments(problem: Problem, step: Step) -> Outcome:  # noqa: ARG001
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    if isinstance(problem.score, Nearest):
        return Outcome(hard_moments(problem, device()))
    told = told_of(problem)
    partial, lost = _moments(problem, told)
    if told.single and isinstance(problem.score, Radial) and not problem.score.kernel.compact:
        deep = (partial.peak > -np.inf) & (partial.peak + np.log(np.maximum(partial.mass, 1e-300)) < DEEP)
        if deep.any():
            rows = np.flatnonzero(deep)
            finer, still = _moments(part := doubled(problem.take(rows)), placed(part))
            for whole, again in zip(partial[:3], finer[:3], strict=True):
                whole[rows] = again
            if still is not None:
                lost = np.zeros(len(deep), bool) if lost is None else lost
                lost[rows] = still
    return Outcome(partial, lost)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:  # noqa: ARG001
    """Not offered: this engine never forms (Q, K)."""
    raise ValueError("engine 'fused' never forms the weights; engine='tiled' does")


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:  # noqa: ARG001
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    if isinstance(problem.score, Nearest):
        return hard_gradients(problem, adjoint, want, device())
    told = told_of(problem)
    if told.single and ((partial.peak > -np.inf) & (partial.peak < DEEP)).any():
        told = placed(doubled(problem))
    # As in the programs: powers of two, and an empty row has no peak.
    attended = partial.mass > 0.0
    peak = np.where(attended, partial.peak, 0.0) - told.constant
    state = told.put(np.stack([np.where(attended, peak * LOG2E, 0.0), partial.mass])[None])
    lines, value, height = None, adjoint.value, adjoint.right[:, 0]
    if adjoint.left.shape[1] > 1:
        lines = _lines(told, adjoint)[None]
    else:
        # With no δ in it, left goes into the cotangent of the values and into the level.
        plain = 0.0 if adjoint.plain is None else adjoint.plain[:, 0]
        value, height = adjoint.left * value, adjoint.left[:, 0] * height - plain
    projected = isinstance(problem.score, Additive) or np.ndim(getattr(problem.score, "w", 0.0)) == 2
    wanted = want | {"query", "key"} if projected and "w" in want else want
    if projected and not isinstance(problem.score, Additive):
        wanted = wanted - {"w"}
    grad, level = told.put(value[None]), told.put(height[None])
    lifted = _lifted(partial, adjoint) if isinstance(problem.score, Additive) else 0.0
    found = pulled(told.form, told.value, told.w, told.who, state, grad, level, lines, wanted, lifted)
    out = {name: part if part is None or name == "w" else part[0] for name, part in found._asdict().items()}
    return Gradients(**{name: _got(part) for name, part in through(problem.score, told, out).items() if name in want})


def _moments(problem: Problem, told: Told) -> tuple[Partial, Array | None]:
    found = attend(told.form, told.value, told.who)
    state = found.state[0, :, : len(problem.query)].to(torch.float64)
    moments: Any = found.output[0].to(torch.float64) * state[1, :, None]
    if problem.degree:
        further = spread(told.form, told.value, told.who, found.state, problem.degree)[0]
        moments = torch.cat([moments, further.to(torch.float64)], 1)
    peak, mass = _got(state)
    peak = np.where(mass > 0.0, peak / LOG2E + told.constant, -np.inf)
    # What a line is fitted to stays where it is.
    return Partial(peak, mass, moments if problem.degree else _got(moments)), _overflowed(problem, told, peak)


def _overflowed(problem: Problem, told: Told, peak: Array) -> Array | None:
    """Queries whose every score is beyond what this precision holds."""
    score = problem.score
    if not isinstance(score, Radial) or score.kernel.compact or not score.w.any():
        return None
    largest = torch.finfo(told.value.dtype).max
    lowest = -np.sqrt(largest) if score.kernel.name == "laplace" else -0.5 * largest
    # Clipped scores lie near the lowest number, others nowhere near it.
    return np.asarray((peak > -np.inf) & (peak <= 0.25 * lowest))


def _got(part: Any) -> Any:
    """In this machine's memory, in float64."""
    if isinstance(part, tuple):
        return tuple(map(_got, part))
    return np.asarray(part.to(torch.float64).cpu().numpy()) if isinstance(part, Tensor) else part


def _lifted(partial: Partial, adjoint: Adjoint) -> float:
    """The cotangents of all scores together, which a constant in every score would meet; degree 0."""
    attended = partial.mass > 0.0
    mean = partial.moments / np.where(attended, partial.mass, 1.0)[:, None]
    turn = adjoint.left[:, 0] * ((adjoint.value * mean).sum(axis=1) - adjoint.right[:, 0])
    return float((turn + (0.0 if adjoint.plain is None else adjoint.plain[:, 0]))[attended].sum())


def _lines(told: Told, adjoint: Adjoint) -> Tensor:
    """Coefficients of left, right and perhaps plain (Q, 2 or 3, 1 + d)."""
    parts = [told.put(part) for part in (adjoint.left, adjoint.right, adjoint.plain) if part is not None]
    width = 1 + told.key.shape[1]
    return torch.stack([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts], 1)

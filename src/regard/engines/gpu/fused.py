"""The GPU's engine: the Triton programs over every pair, numpy in and numpy out. Chosen by name or by device.

Exact to rounding, in float64 for products with δ and in float32 if the inputs are float32. Rows whose scores float32
cannot distinguish are computed again in float64. Hard attention is plain torch, block by block.

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
from regard.engines.gpu.batch_passes import score_gradients
from regard.engines.gpu.launch import launch_delta_moments, launch_forward
from regard.engines.gpu.layout import LOG2E, Tensor
from regard.engines.gpu.nearest_keys import nearest_gradients, nearest_moments
from regard.engines.gpu.placement import PlacedProblem, as_double, device, place, placed_once, through_lowering

# Scores below this are too far from every key for float32.
LOWEST_SINGLE_SCORE = -64.0


def moments(problem: Problem, step: Step) -> Outcome:  # noqa: ARG001
    """Attention moments of every query, and the queries so far away that every score overflowed."""
    if isinstance(problem.score, Nearest):
        return Outcome(nearest_moments(problem, device()))
    placed = placed_once(problem)
    partial, overflowed = _moments(problem, placed)
    if placed.is_single and isinstance(problem.score, Radial) and not problem.score.kernel.compact:
        logs = partial.peak + np.log(np.maximum(partial.mass, 1e-300))
        far = (partial.peak > -np.inf) & (logs < LOWEST_SINGLE_SCORE)
        if far.any():
            rows = np.flatnonzero(far)
            finer, still = _moments(part := as_double(problem.take(rows)), place(part))
            for whole, again in zip(partial[:3], finer[:3], strict=True):
                whole[rows] = again
            if still is not None:
                overflowed = np.zeros(len(far), bool) if overflowed is None else overflowed
                overflowed[rows] = still
    return Outcome(partial, overflowed)


def weights(problem: Problem, step: Step) -> tuple[Array, Array | None]:  # noqa: ARG001
    """Not offered: this engine never forms (Q, K)."""
    raise ValueError("engine 'fused' never forms the weights; engine='tiled' does")


def pullback(problem: Problem, step: Step, partial: Partial, adjoint: Adjoint, want: frozenset[str]) -> Gradients:  # noqa: ARG001
    """Gradients through the scores; ``partial`` is what ``moments`` returned for the same problem."""
    if isinstance(problem.score, Nearest):
        return nearest_gradients(problem, adjoint, want, device())
    placed = placed_once(problem)
    if placed.is_single and ((partial.peak > -np.inf) & (partial.peak < LOWEST_SINGLE_SCORE)).any():
        placed = place(as_double(problem))
    # As in the programs: powers of two, and an empty row has no peak.
    attended = partial.mass > 0.0
    peak = np.where(attended, partial.peak, 0.0) - placed.constant
    state = placed.put(np.stack([np.where(attended, peak * LOG2E, 0.0), partial.mass])[None])
    lines, value, level = None, adjoint.value, adjoint.right[:, 0]
    if adjoint.left.shape[1] > 1:
        lines = _lines(placed, adjoint)[None]
    else:
        # At degree 0, left goes into the cotangent of the values and into the level.
        plain = 0.0 if adjoint.plain is None else adjoint.plain[:, 0]
        value, level = adjoint.left * value, adjoint.left[:, 0] * level - plain
    total_slope = _total_slope(partial, adjoint) if isinstance(problem.score, Additive) else 0.0
    given = placed.batch, placed.score, state, placed.put(value[None]), placed.put(level[None])

    def gradients(names: frozenset[str]) -> dict[str, Tensor]:
        return score_gradients(*given, names, total_slope=total_slope, lines=lines)

    found = through_lowering(placed, problem.score, want, gradients)
    return Gradients(**{name: _as_numpy(part) for name, part in found.items()})


def _moments(problem: Problem, placed: PlacedProblem) -> tuple[Partial, Array | None]:
    it = placed.batch
    found = launch_forward(placed.score, it.value, it.visibility)
    state = found.state[0, :, : len(problem.query)].to(torch.float64)
    moments: Any = found.output[0].to(torch.float64) * state[1, :, None]
    if problem.degree:
        further = launch_delta_moments(placed.score, it.value, it.visibility, found.state, problem.degree)[0]
        moments = torch.cat([moments, further.to(torch.float64)], 1)
    peak, mass = _as_numpy(state)
    peak = np.where(mass > 0.0, peak / LOG2E + placed.constant, -np.inf)
    # The moments that a line is fitted to stay on the device.
    return Partial(peak, mass, moments if problem.degree else _as_numpy(moments)), _overflowed(problem, placed, peak)


def _overflowed(problem: Problem, placed: PlacedProblem, peak: Array) -> Array | None:
    """Queries all of whose scores are beyond the range of this precision."""
    score = problem.score
    if not isinstance(score, Radial) or score.kernel.compact or not score.w.any():
        return None
    largest = torch.finfo(placed.query.dtype).max
    lowest = -np.sqrt(largest) if score.kernel.name == "laplace" else -0.5 * largest
    # Clipped scores are close to the lowest number, others far above it.
    return np.asarray((peak > -np.inf) & (peak <= 0.25 * lowest))


def _as_numpy(part: Any) -> Any:
    """In the host's memory, in float64."""
    if isinstance(part, tuple):
        return tuple(map(_as_numpy, part))
    return np.asarray(part.to(torch.float64).cpu().numpy()) if isinstance(part, Tensor) else part


def _total_slope(partial: Partial, adjoint: Adjoint) -> float:
    """The sum of the cotangents of all scores, the derivative by a constant added to every score; degree 0."""
    attended = partial.mass > 0.0
    mean = partial.moments / np.where(attended, partial.mass, 1.0)[:, None]
    relative = adjoint.left[:, 0] * ((adjoint.value * mean).sum(axis=1) - adjoint.right[:, 0])
    return float((relative + (0.0 if adjoint.plain is None else adjoint.plain[:, 0]))[attended].sum())


def _lines(placed: PlacedProblem, adjoint: Adjoint) -> Tensor:
    """Coefficients of left, right and perhaps plain (Q, 2 or 3, 1 + d)."""
    parts = [placed.put(part) for part in (adjoint.left, adjoint.right, adjoint.plain) if part is not None]
    width = 1 + placed.key.shape[1]
    return torch.stack([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts], 1)

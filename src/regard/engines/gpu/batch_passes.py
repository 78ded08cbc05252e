"""Averages and gradients of a lowered batch by the Triton programs: raw sums, then the chain rule to the batch.

From the batch to a score's own parameters the chain rule is autograd through ``lowering``.
"""

from __future__ import annotations

import torch

from regard.core.kernels import GAUSSIAN, LAPLACE
from regard.engines.gpu.launch import BackwardSums, ForwardResult, launch_backward, launch_forward
from regard.engines.gpu.layout import (
    ADDITIVE,
    ADDITIVE_FORWARD_ONLY,
    DOT,
    DOT_PRODUCTS,
    GAUSSIAN_PRODUCTS,
    LOG2E,
    LoweredBatch,
    Tensor,
    TileScore,
    tile_score,
)
from regard.engines.gpu.product_rows import gaussian_unit
from regard.engines.gpu.products import ProductProblem, product_backward, product_forward, product_problem


def forward_batch(it: LoweredBatch) -> ForwardResult:
    """output (B, Q, P), logsumexp (B, Q) and the state of queries."""
    if it.code >= GAUSSIAN_PRODUCTS:
        return product_forward(product_problem(it))
    score = tile_score(it.code, it.query, it.key, it.w)
    found = launch_forward(score, it.value, it.visibility, forward_only=it.code == ADDITIVE_FORWARD_ONLY)
    if score.sign is None:
        return found
    return found._replace(logsumexp=found.logsumexp + omitted_constant(score, it.w))


def omitted_constant(score: TileScore, w: Tensor) -> Tensor:
    """What the programs leave out of every score: Σ sign·w_v of an additive one."""
    return w.new_zeros(()) if score.sign is None else (score.sign[: len(w)] * w).sum()


def backward_batch(
    it: LoweredBatch, found: ForwardResult, grad_output: Tensor, grad_logsumexp: Tensor, want: frozenset[str]
) -> dict[str, Tensor]:
    """Gradients of Σ grad_output·output + Σ grad_logsumexp·logsumexp w.r.t. ``want`` ⊆ {query, key, value, w}."""
    peak, mass = found.state[:, 0, : it.query.shape[1]], found.state[:, 1, : it.query.shape[1]]
    grad_logsumexp = torch.where(mass != 0.0, grad_logsumexp, 0.0)
    level = (grad_output * found.output).sum(2) - grad_logsumexp
    problem: ProductProblem | TileScore
    if it.code >= GAUSSIAN_PRODUCTS:
        problem = product_problem(it, peak.masked_fill(~torch.isfinite(mass), torch.nan))
    else:
        problem = tile_score(it.code, it.query, it.key, it.w)
    out = score_gradients(it, problem, found.state, grad_output, level, want, total_slope=grad_logsumexp.sum())
    return {name: _summed_over_batch(out[name], getattr(it, name)) for name in want}


def score_gradients(
    it: LoweredBatch,
    problem: ProductProblem | TileScore,
    state: Tensor,
    grad: Tensor,
    level: Tensor,
    want: frozenset[str],
    *,
    total_slope: Tensor | float = 0.0,
    lines: Tensor | None = None,
) -> dict[str, Tensor]:
    """Gradients w.r.t. ``want``, with the cotangents of scores as ``launch_backward`` takes them.

    ``problem`` is the batch as the programs take it; ``total_slope`` the sum of the cotangents of all scores.
    """
    code, w = it.code, it.w
    out: dict[str, Tensor] = {}

    def sums_of(mirror: bool, want_sides: bool, want_w: int = 0) -> BackwardSums:
        if isinstance(problem, ProductProblem):
            return product_backward(problem, state, grad, level, mirror=mirror)
        given = problem, it.value, it.visibility, state, grad, level, lines
        return launch_backward(*given, mirror=mirror, want_sides=want_sides, want_w=want_w)

    if want & {"query", "w"}:
        want_w = 0 if "w" not in want or code == DOT else 1 + (w.ndim == 1 and code < DOT)
        sums = sums_of(False, "query" in want or code >= DOT, want_w)
        if sums.sides is not None:
            out["query"] = side_gradient(code, sums.sides, w)
        if "w" in want and code in (DOT, DOT_PRODUCTS):
            assert sums.sides is not None
            query = problem.sides.query if isinstance(problem, ProductProblem) else problem.query
            out["w"] = (sums.sides * query).sum()
        elif sums.squares is not None:
            assert isinstance(problem, TileScore)
            out["w"] = w_gradient(problem, sums.squares, w, total_slope)
    # A Gaussian score by products takes w from both sides.
    if want & {"key", "value"} or ("w" in want and code == GAUSSIAN_PRODUCTS):
        sums = sums_of(True, "key" in want or code >= DOT)
        if sums.sides is not None:
            out["key"] = side_gradient(code, sums.sides, w)
        assert sums.columns is not None
        out["value"] = sums.columns
    if "w" in want and isinstance(problem, ProductProblem) and problem.scaled is not None:
        sides, centre = problem.sides, problem.scaled.centre
        both = (out["query"] * (sides.query - centre)).sum((0, 1)) + (out["key"] * (sides.key - centre)).sum((0, 1))
        out["w"] = _over((both if w.ndim else both.sum()), w)
    return out


def side_gradient(code: int, sums: Tensor, w: Tensor) -> Tensor:
    """Gradients of the fixed side from Σ slope·δ and the like."""
    if code == ADDITIVE:
        return 4.0 * w * sums[..., : len(w)]
    if code in (DOT, DOT_PRODUCTS):
        return w * sums
    return gaussian_unit(w) / LOG2E * sums if code == GAUSSIAN_PRODUCTS else _rate(code) * w * w * sums


def w_gradient(score: TileScore, sums: Tensor, w: Tensor, total_slope: Tensor | float) -> Tensor:
    """Gradient of w, or of w_v, from Σ slope·δ² and the like."""
    if score.sign is not None:
        # Every score contains the constant Σ sign·w_v that the programs leave out.
        return (score.sign * (total_slope - 2.0 * sums))[: len(w)]
    if w.ndim == 0 and score.compact:
        # The sums are of u² then, not of δ².
        return -_rate(score.code) * _over(sums[0], w)
    return -_rate(score.code) * w * (sums if w.ndim else sums[0])


def _over(x: Tensor, w: Tensor) -> Tensor:
    """x/w, 0 if w is 0."""
    return torch.where(w != 0.0, x / torch.where(w != 0.0, w, 1.0), 0.0)


def _rate(code: int) -> float:
    """−2·d log K/d(u²), except for what the programs include in the slope."""
    return {GAUSSIAN: 1.0, LAPLACE: LOG2E}.get(code, -2.0)


def _summed_over_batch(grad: Tensor, given: Tensor) -> Tensor:
    """The gradient of what a batch shares is a sum over the batch."""
    return grad.sum(0, keepdim=True) if grad.ndim == 3 and grad.shape[0] > given.shape[0] else grad

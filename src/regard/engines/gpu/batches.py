"""Averages and gradients of a batch of problems by the Triton programs: raw sums, then the chain rule."""

from __future__ import annotations

import torch

from regard.core.kernels import GAUSSIAN, LAPLACE
from regard.engines.gpu import products
from regard.engines.gpu.launch import Attended, Pulled, attend, pull
from regard.engines.gpu.lay import (
    ADDITIVE,
    ADDITIVE_ALONE,
    DOT,
    GAUSSIAN_ROWS,
    LOG2E,
    Batch,
    Form,
    Tensor,
    Who,
    form_of,
)


def averages(it: Batch) -> Attended:
    """output (B, Q, P), logsumexp (B, Q) and the state of queries."""
    if it.code >= GAUSSIAN_ROWS:
        return products.attend_rows(products.told(it), it.who)
    form = form_of(*it[:3], it.w)
    found = attend(form, it.value, it.who, alone=it.code == ADDITIVE_ALONE)
    if form.sign is None:
        return found
    return found._replace(logsumexp=found.logsumexp + (form.sign[: len(it.w)] * it.w).sum())


def gradients(
    it: Batch, found: Attended, grad_output: Tensor, grad_logsumexp: Tensor, want: frozenset[str]
) -> dict[str, Tensor]:
    """Gradients of Σ grad_output·output + Σ grad_logsumexp·logsumexp w.r.t. ``want`` ⊆ {query, key, value, w}."""
    attended = found.state[:, 1, : it.query.shape[1]] != 0.0
    grad_logsumexp = torch.where(attended, grad_logsumexp, 0.0)
    level = (grad_output * found.output).sum(2) - grad_logsumexp
    if it.code >= GAUSSIAN_ROWS:
        out = products.pulled(it, found.state, grad_output, level, want)
    else:
        form, lifted = form_of(*it[:3], it.w), grad_logsumexp.sum()
        out = pulled(form, it.value, it.w, it.who, found.state, grad_output, level, None, want, lifted)
    return {name: _shared(getattr(out, name), getattr(it, name)) for name in want}


def pulled(
    form: Form,
    value: Tensor,
    w: Tensor,
    who: Who,
    state: Tensor,
    grad: Tensor,
    level: Tensor,
    lines: Tensor | None,
    want: frozenset[str],
    lifted: Tensor | float = 0.0,
) -> Pulled:
    """Gradients, with the cotangents of scores as ``launch.pull`` takes them; Σ grad_logsumexp is ``lifted``."""
    code, out = form.code, Pulled()
    if want & {"query", "w"}:
        want_w = 0 if "w" not in want or code == DOT else 1 + (w.ndim == 1 and code < DOT)
        side = "query" in want or code >= DOT
        sums = pull(form, value, who, state, grad, level, lines, mirror=False, want=side, want_w=want_w)
        if sums.sides is not None:
            out = out._replace(query=of_side(code, sums.sides, w))
        if "w" in want and code == DOT:
            assert sums.sides is not None
            out = out._replace(w=(sums.sides * form.query).sum())
        elif sums.squares is not None:
            out = out._replace(w=of_w(form, sums.squares, w, lifted))
    if want & {"key", "value"}:
        sums = pull(form, value, who, state, grad, level, lines, mirror=True, want="key" in want or code >= DOT)
        key = None if sums.sides is None else of_side(code, sums.sides, w)
        out = out._replace(key=key, value=sums.columns)
    return out


def of_side(code: int, sums: Tensor, w: Tensor) -> Tensor:
    """Gradients of the fixed side from Σ slope·δ and the like."""
    if code == ADDITIVE:
        return 4.0 * w * sums[..., : len(w)]
    return w * sums if code == DOT else _rate(code) * w * w * sums


def of_w(form: Form, sums: Tensor, w: Tensor, lifted: Tensor | float) -> Tensor:
    """Gradient of w, or of w_v, from Σ slope·δ² and the like."""
    if form.sign is not None:
        # The constant Σ sign·w_v that the programs leave out is in logsumexp.
        return (form.sign * (lifted - 2.0 * sums))[: len(w)]
    if w.ndim == 0 and form.compact:
        # There the sums are of u², not of δ².
        return -_rate(form.code) * torch.where(w != 0.0, sums[0] / torch.where(w != 0.0, w, 1.0), 0.0)
    return -_rate(form.code) * w * (sums if w.ndim else sums[0])


def _rate(code: int) -> float:
    """−2·d log K/d(u²), but for what the programs put into the slope."""
    return {GAUSSIAN: 1.0, LAPLACE: LOG2E}.get(code, -2.0)


def _shared(grad: Tensor, given: Tensor) -> Tensor:
    """The gradient of what a batch shares is a sum over the batch."""
    return grad.sum(0, keepdim=True) if grad.ndim == 3 and grad.shape[0] > given.shape[0] else grad

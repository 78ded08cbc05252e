"""A case run through its path, and how far it is from the oracle, as a share of what it may be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import regard
import regard.tensors as tensors
from gpu.cases import Case
from gpu.problems import Answer, Problem, oracle, problem_of, score_of, wanted
from regard.engines.gpu.lowering import lower
from regard.tensors import layer_autograd, operators
from regard.tensors import tensor_planner as planner
from regard.tensors.flash import flash_pool
from regard.tensors.tensor_inputs import checked_inputs, flattened

Tensor = torch.Tensor
# Errors may be so many times those of plain torch at the same precision, forward and backward, and so many roundings.
FORWARD, BACKWARD, ROUNDINGS = 3.0, 4.0, 8.0
# Scores from matrix products are rounded to 22 bits, not to 24.
TWO_BITS = 4.0
EXACT_PATHS = ("programs", "plain")
# What counts as one rounding in float64, where there is no finer oracle.
DOUBLE = 2e-14


class Declined(Exception):
    """The path does not take this case."""


def check(case: Case, device: str) -> tuple[dict[str, float], str]:
    """Errors over budget by name, and the program that ran."""
    it = problem_of(case, device)
    found, whole, ran = _found(case, it)
    truth = oracle(case, it, torch.float64)
    naive = truth if case.dtype == "float64" else oracle(case, it, torch.float32)
    ratios = _ratios(case, it, found, truth, naive)
    ratios["all rows"] = _inside(case, it, *whole)
    return ratios, ran


def _found(case: Case, it: Problem) -> tuple[Answer, tuple[Tensor, Tensor], str]:
    wants = wanted(case, len(it.leaves))
    leaves = [leaf.detach().clone().requires_grad_(n in wants) for n, leaf in enumerate(it.leaves)]
    numbers = case.path == "flash" or (case.want not in ("w", "all") and case.seed % 2 == 0)
    score = score_of(case, leaves[3:], numbers=numbers)
    wants = tuple(n for n in wants if not (numbers and n >= 3))
    with torch.set_grad_enabled(bool(wants)), recorded() as ran:
        output, logsumexp = PATHS[case.path](*leaves[:3], score, it.options)
    assert output.dtype == getattr(torch, case.dtype), f"output is {output.dtype}"
    gradients: dict[int, Tensor] = {}
    if wants:
        finite = torch.where(torch.isfinite(logsumexp), logsumexp, 0.0)
        total = (output * it.grad_output.to(output.dtype)).sum() + (finite * it.grad_logsumexp.to(finite.dtype)).sum()
        # Nothing moves an answer of a boxcar but its values.
        parts = [torch.zeros_like(leaves[n]) for n in wants]
        if total.requires_grad:
            parts = torch.autograd.grad(total, [leaves[n] for n in wants], allow_unused=True, materialize_grads=True)
        gradients = dict(zip(wants, parts, strict=True))
    output, logsumexp = output.detach(), logsumexp.detach()
    answer = Answer(output[:, it.rows], logsumexp[:, it.rows], gradients, 0.0, 1.0)
    return answer, (output, logsumexp), "+".join(ran) or case.path


def _ratios(case: Case, it: Problem, found: Answer, truth: Answer, naive: Answer) -> dict[str, float]:
    if not len(it.rows):
        return {}
    eps = DOUBLE if case.dtype == "float64" else torch.finfo(getattr(torch, case.dtype)).eps
    loose = 1.0 if case.path in EXACT_PATHS and case.score != "dot" else TWO_BITS
    value, grad = float(it.clean[2].abs().max()), float(it.grad_output.abs().max())
    attended = torch.isfinite(truth.logsumexp)
    if not torch.equal(attended, torch.isfinite(found.logsumexp)):
        rows = (attended != torch.isfinite(found.logsumexp)).nonzero()[:3].tolist()
        raise AssertionError(f"rows are empty, or are not, at (batch, compared row) {rows}")
    height = float(truth.logsumexp[attended].abs().max()) if attended.any() else 0.0
    # What a gradient is a sum of: one number for every query, by how often it is attended to for every key.
    turn = grad * value + float(it.grad_logsumexp.abs().max())
    pairs = {
        "output": (found.output, truth.output, naive.output, value),
        "logsumexp": (found.logsumexp[attended], truth.logsumexp[attended], naive.logsumexp[attended], 1.0 + height),
    }
    names = ("query", "key", "value", "w", "W_k", "w_v")
    for n, part in found.gradients.items():
        gross = {0: turn, 1: turn * truth.share, 2: grad * truth.share}.get(n, turn * len(it.rows) ** 0.5 * case.B**0.5)
        got, exact, rough = (x[:, it.rows] if n == 0 else x for x in (part, truth.gradients[n], naive.gradients[n]))
        pairs[f"gradient of {names[n]}"] = (got, exact, rough, gross)
    out = {}
    for name, (got, exact, rough, gross) in pairs.items():
        if not got.numel():
            continue
        times = BACKWARD if name.startswith("gradient") else FORWARD
        error, allowed = (float((x.double() - exact.double()).abs().max()) for x in (got, rough))
        gross = max(gross, float(exact.abs().max()), 1e-30)
        out[name] = error / (loose * (times * allowed + ROUNDINGS * eps * truth.condition * gross))
        if out[name] != out[name]:
            out[name] = float("inf")
    return out


def _inside(case: Case, it: Problem, output: Tensor, logsumexp: Tensor) -> float:
    """How far an answer, compared or not, lies outside the values, in roundings."""
    low, high = it.clean[2].double().amin((0, 1)), it.clean[2].double().amax((0, 1))
    wrong = torch.isnan(output).any() | torch.isnan(logsumexp).any() | (logsumexp == torch.inf).any()
    if bool(wrong):
        return float("inf")
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)  # empty rows are 0
    eps = DOUBLE if case.dtype == "float64" else torch.finfo(getattr(torch, case.dtype)).eps
    beyond = float(torch.maximum(low - output.double(), output.double() - high).max())
    return max(0.0, beyond) / (TWO_BITS * ROUNDINGS * eps * float(torch.maximum(-low, high).max().clamp(min=1e-30)))


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Names of the programs that a call goes to."""
    ran: list[str] = []
    codes = {
        0: "gaussian",
        1: "laplace",
        9: "dot",
        10: "additive",
        13: "additive, alone",
        16: "gaussian rows",
        17: "dot rows",
    }
    pool_op, forward, dense_pool = operators.pool_op, layer_autograd.layer_forward, tensors.dense_pool

    def by_operator(*given: Any) -> Any:
        ran.append(f"programs ({codes.get(given[4], 'compact')})")
        return pool_op(*given)

    def by_layer(*given: Any) -> Any:
        ran.append("layer")
        return forward(*given)

    def by_plain(*given: Any) -> Any:
        ran.append("plain")
        return dense_pool(*given)

    operators.pool_op, layer_autograd.layer_forward, tensors.dense_pool = by_operator, by_layer, by_plain
    try:
        yield ran
    finally:
        operators.pool_op, layer_autograd.layer_forward, tensors.dense_pool = pool_op, forward, dense_pool


def _given(query: Tensor, key: Tensor, value: Tensor, score: Any, options: dict[str, Any]) -> Any:
    names = ("mask", "valid_lens", "bias", "exclude", "sample_weight")
    return checked_inputs(query, key, value, score, *(options.get(name) for name in names))


def _by(way: str, given: Any, score: Any) -> tuple[Tensor, Tensor]:
    """Rows that are laid out, by a way that the planner need not choose."""
    flat = flattened(given)
    return tensors._reshaped(*tensors._pool_flat(way, lower(*flat[:3], score, flat.visibility), given), flat, given)


def _programs(*given: Any, products_work: int = planner.MIN_PRODUCTS_WORK) -> tuple[Tensor, Tensor]:
    it, score = _given(*given), given[3]
    code, width = planner.lowered_kind(score, it.query.shape[-1])
    before = planner.MAX_DENSE, planner.MIN_PRODUCTS_WORK
    planner.MAX_DENSE, planner.MIN_PRODUCTS_WORK = dict.fromkeys(planner.MAX_DENSE, -1), products_work
    try:
        return _by(planner.path_of_rows(it, code, width, it.batch.numel() * it.query.shape[-2]), it, score)
    finally:
        planner.MAX_DENSE, planner.MIN_PRODUCTS_WORK = before


def _products(*given: Any) -> tuple[Tensor, Tensor]:
    return _programs(*given, products_work=0)


def _plain(*given: Any) -> tuple[Tensor, Tensor]:
    return _by("dense", _given(*given), given[3])


def _layer(*given: Any) -> tuple[Tensor, Tensor]:
    it = _given(*given)
    if planner.choose(it, given[3]) != "layer":
        raise Declined
    return layer_autograd.layer_pool(it, given[3])


def _flash(*given: Any) -> tuple[Tensor, Tensor]:
    query, key, value, score, _ = given
    way = planner.choose(_given(*given), score)
    if way not in ("flash", "cudnn"):
        raise Declined
    return flash_pool(query, key, value, float(score.w), way)


def _pool(query: Tensor, key: Tensor, value: Tensor, score: Any, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    call = tensors.fused_pool if "valid_lens" in options else regard.pool
    found = call(query, key, value, score, **options)
    return found[0], found[1]


PATHS = {
    "programs": _programs,
    "layer": _layer,
    "products": _products,
    "half products": _programs,
    "flash": _flash,
    "plain": _plain,
    "pool": _pool,
}

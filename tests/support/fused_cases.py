"""Problems for fused pooling, what they come to in float64, and what plain torch makes of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from regard.engines.gpu.lowering import lower
from regard.scores import RADIAL, Additive, DotProduct, Gaussian
from regard.tensors import fused_pool
from regard.tensors.dense import dense_pool
from regard.tensors.tensor_inputs import checked_inputs, flattened

Tensor = torch.Tensor

D, HIDDEN = 3, 6
OPTIONS = ("plain", "mask", "lengths", "bias", "exclude", "weights")


def parameters(name: str, dtype: torch.dtype, d: int = D) -> tuple[Any, list[Tensor]]:
    """A score as a function of its parameters, and these."""
    generator = torch.Generator().manual_seed(d)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    if name == "additive":
        return Additive, [normal(HIDDEN, d), normal(HIDDEN, d), 2.0 * normal(HIDDEN)]
    if name == "dot":
        return DotProduct, [torch.tensor(1.5, dtype=dtype)]
    kernel, _, kind = name.partition("-")
    w = {
        "": torch.tensor(0.6, dtype=dtype),
        "feature": torch.linspace(0.4, 0.8, d, dtype=dtype) * torch.tensor([1.0, -1.0]).repeat(d)[:d].to(dtype),
        "matrix": 0.6 * normal(d, max(d - 1, 1)),
    }[kind]
    return RADIAL[kernel], [w]


SCORES = (*RADIAL, "gaussian-feature", "gaussian-matrix", "tricube-feature", "dot", "additive")


class Case(NamedTuple):
    """Leaves, the score as a function of those after the third, options, and cotangents."""

    leaves: list[Tensor]
    score: Any
    options: dict[str, Any]
    grad_output: Tensor
    grad_logsumexp: Tensor


def case(name: str, option: str, dtype: Any, B: int = 2, Q: int = 33, K: int = 37, P: int = 2, d: int = D) -> Case:
    """A random problem; with a mask the first query of the first member may attend to no key."""
    score, weights = parameters(name, dtype, d)
    leaves = [torch.randn(B, n, c, dtype=torch.float64).to(dtype) for n, c in ((Q, d), (K, d), (K, P))]
    options: dict[str, Any] = {}
    if option == "mask":
        options["mask"] = torch.rand(B, Q, K) < 0.7
        options["mask"][0, 0] = False
    if option == "lengths":
        options["valid_lens"] = torch.randint(0, K + 1, (B,))
        options["valid_lens"][0] = 0
    if option == "bias":
        options["mask"] = torch.where(torch.rand(Q, K) < 0.8, torch.randn(Q, K), -torch.inf).to(dtype)
    if option == "exclude":
        options["exclude"] = torch.arange(Q), torch.arange(K)
    if option == "weights":
        options["sample_weight"] = torch.rand(B, K)
        options["sample_weight"][:, 1] = 0.0
    return Case([*leaves, *weights], score, options, torch.randn(B, Q, P).to(dtype), torch.randn(B, Q).to(dtype))


def answer(it: Case, dtype: Any, pool: Any = fused_pool) -> list[Tensor]:
    """Output, logsumexp and the gradients of every leaf, with the inputs in this dtype."""
    leaves = [leaf.detach().to(dtype).requires_grad_() for leaf in it.leaves]
    floats = {n: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for n, x in it.options.items()}
    output, logsumexp = pool(*leaves[:3], it.score(*leaves[3:]), **floats)
    finite = torch.where(torch.isfinite(logsumexp), logsumexp, 0.0)
    total = (output * it.grad_output.to(output.dtype)).sum() + (finite * it.grad_logsumexp.to(finite.dtype)).sum()
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    grads = [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(leaves, found, strict=True)]
    return [output.detach(), logsumexp.detach(), *grads]


def plain_pool(query: Tensor, key: Tensor, value: Tensor, score: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """The same in plain torch, at the same precision."""
    names = ("mask", "valid_lens", "bias", "exclude", "sample_weight")
    flat = flattened(checked_inputs(query, key, value, score, *(options.get(name) for name in names)))
    output, logsumexp = dense_pool(lower(*flat[:3], score, flat.visibility))
    if flat.log_heaviest is not None:
        logsumexp = logsumexp + flat.log_heaviest.to(logsumexp.dtype)
    return output.to(query.dtype), logsumexp


def parameter_terms(it: Case) -> list[float]:
    """Σ_q |gradient from query q| of each parameter: the size of what its gradient sums, however much cancels."""
    leaves = [leaf.detach().double().requires_grad_() for leaf in it.leaves]
    floats = {n: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for n, x in it.options.items()}
    output, logsumexp = plain_pool(*leaves[:3], it.score(*leaves[3:]), **floats)
    finite = torch.where(torch.isfinite(logsumexp), logsumexp, 0.0)
    each = (output * it.grad_output.double()).sum(dim=-1) + finite * it.grad_logsumexp.double()  # (B, Q)
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    parts = [torch.autograd.grad(one, leaves[3:], **options) for one in each.flatten()]
    return [float(sum(part.abs() for part in parameter).max()) for parameter in zip(*parts, strict=True)]


def excess(
    found: list[Tensor], truth: list[Tensor], rough: list[Tensor], dtype: Any, terms: list[float] | None = None
) -> list[float]:
    """Errors over what they may be: twice those of plain torch forward, three times backward, and a few ulps.

    Ulps are of the largest number, or of ``terms`` for gradients of parameters: such a sum may be small by chance.
    """
    sizes = [1.0, 1.0, 1e-3, 1e-3, 1e-3, *(terms or [1e-3] * len(truth))]
    out = []
    for number, (got, exact, naive) in enumerate(zip(found, truth, rough, strict=True)):
        assert torch.equal(torch.isfinite(got), torch.isfinite(exact))
        finite = torch.isfinite(exact)
        if not finite.any():
            continue
        error, allowed = ((x.double() - exact.double())[finite].abs().max() for x in (got, naive))
        scale = exact[finite].double().abs().max().clamp(min=sizes[number])
        budget = (2.0 if number < 2 else 3.0) * allowed + 8.0 * torch.finfo(dtype).eps * scale
        out.append(float(error / budget))
    return out


__all__ = ["OPTIONS", "SCORES", "Case", "Gaussian", "answer", "case", "excess", "parameter_terms", "plain_pool"]

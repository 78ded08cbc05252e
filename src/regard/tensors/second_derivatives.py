"""Second derivatives of what has a backward pass written by hand: those of the same formula in plain torch.

``torch.autograd.function.once_differentiable`` refuses only if the incoming gradient itself requires one. For a loss
that is linear in the output it does not, and derivatives of the gradient by the inputs were silently left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor
# From the inputs of a function to its differentiable outputs.
PlainFormula = Callable[..., Sequence[Tensor]]

# Numbers that the scores of a plain formula may hold at once: 1 GB of float32.
MAX_PLAIN_NUMBERS = 1 << 28


def differentiable_again(
    gradients: Sequence[Tensor | None],
    plain: PlainFormula,
    inputs: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
) -> tuple[Tensor | None, ...]:
    """The gradients unchanged; differentiated again they are those of Σ cotangent·output, output = plain(*inputs).

    Called at the end of a backward pass. ``plain`` runs only if a second derivative is asked for.
    """
    if not torch.is_grad_enabled():
        return tuple(gradients)
    given = [part for part in gradients if part is not None]
    wanted = [part is not None for part in gradients]
    found = iter(_Again.apply(plain, len(given), len(inputs), wanted, *given, *inputs, *cotangents))  # type: ignore[no-untyped-call]
    return tuple(None if part is None else next(found) for part in gradients)


def require_plain_fits(numbers: int) -> None:
    """Raise NotImplementedError if plain torch would hold too many numbers."""
    if numbers > MAX_PLAIN_NUMBERS:
        raise NotImplementedError(
            f"second derivatives are computed in plain torch, which would hold {numbers:,} numbers per intermediate "
            f"result; at most {MAX_PLAIN_NUMBERS:,} are supported: use fewer queries at a time"
        )


class _Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plain: PlainFormula, count: int, sides: int, wanted: list[bool], *tensors: Any) -> Any:
        gradients, ctx.present = tensors[:count], [part is not None for part in tensors[count:]]
        ctx.plain, ctx.sides, ctx.wanted = plain, sides, wanted
        ctx.save_for_backward(*(part for part in tensors[count:] if part is not None))
        return tuple(part.view_as(part) for part in gradients)

    @staticmethod
    def backward(ctx: Any, *seconds: Tensor) -> Any:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            saved = iter(ctx.saved_tensors)
            # Views, because one tensor may be given as several inputs, each with a derivative of its own.
            parts = [_variable(next(saved)) if present else None for present in ctx.present]
            inputs, cotangents = parts[: ctx.sides], parts[ctx.sides :]
            pairs = [(out, cot) for out, cot in zip(ctx.plain(*inputs), cotangents, strict=True) if cot is not None]
            wanted = [part for part, want in zip(inputs, ctx.wanted, strict=True) if want and part is not None]
            outputs, weights = [out for out, _ in pairs], [cot for _, cot in pairs]
            first = torch.autograd.grad(outputs, wanted, weights, create_graph=True, materialize_grads=True)
            total = sum((one * second).sum() for one, second in zip(first, seconds, strict=True))
            free = [part for part in parts if part is not None and part.requires_grad]
            assert isinstance(total, Tensor)
            found = iter(torch.autograd.grad(total, free, create_graph=again, materialize_grads=True))
        answer = [next(found) if part is not None and part.requires_grad else None for part in parts]
        return (None, None, None, None, *[None] * len(seconds), *answer)


def _variable(part: Tensor) -> Tensor:
    """The same tensor as a variable of its own; integers and booleans have no derivative."""
    if not part.is_floating_point():
        return part
    return part.view_as(part) if part.requires_grad else part.detach().requires_grad_()

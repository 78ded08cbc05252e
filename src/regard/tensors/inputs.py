"""What ``fused_pool`` accepts, checked, and in the operators' shapes: (batch, rows, features), a batch of 1 is shared.

Where the Triton programs run nothing here waits for the device, so there the numbers are not checked: a query that may
attend to NaN or infinity gets NaN. ``regard.pool`` waits, and raises everywhere (``require_finite``).
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import torch

from regard.core.bounds import LARGEST, bounds_of
from regard.core.bounds import require_finite as require_finite_array
from regard.core.scores import Additive, DotProduct, Nearest, Radial, Score

Tensor = torch.Tensor


class Inputs(NamedTuple):
    """Three tensors of one batch shape, and who may attend to whom; None where there is nothing to say."""

    query: Tensor  # (B, Q, d)
    key: Tensor  # (B, K, d)
    value: Tensor  # (B, K, P)
    mask: Tensor | None  # (B, Q, K) boolean, True = may attend
    bias: Tensor | None  # (B, Q, K)
    lens: Tensor | None  # (B, Q)
    query_labels: Tensor | None  # (B, Q) int64
    key_labels: Tensor | None  # (B, K) int64
    log_weight: Tensor | None  # (B, K) float64, 0 for the heaviest
    log_heaviest: Tensor | None  # (B, 1) what is missing in logsumexp
    shape: torch.Size  # of the batch

    @property
    def who(self) -> tuple[Tensor | None, ...]:
        return self[3:9]

    def take(self, rows: Tensor) -> Inputs:
        """The same for some of the queries only."""
        mask, bias, lens, labels = (
            None if part is None else part[:, rows] for part in (self.mask, self.bias, self.lens, self.query_labels)
        )
        return self._replace(query=self.query[:, rows], mask=mask, bias=bias, lens=lens, query_labels=labels)


def checked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Score,
    mask: Tensor | None,
    valid_lens: Tensor | None,
    bias: Tensor | None,
    exclude: tuple[Tensor, Tensor] | None,
    sample_weight: Tensor | None,
) -> Inputs:
    """Raise TypeError or ValueError naming the argument, what was given and what is accepted."""
    _check({"query": query, "key": key, "value": value}, score)
    query, key, value = (part[:, None] if part.ndim == 1 else part for part in (query, key, value))
    score.check(query.shape[-1], key.shape[-1])
    if value.shape[-2] != key.shape[-2]:
        raise ValueError(f"value has {value.shape[-2]} rows but key has {key.shape[-2]}")
    device, Q, K = query.device, query.shape[-2], key.shape[-2]
    real = torch.promote_types(torch.float32, _widest(query, key, value))
    matrices = {name: _matrix(name, part, Q, K, device) for name, part in (("mask", mask), ("bias", bias))}
    leading = {"query": query, "key": key, "value": value, **matrices}
    try:
        shapes = (part.shape[:-2] for part in leading.values() if part is not None)
        shape = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    except RuntimeError:
        given = {name: tuple(part.shape) for name, part in leading.items() if part is not None}
        raise ValueError(f"batch shapes must broadcast, got {given}") from None
    allowed = added = None
    for part in matrices.values():
        if part is not None:
            part = _flat(part, shape, 2)
            if part.dtype == torch.bool:
                allowed = part
            else:
                added = part.to(real) if added is None else added + part.to(real)
    log_weight, log_heaviest = _weights(sample_weight, shape, K, device)
    flat_query, flat_key, flat_value = (_flat(part, shape, 2).to(real) for part in (query, key, value))
    query_labels, key_labels = _labels(exclude, shape, Q, K, device)
    lens = _lengths(valid_lens, shape, Q, K, device)
    # A mask is deletion: whatever stands behind it must not reach an answer nor, through a projection, a gradient.
    looks, seen = _in_use(allowed, added, lens, log_weight, K)
    if looks is not None:
        flat_query = torch.where(looks[:, :, None], flat_query, 0.0)
    if seen is not None:
        flat_key, flat_value = (torch.where(seen[:, :, None], part, 0.0) for part in (flat_key, flat_value))
    return Inputs(
        flat_query,
        flat_key,
        flat_value,
        allowed,
        added,
        lens,
        query_labels,
        key_labels,
        log_weight,
        log_heaviest,
        shape,
    )


def require_finite(given: Inputs) -> None:
    """Raise ValueError, as for arrays, where something in use is not finite or its differences could overflow."""
    for name, part in (("query", given.query), ("key", given.key), ("value", given.value)):
        odd = ~(part.detach().double().abs() <= LARGEST).all(2)  # (B, rows)
        if bool(odd.any()):
            array = part[int(odd.nonzero()[0, 0])].detach().cpu().numpy()
            require_finite_array(name, array, bounds_of(array))


def _check(tensors: dict[str, Tensor], score: Score) -> None:
    first = tensors["query"]
    for name, part in tensors.items():
        if not isinstance(part, Tensor):
            raise TypeError(f"{name} must be a torch tensor like query, got {type(part).__name__}")
        if not part.is_floating_point():
            raise TypeError(f"{name} must be a floating tensor, got dtype {part.dtype}")
        if part.device != first.device:
            raise ValueError(f"query is on {first.device} and {name} on {part.device}; they must be on one device")
        if part.ndim == 0:
            raise ValueError(f"{name} must have shape (…, rows, features), got a single number")
    if first.device.type not in ("cpu", "cuda", "meta"):
        raise ValueError(f"fused pooling runs on cpu and cuda, got tensors on {first.device}")
    if isinstance(score, Nearest) or not isinstance(score, Radial | DotProduct | Additive):
        raise TypeError(f"score must be a score of regard.scores other than Nearest, got {score!r}")


def _widest(*parts: Tensor) -> torch.dtype:
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = torch.promote_types(dtype, part.dtype)
    return dtype


def _flat(part: Tensor, shape: torch.Size, tail: int) -> Tensor:
    """(…, tail) → (B, tail); what the batch shares stays one."""
    inner = part.shape[part.ndim - tail :]
    if all(size == 1 for size in part.shape[: part.ndim - tail]):
        return part.reshape(1, *inner)
    return part.expand(*shape, *inner).reshape(shape.numel(), *inner)


def _in_use(
    mask: Tensor | None, bias: Tensor | None, lens: Tensor | None, log_weight: Tensor | None, K: int
) -> tuple[Tensor | None, Tensor | None]:
    """Queries (B, Q) that may attend to somebody, and keys (B, K) that somebody may attend to, as far as masks tell."""
    looks, seen = [], []
    for part in (mask, None if bias is None else bias > -torch.inf):
        if part is not None:
            looks.append(part.any(2))
            seen.append(part.any(1))
    if lens is not None:
        looks.append(lens > 0)
        longest = lens.amax(1, keepdim=True) if lens.shape[1] else lens.new_zeros(len(lens), 1)
        seen.append(torch.arange(K, device=lens.device) < longest)
    if log_weight is not None:
        seen.append(log_weight > -torch.inf)
    return (reduce(torch.logical_and, looks) if looks else None), (reduce(torch.logical_and, seen) if seen else None)


def _matrix(name: str, given: Any, Q: int, K: int, device: torch.device) -> Tensor | None:
    """A mask or bias that broadcasts to (…, Q, K), expanded in its last two axes."""
    if given is None:
        return None
    part = _on(given, device)
    if not part.is_floating_point() and not (name == "mask" and part.dtype == torch.bool):
        raise TypeError(
            f"{name} must be {'boolean (True = may attend) or ' if name == 'mask' else ''}floating, got dtype "
            f"{part.dtype}; integers are refused because their meaning differs between libraries"
        )
    if part.requires_grad:
        raise ValueError(f"{name} takes no gradient in fused pooling: pass {name}.detach()")
    try:
        return part.expand(*part.shape[:-2], Q, K) if part.ndim > 1 else part.expand(Q, K)
    except RuntimeError:
        raise ValueError(f"{name} must broadcast to (queries, keys) = {(Q, K)}, got {tuple(part.shape)}") from None


def _lengths(valid_lens: Tensor | None, shape: torch.Size, Q: int, K: int, device: torch.device) -> Tensor | None:
    if valid_lens is None:
        return None
    lens = _on(valid_lens, device)
    if lens.is_floating_point() or lens.dtype == torch.bool:
        raise TypeError(f"valid_lens must be integers, got dtype {lens.dtype}")
    if tuple(lens.shape) not in (tuple(shape), (*shape, Q)):
        raise ValueError(f"valid_lens must have shape {tuple(shape)} or {(*shape, Q)}, got {tuple(lens.shape)}")
    if not lens.is_cuda and lens.numel() and (int(lens.min()) < 0 or int(lens.max()) > K):
        raise ValueError(f"valid_lens must be between 0 and the {K} keys, got {int(lens.min())} to {int(lens.max())}")
    lens = lens[..., None].expand(*shape, Q) if lens.ndim == len(shape) else lens
    return lens.reshape(shape.numel(), Q)


def _labels(
    exclude: tuple[Tensor, Tensor] | None, shape: torch.Size, Q: int, K: int, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    if exclude is None:
        return None, None
    out = []
    for name, labels, n in (("query", exclude[0], Q), ("key", exclude[1], K)):
        labels = _on(labels, device)
        if labels.is_floating_point() or labels.dtype == torch.bool:
            raise TypeError(f"exclude: {name} labels must be integers, got dtype {labels.dtype}")
        if labels.shape[-1:] != (n,):
            raise ValueError(f"exclude: {name} labels must have shape (…, {n}), got {tuple(labels.shape)}")
        out.append(_flat(labels, shape, 1).to(torch.int64))
    return out[0], out[1]


def _weights(given: Any, shape: torch.Size, K: int, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
    """Logarithms relative to the heaviest key of each member of the batch, and the heaviest ones' own."""
    if given is None:
        return None, None
    weight = _on(given, device)
    if weight.requires_grad:
        raise ValueError("sample_weight takes no gradient in fused pooling: pass sample_weight.detach()")
    if weight.shape[-1:] != (K,):
        raise ValueError(f"sample_weight must have shape (…, {K}), got {tuple(weight.shape)}")
    weight = _flat(weight, shape, 1).to(torch.float64)
    if not weight.is_cuda and K:
        if not (bool(torch.isfinite(weight).all()) and bool((weight >= 0.0).all())):
            raise ValueError("sample_weight must be finite and not negative")
        if not bool((weight > 0.0).any(1).all()):
            raise ValueError("sample_weight is zero for every key: nobody is left to attend to")
    heaviest = weight.amax(1, keepdim=True) if K else weight.new_ones(len(weight), 1)
    return torch.log(weight / heaviest), torch.log(heaviest)


def _on(part: Any, device: torch.device) -> Tensor:
    return torch.as_tensor(part, device=device)

"""Which tensors may be pooled, checked once for ``regard.pool`` and for the layers of ``regard.nn``; and flattened.

``checked_inputs`` validates shapes, dtypes and options and starts nothing on a device. ``flattened`` brings tensors
into the shapes of the operators, (batch, rows, features), where a batch of 1 is shared.

Numbers are checked where that does not wait for a device: on a CPU, and elsewhere if ``check_numbers`` is set. Those
that are not finite are then an error in ``regard.pool`` (``require_finite``), as for arrays; layers return NaN for the
queries that may attend to them, and so do the programs where numbers are not checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import isfinite, prod
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from regard.core.bounds import LARGEST, bounds_of
from regard.core.bounds import require_finite as require_finite_array
from regard.core.scores import Additive, DotProduct, Nearest, Radial, Score
from regard.engines.gpu.layout import Visibility

Tensor = torch.Tensor
# Types that are no wrapper of another tensor.
ORDINARY = (Tensor, torch.nn.Parameter)
ORDINARY_DTYPES = (torch.float32, torch.float64)
# Axes of a batch of rows.
MIN_BATCHED_AXES = 3
Lengths = Tensor | Sequence[int] | Sequence[Sequence[int]]


class ArgumentNames(NamedTuple):
    """What a caller's arguments are called, the fewest axes they have, and its error messages."""

    names: tuple[str, str, str]
    mask: str
    axes: int
    not_tensor: str
    not_floats: str
    no_rows: str
    other_rows: str
    other_batch: str
    not_mask: str


POOL = ArgumentNames(
    names=("query", "key", "value"),
    mask="mask",
    axes=1,
    not_tensor="{name} must be a torch tensor like query, got {kind}",
    not_floats="{name} must be a floating tensor, got dtype {kind}",
    no_rows="{name} must have shape (…, rows, features), got a single number",
    other_rows="value has {} rows but key has {}",
    other_batch="batch shapes must broadcast, got {named}",
    not_mask="{name} must be boolean (True = may attend) or floating, got dtype {kind}; integers are refused because "
    "their meaning differs between libraries",
)
LAYER = ArgumentNames(
    names=("queries", "keys", "values"),
    mask="attn_mask",
    axes=2,
    not_tensor="{name} must be a tensor of floats, got {kind}",
    not_floats="{name} must be a tensor of floats, got {kind}",
    no_rows="{name} must have shape (batch, {rows}, features), got {shape}",
    other_rows="values have {} rows but there are {} keys",
    other_batch="queries, keys and values must have the same batch, got shapes {shapes}",
    not_mask="{name} must be boolean (True = may attend) or floats to add to the scores, got dtype {kind}; integers "
    "are refused because nn.MultiheadAttention inverts the meaning (True = ignore): write mask.bool(), or "
    "from_key_padding_mask(mask.bool()) for a mask made for it",
)


class TensorInputs(NamedTuple):
    """Tensors of matching shapes, as they were given but with two axes at least; None where there is no such option."""

    query: Tensor  # (…, Q, d)
    key: Tensor  # (…, K, d)
    value: Tensor  # (…, K, P)
    batch: torch.Size  # the … that all of them broadcast to
    mask: Tensor | None = None  # broadcasts to (…, Q, K); boolean, True = may attend, or floats to add
    bias: Tensor | None = None  # broadcasts to (…, Q, K)
    lens: Tensor | None = None  # broadcasts to (…, Q)
    labels: tuple[Tensor, Tensor] | None = None  # (…, Q), (…, K)
    weight: Tensor | None = None  # (…, K)
    tol: float = 0.0  # share of its attention mass that a query may lose


class FlatInputs(NamedTuple):
    """Inputs in the shapes of the operators, in one dtype, float32 at least; what is behind a mask is 0."""

    query: Tensor  # (B, Q, d)
    key: Tensor  # (B, K, d)
    value: Tensor  # (B, K, P)
    visibility: Visibility
    log_heaviest: Tensor | None  # (B, 1) log of the largest sample weight, to be added to logsumexp


def can_branch(*parts: Tensor) -> bool:
    """Whether code may branch on numbers.

    Not while it is compiled, exported or captured as a graph, under the transforms of ``torch.func``, nor on meta
    tensors, which have none.
    """
    if torch.compiler.is_compiling() or must_be_plain():
        return False
    for part in parts:
        # The common case first: asking for a subclass of tensors takes microseconds.
        if type(part) in ORDINARY and part.is_cpu:
            continue
        if part.is_meta or isinstance(part, FakeTensor) or (part.is_cuda and torch.cuda.is_current_stream_capturing()):
            return False
    return True


def must_be_plain() -> bool:
    """Whether only plain torch will do: in programs to export, which then need no ``regard``, and under torch.func.

    So it is for derivatives in forward mode.
    """
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    return torch.compiler.is_exporting() or transformed or forward_ad._current_level >= 0


def are_ordinary(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether these are tensors of one dtype, float32 or float64, and one batch, not empty, on a CPU.

    Code may branch on their numbers then. *Cost*: two microseconds.
    """
    if not can_branch() or not (type(query) in ORDINARY and type(key) in ORDINARY and type(value) in ORDINARY):
        return False
    dtype, shape, rows = query.dtype, query.shape, key.shape
    return (
        query.is_cpu
        and key.is_cpu
        and value.is_cpu
        and dtype is key.dtype
        and dtype is value.dtype
        and dtype in ORDINARY_DTYPES
        and len(shape) >= MIN_BATCHED_AXES
        and shape[:-2] == rows[:-2]
        and rows[:-1] == value.shape[:-1]
        and 0 not in shape
        and 0 not in rows
        and not torch.is_autocast_enabled("cpu")
    )


def is_finite(part: Tensor) -> bool:
    """Whether the sum of all entries is finite, which implies that they are; an overflow only costs time."""
    return isfinite((part.detach() if part.requires_grad else part).sum().item())


def checked_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Score,
    mask: Tensor | None = None,
    valid_lens: Lengths | None = None,
    bias: Tensor | None = None,
    exclude: tuple[Tensor, Tensor] | None = None,
    sample_weight: Tensor | None = None,
    *,
    check_numbers: bool = False,
) -> TensorInputs:
    """The validated arguments of ``pool``.

    Raises TypeError or ValueError naming the argument, what was given and what is accepted. ``check_numbers``: numbers
    on a device other than the CPU are checked too, which waits for it.
    """
    batch = batch_of(POOL, query, key, value)
    if query.device.type not in ("cpu", "cuda", "meta"):
        raise ValueError(f"fused pooling runs on cpu and cuda, got tensors on {query.device}")
    if isinstance(score, Nearest) or not isinstance(score, Radial | DotProduct | Additive):
        raise TypeError(f"score must be a score of regard.scores other than Nearest, got {score!r}")
    query, key, value = (part[:, None] if part.ndim == 1 else part for part in (query, key, value))
    score.check(query.shape[-1], key.shape[-1])
    device, Q, K = query.device, query.shape[-2], key.shape[-2]
    check_numbers = (check_numbers or device.type == "cpu") and can_branch(query)
    matrices = []
    for name, given in (("mask", mask), ("bias", bias)):
        part = None if given is None else torch.as_tensor(given, device=device)
        if part is not None:
            if name == "bias" and not part.is_floating_point():
                raise TypeError(f"bias must be floating, got dtype {part.dtype}")
            if part.requires_grad:
                raise ValueError(f"{name} takes no gradient in fused pooling: pass {name}.detach()")
            # A mask may have batch axes of its own.
            batch = _broadcast(POOL, {"query": query, "key": key, "value": value, name: part}, batch)
            part = mask_of(POOL, name, part, (*batch, Q, K), check_numbers)
        matrices.append(part)
    lens = None if valid_lens is None else lengths_of(valid_lens, (*batch, Q, K), device, check_numbers)
    labels = None if exclude is None else _labels(exclude, Q, K, device)
    weight = None if sample_weight is None else _weight(sample_weight, K, device, check_numbers)
    return TensorInputs(query, key, value, batch, matrices[0], matrices[1], lens, labels, weight)


def batch_of(words: ArgumentNames, query: Tensor, key: Tensor, value: Tensor) -> torch.Size:
    """The batch shape of three floating tensors on one device whose shapes match."""
    tensors = dict(zip(words.names, (query, key, value), strict=True))
    for name, part in tensors.items():
        if not isinstance(part, Tensor):
            raise TypeError(words.not_tensor.format(name=name, kind=type(part).__name__))
        if not part.is_floating_point():
            raise TypeError(words.not_floats.format(name=name, kind=part.dtype))
        if part.device != query.device:
            first = words.names[0]
            raise ValueError(f"{first} is on {query.device} and {name} on {part.device}; they must be on one device")
        if part.ndim < words.axes:
            rows = words.names[0] if part is query else words.names[1]
            raise ValueError(words.no_rows.format(name=name, rows=rows, shape=tuple(part.shape)))
    rows_of = [part.shape[0] if part.ndim == 1 else part.shape[-2] for part in (value, key)]
    if rows_of[0] != rows_of[1]:
        raise ValueError(words.other_rows.format(*rows_of))
    return _broadcast(words, tensors)


def _broadcast(words: ArgumentNames, tensors: dict[str, Tensor], *batch: torch.Size) -> torch.Size:
    first, *others = [*(part.shape[:-2] for part in tensors.values()), *batch]
    # A comparison of shapes would fix them in a program that is traced.
    if not torch.compiler.is_compiling() and all(other == first for other in others):
        return first
    try:
        return torch.broadcast_shapes(*batch, *(part.shape[:-2] for part in tensors.values()))  # type: ignore[no-any-return, no-untyped-call]
    except RuntimeError:
        named = {name: tuple(part.shape) for name, part in tensors.items()}
        shapes = ", ".join(map(str, named.values()))
        raise ValueError(words.other_batch.format(named=named, shapes=shapes)) from None


def mask_of(words: ArgumentNames, name: str, mask: Tensor, shape: Sequence[int], check_numbers: bool) -> Tensor:
    """A mask that broadcasts to scores of ``shape`` (…, Q, K): boolean, or floats to add to them."""
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(words.not_mask.format(name=name, kind=mask.dtype))
    if not _broadcasts(mask.shape, shape):
        raise ValueError(f"{name} must broadcast to (…, queries, keys) = {tuple(shape)}, got {tuple(mask.shape)}")
    # One number covers both: the maximum of numbers with a NaN among them is NaN.
    if check_numbers and mask.is_floating_point() and mask.numel() and not bool(mask.detach().amax() < torch.inf):
        raise ValueError(f"{name} of floats may hold −inf but neither NaN nor +inf")
    return mask


def lengths_of(valid_lens: Lengths, shape: Sequence[int], device: torch.device, check_numbers: bool) -> Tensor:
    """Lengths that broadcast to (…, Q), one per member of the batch or one per query; scores are (…, Q, K)."""
    lengths = torch.as_tensor(valid_lens, device=device)
    if lengths.dtype == torch.bool or lengths.is_floating_point() or lengths.is_complex():
        raise TypeError(f"valid_lens must be integers, got dtype {lengths.dtype}")
    batch, keys = tuple(shape[:-2]), shape[-1]
    of_queries = lengths.ndim == len(batch) + 1
    if not (of_queries or lengths.ndim == len(batch)) or not _broadcasts(
        lengths.shape, shape[:-1] if of_queries else batch
    ):
        raise ValueError(
            f"valid_lens must have the shape {batch} of the batch or {tuple(shape[:-1])} of the queries, "
            f"got {tuple(lengths.shape)}"
        )
    if check_numbers and lengths.numel():
        low, high = (int(end) for end in lengths.aminmax())
        if low < 0 or high > keys:
            raise ValueError(f"valid_lens must lie between 0 and the {keys} keys, got {low if low < 0 else high}")
    return lengths if of_queries else lengths.unsqueeze(-1)


def _broadcasts(given: Sequence[int], shape: Sequence[int]) -> bool:
    return len(given) <= len(shape) and all(
        n in (1, size) for n, size in zip(reversed(given), reversed(shape), strict=False)
    )


def _labels(exclude: tuple[Any, Any], Q: int, K: int, device: torch.device) -> tuple[Tensor, Tensor]:
    out = []
    for name, given, n in (("query", exclude[0], Q), ("key", exclude[1], K)):
        labels = torch.as_tensor(given, device=device)
        if labels.is_floating_point() or labels.dtype == torch.bool:
            raise TypeError(f"exclude: {name} labels must be integers, got dtype {labels.dtype}")
        if labels.shape[-1:] != (n,):
            raise ValueError(f"exclude: {name} labels must have shape (…, {n}), got {tuple(labels.shape)}")
        out.append(labels)
    return out[0], out[1]


def _weight(given: Any, K: int, device: torch.device, check_numbers: bool) -> Tensor:
    weight = torch.as_tensor(given, device=device)
    if weight.requires_grad:
        raise ValueError("sample_weight takes no gradient in fused pooling: pass sample_weight.detach()")
    if weight.shape[-1:] != (K,):
        raise ValueError(f"sample_weight must have shape (…, {K}), got {tuple(weight.shape)}")
    if check_numbers and K:
        if not (bool(torch.isfinite(weight).all()) and bool((weight >= 0.0).all())):
            raise ValueError("sample_weight must be finite and not negative")
        if not bool((weight > 0.0).any(-1).all()):
            raise ValueError("all sample weights are zero")
    return weight


def flattened(given: TensorInputs) -> FlatInputs:
    """The inputs in the shapes of the operators.

    A mask is deletion: what it hides must not enter an answer nor, through a projection, a gradient.
    """
    Q, K, batch = given.query.shape[-2], given.key.shape[-2], given.batch
    real = reduce(torch.promote_types, (part.dtype for part in given[:3]), torch.float32)
    allowed = added = None
    for part in (given.mask, given.bias):
        if part is not None:
            part = _flat(part.expand(*part.shape[:-2], Q, K), batch, 2)
            if part.dtype == torch.bool:
                allowed = part
            else:
                added = part.to(real) if added is None else added + part.to(real)
    log_weight = log_heaviest = query_labels = key_labels = lens = None
    if given.weight is not None:
        weight = _flat(given.weight, batch, 1).to(torch.float64)
        heaviest = weight.amax(1, keepdim=True) if K else weight.new_ones(len(weight), 1)
        log_weight, log_heaviest = torch.log(weight / heaviest), torch.log(heaviest)
    if given.labels is not None:
        query_labels, key_labels = (_flat(part, batch, 1).to(torch.int64) for part in given.labels)
    if given.lens is not None:
        lens = given.lens.expand(*batch, Q).reshape(prod(batch), Q)
    query, key, value = (_flat(part, batch, 2).to(real) for part in given[:3])
    attending, attended = _in_use(allowed, added, lens, log_weight, K)
    if attending is not None:
        query = torch.where(attending[:, :, None], query, 0.0)
    if attended is not None:
        key, value = (torch.where(attended[:, :, None], part, 0.0) for part in (key, value))
    return FlatInputs(
        query, key, value, Visibility(allowed, added, lens, query_labels, key_labels, log_weight), log_heaviest
    )


def require_finite(given: FlatInputs) -> None:
    """Raise ValueError, as for arrays, if a number in use is not finite or its differences could overflow."""
    for name, part in (("query", given.query), ("key", given.key), ("value", given.value)):
        # NaN is the end of a range that holds one, and the ends are cheaper than a look at every row.
        if not part.numel() or all(-LARGEST <= end <= LARGEST for end in torch.stack(part.detach().aminmax()).tolist()):
            continue
        bad = ~(part.detach().double().abs() <= LARGEST).all(2)  # (B, rows)
        if bool(bad.any()):
            array = part[int(bad.nonzero()[0, 0])].detach().cpu().numpy()
            require_finite_array(name, array, bounds_of(array))


def _flat(part: Tensor, batch: torch.Size, tail: int) -> Tensor:
    """(…, tail) → (B, tail); what the batch shares stays one."""
    inner = part.shape[part.ndim - tail :]
    if all(size == 1 for size in part.shape[: part.ndim - tail]):
        return part.reshape(1, *inner)
    return part.expand(*batch, *inner).reshape(prod(batch), *inner)


def _in_use(
    mask: Tensor | None, bias: Tensor | None, lens: Tensor | None, log_weight: Tensor | None, K: int
) -> tuple[Tensor | None, Tensor | None]:
    """Queries (B, Q) that may attend to a key, and keys (B, K) that a query may attend to, regardless of labels."""
    queries, keys = [], []
    for part in (mask, None if bias is None else bias > -torch.inf):
        if part is not None:
            queries.append(part.any(2))
            keys.append(part.any(1))
    if lens is not None:
        queries.append(lens > 0)
        longest = lens.amax(1, keepdim=True) if lens.shape[1] else lens.new_zeros(len(lens), 1)
        keys.append(torch.arange(K, device=lens.device) < longest)
    if log_weight is not None:
        keys.append(log_weight > -torch.inf)
    return (reduce(torch.logical_and, queries) if queries else None), (
        reduce(torch.logical_and, keys) if keys else None
    )

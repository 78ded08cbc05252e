"""How scores, masks and columns are laid out for the Triton programs.

Everything here is torch tensors on one device, (batch, rows, features), float32 or float64. A batch of 1 is shared by
all. The same code runs on a CPU if Triton interprets (TRITON_INTERPRET=1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from regard.core.kernels import BOXCAR, COSINE, GAUSSIAN, LAPLACE
from regard.programs.triton.program_arguments import VisibilityPointers

Tensor = torch.Tensor

LOG2E = 1.4426950408889634
# Codes of scores besides those of ``regard.core.kernels``.
DOT = 9
ADDITIVE = 10
# Additive scores without gradients: their program rounds otherwise than the backward pass.
ADDITIVE_FORWARD_ONLY = 13
# The two scores by matrix products.
GAUSSIAN_PRODUCTS = 16
DOT_PRODUCTS = 17
# Features up to which their sums stay in registers.
MAX_REGISTER_FEATURES = 16
# Rows are padded to a multiple of this: every tile size divides it.
ROW_MULTIPLE = 256
# Hidden units that share a reciprocal.
UNITS_PER_RECIPROCAL = 4
# log₂ of the exponentials of which four, or two, can be multiplied: (2^15·2^15)⁴ = (2^30·2^30)² = 2^120.
MAX_EXPONENT_OF_FOUR = 15.0
MAX_EXPONENT_OF_TWO = 30.0


class Visibility(NamedTuple):
    """Which pairs may attend, and what is added to their scores; None where there is no such option."""

    mask: Tensor | None = None  # (B, Q, K) boolean, True = may attend
    bias: Tensor | None = None  # (B, Q, K)
    lens: Tensor | None = None  # (B, Q) how many keys, from the first on; (B,) in problems of a layer's size
    query_labels: Tensor | None = None  # (B, Q) int64; equal labels may not attend
    key_labels: Tensor | None = None  # (B, K) int64
    log_weight: Tensor | None = None  # (B, K) at most 0
    finite: bool = False  # whether all queries, keys and values are known to be finite

    @property
    def may_hide_non_finite(self) -> bool:
        """Whether a pair that may not attend may hold something that is not finite."""
        return not self.finite and any(part is not None for part in self[:6])


class LoweredBatch(NamedTuple):
    """A batch of problems after projections: a score of this code; a batch of 1 is shared."""

    code: int
    query: Tensor  # (B, Q, d), or (B, Q, h) hidden units
    key: Tensor  # (B, K, d) or (B, K, h)
    value: Tensor  # (B, K, P)
    w: Tensor  # () or (d,), () for dot products, w_v (h,) for hidden units
    visibility: Visibility = Visibility()

    def take(self, rows: Tensor) -> LoweredBatch:
        """The same for some of the queries only."""
        mask, bias, lens, labels = (None if part is None else part[:, rows] for part in self.visibility[:4])
        visibility = self.visibility._replace(mask=mask, bias=bias, lens=lens, query_labels=labels)
        return self._replace(query=self.query[:, rows], visibility=visibility)


@dataclass(frozen=True, eq=False)
class TileScore:
    """A score as the programs over tiles compute it, of queries (B, Q, D) and keys (B, K, D)."""

    code: int
    query: Tensor
    key: Tensor
    coef: Tensor  # (D,) or, for one coefficient that multiplies the whole, (1,)
    wide: Tensor | None = None  # (1,) 0 or 1: features are exponentials, four or two to a reciprocal; 2: they are not
    sign: Tensor | None = None  # (D,) −1 for hidden units whose sign is flipped
    delta: tuple[Tensor, Tensor] | None = None  # (B, Q, d), (B, K, d): what δ is a difference of if a matrix w projects

    @property
    def per_feature(self) -> bool:
        return self.code >= ADDITIVE or self.coef.ndim == 1

    @property
    def codes(self) -> tuple[int, ...]:
        """The programs to launch; of the three for hidden units the device picks one."""
        return (ADDITIVE, ADDITIVE + 1, ADDITIVE + 2) if self.code == ADDITIVE else (self.code,)

    @property
    def compact(self) -> bool:
        return BOXCAR <= self.code <= COSINE

    @property
    def unrolled(self) -> bool:
        """Whether features are few enough to be held in registers."""
        return self.code < ADDITIVE and 0 < self.query.shape[2] <= MAX_REGISTER_FEATURES


def tile_score(code: int, query: Tensor, key: Tensor, w: Tensor) -> TileScore:
    """log K(‖w∘(q − k)‖), w·q·k or w·tanh(q + k) in powers of two; w as in ``LoweredBatch``."""
    if code in (ADDITIVE, ADDITIVE_FORWARD_ONLY):
        return _additive_score(query, key, w)
    if code == DOT:
        return TileScore(DOT, query, key, w * LOG2E)
    unit = {GAUSSIAN: 0.5 * LOG2E, LAPLACE: LOG2E**2}.get(code, 1.0)
    return TileScore(code, query, key, w * w * unit)


def _additive_score(a: Tensor, b: Tensor, w_v: Tensor) -> TileScore:
    """w_vᵀ tanh(a + b) less Σ sign·w_v, through tanh z = 1 − 2/(1 + exp 2z) and exp(2(a + b)) = exp 2a · exp 2b.

    Exponentials are taken once per query and once per key. Where products of them could overflow, the programs are
    given a and b themselves.
    """
    padding = -a.shape[2] % (UNITS_PER_RECIPROCAL * max(1, lanes_per_pair(a.shape[2])))
    a, b = (torch.nn.functional.pad(part, (0, padding)) for part in (a, b))
    w_v = torch.nn.functional.pad(w_v, (0, padding))
    # Numbers behind a mask may be anything, and must not affect the range of the others.
    high, low = ([torch.where(torch.isfinite(x), x, 0.0).amax((0, 1)) for x in pair] for pair in ((a, b), (-a, -b)))
    # tanh(−z) = −tanh z: the sign of a unit is chosen so that its sums have the smaller maximum; the minimum is free.
    flipped = high[0] + high[1] > low[0] + low[1]
    sign = torch.where(flipped, -1.0, 1.0).to(a.dtype)
    top = [torch.where(flipped, down, up) for up, down in zip(high, low, strict=True)]
    # What is subtracted from one side and added to the other gives both the same maximum.
    half = 0.5 * (top[0] - top[1])
    a, b = a * sign, b * sign
    powers = [torch.exp2((2.0 * LOG2E * part).clamp(-120.0, 120.0)) for part in (a - half, b + half)]
    largest = (top[0] + top[1]).amax() * LOG2E
    wide = ((largest > MAX_EXPONENT_OF_FOUR).to(torch.int32) + (largest > MAX_EXPONENT_OF_TWO)).to(torch.int32)
    wide = wide.reshape(1)
    query, key = (torch.where(wide == 2, part, power) for part, power in zip((a, b), powers, strict=True))
    return TileScore(ADDITIVE, query, key, -2.0 * LOG2E * sign * w_v, wide, sign)


def lanes_per_pair(units: int) -> int:
    """Lanes that share a pair if hidden units are held in registers, 16 to a lane at most; 0 if there are too many."""
    return next((lanes for lanes in (1, 2, 4, 8, 16) if units <= 16 * lanes), 0)


class FiniteSides(NamedTuple):
    """Both sides of a score as finite numbers, and what is added to their scores."""

    query: Tensor  # (B, Q, D)
    key: Tensor  # (B, K, D)
    value: Tensor  # (B, K, P)
    query_shift: Tensor | None  # (B, Q) 0, or NaN if a query is not finite
    key_shift: Tensor  # (B, K) log₂ of sample weights


def finite_sides(query: Tensor, key: Tensor, value: Tensor, visibility: Visibility, *, guard: bool) -> FiniteSides:
    """Rows that are not finite become zeros with scores of NaN: only queries that attend to them are affected."""
    real = torch.promote_types(key.dtype, torch.float32)
    key_shift, query_shift = torch.zeros(key.shape[:2], dtype=real, device=key.device), None
    if visibility.log_weight is not None:
        key_shift = key_shift + (visibility.log_weight.to(torch.float64) * LOG2E).to(real)
    if guard or visibility.may_hide_non_finite:
        key_bad = ~(torch.isfinite(key).all(2) & torch.isfinite(value).all(2))
        query_bad = ~torch.isfinite(query).all(2)
        query, key = query.masked_fill(query_bad[:, :, None], 0.0), key.masked_fill(key_bad[:, :, None], 0.0)
        value = value.masked_fill(key_bad[:, :, None], 0.0)
        key_shift = key_shift.masked_fill(key_bad & (key_shift > -torch.inf), torch.nan)
        query_shift = torch.zeros(query.shape[:2], dtype=real, device=key.device).masked_fill(query_bad, torch.nan)
    return FiniteSides(query, key, value, query_shift, key_shift)


def product_width(columns: int) -> int:
    """Columns padded to what a matrix product takes: a power of two, 16 at least."""
    return max(16, 1 << (columns - 1).bit_length())


def padded(n: int) -> int:
    """Rows padded to a multiple of every tile size."""
    return -(-max(n, 1) // ROW_MULTIPLE) * ROW_MULTIPLE


def fixed_layout(*parts: Tensor) -> Tensor:
    """(B, N, d) each → (B, Σd, n), feature by feature, zeros beyond N."""
    out = parts[0].new_zeros(max(len(p) for p in parts), sum(p.shape[2] for p in parts), padded(parts[0].shape[1]))
    first = 0
    for part in parts:
        out[:, first : first + part.shape[2], : part.shape[1]] = part.transpose(1, 2)
        first += part.shape[2]
    return out


def fixed_vector(part: Tensor) -> Tensor:
    """(B, N) → (B, n), zeros beyond N."""
    return fixed_layout(part[:, :, None])[:, 0]


def stream_layout(features: Tensor, shift: Tensor, others: list[Tensor], size: int, multiple: int = 1) -> Tensor:
    """(B, N, d), (B, N) and (B, N, c) each → (B, tiles, d + 1 + Σc, size), with scores of −inf beyond N.

    d + 1 + Σc is padded to a multiple of ``multiple``.
    """
    parts = (features, shift[:, :, None], *others)
    batch, N, d = max(len(p) for p in parts), features.shape[1], features.shape[2]
    width = -(-sum(p.shape[2] for p in parts) // multiple) * multiple
    out = features.new_zeros(batch, padded(N) // size, width, size)
    rows = out.transpose(2, 3)  # (B, tiles, size, rows)
    whole, rest, first = N // size, N % size, 0
    for part in parts:
        last = first + part.shape[2]
        rows[:, :whole, :, first:last] = part[:, : whole * size].reshape(len(part), whole, size, part.shape[2])
        if rest:
            rows[:, whole, :rest, first:last] = part[:, whole * size :]
        first = last
    if rest:
        out[:, whole, d, rest:] = -torch.inf
    out[:, whole + bool(rest) :, d] = -torch.inf
    return out


def largest_batch(*parts: Any) -> int:
    """How many problems there are: what a batch shares is 1."""
    return max(int(part.shape[0]) for part in parts if part is not None)


def or_any(part: Tensor | None, other: Tensor) -> Tensor:
    """A pointer for the programs even if there is nothing to point at."""
    return other if part is None else part


def visibility_pointers(
    visibility: Visibility, other: Tensor, *, mirror: bool, tile: int
) -> tuple[VisibilityPointers, dict[str, bool], tuple[int, ...]]:
    """Visibility as arguments of the programs, which of it there is, and its batch strides."""
    mask, bias, lens, query_labels, key_labels = visibility[:5]
    fixed, streamed = (2, 1) if mirror else (1, 2)  # axes of (B, Q, K)

    def matrix(part: Tensor | None) -> tuple[Any, int, int]:
        return (other, 0, 0) if part is None else (part, part.stride(streamed), part.stride(fixed))

    mask = None if mask is None else mask.view(torch.uint8)
    stream_labels, fixed_labels = (query_labels, key_labels) if mirror else (key_labels, query_labels)
    lowest = highest = None
    if stream_labels is not None:
        (B, N), limits = stream_labels.shape, torch.iinfo(torch.int64)
        lowest, highest = (stream_labels.new_full((B, padded(N)), beyond) for beyond in (limits.max, limits.min))
        lowest[:, :N] = highest[:, :N] = stream_labels
        lowest, highest = lowest.reshape(B, -1, tile).amin(2), highest.reshape(B, -1, tile).amax(2)
    present = {"bias": bias, "mask": mask, "lens": lens, "exclude": stream_labels}
    labels = (or_any(part, other) for part in (stream_labels, fixed_labels, lowest, highest))
    lens_stride = 0 if lens is None else lens.stride(1)
    pointers = VisibilityPointers(*matrix(bias), *matrix(mask), or_any(lens, other), lens_stride, *labels)
    strides = tuple(map(batch_stride, (bias, mask, lens, stream_labels, fixed_labels, lowest)))
    return pointers, {name: part is not None for name, part in present.items()}, strides


def batch_stride(part: Tensor | None) -> int:
    """Stride from one member of the batch to the next, 0 if all share one."""
    return 0 if part is None or part.shape[0] == 1 else part.stride(0)

"""How scores, masks and columns are laid out for the Triton programs.

Everything here is torch tensors on one device, (batch, rows, features), float32 or float64. A batch of 1 is shared by
all. The same code runs on a CPU where Triton interprets (TRITON_INTERPRET=1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from regard.core.kernels import BOXCAR, COSINE, GAUSSIAN, LAPLACE

Tensor = torch.Tensor

LOG2E = 1.4426950408889634
# What ``Form.code`` may be besides the codes of ``regard.core.kernels``.
DOT, ADDITIVE = 9, 10
# Additive scores that no gradient is asked of: their program rounds otherwise than the adjoint pass.
ADDITIVE_ALONE = 13
# The two scores by matrix products of rows.
GAUSSIAN_ROWS, DOT_ROWS = 16, 17
# Features up to which their sums stay in registers.
FEW_FEATURES = 16
# Rows are filled up to a multiple of this: every tile divides it.
ROW = 256
# Hidden units that share a reciprocal, and log₂ of the exponentials whose products still fit: (2^15·2^15)⁴ = 2^120, and
# (2^30·2^30)² as well.
UNITS = 4
WIDE = (15.0, 30.0)


class Who(NamedTuple):
    """Who may attend to whom, and what is added to the scores; None where there is nothing to say."""

    mask: Tensor | None = None  # (B, Q, K) boolean, True = may attend
    bias: Tensor | None = None  # (B, Q, K)
    lens: Tensor | None = None  # (B, Q) how many keys, from the first on
    query_labels: Tensor | None = None  # (B, Q) int64; equal labels may not attend
    key_labels: Tensor | None = None  # (B, K) int64
    log_weight: Tensor | None = None  # (B, K) at most 0
    finite: bool = False  # whether it is known that no query, key or value is anything else

    @property
    def hides(self) -> bool:
        """Whether something that is not finite may stand behind a mask."""
        return not self.finite and any(part is not None for part in self[:6])


class Batch(NamedTuple):
    """A batch of problems with a score of this code; a batch of 1 is shared."""

    code: int
    query: Tensor  # (B, Q, d), or (B, Q, h) hidden units
    key: Tensor  # (B, K, d) or (B, K, h)
    value: Tensor  # (B, K, P)
    w: Tensor  # () or (d,), () for dot products, w_v (h,) for hidden units
    who: Who = Who()

    def take(self, rows: Tensor) -> Batch:
        """The same for some of the queries only."""
        mask, bias, lens, labels = (None if part is None else part[:, rows] for part in self.who[:4])
        who = self.who._replace(mask=mask, bias=bias, lens=lens, query_labels=labels)
        return self._replace(query=self.query[:, rows], who=who)


@dataclass(frozen=True, eq=False)
class Form:
    """A score in the programs' words, of queries (B, Q, D) and keys (B, K, D)."""

    code: int
    query: Tensor
    key: Tensor
    coef: Tensor  # (D,) or, for one coefficient that multiplies the whole, (1,)
    wide: Tensor | None = None  # (1,) 0 or 1: features are exponentials, four or two to a reciprocal; 2: they are not
    sign: Tensor | None = None  # (D,) hidden units that are turned round
    apart: tuple[Tensor, Tensor] | None = None  # (B, Q, d), (B, K, d): what δ is of, where a matrix w projects

    @property
    def per(self) -> bool:
        return self.code >= ADDITIVE or self.coef.ndim == 1

    @property
    def codes(self) -> tuple[int, ...]:
        """The programs to launch; of the three for hidden units the device picks one."""
        return (ADDITIVE, ADDITIVE + 1, ADDITIVE + 2) if self.code == ADDITIVE else (self.code,)

    @property
    def compact(self) -> bool:
        return BOXCAR <= self.code <= COSINE

    @property
    def static(self) -> bool:
        return self.code < ADDITIVE and 0 < self.query.shape[2] <= FEW_FEATURES


def form_of(code: int, query: Tensor, key: Tensor, w: Tensor) -> Form:
    """log K(‖w∘(q − k)‖), w·q·k or w·tanh(q + k) in the programs' words; w as in ``Batch``."""
    if code in (ADDITIVE, ADDITIVE_ALONE):
        return _additive_form(query, key, w)
    if code == DOT:
        return Form(DOT, query, key, w * LOG2E)
    unit = {GAUSSIAN: 0.5 * LOG2E, LAPLACE: LOG2E**2}.get(code, 1.0)
    return Form(code, query, key, w * w * unit)


def _additive_form(a: Tensor, b: Tensor, w_v: Tensor) -> Form:
    """w_vᵀ tanh(a + b) less Σ sign·w_v, through tanh z = 1 − 2/(1 + exp 2z) and exp(2(a + b)) = exp 2a · exp 2b.

    Exponentials are taken once per query and once per key. Where products of them could overflow, the programs are
    given a and b themselves.
    """
    spare = -a.shape[2] % (UNITS * max(1, unit_lanes(a.shape[2])))
    a, b = (torch.nn.functional.pad(part, (0, spare)) for part in (a, b))
    w_v = torch.nn.functional.pad(w_v, (0, spare))
    # Numbers behind a mask may be anything, and must not tell how far the others reach.
    high, low = ([torch.where(torch.isfinite(x), x, 0.0).amax((0, 1)) for x in pair] for pair in ((a, b), (-a, -b)))
    # tanh(−z) = −tanh z: a unit is turned so that its sums reach less far up; how far down does not matter.
    turned = high[0] + high[1] > low[0] + low[1]
    sign = torch.where(turned, -1.0, 1.0).to(a.dtype)
    top = [torch.where(turned, down, up) for up, down in zip(high, low, strict=True)]
    # What is taken from one side and given to the other makes both reach equally far up.
    half = 0.5 * (top[0] - top[1])
    a, b = a * sign, b * sign
    powers = [torch.exp2((2.0 * LOG2E * part).clamp(-120.0, 120.0)) for part in (a - half, b + half)]
    reach = (top[0] + top[1]).amax() * LOG2E
    wide = ((reach > WIDE[0]).to(torch.int32) + (reach > WIDE[1])).to(torch.int32).reshape(1)
    fixed, stream = (torch.where(wide == 2, part, power) for part, power in zip((a, b), powers, strict=True))
    return Form(ADDITIVE, fixed, stream, -2.0 * LOG2E * sign * w_v, wide, sign)


def unit_lanes(units: int) -> int:
    """Lanes that share a pair in the adjoint pass, with 16 hidden units each at most; 0 where there are too many."""
    return next((lanes for lanes in (1, 2, 4, 8, 16) if units <= 16 * lanes), 0)


class Sides(NamedTuple):
    """Both sides of a form as numbers, and what is added to their scores."""

    query: Tensor  # (B, Q, D)
    key: Tensor  # (B, K, D)
    value: Tensor  # (B, K, P)
    own: Tensor | None  # (B, Q) 0, or NaN where a query is not finite
    shift: Tensor  # (B, K) log₂ of sample weights


def sides_of(query: Tensor, key: Tensor, value: Tensor, who: Who, *, guard: bool) -> Sides:
    """Numbers that are not finite go into the scores as NaN, so that only who attends to them sees them."""
    real = torch.promote_types(key.dtype, torch.float32)
    shift, own = torch.zeros(key.shape[:2], dtype=real, device=key.device), None
    if who.log_weight is not None:
        shift = shift + (who.log_weight.to(torch.float64) * LOG2E).to(real)
    if guard or who.hides:
        key_bad = ~(torch.isfinite(key).all(2) & torch.isfinite(value).all(2))
        query_bad = ~torch.isfinite(query).all(2)
        query, key = query.masked_fill(query_bad[:, :, None], 0.0), key.masked_fill(key_bad[:, :, None], 0.0)
        value = value.masked_fill(key_bad[:, :, None], 0.0)
        shift = shift.masked_fill(key_bad & (shift > -torch.inf), torch.nan)
        own = torch.zeros(query.shape[:2], dtype=real, device=key.device).masked_fill(query_bad, torch.nan)
    return Sides(query, key, value, own, shift)


def wide(columns: int) -> int:
    """Columns filled up to what a matrix product takes: a power of two, 16 at least."""
    return max(16, 1 << (columns - 1).bit_length())


def filled(n: int) -> int:
    return -(-max(n, 1) // ROW) * ROW


def lay_fixed(*parts: Tensor) -> Tensor:
    """(B, N, d) each → (B, Σd, n), feature by feature, zeros beyond N."""
    out = parts[0].new_zeros(max(len(p) for p in parts), sum(p.shape[2] for p in parts), filled(parts[0].shape[1]))
    first = 0
    for part in parts:
        out[:, first : first + part.shape[2], : part.shape[1]] = part.transpose(1, 2)
        first += part.shape[2]
    return out


def lay_stream(features: Tensor, shift: Tensor, others: list[Tensor], size: int, fill: int = 1) -> Tensor:
    """(B, N, d), (B, N) and (B, N, c) each → (B, tiles, d + 1 + Σc, size), with scores of −inf beyond N.

    d + 1 + Σc is filled up to a multiple of ``fill``.
    """
    parts = (features, shift[:, :, None], *others)
    batch, N, d = max(len(p) for p in parts), features.shape[1], features.shape[2]
    out = features.new_zeros(batch, filled(N) // size, -(-sum(p.shape[2] for p in parts) // fill) * fill, size)
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


def batch_of(form: Form, value: Tensor, who: Who, *others: Tensor) -> int:
    """How many problems there are."""
    return largest_batch(form.query, form.key, value, *who[:6], *others)


def some(part: Tensor | None, nothing: Tensor) -> Tensor:
    """A pointer for the programs also where there is nothing to point at."""
    return nothing if part is None else part


def people_of(
    who: Who, nothing: Tensor, *, mirror: bool, stream: int
) -> tuple[tuple[Any, ...], dict[str, bool], tuple[int, ...]]:
    """``who`` in the programs' words, which of it there is, and its batch strides."""
    query, key = (2, 1) if mirror else (1, 2)  # which axis of (B, Q, K) is fixed and which streamed

    def matrix(part: Tensor | None) -> tuple[Any, int, int]:
        return (nothing, 0, 0) if part is None else (part, part.stride(key), part.stride(query))

    mask = None if who.mask is None else who.mask.view(torch.uint8)
    fixed, streamed = (who.key_labels, who.query_labels) if mirror else (who.query_labels, who.key_labels)
    low = high = None
    if streamed is not None:
        edge = torch.iinfo(torch.int64)
        low, high = (streamed.new_full((len(streamed), filled(streamed.shape[1])), far) for far in (edge.max, edge.min))
        for part in (low, high):
            part[:, : streamed.shape[1]] = streamed
        low, high = low.reshape(len(low), -1, stream).amin(2), high.reshape(len(high), -1, stream).amax(2)
    lens_row = 0 if who.lens is None else who.lens.stride(1)
    flags = {
        "BIAS": who.bias is not None,
        "MASK": mask is not None,
        "LENS": who.lens is not None,
        "EXCLUDE": streamed is not None,
    }
    strides = tuple(map(batch_stride, (who.bias, mask, who.lens, streamed, fixed, low)))
    labels = (some(part, nothing) for part in (streamed, fixed, low, high))
    return (*matrix(who.bias), *matrix(mask), some(who.lens, nothing), lens_row, *labels), flags, strides


def batch_stride(part: Tensor | None) -> int:
    """Stride from one member of the batch to the next, 0 where all share one."""
    return 0 if part is None or part.shape[0] == 1 else part.stride(0)

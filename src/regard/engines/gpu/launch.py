"""Triton programs, launched: averages and the sums of the adjoint pass.

Everything here is torch tensors on one device, (batch, rows, features), float32 or float64. A batch of 1 is shared by
all. The same code runs on a CPU where Triton interprets (TRITON_INTERPRET=1).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from regard.core.kernels import COSINE, LAPLACE
from regard.engines.gpu.lay import (
    ADDITIVE,
    ROW,
    Form,
    Tensor,
    Who,
    batch_of,
    batch_stride,
    filled,
    lay_fixed,
    lay_stream,
    people_of,
    sides_of,
    some,
    unit_lanes,
    wide,
)

# Columns up to which sums stay in registers; beyond, they go through matrix products.
FEW_COLUMNS = 4
# Fixed rows up to which small tiles keep the device busier.
FEW_ROWS = 1 << 13
# Tiles that a program sums up at a time, as in the programs.
RUN = 16
# Columns that one launch takes.
MANY_COLUMNS = {torch.float32: 128, torch.float64: 8}
# Numbers in which rows of hidden units begin, so that four are read at once.
ALIGNED = 16
# Bytes that the shares of one gradient may take together.
SHARES = 3 << 23


class Attended(NamedTuple):
    """Averages and what their gradients need."""

    output: Tensor  # (B, Q, P), 0 in empty rows
    logsumexp: Tensor  # (B, Q), −inf in empty rows
    state: Tensor  # (B, 2, n) peak in powers of two, and mass


class Pulled(NamedTuple):
    """Gradients; None where not wanted."""

    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    w: Tensor | None = None


class Tile(NamedTuple):
    """How many of the fixed and of the streamed side one program handles at once, and with what."""

    fixed: int
    stream: int
    warps: int = 1
    registers: int | None = None  # at most, so that more programs run side by side
    ahead: bool = False  # the next tile is read while this one is computed
    row: int = 1  # rows of the stream are filled up to a multiple of this

    @property
    def options(self) -> dict[str, Any]:
        return {"BF": self.fixed, "BS": self.stream, "num_warps": self.warps, "maxnreg": self.registers}


def attend(
    form: Form, value: Tensor, who: Who, *, alone: bool = False, tile: Tile | None = None, splits: int | None = None
) -> Attended:
    """Averages of value (B, K, P) and the state of every query.

    ``alone``: no gradients will be asked for. Those of additive scores have to round as their averages do.
    """
    from regard.programs.triton.attend import attend as program
    from regard.programs.triton.units import attend_units

    sides, batch = sides_of(form.query, form.key, value, who, guard=form.compact), batch_of(form, value, who)
    queries, D, keys = form.query.shape[1], form.query.shape[2], form.key.shape[1]
    most, n = MANY_COLUMNS[value.dtype], filled(queries)
    fixed = lay_fixed(sides.query)
    own = None if sides.own is None else lay_fixed(sides.own[:, :, None])
    parts = []
    for first in range(0, max(value.shape[2], 1), most):
        P = min(most, value.shape[2] - first)
        BP = products(P, value.dtype)
        lanes = 0 if alone else lanes_of(form, P)
        one = tile or (_unit_tile(form, queries * batch) if lanes else _attend_tile(form, BP, queries * batch))
        share = splits or _splits(-(-queries // one.fixed) * batch, keys, one, value.device)
        state = value.new_empty(share, batch, 2 + P, n)
        stream = lay_stream(sides.key, sides.shift, [sides.value[:, :, first : first + P]], one.stream, one.row)
        pairs = (fixed, stream, form.coef, some(own, form.coef), n, stream.shape[2], queries, keys)
        whom, flags, strides = people_of(who, form.coef, mirror=False, stream=one.stream)
        for code in form.codes[1:] if lanes else ():
            attend_units[(-(-queries // one.fixed), share, batch)](
                pairs, whom, (*map(batch_stride, (fixed, stream, own)), *strides),
                state, state.stride(0), state.stride(1), share, form.wide,
                SCORE=code, D=D, P=P, OWN=own is not None, **flags, GROUP=2, UL=lanes, BF=one.fixed, num_warps=1,
                maxnreg=one.registers,
            )  # fmt: skip
        for code in () if lanes else form.codes:
            program[(-(-queries // one.fixed), share, batch)](
                pairs, whom, (*map(batch_stride, (fixed, stream, own)), *strides),
                state, state.stride(0), state.stride(1), share, least_mass(keys),
                some(form.wide, form.coef),
                SCORE=code, D=D, P=P, BP=BP, PER=form.per, STATIC=form.static, AHEAD=one.ahead and form.static,
                DIRECT=code <= COSINE and who.bias is None, REDO=code <= LAPLACE or who.log_weight is not None,
                OWN=own is not None, **flags, PRECISION="tf32x3", **one.options,
            )  # fmt: skip
        parts.append(finish_state(state, queries))
    if len(parts) == 1:
        return parts[0]
    return parts[0]._replace(output=torch.cat([part.output for part in parts], 2))


def finish_state(state: Tensor, queries: int) -> Attended:
    from regard.programs.triton.attend import finish

    splits, batch, columns, n = state.shape
    merged = state.new_empty(batch, 2, n)
    output = state.new_empty(batch, queries, columns - 2)
    logsumexp = state.new_empty(batch, queries)
    finish[(-(-queries // ROW), batch)](
        state, state.stride(0), state.stride(1), merged, output, logsumexp, queries, n,
        SPLITS=splits, P=columns - 2, BF=ROW, num_warps=1,
    )  # fmt: skip
    return Attended(output, logsumexp, merged)


def spread(
    form: Form,
    value: Tensor,
    who: Who,
    state: Tensor,
    degree: int,
    *,
    tile: Tile | None = None,
    splits: int | None = None,
) -> Tensor:
    """Moments (B, Q, M) with products of δ, relative to the peaks of ``state``: δ, value·δ and at degree 2 δδᵀ."""
    from regard.programs.triton.spread import spread as program

    sides, batch = sides_of(form.query, form.key, value, who, guard=form.compact), batch_of(form, value, who)
    (_, queries, D), keys, P = form.query.shape, form.key.shape[1], value.shape[2]
    one = tile or Tile(32, 16)
    peak = state[:, 0, :queries]
    own = lay_fixed((-peak if sides.own is None else sides.own - peak)[:, :, None])
    fixed, others = lay_fixed(sides.query), [sides.value]
    apart, row = fixed, 0
    if form.apart is not None:
        apart, row = lay_fixed(form.apart[0]), D + 1 + P
        others.append(form.apart[1])
    stream = lay_stream(sides.key, sides.shift, others, one.stream)
    blocks, n, DD = -(-queries // one.fixed), filled(queries), apart.shape[1]
    share = splits or _splits(blocks * batch, keys, one, value.device)
    moments = value.new_zeros(share, batch, DD + P * DD + (DD * (DD + 1) // 2 if degree == 2 else 0), n)
    whom, flags, strides = people_of(who, form.coef, mirror=False, stream=one.stream)
    program[(blocks, share, batch)](
        (fixed, stream, form.coef, own, n, stream.shape[2], queries, keys), whom,
        (*map(batch_stride, (fixed, stream, own)), *strides), apart, batch_stride(apart),
        moments, moments.stride(0), moments.stride(1), share,
        SCORE=form.code, D=D, P=P, DEGREE=degree, DD=DD, ROW=row, PER=form.per, STATIC=form.static, **flags,
        **one.options,
    )  # fmt: skip
    return moments.sum(0)[:, :, :queries].transpose(1, 2)


class Sums(NamedTuple):
    """Raw sums of the adjoint pass; slope is the cotangent of a score, but for its constants.

    Three kinds: radial scores; dot products; hidden units, with r = 1/(1 + exp(2(a + b))).
    """

    sides: Tensor | None = None  # (B, N, D) Σ slope·δ, δ = streamed − fixed; or Σ slope·streamed, Σ slope·r(1 − r)
    squares: Tensor | None = None  # (D,) or (1,) Σ slope·δ²; or Σ slope·r
    columns: Tensor | None = None  # (B, N, P) Σ weight·g


def pull(
    form: Form,
    value: Tensor,
    who: Who,
    state: Tensor,
    grad: Tensor,
    level: Tensor,
    lines: Tensor | None = None,
    *,
    mirror: bool,
    want: bool = True,
    want_w: int = 0,
    tile: Tile | None = None,
    splits: int | None = None,
) -> Sums:
    """Sums over keys for every query or, mirrored, over queries for every key.

    grad (B, Q, P) and level (B, Q) are such that the cotangent of a score is weight·(grad·value − level), or with the
    coefficients ``lines`` (B, Q, 2 or 3, 1 + d) of left, right and perhaps plain as in ``regard.core.problem.Adjoint``.
    ``want_w``: 0 none, 1 for one w, 2 for one w per feature.
    """
    from regard.programs.triton.pull import pull as program
    from regard.programs.triton.units import pull_units

    sides, batch = sides_of(form.query, form.key, value, who, guard=form.compact), batch_of(form, value, who, grad)
    D, P, counts = form.query.shape[2], value.shape[2], (form.query.shape[1], form.key.shape[1])
    peak, mass = state[:, 0, : counts[0]], state[:, 1, : counts[0]]
    lost = ~torch.isfinite(mass)
    share = torch.where((mass > 0.0) & ~lost, 1.0 / mass, 0.0)
    own = -peak.masked_fill(lost, torch.nan)
    if sides.own is not None:
        own = own + sides.own
    height, affine, DD = level[:, :, None], 0, D
    laid: list[Tensor] = []
    if lines is None:
        grad, height = grad * share[:, :, None], height * share[:, :, None]
    else:
        # Of left·(grad·value − right) + plain, left and plain carry 1/mass.
        affine, DD = lines.shape[2] - 1, lines.shape[3] - 1
        scale = torch.stack([share, torch.ones_like(share), share][: 1 + affine], 2)
        laid = [(lines * scale[..., None]).flatten(2)]
    BP = products(P, value.dtype)
    lanes, many = lanes_of(form, P), counts[mirror] * batch
    one = tile or (_unit_tile(form, many) if lanes else _pull_tile(form, BP, many, mirror))
    if mirror:
        counts = counts[::-1]
        extra = [grad, height, *laid]
        streamed, shift = sides.query, own
        fixed, columns, fixed_own = lay_fixed(sides.key), lay_fixed(sides.value), lay_fixed(sides.shift[:, :, None])
        beside: list[Tensor | None] = [columns, None, None]
    else:
        extra = [sides.value]
        streamed, shift = sides.key, sides.shift
        fixed, columns, fixed_own = lay_fixed(sides.query), lay_fixed(grad), lay_fixed(own[:, :, None])
        beside = [columns, lay_fixed(height), lay_fixed(*laid) if laid else None]
    row = 0
    if form.apart is not None:
        row = D + 1 + sum(part.shape[2] for part in extra)
        extra.append(form.apart[not mirror])
    beside.append(fixed if form.apart is None else lay_fixed(form.apart[mirror]))
    stream = lay_stream(streamed, shift, extra, one.stream, one.row)
    n, blocks = filled(counts[0]), -(-counts[0] // one.fixed)
    # Rows of the fixed side that share a number of the gradient of w.
    thick = one.fixed * lanes // 32 or 1
    each = batch * D * n * value.element_size()
    if want_w and form.code == ADDITIVE:
        each += each // thick
    shares = splits or _splits(blocks * batch, counts[1], one, value.device, each)
    make = value.new_empty if form.static else value.new_zeros
    out = make(shares, batch, D, n) if want else None
    out_w = None
    if want_w:
        out_w = make(shares, batch, 1 if want_w == 1 and form.code < ADDITIVE else D, n // thick)
    out_columns = value.new_zeros(shares, batch, P, n) if mirror else None
    pairs = (fixed, stream, form.coef, fixed_own, n, stream.shape[2], *counts)
    whom, flags, strides = people_of(who, form.coef, mirror=mirror, stream=one.stream)
    # Keys mostly have nothing to add to their scores.
    added = not mirror or form.compact or who.log_weight is not None or who.hides
    gradients = (out, out_w, out_columns)
    arguments = (
        pairs, whom, (*map(batch_stride, (fixed, stream, fixed_own)), *strides),
        tuple(some(part, form.coef) for part in beside), tuple(map(batch_stride, beside)),
        tuple(some(part, form.coef) for part in gradients),
        tuple(0 if part is None else part.stride(0) for part in gradients),
        tuple(0 if part is None else part.stride(1) for part in gradients), shares, some(form.wide, form.coef),
    )  # fmt: skip
    if lanes:
        for code in form.codes[1:]:
            pull_units[(blocks, shares, batch)](
                *arguments, SCORE=code, D=D, P=P, MIRROR=mirror, WANT_W=want_w, **flags,
                UL=lanes, BF=one.fixed, num_warps=1, maxnreg=one.registers,
            )  # fmt: skip
    else:
        for code in form.codes:
            program[(blocks, shares, batch)](
                *arguments, SCORE=code, D=D, P=P, BP=BP, PER=form.per, STATIC=form.static, AFFINE=affine, DD=DD,
                ROW=row, MIRROR=mirror, WANT=want, WANT_W=want_w, OWN=added, **flags, PRECISION="tf32x3", **one.options,
            )  # fmt: skip

    def rows(part: Tensor | None) -> Tensor | None:
        return None if part is None else part.sum(0)[:, :, : counts[0]].transpose(1, 2)

    squares = None if out_w is None else (out_w if lanes else out_w[..., : counts[0]]).sum((0, 1, 3))
    return Sums(rows(out), squares, rows(out_columns))


def products(columns: int, dtype: torch.dtype) -> int:
    """Columns, filled up, that go through matrix products; 0 where they are summed one by one."""
    if columns <= FEW_COLUMNS or dtype == torch.float64:
        return 0
    return wide(columns)


def least_mass(keys: int) -> float:
    """A mass so far above what 2^x cuts off that the loss is below rounding; float64 programs divide it by 2^864."""
    return max(keys, 1) * 2.0**-96


def lanes_of(form: Form, columns: int) -> int:
    """Lanes that share a pair where hidden units are held in registers, else 0."""
    return unit_lanes(form.query.shape[2]) if form.code == ADDITIVE and columns <= FEW_COLUMNS else 0


def _unit_tile(form: Form, rows: int) -> Tile:
    """With more rows to a lane the stream is read less often, with fewer, and fewer registers, the device is busier."""
    each = 32 // unit_lanes(form.query.shape[2])
    if form.query.dtype == torch.float64 or rows <= FEW_ROWS:
        return Tile(each, 1, row=ALIGNED)
    return Tile(2 * each, 1, registers=128, row=ALIGNED)


def _attend_tile(form: Form, BP: int, rows: int) -> Tile:
    """Found by measuring on an H200 (docs/decisions/0010)."""
    d = form.query.shape[2]
    if BP:
        return Tile(64, 32, 4)
    if form.query.dtype == torch.float64:
        return Tile(64 if rows > 1 << 14 else 32, 8)
    if rows <= FEW_ROWS:
        return Tile(32, 16)
    if form.code >= ADDITIVE or d > 8:
        return Tile(64, 16, registers=128)
    if d <= 3:
        return Tile(256, 8, registers=96 if d == 1 else 128, ahead=True)
    return Tile(128, 8 if form.per else 16, registers=128)


def _pull_tile(form: Form, BP: int, rows: int, mirror: bool) -> Tile:
    d = form.query.shape[2]
    if BP:
        return Tile(64, 32, 4)
    if form.query.dtype == torch.float64 or (d > 8 and form.code < ADDITIVE):
        return Tile(32, 8)
    if rows <= FEW_ROWS:
        return Tile(32, 16)
    if form.code >= ADDITIVE:
        return Tile(64, 16, registers=128)
    if d <= 3:
        return Tile(128, 8) if d == 1 else Tile(64, 16)
    if form.per:
        return Tile(64, 8, registers=168) if mirror else Tile(32, 16, registers=128)
    return Tile(64, 16) if mirror else Tile(64, 4)


def _splits(blocks: int, streamed: int, tile: Tile, device: torch.device, bytes_each: int = 0) -> int:
    """Shares of the stream: many small programs leave no multiprocessor idle for long at the end."""
    wanted = -(-256 * multiprocessors(device) // (tile.warps * max(blocks, 1)))
    most = SHARES // bytes_each if bytes_each else 64
    return max(1, min(wanted, most, 64, streamed // (tile.stream * RUN)))


@lru_cache
def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)

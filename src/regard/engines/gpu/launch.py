"""Launches of the Triton programs over tiles: averages, moments of δ, and the sums of the backward pass.

Everything here is torch tensors on one device, (batch, rows, features), float32 or float64. A batch of 1 is shared by
all. The same code runs on a CPU if Triton interprets (TRITON_INTERPRET=1).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from regard.core.kernels import COSINE, LAPLACE
from regard.engines.gpu.layout import (
    ADDITIVE,
    ROW_MULTIPLE,
    FiniteSides,
    Tensor,
    TileScore,
    Visibility,
    batch_stride,
    finite_sides,
    fixed_layout,
    lanes_per_pair,
    largest_batch,
    or_any,
    padded,
    product_width,
    stream_layout,
    visibility_pointers,
)
from regard.programs.triton.program_arguments import BatchStrides, FixedColumns, Sums, TileOperands, TileVariant

# Columns up to which sums stay in registers; beyond, they go through matrix products.
MAX_REGISTER_COLUMNS = 4
# Fixed rows up to which small tiles keep the device busier.
MAX_ROWS_OF_SMALL_TILES = 1 << 13
# Tiles that a program sums up at a time, as in the programs.
TILES_PER_RUN = 16
# Columns that one launch takes.
MAX_COLUMNS = {torch.float32: 128, torch.float64: 8}
# Rows of hidden units begin at multiples of so many numbers, so that four are read at once.
UNIT_ROW_MULTIPLE = 16
# Bytes that the splits of one gradient may take together.
MAX_SPLIT_BYTES = 3 << 23


class ForwardResult(NamedTuple):
    """Averages and what their gradients need."""

    output: Tensor  # (B, Q, P), 0 in empty rows
    logsumexp: Tensor  # (B, Q), −inf in empty rows
    state: Tensor  # (B, 2, n) peak in powers of two, and mass


class TileShape(NamedTuple):
    """How many rows of the fixed and of the streamed side one program handles at once, and with what."""

    fixed: int
    stream: int
    warps: int = 1
    stages: int | None = None
    registers: int | None = None  # at most, so that more programs run side by side
    prefetch: bool = False  # the next tile is read while this one is computed
    row_multiple: int = 1  # rows of the stream are padded to a multiple of this

    @property
    def launch_options(self) -> dict[str, Any]:
        options = {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}
        return {name: given for name, given in options.items() if given is not None}


class BackwardSums(NamedTuple):
    """Raw sums of the backward pass; ``slope`` is the cotangent of a score, up to constant factors.

    Three kinds: radial scores; dot products; hidden units, with r = 1/(1 + exp(2(a + b))).
    """

    sides: Tensor | None = None  # (B, N, D) Σ slope·δ, δ = streamed − fixed; or Σ slope·streamed, Σ slope·r(1 − r)
    squares: Tensor | None = None  # (D,) or (1,) Σ slope·δ²; or Σ slope·r
    columns: Tensor | None = None  # (B, N, P) Σ weight·g


def launch_forward(
    score: TileScore,
    value: Tensor,
    visibility: Visibility,
    *,
    forward_only: bool = False,
    tile: TileShape | None = None,
    splits: int | None = None,
) -> ForwardResult:
    """Averages of value (B, K, P) and the state of every query.

    ``forward_only``: no gradients will be needed. Those of additive scores have to round as their averages do.
    """
    from regard.programs.triton.additive_units import additive_forward
    from regard.programs.triton.forward import forward

    sides, batch = _sides(score, value, visibility), _batch(score, value, visibility)
    queries, keys = score.query.shape[1], score.key.shape[1]
    most, n = MAX_COLUMNS[value.dtype], padded(queries)
    fixed = fixed_layout(sides.query)
    fixed_shift = None if sides.query_shift is None else fixed_layout(sides.query_shift[:, :, None])
    parts = []
    for first in range(0, max(value.shape[2], 1), most):
        P = min(most, value.shape[2] - first)
        BP = columns_by_products(P, value.dtype)
        lanes = 0 if forward_only else unit_lanes(score, P)
        one = tile or (_unit_tile(score, queries * batch) if lanes else _forward_tile(score, BP, queries * batch))
        blocks = -(-queries // one.fixed)
        share = splits or _splits(blocks * batch, keys, one, value.device)
        state = value.new_empty(share, batch, 2 + P, n)
        columns = [sides.value[:, :, first : first + P]]
        stream = stream_layout(sides.key, sides.key_shift, columns, one.stream, one.row_multiple)
        given, present = _arguments(score, visibility, fixed, stream, fixed_shift, (queries, keys), one.stream)
        arguments = (*given, state, state.stride(0), state.stride(1), share)
        variant = _variant(score, P, one, present)._replace(fixed_shift=fixed_shift is not None)
        for code in score.codes[1:] if lanes else ():
            additive_forward[(blocks, share, batch)](
                *arguments, score.wide, V=variant._replace(score=code, unit_lanes=lanes, group=2), **one.launch_options
            )
        for code in () if lanes else score.codes:
            chosen = variant._replace(
                score=code,
                product_columns=BP,
                prefetch=one.prefetch and score.unrolled,
                bounded=code <= COSINE and visibility.bias is None,
                redo=code <= LAPLACE or visibility.log_weight is not None,
            )
            wide = or_any(score.wide, score.coef)
            forward[(blocks, share, batch)](*arguments, least_mass(keys), wide, V=chosen, **one.launch_options)
        parts.append(merged_splits(state, queries))
    if len(parts) == 1:
        return parts[0]
    return parts[0]._replace(output=torch.cat([part.output for part in parts], 2))


def merged_splits(state: Tensor, queries: int) -> ForwardResult:
    """Averages and state from those of every split (splits, B, 2 + P, n)."""
    from regard.programs.triton.forward import merge_splits

    splits, batch, columns, n = state.shape
    merged = state.new_empty(batch, 2, n)
    output = state.new_empty(batch, queries, columns - 2)
    logsumexp = state.new_empty(batch, queries)
    merge_splits[(-(-queries // ROW_MULTIPLE), batch)](
        state, state.stride(0), state.stride(1), merged, output, logsumexp, queries, n,
        SPLITS=splits, P=columns - 2, BF=ROW_MULTIPLE, num_warps=1,
    )  # fmt: skip
    return ForwardResult(output, logsumexp, merged)


def launch_delta_moments(score: TileScore, value: Tensor, visibility: Visibility, state: Tensor, degree: int) -> Tensor:
    """Moments (B, Q, M) with products of δ, relative to the peaks of ``state``: δ, value·δ and at degree 2 δδᵀ."""
    from regard.programs.triton.delta_moments import delta_moments

    sides, batch = _sides(score, value, visibility), _batch(score, value, visibility)
    (_, queries, D), keys, P = score.query.shape, score.key.shape[1], value.shape[2]
    tile, peak = TileShape(32, 16), state[:, 0, :queries]
    fixed_shift = fixed_layout((-peak if sides.query_shift is None else sides.query_shift - peak)[:, :, None])
    fixed, others = fixed_layout(sides.query), [sides.value]
    delta, delta_row = fixed, 0
    if score.delta is not None:
        delta, delta_row = fixed_layout(score.delta[0]), D + 1 + P
        others.append(score.delta[1])
    stream = stream_layout(sides.key, sides.key_shift, others, tile.stream)
    blocks, n, N = -(-queries // tile.fixed), padded(queries), delta.shape[1]
    splits = _splits(blocks * batch, keys, tile, value.device)
    moments = value.new_zeros(splits, batch, N + P * N + (N * (N + 1) // 2 if degree == 2 else 0), n)
    given, present = _arguments(score, visibility, fixed, stream, fixed_shift, (queries, keys), tile.stream)
    variant = _variant(score, P, tile, present)._replace(degree=degree, delta_features=N, delta_row=delta_row)
    delta_moments[(blocks, splits, batch)](
        *given, delta, batch_stride(delta), moments, moments.stride(0), moments.stride(1), splits,
        V=variant, **tile.launch_options,
    )  # fmt: skip
    return moments.sum(0)[:, :, :queries].transpose(1, 2)


def launch_backward(
    score: TileScore,
    value: Tensor,
    visibility: Visibility,
    state: Tensor,
    grad: Tensor,
    level: Tensor,
    lines: Tensor | None = None,
    *,
    mirror: bool,
    want_sides: bool = True,
    want_w: int = 0,
    tile: TileShape | None = None,
    splits: int | None = None,
) -> BackwardSums:
    """Sums over keys for every query or, mirrored, over queries for every key.

    grad (B, Q, P) and level (B, Q) are such that the cotangent of a score is weight·(grad·value − level), or with the
    coefficients ``lines`` (B, Q, 2 or 3, 1 + d) of left, right and perhaps plain as in ``regard.core.problem.Adjoint``.
    ``want_w``: 0 none, 1 for one w, 2 for one w per feature.
    """
    from regard.programs.triton.additive_units import additive_backward
    from regard.programs.triton.backward import backward

    sides, batch = _sides(score, value, visibility), _batch(score, value, visibility, grad)
    D, P, counts = score.query.shape[2], value.shape[2], (score.query.shape[1], score.key.shape[1])
    peak, inverse_mass, lost = peak_and_inverse_mass(state, counts[0])
    query_shift = -peak.masked_fill(lost, torch.nan)
    if sides.query_shift is not None:
        query_shift = query_shift + sides.query_shift
    level, line_terms, delta_features = level[:, :, None], 0, D
    coefs: list[Tensor] = []
    if lines is None:
        grad, level = grad * inverse_mass[:, :, None], level * inverse_mass[:, :, None]
    else:
        # Of left·(grad·value − right) + plain, left and plain are multiplied by 1/mass.
        line_terms, delta_features = lines.shape[2] - 1, lines.shape[3] - 1
        factors = [inverse_mass, torch.ones_like(inverse_mass), inverse_mass][: 1 + line_terms]
        coefs = [(lines * torch.stack(factors, 2)[..., None]).flatten(2)]
    BP = columns_by_products(P, value.dtype)
    lanes, rows = unit_lanes(score, P), counts[mirror] * batch
    one = tile or (_unit_tile(score, rows) if lanes else _backward_tile(score, BP, rows, mirror))
    if mirror:
        counts = counts[::-1]
        extra = [grad, level, *coefs]
        streamed, stream_shift = sides.query, query_shift
        fixed, fixed_shift = fixed_layout(sides.key), fixed_layout(sides.key_shift[:, :, None])
        beside: list[Tensor | None] = [fixed_layout(sides.value), None, None]
    else:
        extra = [sides.value]
        streamed, stream_shift = sides.key, sides.key_shift
        fixed, fixed_shift = fixed_layout(sides.query), fixed_layout(query_shift[:, :, None])
        beside = [fixed_layout(grad), fixed_layout(level), fixed_layout(*coefs) if coefs else None]
    delta_row = 0
    if score.delta is not None:
        delta_row = D + 1 + sum(part.shape[2] for part in extra)
        extra.append(score.delta[not mirror])
    beside.append(fixed if score.delta is None else fixed_layout(score.delta[mirror]))
    stream = stream_layout(streamed, stream_shift, extra, one.stream, one.row_multiple)
    n, blocks = padded(counts[0]), -(-counts[0] // one.fixed)
    # Rows of the fixed side that share a number of the gradient of w.
    rows_per_sum = one.fixed * lanes // 32 or 1
    split_bytes = batch * D * n * value.element_size()
    if want_w and score.code == ADDITIVE:
        split_bytes += split_bytes // rows_per_sum
    share = splits or _splits(blocks * batch, counts[1], one, value.device, split_bytes)
    make = value.new_empty if score.unrolled else value.new_zeros
    out = make(share, batch, D, n) if want_sides else None
    out_w = None
    if want_w:
        out_w = make(share, batch, 1 if want_w == 1 and score.code < ADDITIVE else D, n // rows_per_sum)
    out_columns = value.new_zeros(share, batch, P, n) if mirror else None
    given, present = _arguments(score, visibility, fixed, stream, fixed_shift, counts, one.stream, mirror=mirror)
    found = (out, out_w, out_columns)
    arguments = (
        *given,
        FixedColumns(*(or_any(part, score.coef) for part in beside)), FixedColumns(*map(batch_stride, beside)),
        Sums(*(or_any(part, score.coef) for part in found)),
        *(Sums(*(0 if part is None else part.stride(axis) for part in found)) for axis in (0, 1)),
        share, or_any(score.wide, score.coef),
    )  # fmt: skip
    # Keys mostly have nothing to add to their scores.
    shifted = not mirror or score.compact or visibility.log_weight is not None or visibility.may_hide_non_finite
    variant = _variant(score, P, one, present)._replace(mirror=mirror, want_sides=want_sides, want_w=want_w)
    if lanes:
        for code in score.codes[1:]:
            chosen = variant._replace(score=code, unit_lanes=lanes)
            additive_backward[(blocks, share, batch)](*arguments, V=chosen, **one.launch_options)
    else:
        for code in score.codes:
            chosen = variant._replace(
                score=code,
                product_columns=BP,
                line_terms=line_terms,
                delta_features=delta_features,
                delta_row=delta_row,
                fixed_shift=shifted,
            )
            backward[(blocks, share, batch)](*arguments, V=chosen, **one.launch_options)

    def summed(part: Tensor | None) -> Tensor | None:
        return None if part is None else part.sum(0)[:, :, : counts[0]].transpose(1, 2)

    squares = None if out_w is None else (out_w if lanes else out_w[..., : counts[0]]).sum((0, 1, 3))
    return BackwardSums(summed(out), squares, summed(out_columns))


def peak_and_inverse_mass(state: Tensor, queries: int) -> tuple[Tensor, Tensor, Tensor]:
    """Peak and 1/mass (B, Q), 0 in empty rows, and the queries whose mass is not finite."""
    peak, mass = state[:, 0, :queries], state[:, 1, :queries]
    lost = ~torch.isfinite(mass)
    return peak, torch.where((mass > 0.0) & ~lost, 1.0 / mass, 0.0), lost


def _sides(score: TileScore, value: Tensor, visibility: Visibility) -> FiniteSides:
    return finite_sides(score.query, score.key, value, visibility, guard=score.compact)


def _batch(score: TileScore, value: Tensor, visibility: Visibility, *others: Tensor) -> int:
    return largest_batch(score.query, score.key, value, *visibility[:6], *others)


def _arguments(
    score: TileScore, visibility: Visibility, fixed: Tensor, stream: Tensor, fixed_shift: Tensor | None,
    counts: tuple[int, int], tile: int, *, mirror: bool = False,
) -> tuple[tuple[Any, ...], dict[str, bool]]:  # fmt: skip
    """Operands, visibility and batch strides, with which all programs over tiles begin; and which options there are."""
    pointers, present, strides = visibility_pointers(visibility, score.coef, mirror=mirror, tile=tile)
    shift, length = or_any(fixed_shift, score.coef), fixed.shape[2]
    operands = TileOperands(fixed, stream, score.coef, shift, length, stream.shape[2], *counts)
    return (operands, pointers, BatchStrides(*map(batch_stride, (fixed, stream, fixed_shift)), *strides)), present


def _variant(score: TileScore, columns: int, tile: TileShape, present: dict[str, bool]) -> TileVariant:
    """What all programs over tiles are compiled for."""
    return TileVariant(
        score.code,
        score.query.shape[2],
        columns,
        tile.fixed,
        tile.stream,
        **present,
        per_feature=score.per_feature,
        unrolled=score.unrolled,
    )


def columns_by_products(columns: int, dtype: torch.dtype) -> int:
    """Columns, padded, that go through matrix products; 0 if they are summed one by one."""
    return 0 if columns <= MAX_REGISTER_COLUMNS or dtype == torch.float64 else product_width(columns)


def least_mass(keys: int) -> float:
    """A mass so far above what 2^x flushes to 0 that the loss is below rounding; in float64 it is scaled by 2^−864."""
    return max(keys, 1) * 2.0**-96


def unit_lanes(score: TileScore, columns: int) -> int:
    """Lanes that share a pair if hidden units are held in registers, else 0."""
    few = score.code == ADDITIVE and columns <= MAX_REGISTER_COLUMNS
    return lanes_per_pair(score.query.shape[2]) if few else 0


def _unit_tile(score: TileScore, rows: int) -> TileShape:
    """More rows to a lane read the stream less often; fewer rows, and fewer registers, keep the device busier."""
    each = 32 // lanes_per_pair(score.query.shape[2])
    if score.query.dtype == torch.float64 or rows <= MAX_ROWS_OF_SMALL_TILES:
        return TileShape(each, 1, row_multiple=UNIT_ROW_MULTIPLE)
    return TileShape(2 * each, 1, registers=128, row_multiple=UNIT_ROW_MULTIPLE)


def _forward_tile(score: TileScore, BP: int, rows: int) -> TileShape:
    """Found by measuring on an H200 (docs/decisions/0010)."""
    d = score.query.shape[2]
    if BP:
        return TileShape(64, 32, 4)
    if score.query.dtype == torch.float64:
        return TileShape(64 if rows > 1 << 14 else 32, 8)
    if rows <= MAX_ROWS_OF_SMALL_TILES:
        return TileShape(32, 16)
    if score.code >= ADDITIVE or d > 8:
        return TileShape(64, 16, registers=128)
    if d <= 3:
        return TileShape(256, 8, registers=96 if d == 1 else 128, prefetch=True)
    return TileShape(128, 8 if score.per_feature else 16, registers=128)


def _backward_tile(score: TileScore, BP: int, rows: int, mirror: bool) -> TileShape:
    d = score.query.shape[2]
    if BP:
        return TileShape(64, 32, 4)
    if score.query.dtype == torch.float64 or (d > 8 and score.code < ADDITIVE):
        return TileShape(32, 8)
    if rows <= MAX_ROWS_OF_SMALL_TILES:
        return TileShape(32, 16)
    if score.code >= ADDITIVE:
        return TileShape(64, 16, registers=128)
    if d <= 3:
        return TileShape(128, 8) if d == 1 else TileShape(64, 16)
    if score.per_feature:
        return TileShape(64, 8, registers=168) if mirror else TileShape(32, 16, registers=128)
    return TileShape(64, 16) if mirror else TileShape(64, 4)


def _splits(blocks: int, streamed: int, tile: TileShape, device: torch.device, split_bytes: int = 0) -> int:
    """Parts of the stream: many small programs leave no multiprocessor idle for long at the end."""
    wanted = -(-256 * multiprocessors(device) // (tile.warps * max(blocks, 1)))
    most = MAX_SPLIT_BYTES // split_bytes if split_bytes else 64
    return max(1, min(wanted, most, 64, streamed // (tile.stream * TILES_PER_RUN)))


@lru_cache
def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)

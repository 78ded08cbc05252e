"""Averages and gradients with scores from matrix products: Gaussian scores of many features, and dot products."""

from __future__ import annotations

from typing import NamedTuple

import torch

from regard.engines.gpu.launch import FEW_COLUMNS, Attended, Pulled, finish_state, least_mass, multiprocessors
from regard.engines.gpu.lay import (
    GAUSSIAN_ROWS,
    LOG2E,
    Batch,
    Sides,
    Tensor,
    Who,
    batch_stride,
    largest_batch,
    lay_fixed,
    people_of,
    sides_of,
    some,
    wide,
)
from regard.engines.gpu.rows import Rows, Scaled, dot_rows, gaussian_rows, halves, scaled


class Told(NamedTuple):
    """A batch of problems in the programs' words."""

    rows: Rows
    sides: Sides
    shift: Tensor  # (B, m) added to the scores of keys
    scaled: Scaled | None  # for a Gaussian score
    powers: tuple[Tensor, Tensor] | None  # for a dot product


def told(it: Batch, peak: Tensor | None = None) -> Told:
    """In the rows of a Gaussian score, queries have their ``peak`` (B, Q) taken off."""
    sides = sides_of(*it[1:4], it.who, guard=False)
    found = powers = None
    if it.code == GAUSSIAN_ROWS:
        found = scaled(sides.query, sides.key, it.w)
        own = sides.own if peak is None else -peak if sides.own is None else sides.own - peak
        rows = gaussian_rows(found, sides.shift, own)
        shift = torch.zeros_like(sides.shift)
    else:
        rows, powers = dot_rows(sides.query, sides.key, it.w)
        shift = sides.shift
    shift = lay_fixed(shift[:, :, None])[:, 0]
    shift[:, it.key.shape[1] :] = -torch.inf
    return Told(rows, sides, shift, found, powers)


def pulled(it: Batch, state: Tensor, grad: Tensor, level: Tensor, want: frozenset[str]) -> Pulled:
    """Gradients, with cotangents of scores weight·(grad·value − level)."""
    queries, who, w = it.query.shape[1], it.who, it.w
    peak, mass = state[:, 0, :queries], state[:, 1, :queries]
    told_of = told(it, peak.masked_fill(~torch.isfinite(mass), torch.nan))
    out: dict[str, Tensor] = {}
    # A Gaussian w is in both sides.
    if want & {"query", "w"}:
        out["query"] = _of_side(told_of, pull_rows(told_of, who, state, grad, level, mirror=False), w, mirror=False)
    if want & {"key", "value"} or ("w" in want and told_of.scaled is not None):
        sums = pull_rows(told_of, who, state, grad, level, mirror=True)
        assert sums.columns is not None
        out["key"], out["value"] = _of_side(told_of, sums, w, mirror=True), sums.columns
    if "w" in want:
        out["w"] = _of_w(told_of, out, w)
    return Pulled(**out)


def _of_side(it: Told, sums: RowSums, w: Tensor, *, mirror: bool) -> Tensor:
    if it.scaled is None:
        assert it.powers is not None
        return w * sums.sides / it.powers[not mirror]
    fixed = it.scaled.key if mirror else it.scaled.query
    return it.scaled.unit / LOG2E * (sums.sides - fixed * sums.sums[:, :, None])


def _of_w(it: Told, out: dict[str, Tensor], w: Tensor) -> Tensor:
    safe = torch.where(w != 0.0, w, 1.0)
    if it.scaled is None:
        return torch.where(w != 0.0, (out["query"] * it.sides.query).sum() / safe, 0.0)
    both = (out["query"] * (it.sides.query - it.scaled.centre)).sum((0, 1))
    both = both + (out["key"] * (it.sides.key - it.scaled.centre)).sum((0, 1))
    return torch.where(w != 0.0, (both if w.ndim else both.sum()) / safe, 0.0)


class Tile(NamedTuple):
    """Rows of the fixed and of the streamed side that one program handles at once, and with what."""

    fixed: int
    stream: int
    warps: int
    stages: int


def attend_rows(it: Told, who: Who, *, tile: Tile | None = None, splits: int | None = None) -> Attended:
    """Averages and the state of every query."""
    from regard.programs.triton.product import attend_product as program

    rows, value = it.rows, it.sides.value
    queries, keys, batch = it.sides.query.shape[1], it.sides.key.shape[1], _batch(it, who)
    P, n, m = value.shape[2], rows.query.shape[1], rows.key.shape[1]
    unit = power(value, 6.0) if rows.exact and P > FEW_COLUMNS else rows.factor.new_ones(())
    BP, columns = _columns(value, unit, rows)
    own = None if it.sides.own is None or rows.gaussian else lay_fixed(it.sides.own[:, :, None])[:, 0]
    one = tile or Tile(128, 64, 4, 2)
    share = splits or _shares(-(-queries // one.fixed) * batch, keys, one, value.device)
    state = torch.empty(share, batch, 2 + P, n, dtype=torch.float32, device=value.device)
    whom, flags, strides = people_of(who, rows.factor, mirror=False, stream=one.stream)
    program[(-(-queries // one.fixed), share, batch)](
        (
            rows.query, rows.key, rows.factor, some(own, rows.factor), n, it.shift, queries, keys, m,
            rows.query.shape[2],
        ),
        whom, (*map(batch_stride, (rows.query, rows.key, own)), *strides), columns, batch_stride(columns),
        batch_stride(it.shift), state, state.stride(0), state.stride(1), share, least_mass(keys),
        P=P, BP=BP, BE=rows.piece, GAUSSIAN=rows.gaussian, DIRECT=rows.gaussian and not BP and who.bias is None,
        EXACT=rows.exact, SPLIT=rows.split, OWN=own is not None, **flags,
        BF=one.fixed, BS=one.stream, num_warps=one.warps, num_stages=one.stages,
    )  # fmt: skip
    found = finish_state(state, queries)
    return found._replace(output=found.output / unit)


class RowSums(NamedTuple):
    """Raw sums of the adjoint pass."""

    sides: Tensor  # (B, N, d) Σ slope·streamed features
    sums: Tensor  # (B, N) Σ slope
    columns: Tensor | None  # (B, N, P) Σ weight·g


def pull_rows(
    it: Told,
    who: Who,
    state: Tensor,
    grad: Tensor,
    level: Tensor,
    *,
    mirror: bool,
    tile: Tile | None = None,
    splits: int | None = None,
) -> RowSums:
    """Sums over keys for every query or, mirrored, over queries for every key.

    Cotangents of scores are weight·(grad·value − level).
    """
    from regard.programs.triton.product_pull import pull_product as program

    rows, value = it.rows, it.sides.value.to(torch.float32)
    queries, keys, batch, P = it.sides.query.shape[1], it.sides.key.shape[1], _batch(it, who, grad), value.shape[2]
    peak, mass = state[:, 0, :queries], state[:, 1, :queries]
    lost = ~torch.isfinite(mass)
    share = torch.where((mass > 0.0) & ~lost, 1.0 / mass, 0.0)[:, :, None]
    if mirror:
        grad, level = grad * share, level * share[:, :, 0]
    # Numbers near 2^6 and cotangents near 2^12 use the whole range of two halves.
    unit = power(grad.abs().amax() * value.abs().amax() * P + level.abs().amax(), 12.0)
    value_unit, grad_unit = rows.factor.new_ones(()), unit
    if P > FEW_COLUMNS:
        value_unit, grad_unit = power(value, 6.0) if rows.exact else value_unit, power(grad, 6.0)
    sides = [(grad, grad_unit), (value, value_unit)]
    # Without rows to be in, the peaks are added to scores.
    own = shift = it.shift
    if not rows.gaussian:
        low = -peak.masked_fill(lost, torch.nan) + (0.0 if it.sides.own is None else it.sides.own)
        low = lay_fixed(low[:, :, None])[:, 0]
        own, shift = low, it.shift
        if mirror:
            own, shift = it.shift, low.clone()
            shift[:, queries:] = -torch.inf
    counts, fixed, stream, features = (queries, keys), rows.query, rows.key, rows.key_features
    if mirror:
        counts, fixed, stream, features = (keys, queries), rows.key, rows.query, rows.query_features
        sides = sides[::-1]
    height = lay_fixed((level * unit)[:, :, None])[:, 0]
    (BP, fixed_columns), (_, stream_columns) = (_columns(part, by, rows) for part, by in sides)
    one = tile or Tile(64, 64, 4, 2)
    n, m, blocks = fixed.shape[1], stream.shape[1], -(-counts[0] // one.fixed)
    shares = splits or _shares(blocks * batch, counts[1], one, value.device)
    grads = tuple(
        torch.empty(shares, batch, width, n, dtype=torch.float32, device=value.device)
        for width in (rows.width, 1, P if mirror else 1)
    )
    whom, flags, strides = people_of(who, rows.factor, mirror=mirror, stream=one.stream)
    program[(blocks, shares, batch)](
        (fixed, stream, rows.factor, own, n, shift, *counts, m, fixed.shape[2]), whom,
        (*map(batch_stride, (fixed, stream, own)), *strides), batch_stride(shift),
        features, batch_stride(features), (fixed_columns, stream_columns),
        (batch_stride(fixed_columns), batch_stride(stream_columns)), height, batch_stride(height),
        (unit / (grad_unit * value_unit)).reshape(1),
        grads, tuple(part.stride(0) for part in grads), tuple(part.stride(1) for part in grads), shares,
        D=rows.width, BD=wide(rows.width), P=P, BP=BP, BE=rows.piece,
        GAUSSIAN=rows.gaussian, EXACT=rows.exact, SPLIT=rows.split, MIRROR=mirror, **flags,
        BF=one.fixed, BS=one.stream, num_warps=one.warps, num_stages=one.stages,
    )  # fmt: skip
    out, sums, columns = (part.sum(0)[:, :, : counts[0]].transpose(1, 2) for part in grads)
    back = 1.0 / unit if mirror else share / unit
    return RowSums(out * back, (sums * back)[:, :, 0], columns / grad_unit if mirror else None)


def power(x: Tensor, exponent: float) -> Tensor:
    """The power of two that brings the largest number near 2^exponent."""
    largest = x.to(torch.float32).abs().amax().clamp(min=1e-30)
    return torch.exp2(exponent - torch.frexp(largest).exponent.to(torch.float32))


def _columns(part: Tensor, unit: Tensor, rows: Rows) -> tuple[int, Tensor]:
    """A few columns (B, P, n) in float32; many for matrix products, as they are or in halves (B, 2P, n)."""
    P = part.shape[2]
    part = part.to(torch.float32) * unit
    if P <= FEW_COLUMNS:
        return 0, lay_fixed(part)
    return wide(P), lay_fixed(*halves(part)) if rows.exact else lay_fixed(part.to(rows.query.dtype))


def _batch(it: Told, who: Who, *others: Tensor) -> int:
    return largest_batch(it.rows.query, it.rows.key, it.sides.value, it.shift, *who[:6], *others)


def _shares(blocks: int, streamed: int, tile: Tile, device: torch.device) -> int:
    """Shares of the stream, so that every multiprocessor has several programs to run."""
    wanted = 4 * multiprocessors(device)
    return max(1, min(-(-wanted // max(blocks, 1)), streamed // (tile.stream * 16), 32))

"""Averages and gradients with scores from matrix products: Gaussian scores of many features, and dot products."""

from __future__ import annotations

from typing import NamedTuple

import torch

from regard.engines.gpu.launch import (
    MAX_REGISTER_COLUMNS,
    BackwardSums,
    ForwardResult,
    TileShape,
    least_mass,
    merged_splits,
    multiprocessors,
    peak_and_inverse_mass,
)
from regard.engines.gpu.layout import (
    GAUSSIAN_PRODUCTS,
    FiniteSides,
    LoweredBatch,
    Tensor,
    Visibility,
    batch_stride,
    finite_sides,
    fixed_layout,
    fixed_vector,
    largest_batch,
    or_any,
    product_width,
    visibility_pointers,
)
from regard.engines.gpu.product_rows import (
    ProductRows,
    ScaledFeatures,
    dot_rows,
    gaussian_rows,
    halves,
    power_of_two,
    scaled_features,
)
from regard.programs.triton.program_arguments import BatchStrides, ProductOperands, ProductVariant, Sums


class ProductProblem(NamedTuple):
    """A batch of problems laid out for matrix products."""

    rows: ProductRows
    sides: FiniteSides
    visibility: Visibility
    key_shift: Tensor  # (B, m) added to the scores of keys
    scaled: ScaledFeatures | None  # for a Gaussian score
    powers: tuple[Tensor, Tensor] | None  # for a dot product


def product_problem(it: LoweredBatch, peak: Tensor | None = None) -> ProductProblem:
    """Lay out a batch; in the rows of a Gaussian score, ``peak`` (B, Q) is subtracted from those of the queries."""
    sides = finite_sides(it.query, it.key, it.value, it.visibility, guard=False)
    scaled = powers = None
    if it.code == GAUSSIAN_PRODUCTS:
        scaled = scaled_features(sides.query, sides.key, it.w)
        shift = sides.query_shift
        if peak is not None:
            shift = -peak if shift is None else shift - peak
        rows = gaussian_rows(scaled, sides.key_shift, shift)
        key_shift = torch.zeros_like(sides.key_shift)
    else:
        rows, powers = dot_rows(sides.query, sides.key, it.w)
        key_shift = sides.key_shift
    key_shift = fixed_vector(key_shift)
    key_shift[:, it.key.shape[1] :] = -torch.inf
    return ProductProblem(rows, sides, it.visibility, key_shift, scaled, powers)


def product_forward(it: ProductProblem) -> ForwardResult:
    """Averages and the state of every query."""
    from regard.programs.triton.product_forward import product_forward as program

    rows, value, tile = it.rows, it.sides.value, TileShape(128, 64, 4, 2)
    queries, keys, batch, P = it.sides.query.shape[1], it.sides.key.shape[1], _batch(it), value.shape[2]
    n, m = rows.query.shape[1], rows.key.shape[1]
    unit = power_of_two(value, 6.0) if rows.exact and P > MAX_REGISTER_COLUMNS else rows.factor.new_ones(())
    BP, columns = _columns(value, unit, rows)
    shift = None if it.sides.query_shift is None or rows.gaussian else fixed_vector(it.sides.query_shift)
    blocks = -(-queries // tile.fixed)
    splits = _splits(blocks * batch, keys, tile, value.device)
    state = torch.empty(splits, batch, 2 + P, n, dtype=torch.float32, device=value.device)
    pointers, present, strides = visibility_pointers(it.visibility, rows.factor, mirror=False, tile=tile.stream)
    variant = _variant(rows, P, BP, tile, present)._replace(
        fixed_shift=shift is not None, bounded=rows.gaussian and not BP and it.visibility.bias is None
    )
    program[(blocks, splits, batch)](
        ProductOperands(
            rows.query, rows.key, rows.factor, or_any(shift, rows.factor), n, it.key_shift, queries, keys, m,
            rows.query.shape[2],
        ),
        pointers, BatchStrides(*map(batch_stride, (rows.query, rows.key, shift)), *strides), columns,
        batch_stride(columns), batch_stride(it.key_shift), state, state.stride(0), state.stride(1), splits,
        least_mass(keys), V=variant, **tile.launch_options,
    )  # fmt: skip
    found = merged_splits(state, queries)
    return found._replace(output=found.output / unit)


def product_backward(it: ProductProblem, state: Tensor, grad: Tensor, level: Tensor, *, mirror: bool) -> BackwardSums:
    """Sums over keys for every query or, mirrored, over queries for every key.

    Cotangents of scores are weight·(grad·value − level). Sums are Σ slope·δ of scaled features for a Gaussian score,
    Σ slope·streamed for a dot product.
    """
    from regard.programs.triton.product_backward import product_backward as program

    rows, value, tile = it.rows, it.sides.value.to(torch.float32), TileShape(64, 64, 4, 2)
    queries, keys, batch, P = it.sides.query.shape[1], it.sides.key.shape[1], _batch(it, grad), value.shape[2]
    peak, inverse_mass, lost = peak_and_inverse_mass(state, queries)
    if mirror:
        grad, level = grad * inverse_mass[:, :, None], level * inverse_mass
    # Numbers near 2^6 and cotangents near 2^12 use the whole range of two halves.
    unit = power_of_two(grad.abs().amax() * value.abs().amax() * P + level.abs().amax(), 12.0)
    value_unit, grad_unit = rows.factor.new_ones(()), unit
    if P > MAX_REGISTER_COLUMNS:
        value_unit, grad_unit = power_of_two(value, 6.0) if rows.exact else value_unit, power_of_two(grad, 6.0)
    columns_of_sides = [(grad, grad_unit), (value, value_unit)]
    # The rows of a Gaussian score contain the peaks; to a dot product they are added.
    fixed_shift = stream_shift = it.key_shift
    if not rows.gaussian:
        query_shift = -peak.masked_fill(lost, torch.nan)
        query_shift = fixed_vector(query_shift + (0.0 if it.sides.query_shift is None else it.sides.query_shift))
        if mirror:
            stream_shift = query_shift.clone()
            stream_shift[:, queries:] = -torch.inf
        else:
            fixed_shift = query_shift
    counts, fixed, stream, features = (queries, keys), rows.query, rows.key, rows.key_features
    if mirror:
        counts, fixed, stream, features = (keys, queries), rows.key, rows.query, rows.query_features
        columns_of_sides = columns_of_sides[::-1]
    scaled_level = fixed_vector(level * unit)
    (BP, fixed_columns), (_, stream_columns) = (_columns(part, by, rows) for part, by in columns_of_sides)
    n, m, blocks = fixed.shape[1], stream.shape[1], -(-counts[0] // tile.fixed)
    splits = _splits(blocks * batch, counts[1], tile, value.device)
    sums = Sums(
        *(
            torch.empty(splits, batch, width, n, dtype=torch.float32, device=value.device)
            for width in (rows.width, 1, P if mirror else 1)
        )
    )
    pointers, present, strides = visibility_pointers(it.visibility, rows.factor, mirror=mirror, tile=tile.stream)
    variant = _variant(rows, P, BP, tile, present)._replace(
        mirror=mirror, fixed_shift=not rows.gaussian, features=rows.width, product_features=product_width(rows.width)
    )
    program[(blocks, splits, batch)](
        ProductOperands(fixed, stream, rows.factor, fixed_shift, n, stream_shift, *counts, m, fixed.shape[2]), pointers,
        BatchStrides(*map(batch_stride, (fixed, stream, fixed_shift)), *strides), batch_stride(stream_shift),
        features, batch_stride(features), (fixed_columns, stream_columns),
        (batch_stride(fixed_columns), batch_stride(stream_columns)), scaled_level, batch_stride(scaled_level),
        (unit / (grad_unit * value_unit)).reshape(1),
        sums, *(Sums(*(part.stride(axis) for part in sums)) for axis in (0, 1)), splits,
        V=variant, **tile.launch_options,
    )  # fmt: skip
    products, slopes, columns = (part.sum(0)[:, :, : counts[0]].transpose(1, 2) for part in sums)
    back = 1.0 / unit if mirror else inverse_mass[:, :, None] / unit
    products, slopes = products * back, slopes * back
    if it.scaled is not None:
        sides = products - (it.scaled.key if mirror else it.scaled.query) * slopes
    else:
        assert it.powers is not None
        sides = products / it.powers[not mirror]
    return BackwardSums(sides, None, columns / grad_unit if mirror else None)


def _variant(rows: ProductRows, P: int, BP: int, tile: TileShape, present: dict[str, bool]) -> ProductVariant:
    """What both programs are compiled for."""
    return ProductVariant(P, BP, rows.piece, rows.gaussian, rows.exact, rows.split, tile.fixed, tile.stream, **present)


def _columns(part: Tensor, unit: Tensor, rows: ProductRows) -> tuple[int, Tensor]:
    """A few columns (B, P, n) in float32; many for matrix products, as they are or in halves (B, 2P, n)."""
    P = part.shape[2]
    part = part.to(torch.float32) * unit
    if P <= MAX_REGISTER_COLUMNS:
        return 0, fixed_layout(part)
    return product_width(P), fixed_layout(*halves(part)) if rows.exact else fixed_layout(part.to(rows.query.dtype))


def _batch(it: ProductProblem, *others: Tensor) -> int:
    return largest_batch(it.rows.query, it.rows.key, it.sides.value, it.key_shift, *it.visibility[:6], *others)


def _splits(blocks: int, streamed: int, tile: TileShape, device: torch.device) -> int:
    """Parts of the stream, so that every multiprocessor has several programs to run."""
    wanted = 4 * multiprocessors(device)
    return max(1, min(-(-wanted // max(blocks, 1)), streamed // (tile.stream * 16), 32))

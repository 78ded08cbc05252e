"""Arguments of the Triton programs by name: what the host fills in and the programs read.

A program works on tiles of pairs. One side of the pairs is *fixed*: a program holds a block of its rows and sums over
the other side, which is *streamed* tile by tile. Forward, queries are fixed and keys are streamed; gradients of keys
and values have it the other way round (``mirror``).

Strides are in elements. A member of a batch that all others share has a batch stride of 0. Where an optional tensor is
absent, its pointer is that of any other tensor and the variant has False for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class TileOperands(NamedTuple):
    """Both sides of a score, laid out for programs that take differences of features."""

    fixed: Any  # (features, length), feature by feature
    stream: Any  # (tiles, tile_rows, BS): features, what is added to the scores, columns
    coef: Any  # (features,) or (1,)
    fixed_shift: Any  # (length,) added to the scores of the fixed side
    length: Any  # rows of the fixed side, padded
    tile_rows: Any  # numbers that a streamed row has
    fixed_count: Any  # rows of the fixed side without padding
    stream_count: Any


class ProductOperands(NamedTuple):
    """Both sides of a score as rows for matrix products."""

    fixed: Any  # (length, row_length)
    stream: Any  # (stream_length, row_length)
    coef: Any  # (1,)
    fixed_shift: Any  # (length,) added to the scores of the fixed side
    length: Any  # rows of the fixed side, padded
    stream_shift: Any  # (stream_length,) added to the scores of the streamed side
    fixed_count: Any  # rows of the fixed side without padding
    stream_count: Any
    stream_length: Any  # rows of the streamed side, padded
    row_length: Any


class VisibilityPointers(NamedTuple):
    """Which pairs may attend, and what is added to their scores."""

    bias: Any
    bias_stream: Any  # stride from one streamed row to the next
    bias_fixed: Any
    mask: Any
    mask_stream: Any
    mask_fixed: Any
    lens: Any
    lens_stride: Any
    stream_labels: Any
    fixed_labels: Any
    lowest_labels: Any  # smallest label of each streamed tile
    highest_labels: Any


class BatchStrides(NamedTuple):
    """Strides from one member of the batch to the next."""

    fixed: int
    stream: int
    fixed_shift: int
    bias: int
    mask: int
    lens: int
    stream_labels: int
    fixed_labels: int
    tile_labels: int


class FixedColumns(NamedTuple):
    """What the backward pass needs of the fixed side besides its features; also their batch strides."""

    columns: Any  # (columns, length)
    level: Any  # (length,) unless mirrored
    lines: Any  # (coefficients, length) unless mirrored
    delta: Any  # (delta_features, length) the features that δ is a difference of


class Sums(NamedTuple):
    """Where the backward pass writes its sums, each (splits, batch, …, length); also their strides."""

    sides: Any  # (features, length)
    w: Any  # (1, length) or (features, length)
    columns: Any  # (columns, length)


class TileVariant(NamedTuple):
    """What a program over tiles of differences is compiled for."""

    score: int  # a code of ``triton_math``
    features: int
    columns: int
    BF: int  # rows of the fixed side in a tile
    BS: int = 1  # rows of the streamed side in a tile
    bias: bool = False
    mask: bool = False
    lens: bool = False
    exclude: bool = False
    mirror: bool = False  # keys are fixed and queries are streamed
    fixed_shift: bool = True  # whether there is one
    per_feature: bool = False  # whether every feature has a coefficient of its own
    unrolled: bool = False  # features are few: held in registers, with loops over them unrolled
    prefetch: bool = False  # the next tile is read while this one is computed
    product_columns: int = 0  # columns, padded for matrix products; 0: summed one by one
    bounded: bool = False  # weights are at most 1 and need no running peak
    redo: bool = False  # but blocks with a query of tiny mass are done again with one
    degree: int = 0  # of the moments in δ
    delta_features: int = 0
    delta_row: int = 0  # row of a streamed tile where the features of δ begin
    line_terms: int = 0  # 0: no lines; 1: left and right; 2: also plain
    want_sides: bool = True
    want_w: int = 0  # 0: not; 1: one w; 2: one per feature
    unit_lanes: int = 0  # lanes that share a pair, each with some of the hidden units
    group: int = 1  # streamed rows handled together


class ProductVariant(NamedTuple):
    """What a program over matrix products is compiled for."""

    columns: int
    product_columns: int  # columns, padded for matrix products; 0: summed one by one
    piece: int  # length of a product
    gaussian: bool
    exact: bool  # float32 numbers as two halves
    split: bool  # whether high and low parts are products of their own
    BF: int
    BS: int
    bias: bool = False
    mask: bool = False
    lens: bool = False
    exclude: bool = False
    mirror: bool = False
    fixed_shift: bool = False
    bounded: bool = False  # scores are at most 0 and need no running peak
    features: int = 0
    product_features: int = 0  # features, padded for matrix products


class LayerVariant(NamedTuple):
    """What a program for a layer's size is compiled for."""

    score: int
    per_feature: int  # 1 if every feature has a w of its own, else 0
    features: int
    product_features: int  # padded for matrix products
    columns: int
    product_columns: int
    lens: int  # 0: none; 1: one per member of the batch; 2: one per query
    mask: bool
    unfactored: bool  # scores from differences (of features) or sums (of units), not from products, from the start
    BF: int
    BS: int
    mirror: bool = False
    want_w: bool = False


class Strides(NamedTuple):
    """Strides from one member of the batch, one row and one column to the next; of masks, one query and one key."""

    batch: int
    row: int
    column: int


class Matrix(NamedTuple):
    """A matrix of one member of the batch, in the layout that it has."""

    base: Any
    count: Any  # rows
    strides: Any


class LayerMask(NamedTuple):
    """Lengths and mask of one member of the batch."""

    lens: Any
    mask: Any
    lens_row: Any  # stride from one query to the next
    mask_strides: Any

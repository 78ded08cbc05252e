"""Problems of a layer's size, launched: one program forward and two backward, however many tensors there are.

Laying out rows takes the host a hundred small launches, a millisecond; here tensors are read in the layout they have.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.core.kernels import GAUSSIAN
from regard.engines.gpu.launch import ForwardResult, TileShape, multiprocessors
from regard.engines.gpu.layout import ADDITIVE, LoweredBatch, Tensor, product_width
from regard.programs.triton.program_arguments import LayerVariant, Strides

# Features from which on products are used for Gaussian scores.
MIN_PRODUCT_FEATURES = 8


def layer_forward(it: LoweredBatch, tile: TileShape | None = None) -> ForwardResult:
    """Averages and the state of every query; lengths are (B,) or (B, Q), masks (B, Q, K), and no batch is shared."""
    from regard.programs.triton.layer_forward import layer_forward as program

    (B, Q, _), P = it.query.shape, it.value.shape[2]
    output = torch.empty(B, Q, P, dtype=torch.float32, device=it.value.device)
    logsumexp = torch.empty(B, Q, dtype=torch.float32, device=it.value.device)
    state = torch.empty(B, 2, Q, dtype=torch.float32, device=it.value.device)
    tile = tile or _forward_tile(it)
    masks, mask_sizes = _masks(it)
    tensors = (it.query, it.key, it.value, it.w, *masks, output, logsumexp, state)
    sizes = (Q, it.key.shape[1], *(Strides(*part.stride()) for part in (it.query, it.key, it.value)), *mask_sizes)
    _launch(program, (-(-Q // tile.fixed), B, 1), tensors, sizes, _variant(it, tile), tile)
    return ForwardResult(output, logsumexp, state)


def layer_backward(
    it: LoweredBatch,
    found: ForwardResult,
    grad: Tensor,
    grad_logsumexp: Tensor | None,
    want: tuple[bool, bool, bool, bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of Σ grad·output + Σ grad_logsumexp·logsumexp w.r.t. query, key, value and w; None if not wanted."""
    query = key = value = w = None
    level = (grad * found.output).sum(2)
    if grad_logsumexp is not None:
        level -= grad_logsumexp
    if want[0] or want[3]:
        query, w, _ = _backward(it, found, grad, level, mirror=False, want_w=want[3])
    if want[1] or want[2]:
        key, _, value = _backward(it, found, grad, level, mirror=True, want_w=False)
    return query, key, value, w


def _backward(
    it: LoweredBatch, found: ForwardResult, grad: Tensor, level: Tensor, *, mirror: bool, want_w: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of the fixed side, of w, and of the values."""
    from regard.programs.triton.layer_backward import layer_backward as program

    sides, columns = (it.query, it.key), (grad, it.value)
    if mirror:
        sides, columns = sides[::-1], columns[::-1]
    (fixed, stream), (B, N, D), P = sides, sides[0].shape, it.value.shape[2]
    tile = _backward_tile(it, mirror)
    blocks = -(-N // tile.fixed)
    out = torch.empty(B, N, D, dtype=torch.float32, device=fixed.device)
    out_w = torch.empty(blocks, B, D, dtype=torch.float32, device=fixed.device) if want_w else out
    out_columns = torch.empty(B, N, P, dtype=torch.float32, device=fixed.device) if mirror else out
    masks, mask_sizes = _masks(it)
    tensors = (fixed, stream, *columns, level, found.state, it.w, *masks, out, out_w, out_columns)
    sizes = (N, stream.shape[1], *(Strides(*part.stride()) for part in (*sides, *columns)), *mask_sizes)
    variant = _variant(it, tile)._replace(mirror=mirror, want_w=want_w)
    _launch(program, (blocks, B, 1), tensors, sizes, variant, tile)
    return out, out_w.sum((0, 1) if it.w.ndim else None) if want_w else None, out_columns if mirror else None


def _launch(
    program: Any,
    grid: tuple[int, int, int],
    tensors: tuple[Tensor, ...],
    sizes: tuple[Any, ...],
    variant: LayerVariant,
    tile: TileShape,
) -> None:
    """Run a program; compiled programs are reused by layout, because Triton's own lookup takes longer than running one.

    Programs are compiled for what is known of their arguments: dtypes, whether tensors begin on 16 bytes, and numbers.
    """
    arguments = (*tensors, *sizes, variant)
    layout = (program, sizes, variant, tile, tensors[0].device, *((x.dtype, x.data_ptr() % 16) for x in tensors))
    known = _COMPILED.get(layout)
    if known is not None:
        known[grid](*arguments)
        return
    made = program[grid](*arguments, **tile.launch_options)
    # Interpreted programs are not compiled.
    if made is not None:
        if len(_COMPILED) >= MAX_COMPILED:
            _COMPILED.clear()
        _COMPILED[layout] = made


# Compiled programs by the layout of their arguments; when there are so many, all are forgotten.
_COMPILED: dict[Any, Any] = {}
MAX_COMPILED = 1024


def _masks(it: LoweredBatch) -> tuple[tuple[Tensor, Tensor], tuple[Any, ...]]:
    """Lengths and mask, and their strides; another tensor is pointed at where there is none."""
    lens = mask = it.w
    lens_strides, mask_strides = [0, 0], Strides(0, 0, 0)
    if it.visibility.lens is not None:
        lens, lens_strides[: it.visibility.lens.ndim] = it.visibility.lens, it.visibility.lens.stride()
    if it.visibility.mask is not None:
        mask, mask_strides = it.visibility.mask.view(torch.uint8), Strides(*it.visibility.mask.stride())
    return (lens, mask), (*lens_strides, mask_strides)


def _variant(it: LoweredBatch, tile: TileShape) -> LayerVariant:
    """What both programs are compiled for."""
    d, P, lens = it.query.shape[2], it.value.shape[2], it.visibility.lens
    return LayerVariant(
        it.code,
        it.w.ndim,
        d,
        product_width(d),
        P,
        product_width(P),
        0 if lens is None else lens.ndim,
        it.visibility.mask is not None,
        it.code == GAUSSIAN and d < MIN_PRODUCT_FEATURES,
        tile.fixed,
        tile.stream,
    )


def _forward_tile(it: LoweredBatch) -> TileShape:
    """Found by measuring on an H200 (docs/decisions/0010), as are those of the backward pass."""
    width = max(product_width(it.query.shape[2]), product_width(it.value.shape[2]))
    if it.code == ADDITIVE:
        return TileShape(16, 128, 4, 1)
    if width > 64:
        return _enough_blocks(TileShape(64, 32, 8, 2), it.query)
    return _enough_blocks(TileShape(128, 64, 8, 2) if width > 32 else TileShape(128, 32, 4, 2), it.query)


def _backward_tile(it: LoweredBatch, mirror: bool) -> TileShape:
    width = max(product_width(it.query.shape[2]), product_width(it.value.shape[2]))
    fixed = it.key if mirror else it.query
    if it.code == ADDITIVE:
        return TileShape(16, 64, 4, 1) if width > 64 else TileShape(32, 128, 8, 1)
    if width > 64:
        return _enough_blocks(TileShape(64, 32, 8, 1), fixed)
    if width > 32:
        return _enough_blocks(TileShape(128, 64, 8, 1), fixed)
    return _enough_blocks(TileShape(64 if mirror else 128, 32, 4, 1), fixed)


def _enough_blocks(tile: TileShape, fixed: Tensor) -> TileShape:
    """A smaller tile if there would be fewer programs than multiprocessors."""
    while tile.fixed > 32 and -(-fixed.shape[1] // tile.fixed) * fixed.shape[0] < multiprocessors(fixed.device):
        tile = tile._replace(fixed=tile.fixed // 2, warps=4)
    return tile

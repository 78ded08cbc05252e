"""Problems of a layer's size, launched: one program forward and two backward, no matter how many tensors there are.

Laying out rows takes the host a hundred small launches, a millisecond; here tensors are read where they lie.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from regard.core.kernels import GAUSSIAN
from regard.engines.gpu.launch import Attended, Pulled, multiprocessors
from regard.engines.gpu.lay import ADDITIVE, wide
from regard.engines.gpu.products import Tile

Tensor = torch.Tensor

# Features from which on products are used for Gaussian scores.
PRODUCTS = 8
# Of products of float32 numbers: three of their halves' products, which lose nothing that counts.
PRECISION = "tf32x3"


class Layer(NamedTuple):
    """A batch of problems: Gaussian (code 0) and dot-product scores of tensors, additive ones of projections."""

    code: int
    query: Tensor  # (B, Q, d) or (B, Q, h)
    key: Tensor  # (B, K, d) or (B, K, h)
    value: Tensor  # (B, K, P)
    w: Tensor  # () or (d,), () for dot products, (h,) for hidden units
    lens: Tensor | None  # (B,) or (B, Q) integers
    mask: Tensor | None  # (B, Q, K) boolean


def attend(it: Layer, tile: Tile | None = None) -> Attended:
    """Averages and the state of every query."""
    from regard.programs.triton.layer import layer_attend as program

    (B, Q, _), P = it.query.shape, it.value.shape[2]
    output = torch.empty(B, Q, P, dtype=torch.float32, device=it.value.device)
    logsumexp = torch.empty(B, Q, dtype=torch.float32, device=it.value.device)
    state = torch.empty(B, 2, Q, dtype=torch.float32, device=it.value.device)
    one = tile or _attend_tile(it)
    whom, strides, flags = _who(it)
    tensors = (it.query, it.key, it.value, it.w, *whom, output, logsumexp, state)
    sizes = (Q, it.key.shape[1], *it.query.stride(), *it.key.stride(), *it.value.stride(), *strides)
    _launch(program, (-(-Q // one.fixed), B, 1), tensors, sizes, (*_facts(it), *flags, _apart(it)), one)
    return Attended(output, logsumexp, state)


def pull(
    it: Layer, seen: Attended, grad: Tensor, grad_log: Tensor | None, want: tuple[bool, bool, bool, bool]
) -> Pulled:
    """Gradients of Σ grad·output + Σ grad_log·logsumexp w.r.t. query, key, value and w, where wanted."""
    query = key = value = w = None
    level = (grad * seen.output).sum(2)
    if grad_log is not None:
        level -= grad_log
    if want[0] or want[3]:
        query, w, _ = _pull(it, seen, grad, level, mirror=False, want_w=want[3])
    if want[1] or want[2]:
        key, _, value = _pull(it, seen, grad, level, mirror=True, want_w=False)
    return Pulled(query, key, value, w)


def _pull(
    it: Layer,
    seen: Attended,
    grad: Tensor,
    level: Tensor,
    *,
    mirror: bool,
    want_w: bool,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of the fixed side, of w, and of the values."""
    from regard.programs.triton.layer_pull import layer_pull as program

    sides, columns = (it.query, it.key), (grad, it.value)
    if mirror:
        sides, columns = sides[::-1], columns[::-1]
    (fixed, stream), (B, N, D), P = sides, sides[0].shape, it.value.shape[2]
    one = tile or _pull_tile(it, mirror)
    blocks = -(-N // one.fixed)
    out = torch.empty(B, N, D, dtype=torch.float32, device=fixed.device)
    out_w = torch.empty(blocks, B, D, dtype=torch.float32, device=fixed.device) if want_w else out
    out_columns = torch.empty(B, N, P, dtype=torch.float32, device=fixed.device) if mirror else out
    whom, who_strides, flags = _who(it)
    tensors = (fixed, stream, *columns, level, seen.state, it.w, *whom, out, out_w, out_columns)
    sizes = (N, stream.shape[1], *fixed.stride(), *stream.stride(), *columns[0].stride(), *columns[1].stride())
    _launch(
        program, (blocks, B, 1), tensors, (*sizes, *who_strides), (*_facts(it), *flags, mirror, want_w, _apart(it)), one
    )
    return out, out_w.sum((0, 1) if it.w.ndim else None) if want_w else None, out_columns if mirror else None


def _launch(
    program: Any,
    grid: tuple[int, int, int],
    tensors: tuple[Tensor, ...],
    sizes: tuple[int, ...],
    facts: tuple[Any, ...],
    tile: Tile,
) -> None:
    """Run a program; one that ran before for the same layout is not looked for again, which takes longer than it runs.

    Programs are compiled for what is known of their arguments: dtypes, whether tensors begin on 16 bytes, and numbers.
    """
    arguments = (*tensors, *sizes, *facts, PRECISION, tile.fixed, tile.stream)
    layout = (program, sizes, facts, tile, tensors[0].device, *((x.dtype, x.data_ptr() % 16) for x in tensors))
    known = _COMPILED.get(layout)
    if known is not None:
        known[grid](*arguments)
        return
    made = program[grid](*arguments, num_warps=tile.warps, num_stages=tile.stages)
    # Interpreted programs are not compiled.
    if made is not None:
        if len(_COMPILED) >= MOST_LAYOUTS:
            _COMPILED.clear()
        _COMPILED[layout] = made


# Compiled programs by the layout of their arguments; so many, then all are looked for again.
_COMPILED: dict[Any, Any] = {}
MOST_LAYOUTS = 1024


def _who(it: Layer) -> tuple[tuple[Tensor, Tensor], tuple[int, ...], tuple[int, bool]]:
    """Lengths and mask, their strides, and which of them there are; something else is pointed at where there are none.

    Of lengths there are 1 to a member of the batch, or 2: one to a query.
    """
    lens = mask = it.w
    strides = [0, 0, 0, 0, 0]
    if it.lens is not None:
        lens, strides[: it.lens.ndim] = it.lens, it.lens.stride()
    if it.mask is not None:
        mask, strides[2:] = it.mask.view(torch.uint8), it.mask.stride()
    return (lens, mask), tuple(strides), (0 if it.lens is None else it.lens.ndim, it.mask is not None)


def _facts(it: Layer) -> tuple[Any, ...]:
    """SCORE, PER, D, BD, P and BP of the programs."""
    d, P = it.query.shape[2], it.value.shape[2]
    return it.code, it.w.ndim, d, wide(d), P, wide(P)


def _apart(it: Layer) -> bool:
    """Whether differences are taken from the start."""
    return it.code == GAUSSIAN and it.query.shape[2] < PRODUCTS


def _attend_tile(it: Layer) -> Tile:
    """Found by measuring on an H200 (docs/decisions/0010), as are those of the adjoint pass."""
    width = max(wide(it.query.shape[2]), wide(it.value.shape[2]))
    if it.code == ADDITIVE:
        return Tile(16, 128, 4, 1)
    if width > 64:
        return _busy(Tile(64, 32, 8, 2), it.query)
    return _busy(Tile(128, 64, 8, 2) if width > 32 else Tile(128, 32, 4, 2), it.query)


def _pull_tile(it: Layer, mirror: bool) -> Tile:
    width, fixed = max(wide(it.query.shape[2]), wide(it.value.shape[2])), it.key if mirror else it.query
    if it.code == ADDITIVE:
        return Tile(16, 64, 4, 1) if width > 64 else Tile(32, 128, 8, 1)
    if width > 64:
        return _busy(Tile(64, 32, 8, 1), fixed)
    if width > 32:
        return _busy(Tile(128, 64, 8, 1), fixed)
    return _busy(Tile(64 if mirror else 128, 32, 4, 1), fixed)


def _busy(tile: Tile, fixed: Tensor) -> Tile:
    """A smaller tile where there would be fewer programs than multiprocessors."""
    while tile.fixed > 32 and -(-fixed.shape[1] // tile.fixed) * fixed.shape[0] < multiprocessors(fixed.device):
        tile = tile._replace(fixed=tile.fixed // 2, warps=4)
    return tile

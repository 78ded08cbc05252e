"""By which path tensors are computed, decided by sizes, score, dtype, device and options before anything runs.

``regard.pool`` of tensors
  on a GPU
    half-precision dot products, no options      → flash, cudnn  torch's own fused attention, as torch prefers
    Gaussian, dot-product or additive scores of
      one batch, not large                       → layer     one launch; tensors are read in the layout they have
  few numbers in the scores, on any device       → dense     plain torch, which forms (query, key); so do exported
                                                   programs and the transforms of ``torch.func``
  otherwise, on a CPU
    dot products, and Gaussian scores that products of matrices compute as accurately as differences, unless
      members are large and have few features    → blocks    plain torch, some queries at a time
    all else                                     → the engines of ``regard.pooling.planner``, one member of the batch
                                                   after another
  otherwise, on a GPU
    dot products of many features or columns, and
      large Gaussian problems of small norm      → products  scores by matrix products
    all else                                     → fused     scores by differences

a layer of ``regard.nn``
  no masks, on a CPU, few pairs, or dot products whose features are as many as columns
                                                 → ``nn.quick_attention``, before anything is planned
  weights or dropout wanted, a normalisation other than softmax, a score or mask whose gradient the programs do not
  have, or few numbers
                                                 → dense     the layer's own scores, in plain torch
  otherwise                                      → as ``regard.pool``

Then, for a Gaussian or Laplace score, a second step: queries so far from the keys that scores of programs or engines
would round to each other are computed by dense.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch

from regard.core.kernels import GAUSSIAN, LAPLACE
from regard.core.plan import Step
from regard.core.problem import Sketch
from regard.core.scores import Additive, DotProduct, Gaussian, Score
from regard.engines.gpu.layer_launch import MIN_PRODUCT_FEATURES
from regard.engines.gpu.layout import ADDITIVE, DOT, LoweredBatch
from regard.engines.gpu.product_rows import largest_norm
from regard.pooling.planner import Plan
from regard.tensors.tensor_inputs import TensorInputs, can_branch, must_be_plain

Tensor = torch.Tensor

# Numbers in the scores' intermediate results up to which plain torch is faster than the programs: 4 MB and, on a GPU,
# whose launches take longer, 16 MB.
MAX_DENSE = {"cpu": 1 << 20, "cuda": 1 << 22}
# Numbers in the scores' intermediate results up to which plain torch is faster than the engines of a CPU, 64 MB, if
# members have at most so many pairs: an engine takes about a millisecond for each.
MAX_DENSE_OF_SMALL_MEMBERS = 1 << 24
MAX_PAIRS_OF_SMALL_MEMBER = 1 << 14
# Pairs up to which one softmax over everything is at least as fast as blocks, 4 MB of float32, and at least as fast as
# torch's own attention, 256 kB.
MAX_PAIRS_WITHOUT_BLOCKS = 1 << 20
MAX_PAIRS_WITHOUT_TORCH_ATTENTION = 1 << 16
# Pairs of a member from which on the engines of a CPU are faster than blocks, which cannot leave out pairs, if features
# and columns together are at most so many.
MIN_PAIRS_FOR_ENGINES = 1 << 20
MAX_WIDTH_FOR_ENGINES = 64
# Rounding of a squared distance by the engines of a CPU, which sum in pairs of float64 where that matters.
ENGINE_ROUNDING = 1e-28
# Numbers that a layer of regard.nn would hold for the scores of all pairs from which on programs are faster: 64 MB.
MIN_LARGE_LAYER = 1 << 24
# Work, in features of pairs, up to which one launch on tensors as they are is faster than laying out rows.
MAX_LAYER_WORK = 1 << 35
# What a hidden unit counts for in that.
WORK_PER_UNIT = 8
# What a pair counts for if its Gaussian features are so few that differences are taken.
WORK_PER_DIFFERENCE = 256
# Features and columns that one tile holds, of problems of a layer's size.
MAX_LAYER_WIDTH = 128
# Features and columns that one tile holds, of products.
MAX_PRODUCTS_WIDTH = 128
# Features from which on Gaussian scores by products are faster than by differences.
MIN_GAUSSIAN_WIDTH = 8
# Features or columns from which on dot products by products are faster.
MIN_DOT_WIDTH = 16
# Features of pairs from which on Gaussian products pay: their rows take the host some milliseconds to lay out.
MIN_PRODUCTS_WORK = 1 << 35
# Squared norm of scaled features, in powers of two, up to which Gaussian products round scores by less than 5e-6.
MAX_NORM = 64.0
# Features that torch's own attention takes.
MAX_FLASH_WIDTH = 256
# The multiple that they have to be.
FLASH_MULTIPLE = 8

HALF = (torch.float16, torch.bfloat16)
# What ``torch._fused_sdp_choice`` returns, and the path it means.
TORCH_ATTENTION = {1: "flash", 3: "cudnn"}
# Why each path is taken; ``compiled`` is explained by the engines' own planner.
REASONS = {
    "dense": "{numbers:,} numbers in the scores are few enough for plain torch",
    "blocks": "{pairs:,} pairs, scores by matrix products in {width} features, some queries at a time",
    "flash": "half-precision dot products by torch's flash attention",
    "cudnn": "half-precision dot products by torch's attention of cuDNN",
    "layer": "{pairs:,} pairs are a layer's size: one launch, tensors read in the layout they have",
    "products": "{pairs:,} pairs, scores by matrix products in {width} features",
    "fused": "{pairs:,} pairs, scores by Triton programs over laid-out rows",
}
FAR_REASON = "only for queries so far away that scores would round to each other"


def on_programs(query: Tensor) -> bool:
    """Whether the Triton programs compute this."""
    return query.is_cuda


def lowered_kind(score: Score, features: int) -> tuple[int, int]:
    """The code of a score, and its features after lowering: projected, or hidden units."""
    if isinstance(score, Additive):
        return ADDITIVE, score.w_v.shape[0]
    if isinstance(score, DotProduct):
        return DOT, features
    radial: Any = score
    return radial.kernel.code, radial.w.shape[1] if radial.w.ndim == 2 else features


def choose(given: TensorInputs, score: Score, *, by_products: bool = True) -> str:
    """The path by which ``pool`` computes these tensors. *Cost*: a few comparisons; nothing waits for a device.

    ``by_products``: "blocks" may be chosen, whose products are accurate only for some numbers.
    """
    query = given.query
    code, width = lowered_kind(score, query.shape[-1])
    pairs = prod(given.batch) * query.shape[-2] * given.key.shape[-2]
    if on_programs(query) and pairs and not must_be_plain():
        attention = _torch_attention(given, score)
        if attention is not None:
            return attention
        if _is_layer(given, score, code, width, pairs):
            return "layer"
    return path_of_rows(given, code, width, prod(given.batch) * query.shape[-2], by_products=by_products)


def path_of_rows(given: TensorInputs, code: int, width: int, queries: int, *, by_products: bool = True) -> str:
    """The path for so many queries, those of all members of the batch together, once inputs are flattened."""
    if must_be_plain():
        return "dense"
    pairs, columns = queries * given.key.shape[-2], given.value.shape[-1]
    if not on_programs(given.query):
        by_products = by_products and code in (DOT, GAUSSIAN) and can_branch(*given[:3])
        most = _max_pairs_without_blocks(code == DOT) if by_products else None
        numbers, by_torch = pairs * max(width, columns), code == DOT and width == columns
        return _path_on_cpu(pairs, prod(given.batch), numbers, width + columns, most, by_torch=by_torch)
    if not pairs or pairs * max(width, columns) <= MAX_DENSE["cuda" if given.query.is_cuda else "cpu"]:
        return "dense"
    double = any(part.dtype == torch.float64 for part in given[:3])
    if double or max(width, columns) > MAX_PRODUCTS_WIDTH:
        return "fused"
    if code == DOT:
        return "products" if max(width, columns) >= MIN_DOT_WIDTH else "fused"
    biased = given.bias is not None or (given.mask is not None and given.mask.dtype != torch.bool)
    wide = code == GAUSSIAN and width >= MIN_GAUSSIAN_WIDTH and pairs * width >= MIN_PRODUCTS_WORK
    return "products" if wide and not biased and can_branch(given.query) else "fused"


def _path_on_cpu(
    pairs: int, members: int, numbers: int, width: int, most: int | None, *, by_torch: bool = False
) -> str:
    """``numbers`` that the scores hold in plain torch; ``width`` features and columns together.

    ``most`` pairs are not computed in blocks; None if the scores are not products. ``by_torch``: blocks are torch's own
    attention.
    """
    member = pairs // max(1, members)
    if most is not None:
        if pairs <= most:
            return "dense"
        if member < MIN_PAIRS_FOR_ENGINES or width > MAX_WIDTH_FOR_ENGINES or by_torch:
            return "blocks"
    small = member <= MAX_PAIRS_OF_SMALL_MEMBER and numbers <= MAX_DENSE_OF_SMALL_MEMBERS
    return "dense" if not pairs or numbers <= MAX_DENSE["cpu"] or small else "compiled"


def products_are_accurate(it: LoweredBatch) -> bool:
    """Whether Gaussian scores from products are good to 5e-6; False if a number, perhaps masked, is not finite."""
    return float(largest_norm(it.query.detach(), it.key.detach(), it.w.detach())) <= MAX_NORM


def far_queries(it: LoweredBatch) -> Tensor:
    """Queries (Q,) for which squares of distances, or of w, may round to each other or overflow.

    On a GPU in the programs' own precision; the engines of a CPU round squares to ``ENGINE_ROUNDING`` and take any w.
    """
    query, key, w = it.query.detach(), it.key.detach(), it.w.detach()
    if not on_programs(query):
        query, key, w = query.double(), key.double(), w.double()
    limits = torch.finfo(query.dtype)
    low, high = key.amin(1, keepdim=True), key.amax(1, keepdim=True)
    nearest, farthest = (
        (low - query).clamp(min=0.0) + (query - high).clamp(min=0.0),
        torch.maximum(high - query, query - low),
    )
    near, far = (((part * w) ** 2).sum(2) for part in (nearest, farthest))  # (B, Q)
    size = w.abs()
    if not on_programs(it.query):
        return torch.any(~(near <= 1.0 / ENGINE_ROUNDING) & (far > 0.0), 0)
    extreme = ((size > 0.0) & ~((size > limits.tiny**0.48) & (size < limits.max**0.48))).any()
    ordinary: Tensor = (near <= 1.0 / limits.eps) & (far <= limits.max**0.96)
    return torch.any(~ordinary | extreme, 0)


def may_be_far(code: int, path: str) -> bool:
    """Whether some queries may be too far from the keys for this path."""
    return code in (GAUSSIAN, LAPLACE) and path not in ("dense", "blocks")


def _max_pairs_without_blocks(dot: bool) -> int:
    return MAX_PAIRS_WITHOUT_TORCH_ATTENTION if dot else MAX_PAIRS_WITHOUT_BLOCKS


def layer_is_dense(
    queries: Tensor, keys: Tensor, values: Tensor, numbers: int, *, by_products: bool, dot: bool, dropout: bool
) -> bool:
    """Whether a layer of ``regard.nn`` is computed in plain torch although the programs have its score.

    ``numbers`` is what the scores of all its pairs hold in plain torch; ``by_products``: they may be matrix products,
    ``dot``: they are.
    """
    if must_be_plain() or (dropout and not by_products):
        return True
    members = prod(queries.shape[:-2])
    pairs = members * queries.shape[-2] * keys.shape[-2]
    if dropout:
        return pairs <= MAX_PAIRS_WITHOUT_BLOCKS
    if on_programs(queries):
        return numbers < MIN_LARGE_LAYER
    most = _max_pairs_without_blocks(dot) if by_products else None
    width, columns = keys.shape[-1], values.shape[-1]
    by_torch = dot and width == columns
    return _path_on_cpu(pairs, members, numbers, width + columns, most, by_torch=by_torch) == "dense"


def _torch_attention(given: TensorInputs, score: Score) -> str | None:
    """The path of plain dot products in half precision, of one width and batch, if torch's own attention takes them."""
    query, key, value = given[:3]
    if not isinstance(score, DotProduct) or isinstance(score.w, Tensor) or any(x is not None for x in given[4:9]):
        return None
    if query.dtype not in HALF or not query.is_cuda or query.ndim not in (2, 3):
        return None
    whole = (*query.shape[:-2], query.shape[-1])
    if any(part.dtype != query.dtype or (*part.shape[:-2], part.shape[-1]) != whole for part in (key, value)):
        return None
    if query.shape[-1] % FLASH_MULTIPLE or not 0 < query.shape[-1] <= MAX_FLASH_WIDTH:
        return None
    q, k, v = (part.reshape(-1, 1, *part.shape[-2:]) for part in (query, key, value))
    return TORCH_ATTENTION.get(int(torch._fused_sdp_choice(q, k, v, scale=float(score.w) / query.shape[-1] ** 0.5)))


def _is_layer(given: TensorInputs, score: Score, code: int, width: int, pairs: int) -> bool:
    """Whether the programs for a layer's size take this: one batch, lengths and boolean masks, and not too large."""
    query, value = given.query, given.value
    if torch.compiler.is_compiling() or given.bias is not None or given.labels or given.weight is not None:
        return False
    if not isinstance(score, Gaussian | DotProduct | Additive) or (code == GAUSSIAN and score.w.ndim == 2):  # type: ignore[union-attr]
        return False
    if query.dtype not in (torch.float32, *HALF):
        return False
    if any(part.dtype != query.dtype or part.shape[:-2] != query.shape[:-2] for part in (given.key, value)):
        return False
    if given.mask is not None and (given.mask.dtype != torch.bool or given.batch != query.shape[:-2]):
        return False
    if given.lens is not None and given.lens.dtype not in (torch.int32, torch.int64):
        return False
    if not 0 < width <= MAX_LAYER_WIDTH or not 0 < value.shape[-1] <= MAX_LAYER_WIDTH:
        return False
    few = code == GAUSSIAN and width < MIN_PRODUCT_FEATURES
    return (
        pairs * (WORK_PER_UNIT * width if code == ADDITIVE else WORK_PER_DIFFERENCE if few else width) < MAX_LAYER_WORK
    )


def explained(given: TensorInputs, score: Score, path: str, members: list[Plan]) -> Plan:
    """The plan in words. ``members`` are the plans of the batch's members if engines of a CPU compute them."""
    query, key, value = given[:3]
    code, width = lowered_kind(score, query.shape[-1])
    Q, K, P = query.shape[-2], key.shape[-2], value.shape[-1]
    pairs = prod(given.batch) * Q * K
    real = torch.float64 if any(part.dtype == torch.float64 for part in (query, key, value)) else torch.float32
    sketch = Sketch(
        queries=Q,
        keys=K,
        width=key.shape[-1],
        columns=P,
        dtype=np.dtype(str(real).removeprefix("torch.")),
        score=score,
        masked=given.mask is not None or given.bias is not None or given.lens is not None,
        weighted=given.weight is not None,
        excluding=given.labels is not None,
        batch=tuple(given.batch),
        device=query.device.type,
    )
    if path == "compiled":
        # Members of a batch have the same sizes, but may differ in span, and so in engine.
        kinds: dict[str, list[Plan]] = {}
        for one in members:
            kinds.setdefault(one.steps[0].engine, []).append(one)
        counted = [f" ({len(same)} of the {len(members)} in the batch)" for same in kinds.values()]
        steps = tuple(
            replace(step, reason=step.reason + (count if len(kinds) > 1 else ""))
            for same, count in zip(kinds.values(), counted, strict=True)
            for step in same[0].steps
        )
        return Plan(sketch, steps, members[0].candidates)
    reason = REASONS[path].format(numbers=pairs * max(width, P), pairs=pairs, width=width)
    paths = [(path, reason), ("dense", FAR_REASON)] if may_be_far(code, path) else [(path, reason)]
    return Plan(sketch, tuple(Step(name, score, Q, K, K, 0, why) for name, why in paths))

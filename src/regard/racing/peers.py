"""Peers: other ways to compute f(q) = Σ softmax(−½w²‖q − k‖²) v, written as a careful user would write them.

Every peer is a function of the keys (K, d), the values (K,) and w that does one-time work (norms, trees,
copies into tensors) and returns ``run(queries, setting) → answers``. The setting decides its speed: queries per
block or, for SDPA, the multiple to which widths are padded. All work in the dtype of the keys, on centred data
where products of coordinates are taken.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from regard.core.arrays import Array

Run = Callable[[Array, int], Array]

# Relative tolerance of each sum of a tree. The answer is off by at most four times as much, safely below 1e-9.
TREE_TOLERANCE = 1e-10


def numpy_in_place(keys: Array, values: Array, w: float) -> Run:
    """Plain numpy, optimised: one buffer, ‖q‖² omitted (it cancels), mass and moment in one product."""
    real = keys.dtype.type
    centre = keys.mean(axis=0)
    key = np.ascontiguousarray((keys - centre).T)
    bias = real(-0.5 * w * w) * (key**2).sum(axis=0)
    columns = np.stack([np.ones_like(values), values], axis=1)

    def run(queries: Array, rows: int) -> Array:
        out = []
        buffer = np.empty((rows, key.shape[1]), keys.dtype)
        for start in range(0, len(queries), rows):
            query = queries[start : start + rows] - centre
            score = np.matmul(real(w * w) * query, key, out=buffer[: len(query)])
            score += bias
            score -= score.max(axis=1, keepdims=True)
            np.exp(score, out=score)
            sums = score @ columns
            out.append(sums[:, 1] / sums[:, 0])
        return np.concatenate(out)

    return run


def torch_sdpa(keys: Array, values: Array, w: float) -> Run:
    """scaled_dot_product_attention on augmented features: (w²q, 1)·(k, −½w²‖k‖²) is the score but for a constant.

    With queries, keys and values of one width torch takes its flash program, which never forms the weights and so
    needs no tiles; the value goes into the first column. A width that fills vector registers may be faster.
    """
    import torch
    from torch.nn.functional import pad, scaled_dot_product_attention

    centre = torch.from_numpy(keys.mean(axis=0))
    key = torch.from_numpy(keys) - centre
    augmented = torch.cat([key, -0.5 * w * w * (key * key).sum(1, keepdim=True)], dim=1)
    least = augmented.shape[1]

    def widened(array: torch.Tensor, width: int) -> torch.Tensor:
        return pad(array, (0, width - array.shape[1]))[None, None].contiguous()  # (1, 1, n, width)

    wide: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def run(queries: Array, multiple: int) -> Array:
        width = -(-least // multiple) * multiple
        if width not in wide:
            wide[width] = widened(augmented, width), widened(torch.from_numpy(values)[:, None], width)
        query = torch.from_numpy(queries) - centre
        query = widened(torch.cat([query * (w * w), torch.ones_like(query[:, :1])], dim=1), width)
        answer = scaled_dot_product_attention(query, *wide[width], scale=1.0)
        return np.asarray(answer[0, 0, :, 0].numpy())

    return run


def statsmodels_kernel_reg(keys: Array, values: Array, w: float) -> Run:
    """KernelReg at a given bandwidth, local constant. It computes marginal effects beside the answers."""
    import warnings

    with warnings.catch_warnings():
        # A notice about random numbers, which a given bandwidth does not need.
        warnings.simplefilter("ignore", FutureWarning)
        from statsmodels.nonparametric.kernel_regression import KernelReg

        width = keys.shape[1]
        model = KernelReg(values, keys, var_type="c" * width, reg_type="lc", bw=[1 / w] * width)

    def run(queries: Array, _: int) -> Array:
        return np.asarray(model.fit(queries)[0])

    return run


def kdtree_ratio(keys: Array, values: Array, w: float) -> Run:
    """scikit-learn's KDTree: a weighted kernel density over a plain one, each within ``TREE_TOLERANCE``.

    Its weights must be positive, so the values are shifted, and the shift is subtracted again.
    """
    from sklearn.neighbors import KDTree

    shift = 2.0 * float(values.min()) - float(values.max())
    plain, weighted = KDTree(keys), KDTree(keys, sample_weight=values - shift)

    def run(queries: Array, _: int) -> Array:
        # At this tolerance breadth first is five to ten times faster than depth first.
        sums = [
            tree.kernel_density(queries, 1 / w, rtol=TREE_TOLERANCE, breadth_first=True) for tree in (plain, weighted)
        ]
        return np.asarray(sums[1] / sums[0] + shift)

    return run

"""Inputs of a layer: shapes checked, masks combined, non-finite entries behind masks removed.

A masked key counts as a deleted key, also if it holds NaN or infinity. A weight of zero does not delete it: 0·NaN is
NaN, in the output and in every gradient. So non-finite entries are replaced by zero before anything is computed, and
NaN is added at the end to the outputs of those queries that may attend to such an entry. All other outputs and
gradients are unaffected.
"""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from regard.nn.masks import allowed, combined
from regard.tensors.tensor_inputs import LAYER, Lengths, batch_of, can_branch


class NonFinite(NamedTuple):
    """Which queries may attend to an entry that is not finite."""

    rows: Tensor  # (…, Q, 1) boolean: the query itself or such a key is not finite, so the weights are undefined
    output: Tensor  # (…, Q, P) boolean: any of that, or such a value is not finite


class LayerInputs(NamedTuple):
    """Finite queries (…, Q, d), keys (…, K, d) and values (…, K, P), and the mask over (…, Q, K)."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor | None
    non_finite: NonFinite | None

    def take(self, rows: slice) -> LayerInputs:
        """The same for some of the queries only."""
        mask, bad = self.mask, self.non_finite
        return LayerInputs(
            self.queries[..., rows, :],
            self.keys,
            self.values,
            mask if mask is None or mask.ndim < 2 or mask.shape[-2] == 1 else mask[..., rows, :],
            None if bad is None else NonFinite(*(part[..., rows, :] for part in bad)),
        )

    def finish_output(self, output: Tensor) -> Tensor:
        """The output (…, Q, P) in the dtype of the queries, NaN where the inputs make it undefined."""
        return with_nan(output, None if self.non_finite is None else self.non_finite.output).to(self.queries.dtype)

    def finish_weights(self, weights: Tensor) -> Tensor:
        """The weights (…, Q, K) likewise; masked pairs keep a weight of zero."""
        where = None if self.non_finite is None else self.non_finite.rows
        if where is not None and self.mask is not None:
            where = where & allowed(self.mask)
        return with_nan(weights, where).to(self.queries.dtype)


def with_nan(result: Tensor, where: Tensor | None) -> Tensor:
    """The result, NaN where a boolean is True. NaN is added, not filled in, so that gradients become NaN as well."""
    return result if where is None else result + torch.where(where, torch.nan, 0.0).to(result.dtype)


def prepared(
    queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Lengths | None = None, attn_mask: Tensor | None = None
) -> LayerInputs:
    """Inputs ready to be scored. Raises TypeError or ValueError naming the argument, its shape and what is accepted."""
    mask = combined(score_shape(queries, keys, values), queries.device, valid_lens, attn_mask)
    return cleaned(queries, keys, values, mask)


def cleaned(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> LayerInputs:
    """Inputs with zeros for non-finite entries, and which queries may attend to one."""
    # Code that cannot branch on numbers takes the general path.
    if can_branch(queries, keys, values) and _sum_is_finite(queries, keys, values):
        return LayerInputs(queries, keys, values, mask, None)
    finite_queries, finite_keys, finite_values = queries.isfinite(), keys.isfinite(), values.isfinite()
    bad_query = ~finite_queries.all(-1, keepdim=True)  # (…, Q, 1)
    bad_key = ~finite_keys.all(-1).unsqueeze(-2)  # (…, 1, K)
    bad_pair = bad_query | bad_key  # (…, Q, K)
    may_attend = torch.ones_like(bad_pair) if mask is None else allowed(mask) | torch.zeros_like(bad_pair)
    bad_row = (may_attend & bad_pair).any(-1, keepdim=True)  # (…, Q, 1)
    bad_value = (may_attend.float() @ (~finite_values).float()) > 0.0  # (…, Q, P)
    return LayerInputs(
        torch.where(finite_queries, queries, 0.0),
        torch.where(finite_keys, keys, 0.0),
        torch.where(finite_values, values, 0.0),
        mask,
        NonFinite(bad_row, bad_row | bad_value),
    )


def _sum_is_finite(*tensors: Tensor) -> bool:
    """Whether the sum of all entries is finite, which implies that they are; an overflow only costs time."""
    totals = [t.detach().sum(dtype=torch.promote_types(t.dtype, torch.float32)) for t in tensors]
    if tensors[0].is_cuda:
        return bool(sum(totals[1:], totals[0]).isfinite())
    # Nothing to wait for: three numbers cost less than three more operations.
    return all(isfinite(total.item()) for total in totals)


def score_shape(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[int, ...]:
    """(…, Q, K). Raises ValueError unless the shapes fit together."""
    return (*batch_of(LAYER, queries, keys, values), queries.shape[-2], keys.shape[-2])

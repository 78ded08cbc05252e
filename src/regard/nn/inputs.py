"""What goes in: shapes checked, masks read once, and garbage behind masks taken away.

A masked key is a deleted key, also when it holds NaN or infinity. Multiplying by a weight of zero does not delete:
0·NaN is NaN, in the output and again in every gradient. So non-finite entries are set to zero before anything is
computed, and whoever may attend to one of them is told NaN at the very end, by an added constant. Nobody else
notices, forward or backward.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.nn.masks import allowed, combined
from regard.tensors.inputs import LAYER, Lengths, batch_of


class Spoilt(NamedTuple):
    """Who may attend to something that is not finite."""

    rows: Tensor  # (…, Q, 1) boolean: to such a key, or with such a query, so that no weight is known
    output: Tensor  # (…, Q, P) boolean: any of that, or to such a value


class Inputs(NamedTuple):
    """Finite queries (…, Q, d), keys (…, K, d) and values (…, K, P), and the mask over (…, Q, K)."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor | None
    spoilt: Spoilt | None

    def told(self, output: Tensor) -> Tensor:
        """The output (…, Q, P) with NaN where it is due, in the dtype of the queries."""
        return with_nan(output, None if self.spoilt is None else self.spoilt.output).to(self.queries.dtype)

    def told_weights(self, weights: Tensor) -> Tensor:
        """The weights (…, Q, K) likewise; at masked pairs they are zero all the same."""
        where = None if self.spoilt is None else self.spoilt.rows
        if where is not None and self.mask is not None:
            where = where & allowed(self.mask)
        return with_nan(weights, where).to(self.queries.dtype)


def with_nan(answer: Tensor, where: Tensor | None) -> Tensor:
    """The answer, NaN where a boolean says so. Added, not filled in: a loss that looks there gets NaN gradients."""
    return answer if where is None else answer + torch.where(where, torch.nan, 0.0).to(answer.dtype)


def prepared(
    queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Lengths | None = None, attn_mask: Tensor | None = None
) -> Inputs:
    """Inputs ready to be scored. Raises TypeError or ValueError naming the argument, its shape and what is accepted."""
    mask = combined(score_shape(queries, keys, values), queries.device, valid_lens, attn_mask)
    return cleaned(queries, keys, values, mask)


def cleaned(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Inputs:
    """Inputs with zeros for all that is not finite, and who is spoilt by it."""
    # Compiled programs cannot look before they leap: there the general way is taken always.
    if not torch.compiler.is_compiling() and _surely_finite(queries, keys, values):
        return Inputs(queries, keys, values, mask, None)
    whole_queries, whole_keys, whole = queries.isfinite(), keys.isfinite(), values.isfinite()
    bad_query = ~whole_queries.all(-1, keepdim=True)  # (…, Q, 1)
    bad_key = ~whole_keys.all(-1).unsqueeze(-2)  # (…, 1, K)
    bad_pair = bad_query | bad_key  # (…, Q, K)
    reach = torch.ones_like(bad_pair) if mask is None else allowed(mask) | torch.zeros_like(bad_pair)
    bad_row = (reach & bad_pair).any(-1, keepdim=True)  # (…, Q, 1)
    seen = (reach.float() @ (~whole).float()) > 0.0  # (…, Q, P)
    return Inputs(
        torch.where(whole_queries, queries, 0.0),
        torch.where(whole_keys, keys, 0.0),
        torch.where(whole, values, 0.0),
        mask,
        Spoilt(bad_row, bad_row | seen),
    )


def _surely_finite(*tensors: Tensor) -> bool:
    """Whether the sum of everything is finite: one quick look, and "no" for huge numbers is harmless."""
    total = sum(torch.sum(t.detach(), dtype=torch.promote_types(t.dtype, torch.float32)) for t in tensors)
    return bool(torch.as_tensor(total).isfinite())


def score_shape(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[int, ...]:
    """(…, Q, K), once the shapes fit together."""
    return (*batch_of(LAYER, queries, keys, values), queries.shape[-2], keys.shape[-2])

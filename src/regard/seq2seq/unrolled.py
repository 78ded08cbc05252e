"""All steps of the standard decoder with a hand-written backward pass, where training spends most of its time.

    query, own = [W_q; W_h]·hidden + [0; b_h]                    hidden: the state before the step
    weights    = softmax(w_v·tanh(query + keys) + mask)
    context    = Σ weights·values
    given'     = given + W_c·context
    hidden'    = GRU(given', own, hidden)

Textbook order, additive score, one GRU layer. Autograd would accumulate the gradient of every step into every
parameter; here the backward loop carries only the state, and the gradient of a parameter over all steps is one product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.nn.precision import full_precision
from regard.seq2seq.recurrence import cell_backward, cell_forward, gru_cell
from regard.tensors.second_derivatives import differentiable_again


class UnrolledDecoder(torch.autograd.Function):
    """States (T, B, h), contexts (T, B, m) and weights (T, B, S) of all steps.

    Parameters
    ----------
    given : (T, B, 3h)  the part of the gates that depends on the embeddings.
    hidden : (B, h)  initial state.
    keys : (B, S, a)  projected; values : (B, S, m); mask : (B, S) zeros and −inf.
    W_q : (a, h); w_v : (a,); W_c : (3h, m); W_h : (3h, h); b_h : (3h,).

    *Cost*: stores O(T·B·S·a) numbers for the backward pass. Second derivatives are those of
    ``unrolled_in_plain_torch``.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        given: Tensor,
        hidden: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        W_q: Tensor,
        w_v: Tensor,
        W_c: Tensor,
        W_h: Tensor,
        b_h: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        (steps, batch, _), (source, units), size = given.shape, keys.shape[1:], hidden.shape[1]
        both, bias = torch.cat([W_q, W_h]), torch.cat([b_h.new_zeros(units), b_h])
        states = hidden.new_empty(steps + 1, batch, size)
        contexts = values.new_empty(steps, batch, 1, values.shape[2])
        weights = hidden.new_empty(steps, batch, source)
        features = hidden.new_empty(steps, batch, source, units)
        saved_cells = []
        states[0] = hidden
        for t in range(steps):
            query_own = torch.addmm(bias, states[t], both.T)  # (B, a + 3h)
            torch.add(keys, query_own[:, None, :units], out=features[t]).tanh_()
            scores = torch.addmv(mask.flatten(), features[t].flatten(0, 1), w_v)
            torch.softmax(scores.view(batch, source), -1, out=weights[t])
            torch.bmm(weights[t][:, None], values, out=contexts[t])
            gates = torch.addmm(given[t], contexts[t, :, 0], W_c.T)
            saved_cells.append(cell_forward(gates, query_own[:, units:], states[t], states[t + 1]))
        contexts = contexts.squeeze(2)
        inputs = given, hidden, keys, values, mask, W_q, w_v, W_c, W_h, b_h
        ctx.save_for_backward(both, states, contexts, weights, features, *inputs)
        ctx.saved_cells = saved_cells
        ctx.set_materialize_grads(False)
        # Copies, because a caller may write to the tensors returned, and the backward pass needs them unchanged.
        return states[1:].clone(), contexts.clone(), weights.clone()

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, d_states: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            found = UnrolledDecoder._gradients(ctx, d_states, d_contexts, d_weights)
        return differentiable_again(
            found, unrolled_in_plain_torch, ctx.saved_tensors[5:], (d_states, d_contexts, d_weights)
        )

    @staticmethod
    def _gradients(
        ctx: Any, d_states: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        both, states, contexts, weights, features, _, _, keys, values, _, _, w_v, W_c, _, _ = ctx.saved_tensors
        (steps, batch, _, units), size = features.shape, states.shape[2]
        d_contexts = torch.zeros_like(contexts) if d_contexts is None else d_contexts.contiguous().clone()
        d_query_own = states.new_empty(steps, batch, units + 3 * size)
        d_given = states.new_empty(steps, batch, 3 * size)
        d_scores = torch.empty_like(weights)
        d_keys = torch.zeros_like(keys)
        d_hidden = torch.zeros_like(states[0])
        with full_precision(states.device):
            for t in reversed(range(steps)):
                if d_states is not None:
                    d_hidden = d_hidden + d_states[t]
                d_hidden = cell_backward(d_hidden, ctx.saved_cells[t], states[t], d_given[t], d_query_own[t, :, units:])
                d_context = d_contexts[t].addmm_(d_given[t], W_c)
                d_weight = torch.bmm(values, d_context.unsqueeze(2)).squeeze(2)
                if d_weights is not None:
                    d_weight += d_weights[t]
                d_scores[t] = torch._softmax_backward_data(d_weight, weights[t], -1, weights.dtype)
                d_feature = torch.ops.aten.tanh_backward(d_scores[t].unsqueeze(2) * w_v, features[t])
                d_keys += d_feature
                torch.sum(d_feature, 1, out=d_query_own[t, :, :units])
                d_hidden = d_hidden.addmm_(d_query_own[t], both)
            d_both = d_query_own.flatten(0, 1).T @ states[:-1].flatten(0, 1)
            return (
                d_given,
                d_hidden,
                d_keys,
                torch.bmm(weights.permute(1, 2, 0), d_contexts.transpose(0, 1)),
                None,
                d_both[:units],
                features.flatten(0, 2).T @ d_scores.flatten(),
                d_given.flatten(0, 1).T @ contexts.flatten(0, 1),
                d_both[units:],
                d_query_own[:, :, units:].sum((0, 1)),
            )


def unrolled_in_plain_torch(
    given: Tensor,
    hidden: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    W_q: Tensor,
    w_v: Tensor,
    W_c: Tensor,
    W_h: Tensor,
    b_h: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same states, contexts and weights, differentiable any number of times by autograd."""
    states, contexts, all_weights = [], [], []
    for gates in given:
        scores = torch.tanh(keys + (hidden @ W_q.T)[:, None]) @ w_v + mask
        weights = torch.softmax(scores, -1)
        context = torch.bmm(weights[:, None], values).squeeze(1)
        hidden = gru_cell(gates + context @ W_c.T, torch.addmm(b_h, hidden, W_h.T), hidden)
        states.append(hidden)
        contexts.append(context)
        all_weights.append(weights)
    return torch.stack(states), torch.stack(contexts), torch.stack(all_weights)

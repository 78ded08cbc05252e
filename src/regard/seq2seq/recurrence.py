"""Recurrent networks, step by step.

    reset, update = σ(given + own)                 given: W_i·input + b_i, own: W_h·hidden + b_h
    new           = tanh(given + reset·own)
    hidden'       = new + update·(hidden − new)

The parameters are those of a torch ``nn.GRU`` or ``nn.LSTM``. ``Recurrence`` splits the parameters of a network for a
decoder, whose input has two parts, one known in advance for all steps and one computed at every step. ``GRUFunction``
is a GRU with a hand-written backward pass: autograd would accumulate the gradient of every step into every parameter;
here the backward loop carries only the state, and the gradient of a parameter over all steps is one product. On a CPU
most of the training time is spent there; on a GPU torch's own network does the same, and one step is one program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.argument_checks import one_of
from regard.nn.precision import full_precision, widened
from regard.tensors.second_derivatives import differentiable_again

CELLS: dict[str, type[nn.GRU | nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}

_OP = torch.ops.aten


def network(
    cell: str, input_size: int, hidden_size: int, layers: int, dropout: float, *, bidirectional: bool = False
) -> nn.GRU | nn.LSTM:
    """A recurrent network of one of ``CELLS``, batch first, with dropout between layers."""
    one_of(CELLS, cell=cell)
    between = dropout if layers > 1 else 0.0
    return CELLS[cell](input_size, hidden_size, layers, batch_first=True, dropout=between, bidirectional=bidirectional)


class Recurrence(NamedTuple):
    """The parameters of a recurrent network, the gates stacked along the first axis.

    gates = W_e·embedded + b_i          all steps in one product
          + W_c·context + W_h·hidden    at every step
    """

    W_e: Tensor  # (gates·h, embed)
    W_c: Tensor  # (gates·h, memory)
    # Of each layer W_i (gates·h, embed + memory or h), W_h (gates·h, h), b_i and b_h (gates·h,).
    layers: Sequence[Sequence[Tensor]]
    dropout: float

    @classmethod
    def of(cls, network: nn.RNNBase, embed_size: int) -> Recurrence:
        """The network's parameters in float32 at least, with the first ``embed_size`` columns of W_i split off."""
        layers = [widened(*layer) for layer in network.all_weights]
        return cls(layers[0][0][:, :embed_size], layers[0][0][:, embed_size:], layers, network.dropout)

    def given(self, embedded: Tensor) -> Tensor:
        """The part W_e·embedded + b_i of the first layer's gates (…, gates·h), for embeddings (…, embed)."""
        return F.linear(*widened(embedded, self.W_e, self.layers[0][2]))

    def step(
        self, given: Tensor, context: Tensor, hidden: tuple[Tensor, ...], cell: tuple[Tensor, ...], training: bool
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Hidden and cell states after one step."""
        gates = given + F.linear(context, self.W_c)
        hiddens: list[Tensor] = []
        cells: list[Tensor] = []
        for number, (W_i, W_h, b_i, b_h) in enumerate(self.layers):
            if number:
                gates = F.linear(F.dropout(hiddens[-1], self.dropout, training), W_i, b_i)
            own = F.linear(hidden[number], W_h, b_h)
            if cell:
                after, cell_after = lstm_cell(gates + own, cell[number])
                cells.append(cell_after)
            else:
                after = gru_cell(gates, own, hidden[number])
            hiddens.append(after)
        return tuple(hiddens), tuple(cells)


def gru_cell(given: Tensor, own: Tensor, hidden: Tensor) -> Tensor:
    """hidden', differentiable by autograd; ``cell_forward`` computes the same in place."""
    size = hidden.shape[1]
    both = torch.sigmoid(given[:, : 2 * size] + own[:, : 2 * size])
    new = torch.tanh(torch.addcmul(given[:, 2 * size :], both[:, :size], own[:, 2 * size :]))
    return torch.lerp(new, hidden, both[:, size:])


def lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """cell' = forget·cell + admit·new, hidden' = release·tanh(cell')."""
    size = cell.shape[-1]
    both = torch.sigmoid(gates[:, : 2 * size])
    admit, forget = both[:, :size], both[:, size:]
    new, release = torch.tanh(gates[:, 2 * size : 3 * size]), torch.sigmoid(gates[:, 3 * size :])
    cell = torch.addcmul(admit * new, forget, cell)
    return release * torch.tanh(cell), cell


def cell_forward(given: Tensor, own: Tensor, hidden: Tensor, out: Tensor) -> tuple[Tensor, ...]:
    """One step of a GRU, written to ``out``; overwrites ``given`` and returns what the backward pass needs."""
    if hidden.is_cuda:
        after, saved = _OP._thnn_fused_gru_cell(given, own.contiguous(), hidden)
        out.copy_(after)
        return (saved,)
    size = hidden.shape[1]
    both = given[:, : 2 * size].add_(own[:, : 2 * size]).sigmoid_()
    new = given[:, 2 * size :].addcmul_(both[:, :size], own[:, 2 * size :]).tanh_()
    torch.lerp(new, hidden, both[:, size:], out=out)
    return both, new, own[:, 2 * size :]


def cell_backward(grad: Tensor, saved: tuple[Tensor, ...], hidden: Tensor, d_given: Tensor, d_own: Tensor) -> Tensor:
    """The gradient of the previous state; those of the gates are written to ``d_given`` and ``d_own``."""
    if hidden.is_cuda:
        given, own, before, _, _ = _OP._thnn_fused_gru_cell_backward(grad, saved[0], False)
        d_given.copy_(given)
        d_own.copy_(own)
        return before  # type: ignore[no-any-return]
    both, new, own_new = saved
    size = hidden.shape[1]
    reset, update = both[:, :size], both[:, size:]
    before = grad * update
    d_new = _OP.tanh_backward(grad - before, new)
    d_given[:, 2 * size :] = d_new
    torch.mul(d_new, reset, out=d_own[:, 2 * size :])
    d_both = torch.cat([d_new * own_new, (hidden - new).mul_(grad)], 1)
    d_gates = _OP.sigmoid_backward(d_both, both)
    d_given[:, : 2 * size] = d_gates
    d_own[:, : 2 * size] = d_gates
    return before


class GRUFunction(torch.autograd.Function):
    """States (T, B, h) of all steps of one GRU layer in one direction.

    Parameters
    ----------
    given : (T, B, 3h)  W_i·input + b_i of the gates.
    hidden : (B, h)  initial state.
    W_h : (3h, h); b_h : (3h,).

    *Cost*: stores O(T·B·h) numbers for the backward pass. Second derivatives are those of ``gru_in_plain_torch``.
    """

    @staticmethod
    def forward(ctx: Any, given: Tensor, hidden: Tensor, W_h: Tensor, b_h: Tensor) -> Tensor:  # type: ignore[override]
        states = torch.cat([hidden.unsqueeze(0), hidden.new_empty(len(given), *hidden.shape)])
        ctx.saved_cells = [
            cell_forward(gates, torch.addmm(b_h, states[t], W_h.T), states[t], states[t + 1])
            for t, gates in enumerate(given.clone())
        ]
        ctx.save_for_backward(states, given, hidden, W_h, b_h)
        return states[1:].clone()

    @staticmethod
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        with torch.no_grad():
            found = GRUFunction._gradients(ctx, d_states)
        return differentiable_again(found, gru_in_plain_torch, ctx.saved_tensors[1:], (d_states,))

    @staticmethod
    def _gradients(ctx: Any, d_states: Tensor) -> tuple[Tensor, ...]:
        states, _, _, W_h, _ = ctx.saved_tensors
        d_given = states.new_empty(*d_states.shape[:2], 3 * states.shape[2])
        d_own = torch.empty_like(d_given)
        d_hidden = torch.zeros_like(states[0])
        with full_precision(states.device):
            for t in reversed(range(len(d_states))):
                d_hidden = cell_backward(d_hidden + d_states[t], ctx.saved_cells[t], states[t], d_given[t], d_own[t])
                d_hidden = d_hidden.addmm_(d_own[t], W_h)
            d_W_h = d_own.flatten(0, 1).T @ states[:-1].flatten(0, 1)
        return d_given, d_hidden, d_W_h, d_own.sum((0, 1))


def gru_in_plain_torch(given: Tensor, hidden: Tensor, W_h: Tensor, b_h: Tensor) -> tuple[Tensor]:
    """The same states, differentiable any number of times by autograd."""
    states = []
    for gates in given:
        hidden = gru_cell(gates, torch.addmm(b_h, hidden, W_h.T), hidden)
        states.append(hidden)
    return (torch.stack(states),)


def run_gru(network: nn.GRU, given: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """A GRU over inputs (B, S, e), skipping padding, where ``mask`` (B, S) is −inf.

    Returns states (B, S, directions·h), zeros at padding, and the last ones (layers·directions, B, h), as the network
    itself does for packed sequences.
    """
    size, directions, dtype = network.hidden_size, 2 if network.bidirectional else 1, given.dtype
    # An update gate of one leaves the state unchanged at padding.
    still = F.pad(-mask.T.unsqueeze(2).expand(-1, -1, size), (size, size))  # (S, B, 3h)
    inside = (mask.T == 0.0).unsqueeze(2)
    states: list[Tensor] = []
    last: list[Tensor] = []
    (given,) = widened(given.transpose(0, 1))
    for number, (W_i, W_h, b_i, b_h) in enumerate(widened(*layer) for layer in network.all_weights):
        direction = number % directions
        if not direction:
            if number:
                given = F.dropout(torch.cat(states, -1), network.dropout, network.training)
            states = []
        with full_precision(given.device):
            gates = F.linear(given, W_i, b_i) + still
            hidden = gates.new_zeros(gates.shape[1], size)
            turned = gates.flip(0) if direction else gates
            found = GRUFunction.apply(turned, hidden, W_h, b_h)  # type: ignore[no-untyped-call]
        last.append(found[-1])
        states.append((found.flip(0) if direction else found) * inside)
    return torch.cat(states, -1).transpose(0, 1).to(dtype), torch.stack(last).to(dtype)

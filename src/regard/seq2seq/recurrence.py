"""One step of a recurrent network whose input comes in two parts: one known for all steps, one at every step.

    gates = W_e·embedded + b          all steps in one product
          + W_c·context + W_h·hidden  at every step

The parameters are those of a torch ``nn.GRU`` or ``nn.LSTM``, which computes the same from both parts side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Layer(NamedTuple):
    """Parameters of one layer, those of an ``nn.GRU`` or ``nn.LSTM``, with the gates one below the other."""

    W_i: Tensor  # (gates·h, embed + memory) or (gates·h, h)
    W_h: Tensor  # (gates·h, h)
    b_i: Tensor  # (gates·h,)
    b_h: Tensor  # (gates·h,)


class Recurrence(NamedTuple):
    """A recurrent network taken apart."""

    W_e: Tensor  # (gates·h, embed)
    W_c: Tensor  # (gates·h, memory)
    layers: tuple[Layer, ...]
    dropout: float

    @classmethod
    def of(cls, network: nn.RNNBase, embed_size: int) -> Recurrence:
        """The network's parameters, the first ``embed_size`` of its inputs apart from the others."""
        layers = tuple(Layer(*parameters) for parameters in network.all_weights)
        first = layers[0].W_i
        return cls(first[:, :embed_size], first[:, embed_size:], layers, network.dropout)

    def given(self, embedded: Tensor) -> Tensor:
        """The first layer's gates (…, gates·h) as far as embeddings (…, embed) settle them."""
        return F.linear(embedded, self.W_e, self.layers[0].b_i)

    def step(
        self, given: Tensor, context: Tensor, hidden: tuple[Tensor, ...], cell: tuple[Tensor, ...], training: bool
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Hidden and cell states after one step."""
        gates = given + F.linear(context, self.W_c)
        hiddens: list[Tensor] = []
        cells: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            if number:
                below = F.dropout(hiddens[-1], self.dropout, training)
                gates = F.linear(below, layer.W_i, layer.b_i)
            own = F.linear(hidden[number], layer.W_h, layer.b_h)
            if cell:
                after, kept = _lstm(gates + own, cell[number])
                cells.append(kept)
            else:
                after = _gru(gates, own, hidden[number])
            hiddens.append(after)
        return tuple(hiddens), tuple(cells)


def _gru(given: Tensor, own: Tensor, hidden: Tensor) -> Tensor:
    """reset, update = σ(given + own); new = tanh(given + reset·own); hidden' = new + update·(hidden − new)."""
    size = hidden.shape[-1]
    both = torch.sigmoid(given[:, : 2 * size] + own[:, : 2 * size])
    reset, update = both[:, :size], both[:, size:]
    new = torch.tanh(torch.addcmul(given[:, 2 * size :], reset, own[:, 2 * size :]))
    return torch.lerp(new, hidden, update)


def _lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """cell' = forget·cell + admit·new, hidden' = release·tanh(cell')."""
    size = cell.shape[-1]
    both = torch.sigmoid(gates[:, : 2 * size])
    admit, forget = both[:, :size], both[:, size:]
    new, release = torch.tanh(gates[:, 2 * size : 3 * size]), torch.sigmoid(gates[:, 3 * size :])
    cell = torch.addcmul(admit * new, forget, cell)
    return release * torch.tanh(cell), cell

"""The encoder: a sentence in, one state per token out. Padding has no effect."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.seq2seq.recurrence import network, run_gru


class Encoded(NamedTuple):
    """A batch of encoded sentences."""

    states: Tensor  # (B, S, memory_size)  one per token, zeros for padding
    lengths: Tensor  # (B,)  on the CPU
    mask: Tensor  # (B, S)  0 at a token, −inf at padding, to be added to scores
    last: Tensor  # (layers, B, hidden_size)  initial state of the decoder
    ends: Tensor  # (B, memory_size)  the top layer's last state of each direction, concatenated


class Encoder(nn.Module):
    """An embedding and a recurrent network, bidirectional by default.

    Parameters
    ----------
    vocabulary_size : int
        Number of token ids.
    embed_size : int
        Features of an embedding.
    hidden_size : int
        Features of a state in one direction.
    layers : int, default=1
        Layers of the recurrent network.
    cell : {"gru", "lstm"}, default="gru"
        Its kind.
    bidirectional : bool, default=True
        Also read backwards; ``memory_size`` is then twice ``hidden_size``.
    dropout : float, default=0.0
        Dropout probability of embeddings, and of states between layers.

    *Empty rows*: an error; a sentence has at least one token. *Cost*: O(tokens·hidden_size²).

    >>> encoder = Encoder(10, 4, 8)
    >>> encoder(torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1])).states.shape
    torch.Size([2, 3, 16])
    """

    def __init__(
        self,
        vocabulary_size: int,
        embed_size: int,
        hidden_size: int,
        *,
        layers: int = 1,
        cell: str = "gru",
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.directions = 2 if bidirectional else 1
        self.memory_size = self.directions * hidden_size
        self.embedding = nn.Embedding(vocabulary_size, embed_size)
        self.dropout = nn.Dropout(dropout)
        self.recurrent = network(cell, embed_size, hidden_size, layers, dropout, bidirectional=bidirectional)
        # Maps the last states of both directions to one initial state of the decoder.
        self.bridge = nn.Linear(self.memory_size, hidden_size) if bidirectional else None

    def forward(self, source: Tensor, lengths: Tensor) -> Encoded:
        """Encode sentences of token ids.

        Parameters
        ----------
        source : tensor (B, S)
            Token ids.
        lengths : tensor of int (B,)
            Tokens of each row; the others are padding. On the CPU they avoid a synchronisation with the device.

        Returns
        -------
        Encoded
            ``states`` (B, S, memory_size), ``lengths``, ``mask``, ``last`` and ``ends``.
        """
        lengths = check_lengths(source, lengths)
        padding = torch.arange(source.shape[1]) >= lengths[:, None]
        mask = torch.zeros(padding.shape).masked_fill_(padding, -torch.inf).to(source.device, non_blocking=True)
        embedded = self.dropout(self.embedding(source))
        # Both branches compute the same; on a CPU the first one has the faster backward pass.
        if isinstance(self.recurrent, nn.GRU) and source.device.type == "cpu" and torch.is_grad_enabled():
            states, last = run_gru(self.recurrent, embedded, mask)
        else:
            packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
            states, last = self.recurrent(packed)
            states, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
            last = last[0] if isinstance(last, tuple) else last
        return Encoded(states, lengths, mask, *self.joined(last))

    def joined(self, last: Tensor) -> tuple[Tensor, Tensor]:
        """``last`` and ``ends`` of ``Encoded``, from the last states (layers·directions, B, hidden_size).

        Parameters
        ----------
        last : tensor (layers·directions, B, hidden_size)
            Last states of the recurrent network.

        Returns
        -------
        tuple of tensors (layers, B, hidden_size) and (B, memory_size)
        """
        both = last.view(-1, self.directions, *last.shape[1:]).transpose(1, 2).flatten(2)  # (layers, B, memory_size)
        return both if self.bridge is None else torch.tanh(self.bridge(both)), both[-1]


def check_lengths(source: Tensor, lengths: Tensor) -> Tensor:
    """The lengths on the CPU. Raises ValueError unless they fit the sentences (B, S)."""
    if source.ndim != 2 or lengths.shape != source.shape[:1]:
        raise ValueError(
            f"source must have shape (batch, tokens) and lengths (batch,), got {tuple(source.shape)} and "
            f"{tuple(lengths.shape)}"
        )
    lengths = lengths.cpu()
    if len(lengths) and not (int(lengths.min()) >= 1 and int(lengths.max()) <= source.shape[1]):
        raise ValueError(
            f"lengths must lie between 1 and {source.shape[1]}, got {int(lengths.min())} to {int(lengths.max())}"
        )
    return lengths

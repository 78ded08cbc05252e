"""The recurrent encoder and decoder of Dive into Deep Learning, with the signatures of editions 0.17 and 1.0.

Parameters have the names of edition 0.17. What differs is what differs in ``regard.nn.book``. For training translators
use ``regard.seq2seq``, whose encoder is bidirectional, skips padding and projects the keys once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.nn.book import AdditiveAttention
from regard.tensors.tensor_inputs import Lengths


class Seq2SeqEncoder(nn.Module):
    """An embedding and a GRU: ``Seq2SeqEncoder(vocab_size, embed_size, num_hiddens, num_layers, dropout=0)``.

    >>> encoder = Seq2SeqEncoder(10, 8, 16, 2)
    >>> output, state = encoder(torch.zeros(4, 7, dtype=torch.long))
    >>> output.shape, state.shape
    (torch.Size([7, 4, 16]), torch.Size([2, 4, 16]))
    """

    def __init__(
        self, vocab_size: int, embed_size: int, num_hiddens: int, num_layers: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_size)
        self.rnn = nn.GRU(embed_size, num_hiddens, num_layers, dropout=dropout)

    def forward(self, X: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        """X (B, n) token ids, padding included; returns output (n, B, num_hiddens), state (num_layers, B, ·)."""
        return self.rnn(self.embedding(X.T))  # type: ignore[no-any-return]


class Seq2SeqAttentionDecoder(nn.Module):
    """A GRU that attends to the encoder by an additive score before every step: ``Seq2SeqAttentionDecoder(vocab_size,
    embed_size, num_hiddens, num_layers, dropout=0)``.

    *Cost*: for every step that of additive attention to n keys.

    >>> encoder, decoder = Seq2SeqEncoder(10, 8, 16, 2), Seq2SeqAttentionDecoder(10, 8, 16, 2)
    >>> X = torch.zeros(4, 7, dtype=torch.long)
    >>> output, state = decoder(X, decoder.init_state(encoder(X), torch.tensor([7, 3, 1, 2])))
    >>> output.shape, len(state), state[0].shape
    (torch.Size([4, 7, 10]), 3, torch.Size([4, 7, 16]))
    """

    def __init__(
        self, vocab_size: int, embed_size: int, num_hiddens: int, num_layers: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention = AdditiveAttention(num_hiddens, num_hiddens, num_hiddens, dropout)
        self.embedding = nn.Embedding(vocab_size, embed_size)
        self.rnn = nn.GRU(embed_size + num_hiddens, num_hiddens, num_layers, dropout=dropout)
        self.dense = nn.Linear(num_hiddens, vocab_size)
        self.attention_weights: list[Tensor] = []  # (B, 1, n) for every step of the last call, detached

    def init_state(self, enc_outputs: tuple[Tensor, Tensor], enc_valid_lens: Lengths | None = None, *_: Any) -> Any:
        """The state before the first token, from the outputs of ``Seq2SeqEncoder``."""
        outputs, hidden = enc_outputs
        return outputs.transpose(0, 1), hidden, enc_valid_lens

    def forward(self, X: Tensor, state: Any) -> tuple[Tensor, list[Any]]:
        """X (B, T) token ids; returns scores (B, T, vocab_size) and the state."""
        enc_outputs, hidden, enc_valid_lens = state
        outputs, self.attention_weights = [], []
        for embedded in self.embedding(X.T):  # (B, embed_size)
            context = self.attention(hidden[-1].unsqueeze(1), enc_outputs, enc_outputs, enc_valid_lens)  # (B, 1, ·)
            assert self.attention.attention_weights is not None
            self.attention_weights.append(self.attention.attention_weights)
            output, hidden = self.rnn(torch.cat([context, embedded.unsqueeze(1)], -1).transpose(0, 1), hidden)
            outputs.append(output)
        return self.dense(torch.cat(outputs).transpose(0, 1)), [enc_outputs, hidden, enc_valid_lens]


class EncoderDecoder(nn.Module):
    """An encoder and a decoder as one module; returns what the decoder returns, its scores and its state, as in edition
    0.17.

    >>> net = EncoderDecoder(Seq2SeqEncoder(10, 8, 16, 2), Seq2SeqAttentionDecoder(10, 8, 16, 2))
    >>> X = torch.zeros(4, 7, dtype=torch.long)
    >>> net(X, X[:, :5], torch.tensor([7, 3, 1, 2]))[0].shape
    torch.Size([4, 5, 10])
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, enc_X: Tensor, dec_X: Tensor, *args: Any) -> Any:
        """enc_X (B, n) and dec_X (B, T) token ids; ``args``, commonly enc_X's valid_lens, go to encoder and decoder."""
        state = self.decoder.init_state(self.encoder(enc_X, *args), *args)  # type: ignore[operator]
        return self.decoder(dec_X, state)

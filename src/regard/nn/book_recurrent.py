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
    """An embedding and a GRU.

    Parameters
    ----------
    vocab_size : int
        Number of token ids.
    embed_size : int
        Features of an embedding.
    num_hiddens : int
        Features of a state.
    num_layers : int
        Layers of the GRU.
    dropout : float, default=0.0
        Dropout probability of states between layers.

    *Cost*: O(n·num_hiddens·(embed_size + num_layers·num_hiddens)) for each sequence.

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
        """Encode sentences.

        Parameters
        ----------
        X : tensor of int (B, n)
            Token ids; padding is read like any token.
        *_ : object
            Accepted as in the book, and ignored.

        Returns
        -------
        tuple of tensors (n, B, num_hiddens) and (num_layers, B, num_hiddens)
            States of the last layer at every token, and of every layer at the end.
        """
        return self.rnn(self.embedding(X.T))  # type: ignore[no-any-return]


class Seq2SeqAttentionDecoder(nn.Module):
    """A GRU that attends to the encoder by an additive score before every step.

    Parameters
    ----------
    vocab_size : int
        Number of token ids.
    embed_size : int
        Features of an embedding.
    num_hiddens : int
        Features of a state, and of the encoder's states.
    num_layers : int
        Layers of the GRU, as many as the encoder's.
    dropout : float, default=0.0
        Dropout probability of attention weights and of states between layers.

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
        """The state before the first token.

        Parameters
        ----------
        enc_outputs : tuple of tensors (n, B, num_hiddens) and (num_layers, B, num_hiddens)
            What ``Seq2SeqEncoder`` returned.
        enc_valid_lens : tensor of int (B,), default=None
            Only the first ``enc_valid_lens`` tokens of the source may be attended to.
        *_ : object
            Accepted as in the book, and ignored.

        Returns
        -------
        tuple
            The encoder's states (B, n, num_hiddens), the hidden state and the lengths.
        """
        outputs, hidden = enc_outputs
        return outputs.transpose(0, 1), hidden, enc_valid_lens

    def forward(self, X: Tensor, state: Any) -> tuple[Tensor, list[Any]]:
        """Scores of the token after each token.

        Parameters
        ----------
        X : tensor of int (B, T)
            Token ids of the target.
        state : tuple or list
            That of ``init_state``, or of the call before.

        Returns
        -------
        tuple of a tensor (B, T, vocab_size) and the state
        """
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
    """An encoder and a decoder as one module, which returns what the decoder returns: scores and state, as in 0.17.

    Parameters
    ----------
    encoder : module
        Such as ``Seq2SeqEncoder`` or ``TransformerEncoder``.
    decoder : module with ``init_state``
        Such as ``Seq2SeqAttentionDecoder`` or ``TransformerDecoder``.

    >>> net = EncoderDecoder(Seq2SeqEncoder(10, 8, 16, 2), Seq2SeqAttentionDecoder(10, 8, 16, 2))
    >>> X = torch.zeros(4, 7, dtype=torch.long)
    >>> net(X, X[:, :5], torch.tensor([7, 3, 1, 2]))[0].shape
    torch.Size([4, 5, 10])
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, enc_X: Tensor, dec_X: Tensor, *args: Any) -> Any:
        """Encode the source, and predict the token after each token of the target.

        Parameters
        ----------
        enc_X : tensor of int (B, n)
            Token ids of the source.
        dec_X : tensor of int (B, T)
            Token ids of the target.
        *args : object
            For the encoder and for ``init_state`` of the decoder; commonly the lengths of the source.

        Returns
        -------
        tuple of a tensor (B, T, vocab_size) and the state
        """
        state = self.decoder.init_state(self.encoder(enc_X, *args), *args)  # type: ignore[operator]
        return self.decoder(dec_X, state)

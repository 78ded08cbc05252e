"""The transformer of Dive into Deep Learning, with the signatures of editions 0.17 and 1.0.

Parameters have the same names as there, so saved weights load. ``valid_lens`` have the semantics of the book: only the
first keys of each sequence may be attended to. What differs is what differs in ``regard.nn.book``. For training
translators use ``regard.seq2seq``, which batches, decodes incrementally and searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from regard.nn.argument_checks import at_least_one
from regard.nn.book import DotProductAttention, edition_arguments
from regard.tensors.tensor_inputs import Lengths


def _linear(size: int | None, outputs: int, bias: bool) -> nn.Linear:
    """A linear layer; without ``size`` it takes that from the first batch."""
    return nn.LazyLinear(outputs, bias=bias) if size is None else nn.Linear(size, outputs, bias=bias)


class MultiHeadAttention(nn.Module):
    """Dot-product attention in several heads, with the signature of either edition of the book.

    ``MultiHeadAttention(key_size, query_size, value_size, num_hiddens, num_heads, dropout, bias=False)`` as in edition
    0.17, or ``MultiHeadAttention(num_hiddens, num_heads, dropout, bias=False)`` as in 1.0, which takes the sizes from
    the first batch. ``regard.nn.multi_head`` does the same for any score, and checks its inputs.

    Parameters
    ----------
    *args : int, float and bool
        The arguments of one of the editions, in its order.
    **kwargs : int, float and bool
        The same by name.

    *Empty rows*: zeros, or the bias of ``W_o``. *Cost*: O(Q·K·num_hiddens) time, O(num_heads·Q·K) memory.

    >>> attention, x = MultiHeadAttention(100, 5, 0.5).eval(), torch.ones(2, 4, 100)
    >>> attention(x, torch.ones(2, 6, 100), torch.ones(2, 6, 100), torch.tensor([3, 2])).shape
    torch.Size([2, 4, 100])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        given = edition_arguments(
            "MultiHeadAttention",
            (
                ("key_size", "query_size", "value_size", "num_hiddens", "num_heads", "dropout", "bias"),
                ("num_hiddens", "num_heads", "dropout", "bias"),
            ),
            {"bias": False},
            args,
            kwargs,
        )
        hidden, self.num_heads, bias = given["num_hiddens"], given["num_heads"], given["bias"]
        at_least_one(num_hiddens=hidden, num_heads=self.num_heads)
        if hidden % self.num_heads:
            raise ValueError(f"num_hiddens must be a multiple of num_heads, got {hidden} and {self.num_heads}")
        self.attention = DotProductAttention(given["dropout"])
        self.W_q = _linear(given.get("query_size"), hidden, bias)
        self.W_k = _linear(given.get("key_size"), hidden, bias)
        self.W_v = _linear(given.get("value_size"), hidden, bias)
        self.W_o = nn.Linear(hidden, hidden, bias=bias)

    @property
    def attention_weights(self) -> Tensor | None:
        """The weights (B·num_heads, Q, K) of the last call, detached; those of a sequence are consecutive."""
        return self.attention.attention_weights

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Lengths | None = None) -> Tensor:
        """Pool the values with every head.

        Parameters
        ----------
        queries : tensor (B, Q, query_size)
            Queries.
        keys : tensor (B, K, key_size)
            Keys.
        values : tensor (B, K, value_size)
            Values.
        valid_lens : tensor of int (B,) or (B, Q), default=None
            Only the first ``valid_lens`` keys may be attended to.

        Returns
        -------
        tensor (B, Q, num_hiddens)
        """
        if valid_lens is not None:
            valid_lens = torch.as_tensor(valid_lens, device=queries.device).repeat_interleave(self.num_heads, 0)
        rows = (self._split(layer(x)) for layer, x in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values)))
        output = self.attention(*rows, valid_lens)  # (B·heads, Q, size)
        heads = output.view(-1, self.num_heads, *output.shape[1:])
        return self.W_o(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, rows: Tensor) -> Tensor:
        """(B, n, num_hiddens) → (B·num_heads, n, num_hiddens/num_heads)."""
        return rows.view(*rows.shape[:2], self.num_heads, -1).transpose(1, 2).flatten(0, 1)


class PositionalEncoding(nn.Module):
    """X + P with P[i, 2j] = sin(i/10000^(2j/num_hiddens)) and P[i, 2j+1] the cosine, then dropout.

    Parameters
    ----------
    num_hiddens : int
        Features of a token.
    dropout : float
        Probability of setting a feature to zero in training mode.
    max_len : int, default=1000
        Length of the longest sequence.

    >>> PositionalEncoding(4, 0.0)(torch.zeros(1, 2, 4))[0, 1].round(decimals=2).tolist()
    [0.8399999737739563, 0.5400000214576721, 0.009999999776482582, 1.0]
    """

    P: Tensor

    def __init__(self, num_hiddens: int, dropout: float, max_len: int = 1000) -> None:
        super().__init__()
        at_least_one(num_hiddens=num_hiddens, max_len=max_len)
        self.dropout = nn.Dropout(dropout)
        # As in the book it is no part of the state.
        self.register_buffer("P", sinusoids(torch.arange(max_len), num_hiddens).unsqueeze(0), persistent=False)

    def forward(self, X: Tensor) -> Tensor:
        """Add the positions.

        Parameters
        ----------
        X : tensor (B, n, num_hiddens)
            Tokens, n at most ``max_len``.

        Returns
        -------
        tensor (B, n, num_hiddens)
        """
        if X.shape[1] > self.P.shape[1]:
            raise ValueError(f"X must have at most max_len={self.P.shape[1]} positions, got {X.shape[1]}")
        return self.dropout(X + self.P[:, : X.shape[1]].to(X.dtype))  # type: ignore[no-any-return]


def sinusoids(position: Tensor, features: int) -> Tensor:
    """sin and cos (n, features) of position/10000^(2j/features), interleaved, for positions (n,)."""
    rate = 10_000.0 ** (-torch.arange(0, features, 2, device=position.device) / features)
    angle = position[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :features]


class AddNorm(nn.Module):
    """LayerNorm(X + dropout(Y)): ``AddNorm(normalized_shape, dropout)``, in 1.0 ``AddNorm(norm_shape, dropout)``.

    Parameters
    ----------
    *args : int, sequence of int and float
        The arguments of one of the editions, in its order.
    **kwargs : int, sequence of int and float
        The same by name.

    >>> AddNorm(4, 0.5).eval()(torch.ones(2, 3, 4), torch.ones(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        given = edition_arguments(
            "AddNorm", (("normalized_shape", "dropout"), ("norm_shape", "dropout")), {}, args, kwargs
        )
        self.dropout = nn.Dropout(given["dropout"])
        self.ln = nn.LayerNorm(given["normalized_shape"] if "normalized_shape" in given else given["norm_shape"])

    def forward(self, X: Tensor, Y: Tensor) -> Tensor:
        """Add and normalise.

        Parameters
        ----------
        X : tensor (…, features)
            What Y is added to.
        Y : tensor (…, features)
            What dropout applies to.

        Returns
        -------
        tensor (…, features)
        """
        return self.ln(self.dropout(Y) + X)  # type: ignore[no-any-return]


class PositionWiseFFN(nn.Module):
    """The same network of one hidden layer at every position, with the signature of either edition of the book.

    ``PositionWiseFFN(ffn_num_input, ffn_num_hiddens, ffn_num_outputs)`` as in edition 0.17, or
    ``PositionWiseFFN(ffn_num_hiddens, ffn_num_outputs)`` as in 1.0, which takes the size from the first batch.

    Parameters
    ----------
    *args : int
        The arguments of one of the editions, in its order.
    **kwargs : int
        The same by name.

    >>> PositionWiseFFN(4, 8)(torch.ones(2, 3, 4)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        given = edition_arguments(
            "PositionWiseFFN",
            (("ffn_num_input", "ffn_num_hiddens", "ffn_num_outputs"), ("ffn_num_hiddens", "ffn_num_outputs")),
            {},
            args,
            kwargs,
        )
        self.dense1 = _linear(given.get("ffn_num_input"), given["ffn_num_hiddens"], bias=True)
        self.relu = nn.ReLU()
        self.dense2 = nn.Linear(given["ffn_num_hiddens"], given["ffn_num_outputs"])

    def forward(self, X: Tensor) -> Tensor:
        """Apply the network to every row.

        Parameters
        ----------
        X : tensor (…, features)
            Rows.

        Returns
        -------
        tensor (…, ffn_num_outputs)
        """
        return self.dense2(self.relu(self.dense1(X)))  # type: ignore[no-any-return]


class TransformerEncoderBlock(nn.Module):
    """Self-attention and a position-wise network, each followed by ``AddNorm``, with the signature of edition 1.0.

    Parameters
    ----------
    num_hiddens : int
        Features of a token.
    ffn_num_hiddens : int
        Units of the position-wise network.
    num_heads : int
        Number of heads.
    dropout : float
        Probability of setting a weight, or a feature of what is added, to zero in training mode.
    use_bias : bool, default=False
        Whether the projections of the attention have a bias.
    norm_shape : int or sequence of int, default=None
        Axes that are normalised, an argument of edition 0.17; None is ``num_hiddens``.

    >>> TransformerEncoderBlock(24, 48, 8, 0.5).eval()(torch.ones(2, 100, 24), torch.tensor([3, 2])).shape
    torch.Size([2, 100, 24])
    """

    def __init__(
        self,
        num_hiddens: int,
        ffn_num_hiddens: int,
        num_heads: int,
        dropout: float,
        use_bias: bool = False,
        *,
        norm_shape: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        norm = num_hiddens if norm_shape is None else norm_shape
        self.attention = MultiHeadAttention(*[num_hiddens] * 4, num_heads, dropout, use_bias)
        self.addnorm1 = AddNorm(norm, dropout)
        self.ffn = PositionWiseFFN(num_hiddens, ffn_num_hiddens, num_hiddens)
        self.addnorm2 = AddNorm(norm, dropout)

    def forward(self, X: Tensor, valid_lens: Lengths | None = None) -> Tensor:
        """One block.

        Parameters
        ----------
        X : tensor (B, n, num_hiddens)
            Tokens.
        valid_lens : tensor of int (B,), default=None
            Only the first ``valid_lens`` tokens may be attended to.

        Returns
        -------
        tensor (B, n, num_hiddens)
        """
        Y = self.addnorm1(X, self.attention(X, X, X, valid_lens))
        return self.addnorm2(Y, self.ffn(Y))  # type: ignore[no-any-return]


class _Blocks(nn.Module):
    """What encoder and decoder share: scaled embeddings with positions, and a sequence of blocks."""

    def __init__(self, vocab_size: int, num_hiddens: int, dropout: float, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.num_hiddens = num_hiddens
        self.embedding = nn.Embedding(vocab_size, num_hiddens)
        self.pos_encoding = PositionalEncoding(num_hiddens, dropout)
        self.blks = nn.Sequential()
        for number, block in enumerate(blocks):
            self.blks.add_module(f"block{number}", block)

    def _embedded(self, X: Tensor) -> Tensor:
        # Scaled, so that embeddings do not vanish beside the positions, which lie between −1 and 1.
        return self.pos_encoding(self.embedding(X) * sqrt(self.num_hiddens))  # type: ignore[no-any-return]


class TransformerEncoder(_Blocks):
    """Embedding, positions and blocks of the encoder, with the signature of either edition of the book.

    ``TransformerEncoder(vocab_size, key_size, query_size, value_size, num_hiddens, norm_shape, ffn_num_input,
    ffn_num_hiddens, num_heads, num_layers, dropout, use_bias=False)`` as in edition 0.17, or
    ``TransformerEncoder(vocab_size, num_hiddens, ffn_num_hiddens, num_heads, num_blks, dropout, use_bias=False)`` as in
    1.0. The sizes of 0.17 must all be num_hiddens, as the sums of a block require.

    Parameters
    ----------
    *args : int, sequence of int, float and bool
        The arguments of one of the editions, in its order.
    **kwargs : int, sequence of int, float and bool
        The same by name.

    *Cost*: O(n²·num_hiddens + n·num_hiddens·ffn_num_hiddens) for each block and sequence.

    >>> encoder = TransformerEncoder(200, 24, 48, 8, 2, 0.5).eval()
    >>> encoder(torch.ones(2, 100, dtype=torch.long), torch.tensor([3, 2])).shape
    torch.Size([2, 100, 24])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = _transformer_arguments("TransformerEncoder", ("use_bias",), {"use_bias": False}, args, kwargs)
        block = (given["num_hiddens"], given["ffn_num_hiddens"], given["num_heads"], given["dropout"])
        blocks: list[nn.Module] = [
            TransformerEncoderBlock(*block, given["use_bias"], norm_shape=given.get("norm_shape"))
            for _ in range(given["num_blks"])
        ]
        super().__init__(given["vocab_size"], given["num_hiddens"], given["dropout"], blocks)

    @property
    def attention_weights(self) -> list[Tensor | None]:
        """The weights (B·num_heads, n, n) of each block in the last call."""
        return [block.attention.attention_weights for block in self.blks]  # type: ignore[union-attr, misc]

    def forward(self, X: Tensor, valid_lens: Lengths | None = None, *_: Any) -> Tensor:
        """Encode sentences.

        Parameters
        ----------
        X : tensor of int (B, n)
            Token ids.
        valid_lens : tensor of int (B,), default=None
            Tokens of each sentence; what follows is padding.
        *_ : object
            Accepted as in the book, and ignored.

        Returns
        -------
        tensor (B, n, num_hiddens)
        """
        states = self._embedded(X)
        for block in self.blks:
            states = block(states, valid_lens)
        return states


class TransformerDecoderBlock(nn.Module):
    """Causal self-attention, attention to the encoder and a position-wise network, each followed by ``AddNorm``.

    In training mode a position attends to itself and those before it. In evaluation mode the positions given are added
    to those that the state keeps of earlier calls, and attend to all of these and, unlike in the book, causally to
    each other, so several tokens at once give what they give one by one.

    Parameters
    ----------
    num_hiddens : int
        Features of a token.
    ffn_num_hiddens : int
        Units of the position-wise network.
    num_heads : int
        Number of heads.
    dropout : float
        Probability of setting a weight, or a feature of what is added, to zero in training mode.
    i : int
        Number of the block in its decoder, from 0.
    norm_shape : int or sequence of int, default=None
        Axes that are normalised, an argument of edition 0.17; None is ``num_hiddens``.

    >>> block = TransformerDecoderBlock(24, 48, 8, 0.5, 0).eval()
    >>> X = torch.ones(2, 100, 24)
    >>> block(X, [X, torch.tensor([3, 2]), [None]])[0].shape
    torch.Size([2, 100, 24])
    """

    def __init__(
        self,
        num_hiddens: int,
        ffn_num_hiddens: int,
        num_heads: int,
        dropout: float,
        i: int,
        *,
        norm_shape: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.i, norm = i, num_hiddens if norm_shape is None else norm_shape
        self.attention1 = MultiHeadAttention(*[num_hiddens] * 4, num_heads, dropout)
        self.addnorm1 = AddNorm(norm, dropout)
        self.attention2 = MultiHeadAttention(*[num_hiddens] * 4, num_heads, dropout)
        self.addnorm2 = AddNorm(norm, dropout)
        self.ffn = PositionWiseFFN(num_hiddens, ffn_num_hiddens, num_hiddens)
        self.addnorm3 = AddNorm(norm, dropout)

    def forward(self, X: Tensor, state: list[Any]) -> tuple[Tensor, list[Any]]:
        """One block; in evaluation mode its entry of the state is replaced.

        Parameters
        ----------
        X : tensor (B, n, num_hiddens)
            Tokens.
        state : list
            That of ``TransformerDecoder.init_state``.

        Returns
        -------
        tuple of a tensor (B, n, num_hiddens) and the state
        """
        enc_outputs, enc_valid_lens, past = state
        before = past[self.i]
        keys = X if self.training or before is None else torch.cat([before, X], 1)
        if not self.training:
            past[self.i] = keys
        batch, steps, _ = X.shape
        ends = torch.arange(keys.shape[1] - steps + 1, keys.shape[1] + 1, device=X.device).expand(batch, -1)
        Y = self.addnorm1(X, self.attention1(X, keys, keys, ends))
        Z = self.addnorm2(Y, self.attention2(Y, enc_outputs, enc_outputs, enc_valid_lens))
        return self.addnorm3(Z, self.ffn(Z)), state


class TransformerDecoder(_Blocks):
    """Embedding, positions, blocks and output of the decoder, with the signature of either edition of the book.

    ``TransformerDecoder(vocab_size, key_size, query_size, value_size, num_hiddens, norm_shape, ffn_num_input,
    ffn_num_hiddens, num_heads, num_layers, dropout)`` as in edition 0.17, or ``TransformerDecoder(vocab_size,
    num_hiddens, ffn_num_hiddens, num_heads, num_blks, dropout)`` as in 1.0. The sizes of 0.17 must all be num_hiddens.
    In evaluation mode the state keeps the tokens of earlier calls, so a translation is decoded token by token.

    Parameters
    ----------
    *args : int, sequence of int and float
        The arguments of one of the editions, in its order.
    **kwargs : int, sequence of int and float
        The same by name.

    *Cost*: of T tokens for n of the source, O(T·(T + n)·num_hiddens + T·num_hiddens·ffn_num_hiddens) for each block.

    >>> decoder = TransformerDecoder(200, 24, 48, 8, 2, 0.5).eval()
    >>> state = decoder.init_state(torch.ones(2, 10, 24), torch.tensor([3, 2]))
    >>> decoder(torch.ones(2, 4, dtype=torch.long), state)[0].shape
    torch.Size([2, 4, 200])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = _transformer_arguments("TransformerDecoder", (), {}, args, kwargs)
        block = (given["num_hiddens"], given["ffn_num_hiddens"], given["num_heads"], given["dropout"])
        blocks: list[nn.Module] = [
            TransformerDecoderBlock(*block, number, norm_shape=given.get("norm_shape"))
            for number in range(given["num_blks"])
        ]
        super().__init__(given["vocab_size"], given["num_hiddens"], given["dropout"], blocks)
        self.dense = nn.Linear(given["num_hiddens"], given["vocab_size"])

    @property
    def attention_weights(self) -> list[list[Tensor | None]]:
        """The weights of the last call: of self-attention in each block, and of attention to the encoder."""
        return [
            [getattr(block, name).attention_weights for block in self.blks] for name in ("attention1", "attention2")
        ]

    def init_state(self, enc_outputs: Tensor, enc_valid_lens: Lengths | None = None, *_: Any) -> list[Any]:
        """The state before the first token.

        Parameters
        ----------
        enc_outputs : tensor (B, n, num_hiddens)
            What ``TransformerEncoder`` returned.
        enc_valid_lens : tensor of int (B,), default=None
            Tokens of each sentence of the source.
        *_ : object
            Accepted as in the book, and ignored.

        Returns
        -------
        list
            Both arguments, and for each block its earlier tokens.
        """
        return [enc_outputs, enc_valid_lens, [None] * len(self.blks)]

    def forward(self, X: Tensor, state: list[Any]) -> tuple[Tensor, list[Any]]:
        """Scores of the token after each token.

        Parameters
        ----------
        X : tensor of int (B, T)
            Token ids of the target; in evaluation mode those that follow the ones given before.
        state : list
            That of ``init_state``, or of the call before.

        Returns
        -------
        tuple of a tensor (B, T, vocab_size) and the state
        """
        past = state[2][0]
        start = 0 if self.training or past is None else past.shape[1]
        length = start + X.shape[1]
        if length > self.pos_encoding.P.shape[1]:
            raise ValueError(f"at most {self.pos_encoding.P.shape[1]} positions can be decoded, got {length}")
        embedded = self.embedding(X) * sqrt(self.num_hiddens) + self.pos_encoding.P[:, start:length]
        states = self.pos_encoding.dropout(embedded)
        for block in self.blks:
            states, state = block(states, state)
        return self.dense(states), state


def _transformer_arguments(
    name: str, more: tuple[str, ...], defaults: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of an encoder or a decoder by the names of edition 1.0."""
    sizes = ("key_size", "query_size", "value_size", "ffn_num_input")
    first = (
        *("vocab_size", "key_size", "query_size", "value_size", "num_hiddens", "norm_shape", "ffn_num_input"),
        *("ffn_num_hiddens", "num_heads", "num_layers", "dropout", *more),
    )
    second = ("vocab_size", "num_hiddens", "ffn_num_hiddens", "num_heads", "num_blks", "dropout", *more)
    given = edition_arguments(name, (first, second), defaults, args, kwargs)
    hidden = given["num_hiddens"]
    for size in sizes:
        if given.get(size, hidden) != hidden:
            raise ValueError(f"{size} must be num_hiddens={hidden}, got {given[size]!r}")
    return {**given, "num_blks": given.get("num_blks", given.get("num_layers"))}

"""The transformer: an encoder and a decoder whose only recurrence is attention.

    x + attention(norm(x))        self-attention, in the decoder to the tokens so far
    x + attention(norm(x), memory)   in the decoder, to the encoder's states
    x + W_2 relu(W_1 norm(x))

Attention is softmax(q·k/√d)·v in several heads, by ``F.scaled_dot_product_attention``. Decoding keeps the keys and
values of the tokens so far, so a step costs one token, never the prefix again. The weights of a translation are those
of one layer's attention to the source, averaged over its heads or of one head: ``alignment_layer``, ``alignment_head``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn.argument_checks import at_least_one, one_of
from regard.nn.book_transformer import sinusoids
from regard.seq2seq.decoder import DecoderStep, scheduled_sampling
from regard.seq2seq.encoder import check_lengths

NORMS = ("pre", "post")


@dataclass(frozen=True)
class TransformerArchitecture:
    """The settings of a transformer; with the sizes of two vocabularies they define it.

    Parameters
    ----------
    embed_size : int, default=256
        Features of a token in every layer, a multiple of heads.
    ffn_size : int, default=1024
        Units of the position-wise networks.
    layers : int, default=3
        Of the encoder and of the decoder each.
    heads : int, default=4
        In every attention of both.
    dropout : float, default=0.1
        Dropout probability of embeddings, of what a layer adds, and of the units of its position-wise network.
    norm : {"pre", "post"}, default="pre"
        "pre" normalises the input of each part of a layer and trains without a long warm-up; "post" normalises its
        output, as in the first paper.
    tied : bool, default=True
        The decoder's embedding is its output matrix.
    shared : bool, default=False
        The encoder has the decoder's embedding; needs ``Lesson(joint=True)``.
    alignment_layer : int, default=None
        Layer of the decoder whose weights a translation has, from 0; None is the last but one. ``learn`` chooses it and
        the head if the validation pairs have alignments.
    alignment_head : int, default=None
        Head in that layer, from 0; None is the mean of its heads.

    >>> TransformerArchitecture(embed_size=64, heads=2).aligned
    (1, None)
    """

    embed_size: int = 256
    ffn_size: int = 1024
    layers: int = 3
    heads: int = 4
    dropout: float = 0.1
    norm: str = "pre"
    tied: bool = True
    shared: bool = False
    alignment_layer: int | None = None
    alignment_head: int | None = None

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("embed_size", "ffn_size", "layers", "heads")}
        at_least_one(**sizes)
        one_of(NORMS, norm=self.norm)
        if self.embed_size % self.heads:
            raise ValueError(f"embed_size must be a multiple of heads, got {self.embed_size} and {self.heads}")
        for name in ("tied", "shared"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        number = isinstance(self.dropout, int | float) and not isinstance(self.dropout, bool)
        if not (number and 0.0 <= self.dropout < 1.0):
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout!r}")
        for name, count in (("alignment_layer", self.layers), ("alignment_head", self.heads)):
            given = getattr(self, name)
            if given is not None and not (type(given) is int and 0 <= given < count):
                raise ValueError(f"{name} must be None or lie between 0 and {count - 1}, got {given!r}")

    @property
    def aligned(self) -> tuple[int, int | None]:
        """Layer and head of the weights; None is the mean of all heads."""
        layer = max(self.layers - 2, 0) if self.alignment_layer is None else self.alignment_layer
        return layer, self.alignment_head

    def parts(self, source_size: int, target_size: int) -> tuple[TransformerSourceEncoder, TransformerTargetDecoder]:
        """Encoder and decoder.

        Parameters
        ----------
        source_size : int
            Size of the source's vocabulary.
        target_size : int
            Size of the target's vocabulary.

        Returns
        -------
        tuple of TransformerSourceEncoder and TransformerTargetDecoder
            With random parameters.

        Raises
        ------
        ValueError
            If the embedding is to be shared and the sizes differ.
        """
        if self.shared and source_size != target_size:
            raise ValueError(
                f"shared=True needs one vocabulary for both sides, got sizes {source_size} and {target_size}; "
                "learn it with Lesson(joint=True)"
            )
        decoder = TransformerTargetDecoder(self, target_size)
        return TransformerSourceEncoder(self, source_size, decoder.embedding if self.shared else None), decoder


class EncodedTokens(NamedTuple):
    """A batch of sentences as the transformer encodes them."""

    states: Tensor  # (B, S, embed_size)  undefined at padding
    lengths: Tensor  # (B,)  on the CPU
    mask: Tensor  # (B, 1, 1, S)  True at a token


class SourceKeys(NamedTuple):
    """Keys and values of a source in every layer of the decoder, prepared once for all steps."""

    layers: tuple[Tensor, ...]  # (B, 2, heads, S, size)
    mask: Tensor  # (B, 1, 1, S)

    def take(self, rows: Tensor) -> SourceKeys:
        """The same for selected rows of the batch, possibly reordered or repeated."""
        return SourceKeys(tuple(layer[rows] for layer in self.layers), self.mask[rows])


class PrefixKeys(NamedTuple):
    """Keys and values of the tokens so far in every layer of the decoder."""

    layers: tuple[Tensor, ...]  # (B, 2, heads, t, size), or with room for more than t tokens
    position: Tensor | None = None  # (1,) t, if there is room for more

    def take(self, rows: Tensor) -> PrefixKeys:
        """The same for selected rows of the batch, possibly reordered or repeated."""
        return PrefixKeys(tuple(layer[rows] for layer in self.layers), self.position)


class CachedMultiHeadAttention(nn.Module):
    """Attention of rows (…, size) in several heads, with biases."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.W_q = nn.Linear(size, size)
        self.W_kv = nn.Linear(size, 2 * size)
        self.W_o = nn.Linear(size, size)
        for layer in (self.W_q, self.W_kv, self.W_o):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def keys_values(self, rows: Tensor) -> Tensor:
        """Keys and values (B, 2, heads, n, size/heads) of rows (B, n, size)."""
        both = self.W_kv(rows).view(*rows.shape[:2], 2, self.heads, -1)
        return both.permute(0, 2, 3, 1, 4)  # type: ignore[no-any-return]

    def forward(self, rows: Tensor, both: Tensor, mask: Tensor | None = None, *, is_causal: bool = False) -> Tensor:
        """Attention of rows (B, n, size) to the result of ``keys_values``; ``mask`` is True where it may attend."""
        keys, values = both.unbind(1)
        return self._joined(
            F.scaled_dot_product_attention(self._queries(rows), keys, values, attn_mask=mask, is_causal=is_causal)
        )

    def with_weights(self, rows: Tensor, both: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same, and the weights (B, heads, n, K)."""
        keys, values = both.unbind(1)
        queries = self._queries(rows)
        scores = (queries / sqrt(queries.shape[-1])) @ keys.transpose(-2, -1)
        weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)
        return self._joined(weights.to(values.dtype) @ values), weights

    def _queries(self, rows: Tensor) -> Tensor:
        return self.W_q(rows).view(*rows.shape[:2], self.heads, -1).transpose(1, 2)  # type: ignore[no-any-return]

    def _joined(self, pooled: Tensor) -> Tensor:
        return self.W_o(pooled.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class TransformerLayer(nn.Module):
    """One layer of the encoder, or of the decoder if it attends to a source."""

    def __init__(self, a: TransformerArchitecture, *, to_source: bool) -> None:
        super().__init__()
        self.pre = a.norm == "pre"
        self.own = CachedMultiHeadAttention(a.embed_size, a.heads)
        self.norm_own = nn.LayerNorm(a.embed_size)
        self.source = CachedMultiHeadAttention(a.embed_size, a.heads) if to_source else None
        self.norm_source = nn.LayerNorm(a.embed_size) if to_source else None
        self.W_1, self.W_2 = nn.Linear(a.embed_size, a.ffn_size), nn.Linear(a.ffn_size, a.embed_size)
        self.norm_ffn = nn.LayerNorm(a.embed_size)
        self.dropout = nn.Dropout(a.dropout)
        for layer in (self.W_1, self.W_2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, is_causal: bool = False) -> Tensor:
        """Self-attention of all tokens (B, n, embed_size)."""
        y = self._before(self.norm_own, x)
        return self._after(self.norm_own, x, self.own(y, self.own.keys_values(y), mask, is_causal=is_causal))

    def advance(self, x: Tensor, before: Tensor, position: Tensor | None) -> tuple[Tensor, Tensor]:
        """Self-attention of one more token (B, 1, embed_size), and the keys with its own."""
        y, mask = self._before(self.norm_own, x), None
        both = self.own.keys_values(y)
        if position is None:
            both = torch.cat([before, both], 3)
        else:
            both = before.index_copy(3, position, both)
            mask = (torch.arange(both.shape[3], device=y.device) <= position)[None]
        return self._after(self.norm_own, x, self.own(y, both, mask)), both

    def attend(
        self, x: Tensor, both: Tensor, mask: Tensor, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attention to a source, and its weights (B, heads, n, S) if they are needed."""
        assert self.source is not None
        assert self.norm_source is not None
        y, weights = self._before(self.norm_source, x), None
        if need_weights:
            added, weights = self.source.with_weights(y, both, mask)
        else:
            added = self.source(y, both, mask)
        return self._after(self.norm_source, x, added), weights

    def transform(self, x: Tensor) -> Tensor:
        """The position-wise network."""
        hidden = self.dropout(torch.relu(self.W_1(self._before(self.norm_ffn, x))))
        return self._after(self.norm_ffn, x, self.W_2(hidden))

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.pre else x  # type: ignore[no-any-return]

    def _after(self, norm: nn.Module, x: Tensor, added: Tensor) -> Tensor:
        return x + self.dropout(added) if self.pre else norm(x + self.dropout(added))  # type: ignore[no-any-return]


class TokenEmbedding(nn.Module):
    """Embeddings of tokens plus sinusoids of their positions."""

    def __init__(self, a: TransformerArchitecture, vocabulary_size: int, embedding: nn.Embedding | None = None) -> None:
        super().__init__()
        # In a tuple, a shared embedding is not a part of this module: its parameter exists once.
        self._shared = None if embedding is None else (embedding,)
        if embedding is None:
            self.embedding = nn.Embedding(vocabulary_size, a.embed_size)
            nn.init.normal_(self.embedding.weight, std=a.embed_size**-0.5)
        self.dropout = nn.Dropout(a.dropout)

    def embedded(self, tokens: Tensor, position: Tensor) -> Tensor:
        """(B, n, embed_size) of token ids (B, n) at positions (n,)."""
        embedding = self.embedding if self._shared is None else self._shared[0]
        size = embedding.embedding_dim
        return self.dropout(embedding(tokens) * sqrt(size) + sinusoids(position, size))  # type: ignore[no-any-return]


class TransformerSourceEncoder(TokenEmbedding):
    """The encoder of the transformer: a sentence in, one state per token out. Padding has no effect.

    *Empty rows*: an error; a sentence has at least one token. *Cost*: O(S²·embed_size + S·embed_size·ffn_size) per
    layer.

    >>> encoder = TransformerSourceEncoder(TransformerArchitecture(8, 16, 2, 2), 10)
    >>> encoder(torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1])).states.shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, a: TransformerArchitecture, vocabulary_size: int, embedding: nn.Embedding | None = None) -> None:
        super().__init__(a, vocabulary_size, embedding)
        self.layers = nn.ModuleList(TransformerLayer(a, to_source=False) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.embed_size) if a.norm == "pre" else nn.Identity()

    def forward(self, source: Tensor, lengths: Tensor) -> EncodedTokens:
        """Encode sentences (B, S) of token ids, the first ``lengths`` (B,) of each row.

        Lengths on the CPU avoid a synchronisation with the device.
        """
        lengths = check_lengths(source, lengths)
        return self.run(source, lengths, lengths.to(source.device, non_blocking=True))

    def run(self, source: Tensor, lengths: Tensor, on_device: Tensor) -> EncodedTokens:
        """``forward`` without checks."""
        position = torch.arange(source.shape[1], device=source.device)
        mask = (position < on_device[:, None])[:, None, None]
        x = self.embedded(source, position)
        for layer in self.layers:
            x = layer.transform(layer(x, mask))  # type: ignore[operator]
        return EncodedTokens(self.norm(x), lengths, mask)


class TransformerTargetDecoder(TokenEmbedding):
    """The decoder of the transformer: it attends to the tokens so far and to the source, and predicts one token.

    *Cost*: of a step, O(embed_size·(t + S) + embed_size·ffn_size) per layer for t tokens so far.
    """

    def __init__(self, a: TransformerArchitecture, vocabulary_size: int) -> None:
        super().__init__(a, vocabulary_size)
        self.architecture = a
        self.layers = nn.ModuleList(TransformerLayer(a, to_source=True) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.embed_size) if a.norm == "pre" else nn.Identity()
        self.out = None if a.tied else nn.Linear(a.embed_size, vocabulary_size)

    def remember(self, encoded: EncodedTokens) -> SourceKeys:
        """Keys and values of the source for all steps."""
        return SourceKeys(
            tuple(layer.source.keys_values(encoded.states) for layer in self.layers),  # type: ignore[operator, union-attr]
            encoded.mask,
        )

    def start(self, encoded: EncodedTokens, capacity: int | None = None) -> PrefixKeys:
        """The state before the first token; with ``capacity`` for that many tokens, its tensors keep their shapes."""
        a = self.architecture
        shape = encoded.states.shape[0], 2, a.heads, capacity or 0, a.embed_size // a.heads
        position = None if capacity is None else torch.zeros(1, dtype=torch.int64, device=encoded.states.device)
        return PrefixKeys(tuple(encoded.states.new_zeros(shape) for _ in self.layers), position)

    def step(self, token: Tensor, state: PrefixKeys, memory: SourceKeys) -> DecoderStep:
        """One step from the last token (B,)."""
        place = state.position
        here = torch.full((1,), state.layers[0].shape[3], device=token.device) if place is None else place
        x = self.embedded(token[:, None], here)  # (B, 1, embed_size)
        kept: list[Tensor] = []
        weights = None
        for number, (layer, before, source) in enumerate(zip(self.layers, state.layers, memory.layers, strict=True)):
            x, both = layer.advance(x, before, place)  # type: ignore[operator]
            x, found = layer.attend(x, source, memory.mask, need_weights=number == self.architecture.aligned[0])  # type: ignore[operator]
            x = layer.transform(x)  # type: ignore[operator]
            weights = weights if found is None else found
            kept.append(both)
        assert weights is not None
        after = PrefixKeys(tuple(kept), None if place is None else place + 1)
        return DecoderStep(self.norm(x)[:, 0], self._aligned(weights)[:, 0], after)

    def say(self, output: Tensor) -> Tensor:
        """Scores (…, vocabulary_size) of tokens, from outputs (…, embed_size)."""
        if self.out is None:
            return F.linear(output, self.embedding.weight)
        return self.out(output)  # type: ignore[no-any-return]

    def forward(
        self, tokens: Tensor, encoded: EncodedTokens, own: Tensor | None = None, *, need_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """Scores (B, T, vocabulary_size) of the token after each token (B, T), and weights (B, T, S) if needed.

        ``own`` as in ``AttentionDecoder``; without it all positions are computed at once.
        """
        memory = self.remember(encoded)
        if own is not None:
            return scheduled_sampling(self, tokens, own, self.start(encoded), memory)
        output, weights = self._all_at_once(tokens, memory, {self.architecture.aligned[0]} if need_weights else set())
        return self.say(output), self._aligned(weights[0]) if weights else None

    def source_weights(self, tokens: Tensor, encoded: EncodedTokens) -> Tensor:
        """The weights (layers, B, heads, T, S) of every attention to the source, for tokens (B, T)."""
        return torch.stack(self._all_at_once(tokens, self.remember(encoded), set(range(len(self.layers))))[1])

    def _all_at_once(self, tokens: Tensor, memory: SourceKeys, with_weights: set[int]) -> tuple[Tensor, list[Tensor]]:
        x = self.embedded(tokens, torch.arange(tokens.shape[1], device=tokens.device))
        weights: list[Tensor] = []
        for number, (layer, source) in enumerate(zip(self.layers, memory.layers, strict=True)):
            x, found = layer.attend(layer(x, is_causal=True), source, memory.mask, need_weights=number in with_weights)  # type: ignore[operator]
            x = layer.transform(x)  # type: ignore[operator]
            weights += [] if found is None else [found]
        return self.norm(x), weights

    def _aligned(self, weights: Tensor) -> Tensor:
        """(B, heads, T, S) → (B, T, S)."""
        head = self.architecture.aligned[1]
        return weights.mean(1) if head is None else weights[:, head]

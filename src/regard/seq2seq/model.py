"""The whole model: an encoder, a decoder that attends to it, and the settings that define both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.nn import AdditiveScore, BilinearScore, DotProductScore, GaussianScore
from regard.nn.argument_checks import at_least_one, one_of
from regard.seq2seq.decoder import ATTENTIONS, ORDERS, AttentionDecoder, DecoderScore
from regard.seq2seq.encoder import Encoder
from regard.seq2seq.recurrence import CELLS


class ProjectedKeys(nn.Module):
    """A score for queries and keys of the same size, applied to keys of another size after a learned projection."""

    def __init__(self, score: DecoderScore, query_size: int, key_size: int) -> None:
        super().__init__()
        self.score = score
        self.W_k = nn.Linear(key_size, query_size, bias=False)

    def keep(self, keys: Tensor) -> Tensor:
        """Keys as ``between`` expects them."""
        return self.score.keep(self.W_k(keys))

    def between(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Scores (…, Q, K) between queries and the result of ``keep(keys)``."""
        return self.score.between(queries, prepared)


def _for_sizes(score: DecoderScore, query_size: int, key_size: int) -> DecoderScore:
    """A score for queries and keys of the same size, with projected keys if the sizes differ."""
    return score if query_size == key_size else ProjectedKeys(score, query_size, key_size)


# Scores between states of the decoder and of the encoder, by name.
SCORES: dict[str, Callable[[int, int], DecoderScore]] = {
    "additive": lambda query_size, key_size: AdditiveScore(query_size, key_size, query_size),
    "dot": lambda query_size, key_size: _for_sizes(DotProductScore(), query_size, key_size),
    "bilinear": BilinearScore,
    # Expanded, −½‖w∘(q − k)‖² contains w² q·k: it starts like the dot product, at q·k/√d.
    "gaussian": lambda query_size, key_size: _for_sizes(
        GaussianScore(query_size**-0.25, device="cpu"), query_size, key_size
    ),
}


@dataclass(frozen=True)
class Architecture:
    """The settings of a model; with the sizes of two vocabularies they define it.

    Parameters
    ----------
    embed_size : int, default=256
        Features of an embedding.
    hidden_size : int, default=256
        Features of a state.
    layers : int, default=1
        Layers of encoder and decoder.
    cell : {"gru", "lstm"}, default="gru"
        Kind of both recurrent networks.
    bidirectional : bool, default=True
        The encoder also reads backwards.
    score : {"additive", "dot", "bilinear", "gaussian"}, default="additive"
        If queries and keys have different sizes (as with ``bidirectional``), "dot" and "gaussian" use learned
        projections of the keys.
    order : {"textbook", "luong"}, default="textbook"
        As in ``AttentionDecoder``.
    attention : {"soft", "hard", "none"}, default="soft"
        As in ``AttentionDecoder``.
    coverage : bool, default=False
        As in ``AttentionDecoder``.
    dropout : float, default=0.0
        Dropout probability of embeddings, of states between layers and of outputs.
    tied : bool, default=True
        The decoder's embedding is its output matrix.

    >>> Architecture(hidden_size=64, score="dot").score
    'dot'
    """

    embed_size: int = 256
    hidden_size: int = 256
    layers: int = 1
    cell: str = "gru"
    bidirectional: bool = True
    score: str = "additive"
    order: str = "textbook"
    attention: str = "soft"
    coverage: bool = False
    dropout: float = 0.0
    tied: bool = True

    def __post_init__(self) -> None:
        at_least_one(embed_size=self.embed_size, hidden_size=self.hidden_size, layers=self.layers)
        for name, known in (("cell", CELLS), ("score", SCORES), ("order", ORDERS), ("attention", ATTENTIONS)):
            one_of(known, **{name: getattr(self, name)})
        for name in ("bidirectional", "coverage", "tied"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.coverage and self.attention == "none":
            raise ValueError(
                "coverage must be False with attention='none', which has no attention to sum; got coverage=True"
            )
        number = isinstance(self.dropout, int | float) and not isinstance(self.dropout, bool)
        if not (number and 0.0 <= self.dropout < 1.0):
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout!r}")


class Seq2Seq(nn.Module):
    """An encoder and a decoder that attends to it.

    Parameters
    ----------
    architecture : Architecture
        Its settings.
    source_size : int
        Size of the source's vocabulary.
    target_size : int
        Size of the target's vocabulary.

    *Cost*: O(tokens·hidden_size²) for the encoder; for every target token that of the score for S keys.

    >>> import torch
    >>> model = Seq2Seq(Architecture(embed_size=4, hidden_size=6), 10, 12)
    >>> logits, weights = model(torch.tensor([[4, 5, 6]]), torch.tensor([3]), torch.tensor([[2, 7]]))
    >>> logits.shape, weights.shape
    (torch.Size([1, 2, 12]), torch.Size([1, 2, 3]))
    """

    def __init__(self, architecture: Architecture, source_size: int, target_size: int) -> None:
        super().__init__()
        at_least_one(source_size=source_size, target_size=target_size)
        a = self.architecture = architecture
        sizes = a.embed_size, a.hidden_size
        options: Any = {"layers": a.layers, "cell": a.cell, "dropout": a.dropout}
        self.encoder = Encoder(source_size, *sizes, bidirectional=a.bidirectional, **options)
        memory_size = self.encoder.memory_size
        score = None if a.attention == "none" else SCORES[a.score](a.hidden_size, memory_size)
        options.update(order=a.order, attention=a.attention, coverage=a.coverage, tied=a.tied)
        self.decoder = AttentionDecoder(target_size, *sizes, memory_size, score, **options)

    def forward(
        self, source: Tensor, lengths: Tensor, tokens: Tensor, own: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Scores of the token after each target token, and attention weights.

        Parameters
        ----------
        source : tensor (B, S)
            Ids of the source.
        lengths : tensor of int (B,)
            Tokens of each row of the source. On the CPU they avoid a synchronisation.
        tokens : tensor (B, T)
            Ids of the target, starting with BOS.
        own : tensor of bool (B, T), default=None
            Where True, the input of the step is the model's own most probable token of the previous step instead of the
            given one. ``own`` of the first step is ignored.

        Returns
        -------
        tuple of tensors (B, T, target_size) and (B, T, S)
            Scores and weights.
        """
        return self.decoder(tokens, self.encoder(source, lengths), own)  # type: ignore[no-any-return]

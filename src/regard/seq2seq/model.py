"""The whole model: an encoder that reads, a decoder that looks back and speaks, and the few numbers that shape both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from regard.nn import AdditiveScore, BilinearScore, DotProductScore, GaussianScore
from regard.nn.scores import at_least_one
from regard.seq2seq.decoder import ATTENTIONS, ORDERS, AttentionDecoder, Score
from regard.seq2seq.encoder import Encoder
from regard.seq2seq.recurrence import CELLS


class ProjectedKeys(nn.Module):
    """A score between queries and keys of the same size, for keys of another: they are projected once, then scored."""

    def __init__(self, score: Score, query_size: int, key_size: int) -> None:
        super().__init__()
        self.score = score
        self.W_k = nn.Linear(key_size, query_size, bias=False)

    def keep(self, keys: Tensor) -> Tensor:
        """Keys as ``between`` takes them."""
        return self.score.keep(self.W_k(keys))

    def between(self, queries: Tensor, kept: Tensor) -> Tensor:
        """Scores (…, Q, K) for keys that were kept."""
        return self.score.between(queries, kept)


def _of_equal_size(score: Callable[[int], Score]) -> Callable[[int, int], Score]:
    def made(query_size: int, key_size: int) -> Score:
        alone = score(query_size)
        return alone if query_size == key_size else ProjectedKeys(alone, query_size, key_size)

    return made


# Between the decoder's states and the encoder's.
SCORES: dict[str, Callable[[int, int], Score]] = {
    "additive": lambda query_size, key_size: AdditiveScore(query_size, key_size, query_size),
    "dot": _of_equal_size(lambda _: DotProductScore()),
    "bilinear": BilinearScore,
    # Opened out, −½‖w∘(q − k)‖² holds w² q·k: it starts as the dot product does, at q·k/√d.
    "gaussian": _of_equal_size(lambda size: GaussianScore(size**-0.25, device="cpu")),
}


@dataclass(frozen=True)
class Architecture:
    """What a model is made of; with the sizes of two vocabularies, all that is needed to build one.

    Parameters
    ----------
    embed_size, hidden_size : of an embedding and of a state.
    layers, cell, bidirectional : as in ``Encoder``; the decoder has as many layers of the same cell, in one direction.
    score : "additive", "dot", "bilinear" or "gaussian". Where queries and keys have different sizes (as with
        ``bidirectional``), "dot" and "gaussian" compare queries with learned projections of the keys.
    order, attention, coverage : as in ``AttentionDecoder``.
    dropout : share of embeddings, of states between layers and of outputs set to zero in training.
    tied : the decoder's embedding is its output matrix.

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
            given = getattr(self, name)
            if not isinstance(given, str) or given not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {given!r}")
        for name in ("bidirectional", "coverage", "tied"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.coverage and self.attention == "none":
            raise ValueError(
                "coverage must be False with attention='none': nothing is looked at, so nothing is covered"
            )
        number = isinstance(self.dropout, int | float) and not isinstance(self.dropout, bool)
        if not (number and 0.0 <= self.dropout < 1.0):
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout!r}")


class Seq2Seq(nn.Module):
    """An encoder and a decoder that looks back at it.

    Parameters
    ----------
    architecture : what it is made of.
    source_size, target_size : how many ids the two vocabularies have.

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
        self.encoder = Encoder(
            source_size,
            a.embed_size,
            a.hidden_size,
            layers=a.layers,
            cell=a.cell,
            bidirectional=a.bidirectional,
            dropout=a.dropout,
        )
        memory_size = self.encoder.memory_size
        self.decoder = AttentionDecoder(
            target_size,
            a.embed_size,
            a.hidden_size,
            memory_size,
            None if a.attention == "none" else SCORES[a.score](a.hidden_size, memory_size),
            layers=a.layers,
            cell=a.cell,
            order=a.order,
            attention=a.attention,
            coverage=a.coverage,
            dropout=a.dropout,
            tied=a.tied,
        )

    def forward(
        self, source: Tensor, lengths: Tensor, tokens: Tensor, own: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Scores of what follows each target token, and where each step looked.

        Parameters
        ----------
        source : (B, S) ids, the first ``lengths`` (B,) of each row; lengths on the CPU spare a wait for the device.
        tokens : (B, T) ids of the target, begin first.
        own : (B, T) booleans; where True the step is given what the model itself found most probable one step before,
            in place of the token. The first step has no such, and its ``own`` is not read.

        Returns
        -------
        logits (B, T, target_size), weights (B, T, S).
        """
        return self.decoder(tokens, self.encoder(source, lengths), own)  # type: ignore[no-any-return]

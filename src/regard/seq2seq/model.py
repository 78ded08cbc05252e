"""The whole model: an encoder, a decoder that attends to it, and the settings that define both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor, nn

from regard.nn import AdditiveScore, BilinearScore, DotProductScore, GaussianScore
from regard.nn.argument_checks import at_least_one, one_of
from regard.seq2seq.decoder import ATTENTIONS, ORDERS, AttentionDecoder, DecoderScore
from regard.seq2seq.encoder import Encoder
from regard.seq2seq.recurrence import CELLS
from regard.seq2seq.transformer import TransformerArchitecture, TransformerTargetDecoder


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

    def parts(self, source_size: int, target_size: int) -> tuple[Encoder, AttentionDecoder]:
        """Encoder and decoder.

        Parameters
        ----------
        source_size : int
            Size of the source's vocabulary.
        target_size : int
            Size of the target's vocabulary.

        Returns
        -------
        tuple of Encoder and AttentionDecoder
            With random parameters.
        """
        sizes = self.embed_size, self.hidden_size
        options: Any = {"layers": self.layers, "cell": self.cell, "dropout": self.dropout}
        encoder = Encoder(source_size, *sizes, bidirectional=self.bidirectional, **options)
        score = None if self.attention == "none" else SCORES[self.score](self.hidden_size, encoder.memory_size)
        options.update(order=self.order, attention=self.attention, coverage=self.coverage, tied=self.tied)
        return encoder, AttentionDecoder(target_size, *sizes, encoder.memory_size, score, **options)


AnyArchitecture = Architecture | TransformerArchitecture
# Of an architecture as plain data, where there is an entry "kind".
_KINDS: dict[str, type[AnyArchitecture]] = {"transformer": TransformerArchitecture}


def as_plain(architecture: AnyArchitecture) -> dict[str, Any]:
    """An architecture as values that JSON can represent."""
    kinds = [("kind", name) for name, made in _KINDS.items() if isinstance(architecture, made)]
    return {**dict(kinds), **asdict(architecture)}


def from_plain(plain: Mapping[str, Any]) -> AnyArchitecture:
    """The inverse of ``as_plain``. Raises TypeError or ValueError for anything else."""
    settings = dict(plain)
    kind = settings.pop("kind", None)
    if kind is not None:
        one_of(_KINDS, kind=kind)
    return Architecture(**settings) if kind is None else _KINDS[kind](**settings)


class Seq2Seq(nn.Module):
    """An encoder and a decoder that attends to it.

    Parameters
    ----------
    architecture : Architecture or TransformerArchitecture
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

    encoder: nn.Module
    decoder: AttentionDecoder | TransformerTargetDecoder

    def __init__(self, architecture: AnyArchitecture, source_size: int, target_size: int) -> None:
        super().__init__()
        at_least_one(source_size=source_size, target_size=target_size)
        self.architecture = architecture
        self.encoder, self.decoder = architecture.parts(source_size, target_size)

    def forward(
        self,
        source: Tensor,
        lengths: Tensor,
        tokens: Tensor,
        own: Tensor | None = None,
        *,
        need_weights: bool = True,
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
        need_weights : bool, default=True
            False spares a transformer the weights, which are then None.

        Returns
        -------
        tuple of tensors (B, T, target_size) and (B, T, S)
            Scores and weights.
        """
        encoded = self.encoder(source, lengths)
        # A recurrent decoder has the weights anyway.
        options = {"need_weights": need_weights} if isinstance(self.decoder, TransformerTargetDecoder) else {}
        return self.decoder(tokens, encoded, own, **options)  # type: ignore[no-any-return]

    def align_by(self, layer: int, head: int | None) -> None:
        """Choose the attention whose weights a transformer's translations have: a head, or the mean of a layer.

        Parameters
        ----------
        layer : int
            Layer of the decoder, from 0.
        head : int or None
            Head of its attention to the source, from 0; None is the mean of all.
        """
        if not isinstance(self.architecture, TransformerArchitecture) or not isinstance(
            self.decoder, TransformerTargetDecoder
        ):
            raise ValueError("a recurrent model has one attention only")
        self.architecture = replace(self.architecture, alignment_layer=layer, alignment_head=head)
        self.decoder.architecture = self.architecture

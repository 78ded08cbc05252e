"""Several models that translate together: at every step the probability of a token is the mean of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.seq2seq.decoder import DecoderStep
from regard.seq2seq.model import Seq2Seq


class EncodedEnsemble(NamedTuple):
    """A batch of sentences, encoded by every member."""

    members: tuple[NamedTuple, ...]

    @property
    def states(self) -> Tensor:
        return self.members[0].states  # type: ignore[attr-defined, no-any-return]

    @property
    def lengths(self) -> Tensor:
        return self.members[0].lengths  # type: ignore[attr-defined, no-any-return]


class MemberStates(NamedTuple):
    """The memories, or the states, of all members."""

    members: tuple[NamedTuple, ...]

    def take(self, rows: Tensor) -> MemberStates:
        """The same for selected rows of the batch, possibly reordered or repeated."""
        return MemberStates(tuple(member.take(rows) for member in self.members))  # type: ignore[attr-defined]


class Ensemble(nn.Module):
    """Models with the same vocabularies as one; it is searched like a model, and is its own decoder.

    *Cost*: the sum of the members' costs.
    """

    def __init__(self, models: Sequence[Seq2Seq]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.architecture = models[0].architecture

    @property
    def decoder(self) -> Ensemble:
        return self

    def encoder(self, source: Tensor, lengths: Tensor) -> EncodedEnsemble:
        """Every member's encoding of sentences (B, S)."""
        return EncodedEnsemble(tuple(model.encoder(source, lengths) for model in self.models))  # type: ignore[operator, union-attr]

    def remember(self, encoded: EncodedEnsemble) -> MemberStates:
        """The memories for all steps."""
        return self._from_members("remember", encoded.members)

    def start(self, encoded: EncodedEnsemble) -> MemberStates:
        """The states before the first step."""
        return self._from_members("start", encoded.members)

    def step(self, token: Tensor, state: MemberStates, memory: MemberStates) -> DecoderStep:
        """One step from the last token (B,): log of the mean probabilities, and mean weights."""
        decoders = [model.decoder for model in self.models]
        steps = [
            decoder.step(token, one, kept)  # type: ignore[operator, union-attr]
            for decoder, one, kept in zip(decoders, state.members, memory.members, strict=True)
        ]
        scores = [decoder.say(one.output) for decoder, one in zip(decoders, steps, strict=True)]  # type: ignore[operator, union-attr]
        after = MemberStates(tuple(one.state for one in steps))
        return DecoderStep(_log_mean(scores), torch.stack([one.weights for one in steps]).mean(0), after)

    def say(self, output: Tensor) -> Tensor:
        """Scores (…, vocabulary_size) of tokens, which the output of ``step`` already is."""
        return output

    def forward(self, source: Tensor, lengths: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """As in ``Seq2Seq``."""
        found = [model(source, lengths, tokens) for model in self.models]
        return _log_mean([scores for scores, _ in found]), torch.stack([weights for _, weights in found]).mean(0)

    def _from_members(self, name: str, encoded: tuple[NamedTuple, ...]) -> MemberStates:
        parts = zip(self.models, encoded, strict=True)
        return MemberStates(tuple(getattr(model.decoder, name)(one) for model, one in parts))


def _log_mean(scores: list[Tensor]) -> Tensor:
    """The log of the mean of the probabilities that scores of tokens stand for."""
    return torch.stack([one.log_softmax(-1) for one in scores]).logsumexp(0) - log(len(scores))

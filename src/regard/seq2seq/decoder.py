"""The decoder: at every step it looks back at the source, and says one token."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn import AdditiveScore
from regard.nn.precision import full_precision, widened
from regard.seq2seq.encoder import Encoded
from regard.seq2seq.recurrence import Recurrence, network
from regard.seq2seq.unrolled import Unrolled

ORDERS = ("textbook", "luong")
ATTENTIONS = ("soft", "hard", "none")


class Score(Protocol):
    """What a decoder asks of a score; those of ``regard.nn`` have it."""

    def keep(self, keys: Tensor) -> Tensor: ...

    def between(self, queries: Tensor, kept: Tensor) -> Tensor: ...


class Memory(NamedTuple):
    """What a decoder looks back at, made ready once for all steps."""

    keys: Tensor  # (B, S, …)  as the score keeps them
    values: Tensor  # (B, S, memory_size)
    mask: Tensor  # (B, S)  0 where it may look, −inf where it may not

    def take(self, rows: Tensor) -> Memory:
        """The same for other sentences of the batch, in another order or several times."""
        return Memory(*(part[rows] for part in self))


class State(NamedTuple):
    """Where a decoder stands between two steps."""

    hidden: tuple[Tensor, ...]  # (B, hidden_size), one for each layer
    cell: tuple[Tensor, ...]  # the same for an LSTM, else none
    context: Tensor  # (B, memory_size)  what it looked at last
    coverage: Tensor | None  # (B, S)  how much it has looked at each token so far

    def take(self, rows: Tensor) -> State:
        """The same for other sentences of the batch, in another order or several times."""
        hidden, cell = (tuple(part[rows] for part in parts) for parts in (self.hidden, self.cell))
        return State(hidden, cell, self.context[rows], None if self.coverage is None else self.coverage[rows])


class Step(NamedTuple):
    """What came of one step."""

    output: Tensor  # (B, embed_size)  ``say`` turns it into scores of tokens
    weights: Tensor  # (B, S)  where it looked
    state: State


class AttentionDecoder(nn.Module):
    """A recurrent network that, at every step, looks back at the encoder's states.

    context = Σ softmax(score(query, keys)) values, the keys and values being the encoder's states

    In the textbook order the query is the state before the step, and the context joins the embedding of the last token
    on its way in. In Luong's order the query is the state after the step, and the context of the step before goes in.

    Parameters
    ----------
    vocabulary_size : tokens it says.
    embed_size, hidden_size : of an embedding and of a state.
    memory_size : of the encoder's states.
    score : a score of ``regard.nn`` between states (hidden_size) and the encoder's (memory_size); None without
        attention.
    layers, cell, dropout : as in ``Encoder``.
    order : "textbook" or "luong".
    attention : "soft"; "hard", which looks at one token, drawn with the soft weights in training (backward as if it
        were soft) and the likeliest otherwise; or "none", whose context is the encoder's last states at every step, and
        whose weights are 1 on the last token.
    coverage : the score is told how much each token has been looked at: a kept key k with past weights adding up to c
        is scored as k + c·w_c, w_c learned from zero. In the additive score that is a term inside the tanh.
    tied : the embedding is the output matrix, too.

    *Cost*: of a step, that of the score for S keys, and O(hidden_size²).
    """

    score: Score | None

    def __init__(
        self,
        vocabulary_size: int,
        embed_size: int,
        hidden_size: int,
        memory_size: int,
        score: Score | None,
        *,
        layers: int = 1,
        cell: str = "gru",
        order: str = "textbook",
        attention: str = "soft",
        coverage: bool = False,
        dropout: float = 0.0,
        tied: bool = False,
    ) -> None:
        super().__init__()
        for name, given, known in (("order", order, ORDERS), ("attention", attention, ATTENTIONS)):
            if given not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {given!r}")
        if (score is None) != (attention == "none"):
            raise ValueError(f"score must be None with attention='none' and only then; attention is {attention!r}")
        self.score, self.order, self.attention = score, order, attention
        self.embedding = nn.Embedding(vocabulary_size, embed_size)
        self.dropout = nn.Dropout(dropout)
        self.recurrent = network(cell, embed_size + memory_size, hidden_size, layers, dropout)
        self.join = nn.Linear(hidden_size + memory_size + embed_size, embed_size)
        self.out = None if tied else nn.Linear(embed_size, vocabulary_size)
        self.b_o = nn.Parameter(torch.zeros(vocabulary_size)) if tied else None
        # An output matrix is small in every direction, an embedding is not: tied, one is the other times a constant.
        self.scale = sqrt(embed_size) if tied else 1.0
        if tied:
            nn.init.normal_(self.embedding.weight, std=1.0 / self.scale)
        self.w_c: nn.Parameter | None = None
        if coverage and score is not None:
            self.w_c = nn.Parameter(torch.zeros(score.keep(torch.zeros(1, 1, memory_size)).shape[-1]))

    def remember(self, encoded: Encoded) -> Memory:
        """What there is to look back at, made ready for every step to come."""
        if self.score is None:
            # It may look at the last token only; what it sees there is fixed, and in the state from the start.
            place = torch.arange(encoded.mask.shape[1], device=encoded.mask.device)
            before = place < encoded.lengths.to(place.device)[:, None] - 1
            return Memory(encoded.mask, encoded.states, encoded.mask.masked_fill(before, -torch.inf))
        return Memory(*widened(self.score.keep(encoded.states), encoded.states, encoded.mask))

    def start(self, encoded: Encoded) -> State:
        """The state before the first step: the encoder's last."""
        # Between steps everything is float32 at least: what is added up many times is not rounded as often.
        hidden = widened(*encoded.last.unbind())
        cell = tuple(map(torch.zeros_like, hidden)) if isinstance(self.recurrent, nn.LSTM) else ()
        (context,) = widened(encoded.ends if self.score is None else torch.zeros_like(encoded.ends))
        coverage = None if self.w_c is None else torch.zeros_like(encoded.mask)
        return State(hidden, cell, context, coverage)

    def step(self, token: Tensor, state: State, memory: Memory) -> Step:
        """One step from the last token (B,)."""
        embedded = self._embedded(token)
        recurrence = Recurrence.of(self.recurrent, self.embedding.embedding_dim)
        with full_precision(token.device):
            state, weights = self._move(recurrence.given(embedded), state, memory, recurrence)
        return Step(self._output(state.hidden[-1], state.context, embedded), weights, state)

    def say(self, output: Tensor) -> Tensor:
        """Scores (…, vocabulary_size) of tokens, from outputs (…, embed_size)."""
        if self.out is None:
            return F.linear(output, self.embedding.weight, self.b_o)
        return self.out(output)  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor, encoded: Encoded, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores (B, T, vocabulary_size) of what follows each token (B, T), and where each step looked (B, T, S).

        Where ``own`` (B, T) is True, the step is given what was most probable one step before, in place of the token.
        Otherwise all tokens are known, and whatever does not depend on a state is computed for all steps at once.
        """
        memory, state = self.remember(encoded), self.start(encoded)
        if own is not None:
            return self._on_its_own(tokens, own, state, memory)
        embedded = self._embedded(tokens)  # (B, T, embed)
        if self.score is None:
            return self._without_looking(embedded, state, memory)
        recurrence = Recurrence.of(self.recurrent, self.embedding.embedding_dim)
        if self._standard():
            return self._unrolled(embedded, state, memory, recurrence)
        tops, contexts, looked = [], [], []
        with full_precision(tokens.device):
            for given in recurrence.given(embedded).unbind(1):
                state, weights = self._move(given, state, memory, recurrence)
                tops.append(state.hidden[-1])
                contexts.append(state.context)
                looked.append(weights)
        output = self._output(torch.stack(tops, 1), torch.stack(contexts, 1), embedded)
        return self.say(output), torch.stack(looked, 1)

    def _standard(self) -> bool:
        """Whether ``Unrolled`` is this decoder."""
        return (
            isinstance(self.score, AdditiveScore)
            and (self.order, self.attention, self.w_c) == ("textbook", "soft", None)
            and isinstance(self.recurrent, nn.GRU)
            and self.recurrent.num_layers == 1
        )

    def _unrolled(
        self, embedded: Tensor, state: State, memory: Memory, recurrence: Recurrence
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(self.score, AdditiveScore)
        ((_, W_h, _, b_h),) = recurrence.layers
        with full_precision(embedded.device):
            tops, contexts, looked = Unrolled.apply(  # type: ignore[no-untyped-call]
                recurrence.given(embedded.transpose(0, 1).contiguous()),  # (T, B, gates)
                state.hidden[0],
                *memory,
                self.score.W_q.weight,
                self.score.w_v.weight[0],
                recurrence.W_c,
                W_h,
                b_h,
            )
        output = self._output(tops.transpose(0, 1), contexts.transpose(0, 1), embedded)
        return self.say(output), looked.transpose(0, 1)

    def _on_its_own(self, tokens: Tensor, own: Tensor, state: State, memory: Memory) -> tuple[Tensor, Tensor]:
        said: list[Tensor] = []
        looked: list[Tensor] = []
        token = tokens[:, 0]
        for t in range(tokens.shape[1]):
            if t:
                token = torch.where(own[:, t], said[-1].argmax(-1), tokens[:, t])
            output, weights, state = self.step(token, state, memory)
            said.append(self.say(output))
            looked.append(weights)
        return torch.stack(said, 1), torch.stack(looked, 1)

    def _without_looking(self, embedded: Tensor, state: State, memory: Memory) -> tuple[Tensor, Tensor]:
        """All steps in one call: nothing that goes in depends on a state."""
        steps = embedded.shape[1]
        context = state.context.unsqueeze(1).expand(-1, steps, -1)
        hidden = torch.stack(state.hidden)
        before = (hidden, torch.stack(state.cell)) if state.cell else hidden
        tops, _ = self.recurrent(torch.cat([embedded, context], -1), before)
        weights = memory.mask.exp().unsqueeze(1).expand(-1, steps, -1)
        return self.say(self._output(tops, context, embedded)), weights

    def _embedded(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * self.scale)  # type: ignore[no-any-return]

    def _output(self, top: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        joined = torch.cat([top, context, embedded], -1)
        return self.dropout(torch.tanh(self.join(joined)))  # type: ignore[no-any-return]

    def _move(self, given: Tensor, state: State, memory: Memory, recurrence: Recurrence) -> tuple[State, Tensor]:
        """The state after a step that was given an embedding's share of the gates, and where it looked."""
        weights: Tensor | None = None
        context, coverage = state.context, state.coverage
        if self.order == "textbook":
            context, weights = self._look(state.hidden[-1], state, memory)
        hidden, cell = recurrence.step(given, context, state.hidden, state.cell, self.training)
        if weights is None:
            context, weights = self._look(hidden[-1], state, memory)
        if coverage is not None:
            coverage = coverage + weights
        return State(hidden, cell, context, coverage), weights

    def _look(self, query: Tensor, state: State, memory: Memory) -> tuple[Tensor, Tensor]:
        if self.score is None:
            return state.context, memory.mask.exp()
        keys = memory.keys
        if self.w_c is not None and state.coverage is not None:
            keys = keys + state.coverage.unsqueeze(-1) * self.w_c
        scores = self.score.between(query.unsqueeze(1), keys)[:, 0] + memory.mask  # (B, S)
        weights = torch.softmax(scores, -1)
        if self.attention == "hard":
            weights = self._one_of(scores, weights)
        context = torch.bmm(weights.unsqueeze(1), memory.values)[:, 0]
        return context, weights

    def _one_of(self, scores: Tensor, weights: Tensor) -> Tensor:
        """1 at one token and 0 elsewhere, with the slope of the weights."""
        if self.training:
            # The largest of scores plus Gumbel noise is a draw with these weights; −log of an exponential is Gumbel.
            scores = scores - torch.empty_like(scores).exponential_().clamp_(min=torch.finfo(scores.dtype).tiny).log_()
        chosen = torch.zeros_like(weights).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
        return chosen + (weights - weights.detach())

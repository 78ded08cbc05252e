"""The decoder: at every step it looks back at the source, and says one token."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.nn.softmaxes import masked_softmax
from regard.seq2seq.encoder import CELLS, Encoded


class Score(Protocol):
    """What a decoder asks of a score; those of ``regard.nn`` have it."""

    def keep(self, keys: Tensor) -> Tensor: ...

    def between(self, queries: Tensor, kept: Tensor) -> Tensor: ...


class Memory(NamedTuple):
    """What a decoder looks back at; its keys are projected once, not at every step."""

    keys: Tensor  # (B, S, …)  as the score keeps them
    values: Tensor  # (B, S, memory_size)
    lengths: Tensor  # (B,)

    def take(self, rows: Tensor) -> Memory:
        """The same for other sentences of the batch, in another order or several times."""
        return Memory(*(part[rows] for part in self))


class State(NamedTuple):
    """Where a decoder stands between two steps."""

    hidden: Tensor  # (layers, B, hidden_size)
    cell: Tensor | None  # (layers, B, hidden_size), for an LSTM
    context: Tensor  # (B, memory_size)  what it looked at last

    def take(self, rows: Tensor) -> State:
        """The same for other sentences of the batch, in another order or several times."""
        cell = None if self.cell is None else self.cell[:, rows]
        return State(self.hidden[:, rows], cell, self.context[rows])


class Step(NamedTuple):
    """What came of one step."""

    output: Tensor  # (B, out_size)  ``say`` turns it into scores of tokens
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
    score : a score of ``regard.nn`` between states (hidden_size) and the encoder's (memory_size).
    layers, cell, dropout : as in ``Encoder``.
    order : "textbook" or "luong".

    *Cost*: of a step, that of the score for S keys, and O(hidden_size²).
    """

    score: Score

    def __init__(
        self,
        vocabulary_size: int,
        embed_size: int,
        hidden_size: int,
        memory_size: int,
        score: Score,
        *,
        layers: int = 1,
        cell: str = "gru",
        order: str = "textbook",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if cell not in CELLS:
            raise ValueError(f"cell must be one of {', '.join(map(repr, CELLS))}, got {cell!r}")
        if order not in ("textbook", "luong"):
            raise ValueError(f"order must be 'textbook' or 'luong', got {order!r}")
        self.score, self.order = score, order
        self.embedding = nn.Embedding(vocabulary_size, embed_size)
        self.dropout = nn.Dropout(dropout)
        self.recurrent = CELLS[cell](
            embed_size + memory_size, hidden_size, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        self.join = nn.Linear(hidden_size + memory_size + embed_size, embed_size)
        self.say = nn.Linear(embed_size, vocabulary_size)

    def remember(self, encoded: Encoded) -> Memory:
        """What there is to look back at, made ready for every step to come."""
        return Memory(self.score.keep(encoded.states), encoded.states, encoded.lengths)

    def start(self, encoded: Encoded) -> State:
        """The state before the first step: the encoder's last."""
        cell = torch.zeros_like(encoded.last) if isinstance(self.recurrent, nn.LSTM) else None
        return State(encoded.last, cell, encoded.states.new_zeros(len(encoded.states), encoded.states.shape[2]))

    def step(self, token: Tensor, state: State, memory: Memory) -> Step:
        """One step from the last token (B,)."""
        return self._step(self.dropout(self.embedding(token)), state, memory)

    def forward(self, tokens: Tensor, encoded: Encoded) -> tuple[Tensor, Tensor]:
        """Scores (B, T, vocabulary_size) of what follows each token (B, T), and where each step looked (B, T, S).

        All tokens are known, so embeddings and scores are computed for all steps at once.
        """
        memory, state = self.remember(encoded), self.start(encoded)
        embedded = self.dropout(self.embedding(tokens))  # (B, T, embed)
        outputs, looked = [], []
        for t in range(tokens.shape[1]):
            output, weights, state = self._step(embedded[:, t], state, memory)
            outputs.append(output)
            looked.append(weights)
        return self.say(torch.stack(outputs, 1)), torch.stack(looked, 1)

    def _step(self, embedded: Tensor, state: State, memory: Memory) -> Step:
        weights: Tensor | None = None
        context = state.context
        if self.order == "textbook":
            context, weights = self._look(state.hidden[-1], memory)
        given = torch.cat([embedded, context], -1).unsqueeze(1)
        before = state.hidden if state.cell is None else (state.hidden, state.cell)
        top, after = self.recurrent(given, before)
        hidden, cell = after if isinstance(after, tuple) else (after, None)
        if weights is None:
            context, weights = self._look(hidden[-1], memory)
        joined = torch.cat([top[:, 0], context, embedded], -1)
        return Step(self.dropout(torch.tanh(self.join(joined))), weights, State(hidden, cell, context))

    def _look(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        scores = self.score.between(query.unsqueeze(1), memory.keys)  # (B, 1, S)
        weights = masked_softmax(scores, memory.lengths)
        return (weights @ memory.values)[:, 0], weights[:, 0]

"""The decoder: at every step it attends to the source and predicts one token."""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.nn import AdditiveScore
from regard.nn.argument_checks import one_of
from regard.nn.hard_attention import with_gumbel_noise
from regard.nn.precision import full_precision, widened
from regard.seq2seq.encoder import Encoded
from regard.seq2seq.recurrence import Recurrence, network
from regard.seq2seq.unrolled import UnrolledDecoder

ORDERS = ("textbook", "luong")
ATTENTIONS = ("soft", "hard", "none")


class DecoderScore(Protocol):
    """The methods of a score that a decoder calls; the scores of ``regard.nn`` have them."""

    def keep(self, keys: Tensor) -> Tensor: ...

    def between(self, queries: Tensor, prepared: Tensor) -> Tensor: ...


class Memory(NamedTuple):
    """The keys and values of a source, prepared once for all steps."""

    keys: Tensor  # (B, S, …)  prepared by the score
    values: Tensor  # (B, S, memory_size)
    mask: Tensor  # (B, S)  0 where a step may attend, −inf where it may not

    def take(self, rows: Tensor) -> Memory:
        """The same for selected rows of the batch, possibly reordered or repeated."""
        return Memory(*(part[rows] for part in self))


class DecoderState(NamedTuple):
    """The state of a decoder between two steps."""

    hidden: tuple[Tensor, ...]  # (B, hidden_size), one for each layer
    cell: tuple[Tensor, ...]  # the same for an LSTM, otherwise empty
    context: Tensor  # (B, memory_size)  of the last step
    coverage: Tensor | None  # (B, S)  sum of the weights of each token so far

    def take(self, rows: Tensor) -> DecoderState:
        """The same for selected rows of the batch, possibly reordered or repeated."""
        hidden, cell = (tuple(part[rows] for part in parts) for parts in (self.hidden, self.cell))
        return DecoderState(hidden, cell, self.context[rows], None if self.coverage is None else self.coverage[rows])


class DecoderStep(NamedTuple):
    """The result of one step."""

    output: Tensor  # (B, embed_size)  ``say`` maps it to scores of tokens
    weights: Tensor  # (B, S)  of the attention
    state: Any  # of the decoder


class Decoder(Protocol):
    """The methods of a decoder that sampling and searches call.

    What ``remember`` and ``start`` return has a method ``take(rows)``: the same for selected rows of the batch.
    """

    def remember(self, encoded: Any) -> Any: ...

    def start(self, encoded: Any) -> Any: ...

    def step(self, token: Tensor, state: Any, memory: Any) -> DecoderStep: ...

    def say(self, output: Tensor) -> Tensor: ...


def scheduled_sampling(decoder: Decoder, tokens: Tensor, own: Tensor, state: Any, memory: Any) -> tuple[Tensor, Tensor]:
    """What a decoder's ``forward`` returns, step by step: where ``own`` is True the input is the model's prediction."""
    scores: list[Tensor] = []
    all_weights: list[Tensor] = []
    token = tokens[:, 0]
    for t in range(tokens.shape[1]):
        if t:
            token = torch.where(own[:, t], scores[-1].argmax(-1), tokens[:, t])
        output, weights, state = decoder.step(token, state, memory)
        scores.append(decoder.say(output))
        all_weights.append(weights)
    return torch.stack(scores, 1), torch.stack(all_weights, 1)


class AttentionDecoder(nn.Module):
    """A recurrent network that attends to the encoder's states at every step.

    context = Σ softmax(score(query, keys)) values, the keys and values being the encoder's states

    In the textbook order the query is the state before the step, and the context is an input of the step, together with
    the embedding of the last token. In Luong's order the query is the state after the step, and the context of the
    previous step is the input.

    Parameters
    ----------
    vocabulary_size : int
        Number of token ids.
    embed_size : int
        Features of an embedding.
    hidden_size : int
        Features of a state.
    memory_size : int
        Features of the encoder's states.
    score : module or None
        A score of ``regard.nn`` between states (hidden_size) and the encoder's (memory_size); None without attention.
    layers : int, default=1
        Layers of the recurrent network.
    cell : {"gru", "lstm"}, default="gru"
        Its kind.
    order : {"textbook", "luong"}, default="textbook"
        See above.
    attention : {"soft", "hard", "none"}, default="soft"
        "hard" attends to one token, drawn from the soft weights in training mode (backward as if it were soft) and the
        most probable one otherwise. With "none" the context is the encoder's last states at every step, and the weights
        are 1 on the last token.
    coverage : bool, default=False
        The score depends on past attention: a prepared key k whose past weights sum to c is scored as k + c·w_c, with
        w_c learned and initially zero. In the additive score this is a term inside the tanh.
    dropout : float, default=0.0
        Dropout probability of embeddings, of states between layers and of outputs.
    tied : bool, default=False
        The embedding is also the output matrix.

    *Cost*: of a step, that of the score for S keys, and O(hidden_size²).

    >>> from regard.nn import BilinearScore
    >>> from regard.seq2seq import Encoder
    >>> encoder, decoder = Encoder(10, 4, 8), AttentionDecoder(12, 4, 8, 16, BilinearScore(8, 16))
    >>> logits, weights = decoder(torch.tensor([[2, 7]]), encoder(torch.tensor([[4, 5, 6]]), torch.tensor([3])))
    >>> logits.shape, weights.shape
    (torch.Size([1, 2, 12]), torch.Size([1, 2, 3]))
    """

    score: DecoderScore | None

    def __init__(
        self,
        vocabulary_size: int,
        embed_size: int,
        hidden_size: int,
        memory_size: int,
        score: DecoderScore | None,
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
        one_of(ORDERS, order=order)
        one_of(ATTENTIONS, attention=attention)
        if (score is None) != (attention == "none"):
            raise ValueError(f"score must be None with attention='none' and only then; attention is {attention!r}")
        self.score, self.order, self.attention = score, order, attention
        self.embedding = nn.Embedding(vocabulary_size, embed_size)
        self.dropout = nn.Dropout(dropout)
        self.recurrent = network(cell, embed_size + memory_size, hidden_size, layers, dropout)
        self.join = nn.Linear(hidden_size + memory_size + embed_size, embed_size)
        self.out = None if tied else nn.Linear(embed_size, vocabulary_size)
        self.b_o = nn.Parameter(torch.zeros(vocabulary_size)) if tied else None
        # Output matrices are initialised smaller than embeddings: a tied embedding is the matrix times a constant.
        self.scale = sqrt(embed_size) if tied else 1.0
        if tied:
            nn.init.normal_(self.embedding.weight, std=1.0 / self.scale)
        self.w_c: nn.Parameter | None = None
        if coverage and score is not None:
            self.w_c = nn.Parameter(torch.zeros(score.keep(torch.zeros(1, 1, memory_size)).shape[-1]))

    def remember(self, encoded: Encoded) -> Memory:
        """Keys, values and mask for all steps.

        Parameters
        ----------
        encoded : Encoded
            What the encoder returned.

        Returns
        -------
        Memory
        """
        if self.score is None:
            # Only the last token may be attended to; the context is constant and part of the initial state.
            position = torch.arange(encoded.mask.shape[1], device=encoded.mask.device)
            before = position < encoded.lengths.to(position.device)[:, None] - 1
            return Memory(encoded.mask, encoded.states, encoded.mask.masked_fill(before, -torch.inf))
        return Memory(*widened(self.score.keep(encoded.states), encoded.states, encoded.mask))

    def start(self, encoded: Encoded) -> DecoderState:
        """The state before the first step: the encoder's last state.

        Parameters
        ----------
        encoded : Encoded
            What the encoder returned.

        Returns
        -------
        DecoderState
        """
        # States are float32 at least, because they accumulate rounding errors over the steps.
        hidden = widened(*encoded.last.unbind())
        cell = tuple(map(torch.zeros_like, hidden)) if isinstance(self.recurrent, nn.LSTM) else ()
        (context,) = widened(encoded.ends if self.score is None else torch.zeros_like(encoded.ends))
        coverage = None if self.w_c is None else torch.zeros_like(encoded.mask)
        return DecoderState(hidden, cell, context, coverage)

    def step(self, token: Tensor, state: DecoderState, memory: Memory) -> DecoderStep:
        """One step from the last token (B,).

        Parameters
        ----------
        token : tensor (B,)
            Ids of the last tokens.
        state : DecoderState
            The state before the step.
        memory : Memory
            The result of ``remember``.

        Returns
        -------
        DecoderStep
            ``output``, ``weights`` and the next ``state``.
        """
        embedded = self._embedded(token)
        recurrence = Recurrence.of(self.recurrent, self.embedding.embedding_dim)
        with full_precision(token.device):
            state, weights = self._advance(recurrence.given(embedded), state, memory, recurrence)
        return DecoderStep(self._output(state.hidden[-1], state.context, embedded), weights, state)

    def say(self, output: Tensor) -> Tensor:
        """Scores (…, vocabulary_size) of tokens, from outputs (…, embed_size).

        Parameters
        ----------
        output : tensor (…, embed_size)
            Outputs of steps.

        Returns
        -------
        tensor (…, vocabulary_size)
        """
        if self.out is None:
            return F.linear(output, self.embedding.weight, self.b_o)
        return self.out(output)  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor, encoded: Encoded, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores of the token after each token, and attention weights.

        Parameters
        ----------
        tokens : tensor (B, T)
            Ids of the target, starting with BOS.
        encoded : Encoded
            What the encoder returned.
        own : tensor of bool (B, T), default=None
            Where True, the input of the step is the most probable token of the previous step instead of the given one.
            Without it everything that does not depend on a state is computed for all steps at once.

        Returns
        -------
        tuple of tensors (B, T, vocabulary_size) and (B, T, S)
        """
        memory, state = self.remember(encoded), self.start(encoded)
        if own is not None:
            return scheduled_sampling(self, tokens, own, state, memory)
        embedded = self._embedded(tokens)  # (B, T, embed)
        if self.score is None:
            return self._without_attention(embedded, state, memory)
        recurrence = Recurrence.of(self.recurrent, self.embedding.embedding_dim)
        if self._can_unroll():
            return self._unrolled(embedded, state, memory, recurrence)
        tops, contexts, all_weights = [], [], []
        with full_precision(tokens.device):
            for given in recurrence.given(embedded).unbind(1):
                state, weights = self._advance(given, state, memory, recurrence)
                tops.append(state.hidden[-1])
                contexts.append(state.context)
                all_weights.append(weights)
        output = self._output(torch.stack(tops, 1), torch.stack(contexts, 1), embedded)
        return self.say(output), torch.stack(all_weights, 1)

    def _can_unroll(self) -> bool:
        """Whether ``UnrolledDecoder`` implements this decoder."""
        return (
            isinstance(self.score, AdditiveScore)
            and (self.order, self.attention, self.w_c) == ("textbook", "soft", None)
            and isinstance(self.recurrent, nn.GRU)
            and self.recurrent.num_layers == 1
        )

    def _unrolled(
        self, embedded: Tensor, state: DecoderState, memory: Memory, recurrence: Recurrence
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(self.score, AdditiveScore)
        ((_, W_h, _, b_h),) = recurrence.layers
        with full_precision(embedded.device):
            tops, contexts, weights = UnrolledDecoder.apply(  # type: ignore[no-untyped-call]
                recurrence.given(embedded.transpose(0, 1).contiguous()),  # (T, B, gates)
                state.hidden[0],
                *memory,
                *widened(self.score.W_q.weight, self.score.w_v.weight[0]),
                recurrence.W_c,
                W_h,
                b_h,
            )
        output = self._output(tops.transpose(0, 1), contexts.transpose(0, 1), embedded)
        return self.say(output), weights.transpose(0, 1)

    def _without_attention(self, embedded: Tensor, state: DecoderState, memory: Memory) -> tuple[Tensor, Tensor]:
        """All steps in one call, because no input depends on a state."""
        steps = embedded.shape[1]
        context = state.context.unsqueeze(1).expand(-1, steps, -1)
        dtype = self.embedding.weight.dtype  # states are float32 at least, a network takes its own dtype
        hidden = torch.stack(state.hidden).to(dtype)
        before = (hidden, torch.stack(state.cell).to(dtype)) if state.cell else hidden
        tops, _ = self.recurrent(torch.cat([embedded, context], -1).to(dtype), before)
        weights = memory.mask.exp().unsqueeze(1).expand(-1, steps, -1)
        return self.say(self._output(tops, context, embedded)), weights

    def _embedded(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * self.scale)  # type: ignore[no-any-return]

    def _output(self, top: Tensor, context: Tensor, embedded: Tensor) -> Tensor:
        joined = torch.cat([top, context, embedded], -1).to(self.join.weight.dtype)
        return self.dropout(torch.tanh(self.join(joined)))  # type: ignore[no-any-return]

    def _advance(
        self, given: Tensor, state: DecoderState, memory: Memory, recurrence: Recurrence
    ) -> tuple[DecoderState, Tensor]:
        """The state after a step, from the part of the gates that depends on the embedding, and the weights."""
        weights: Tensor | None = None
        context, coverage = state.context, state.coverage
        if self.order == "textbook":
            context, weights = self._attend(state.hidden[-1], state, memory)
        hidden, cell = recurrence.step(given, context, state.hidden, state.cell, self.training)
        if weights is None:
            context, weights = self._attend(hidden[-1], state, memory)
        if coverage is not None:
            coverage = coverage + weights
        return DecoderState(hidden, cell, context, coverage), weights

    def _attend(self, query: Tensor, state: DecoderState, memory: Memory) -> tuple[Tensor, Tensor]:
        if self.score is None:
            return state.context, memory.mask.exp()
        keys = memory.keys
        if self.w_c is not None and state.coverage is not None:
            keys = keys + state.coverage.unsqueeze(-1) * self.w_c
        scores = self.score.between(query.unsqueeze(1), keys)[:, 0] + memory.mask  # (B, S)
        weights = torch.softmax(scores, -1)
        if self.attention == "hard":
            weights = self._choose(scores, weights)
        context = torch.bmm(weights.unsqueeze(1), memory.values)[:, 0]
        return context, weights

    def _choose(self, scores: Tensor, weights: Tensor) -> Tensor:
        """1 at one token and 0 elsewhere, with the gradient of the weights."""
        if self.training:
            scores = with_gumbel_noise(scores)
        chosen = torch.zeros_like(weights).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
        return chosen + (weights - weights.detach())

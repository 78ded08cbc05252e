"""Decoding: from an encoded sentence to tokens, by greedy search or beam search.

The begin token and padding are never predicted: no sentence that a decoder learns from contains them. Probabilities are
those among the other tokens.

The sentences of a batch are independent: each has its own length limit and its own end, so a batch gives the same
translations as its sentences one by one. There is one transfer from the device per step. Finished sentences are removed
from the batch once they are half of it.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from regard.nn.argument_checks import at_least_one
from regard.seq2seq.decoder import Decoder
from regard.seq2seq.vocabulary import PAD


class EncodedBatch(Protocol):
    """A batch of encoded sentences."""

    @property
    def states(self) -> Tensor: ...

    @property
    def lengths(self) -> Tensor: ...


class Hypothesis(NamedTuple):
    """One hypothesis."""

    tokens: tuple[int, ...]  # without the begin and end tokens
    score: float  # log-probability / length^normalise, where the length includes the end token
    weights: Tensor  # (len(tokens), or one more with an end token, S)  of the attention, on the CPU


class Ends(NamedTuple):
    """The begin and end tokens, and the largest length of a translation: times·(source length) + more."""

    begin: int
    end: int
    times: float = 2.0
    more: int = 10

    def limits(self, lengths: Tensor) -> list[int]:
        return [int(self.times * length) + self.more for length in lengths.tolist()]

    def predictable(self, scores: Tensor) -> Tensor:
        """Scores (…, vocabulary_size) of tokens, −inf for those that are never predicted."""
        token = torch.arange(scores.shape[-1], device=scores.device)
        return scores.masked_fill((token == PAD) | (token == self.begin), -inf)


@torch.no_grad()
def greedy(decoder: Decoder, encoded: EncodedBatch, ends: Ends, *, normalise: float = 1.0) -> list[Hypothesis]:
    """The most probable token at every step, for every sentence of a batch.

    Parameters
    ----------
    decoder : Decoder
        In evaluation mode, unless dropout is wanted.
    encoded : Encoded
        What the encoder returned.
    ends : Ends
        The begin and end tokens, and the largest length of a translation (``regard.seq2seq.decoding.Ends``).
    normalise : float, default=1.0
        The log-probability of a hypothesis is divided by its length to this power.

    Returns
    -------
    list of Hypothesis
        ``tokens``, ``score`` and ``weights`` of each sentence.

    >>> import torch
    >>> from regard.seq2seq import BOS, EOS, Architecture, Seq2Seq
    >>> model = Seq2Seq(Architecture(embed_size=4, hidden_size=6), 10, 12).eval()
    >>> encoded = model.encoder(torch.tensor([[4, 5, 6]]), torch.tensor([3]))
    >>> found = greedy(model.decoder, encoded, Ends(BOS, EOS, times=1.0, more=2))
    >>> len(found), len(found[0].tokens) <= 5
    (1, True)
    """
    memory, state = decoder.remember(encoded), decoder.start(encoded)
    limits, history = ends.limits(encoded.lengths), _WeightHistory()
    device = encoded.states.device
    token = torch.full((len(limits),), ends.begin, device=device)
    paths = [_Prefix() for _ in limits]
    rows = list(range(len(limits)))  # the sentence in each row of the batch
    unfinished = set(rows)
    while unfinished:
        output, weights, state = decoder.step(token, state, memory)
        best, token = ends.predictable(decoder.say(output)).log_softmax(-1).max(-1)
        first = history.add(weights)
        # Token ids are exact in float64: one transfer instead of two.
        log_probs, predicted = torch.stack([best.double(), token.double()]).tolist()
        for place, row in enumerate(rows):
            if row not in unfinished:
                continue
            path = paths[row] = paths[row].extended(
                int(predicted[place]), paths[row].total + log_probs[place], first + place
            )
            if path.tokens[-1] == ends.end or len(path.tokens) == limits[row]:
                unfinished.remove(row)
        if 2 * len(unfinished) <= len(rows):
            remaining = [place for place, row in enumerate(rows) if row in unfinished]
            rows = [rows[place] for place in remaining]
            index = torch.tensor(remaining, dtype=torch.int64, device=device)
            token, state, memory = token[index], state.take(index), memory.take(index)
    return history.finished([(path, row) for row, path in enumerate(paths)], encoded, ends, normalise)


@torch.no_grad()
def beam(
    decoder: Decoder, encoded: EncodedBatch, ends: Ends, *, width: int = 5, normalise: float = 1.0
) -> list[list[Hypothesis]]:
    """At most ``width`` hypotheses of every sentence, best first; the best is never worse than that of ``greedy``.

    Parameters
    ----------
    decoder : AttentionDecoder
        In evaluation mode, unless dropout is wanted.
    encoded : Encoded
        What the encoder returned.
    ends : Ends
        As in ``greedy``.
    width : int, default=5
        Hypotheses that are continued at every step.
    normalise : float, default=1.0
        As in ``greedy``.

    Returns
    -------
    list of lists of Hypothesis

    *Cost*: ``width`` + 1 times that of ``greedy``.

    >>> import torch
    >>> from regard.seq2seq import BOS, EOS, Architecture, Seq2Seq
    >>> model = Seq2Seq(Architecture(embed_size=4, hidden_size=6), 10, 12).eval()
    >>> encoded = model.encoder(torch.tensor([[4, 5, 6]]), torch.tensor([3]))
    >>> ((best, *others),) = beam(model.decoder, encoded, Ends(BOS, EOS, times=1.0, more=2), width=2)
    >>> all(best.score >= other.score for other in others)
    True
    """
    at_least_one(width=width)
    found = [[hypothesis] for hypothesis in greedy(decoder, encoded, ends, normalise=normalise)]
    if width == 1:
        return found
    sentences, history = _beam_search(decoder, encoded, ends, width)
    ended = [(path, row) for row, paths in enumerate(sentences) for path in paths]
    for (_, row), hypothesis in zip(ended, history.finished(ended, encoded, ends, normalise), strict=True):
        found[row].append(hypothesis)
    for row, several in enumerate(found):
        # The same tokens may occur with an end token and cut at the length limit: the more probable one is kept.
        distinct = {one.tokens: one for one in sorted(several, key=lambda one: one.score)}
        found[row] = sorted(distinct.values(), key=lambda one: -one.score)[:width]
    return found


class _Prefix(NamedTuple):
    """The beginning of a hypothesis."""

    tokens: tuple[int, ...] = ()  # including the end token
    total: float = 0.0  # log-probability
    rows: tuple[int, ...] = ()  # for each token, the index of its weights in ``_WeightHistory``

    def extended(self, token: int, total: float, row: int) -> _Prefix:
        return _Prefix((*self.tokens, token), total, (*self.rows, row))


def _beam_search(
    decoder: Decoder, encoded: EncodedBatch, ends: Ends, width: int
) -> tuple[list[list[_Prefix]], _WeightHistory]:
    """The finished hypotheses of every sentence; each unfinished sentence has ``width`` rows of the batch."""
    limits, history, device = ends.limits(encoded.lengths), _WeightHistory(), encoded.states.device
    rows = list(range(len(limits)))  # the sentence of each group of ``width`` rows of the batch
    repeated = torch.arange(len(rows), device=device).repeat_interleave(width)
    memory, state = decoder.remember(encoded).take(repeated), decoder.start(encoded).take(repeated)
    done: list[list[_Prefix]] = [[] for _ in rows]
    # A row without a hypothesis has a total of −inf, as have its extensions.
    paths = [[_Prefix(total=0.0 if place == 0 else -inf) for place in range(width)] for _ in rows]
    unfinished = set(rows)
    while unfinished:
        last = torch.tensor([path.tokens[-1] if path.tokens else ends.begin for row in rows for path in paths[row]])
        output, weights, state = decoder.step(last.to(device), state, memory)
        first = history.add(weights)
        log_probs = ends.predictable(decoder.say(output)).log_softmax(-1).double()
        so_far = torch.tensor([[path.total] for row in rows for path in paths[row]], dtype=torch.float64)
        totals = log_probs + so_far.to(device)
        size = totals.shape[1]
        # Of 2·width candidates at most half have an end token.
        best, place = totals.view(len(rows), width * size).topk(min(2 * width, width * size))
        best_totals, best_places = torch.stack([best, place.double()]).tolist()
        index: list[int] = []
        for number, row in enumerate(rows):
            extended, sources = list[_Prefix](), list[int]()
            if row in unfinished:
                for total, candidate in zip(best_totals[number], best_places[number], strict=True):
                    source, token = divmod(int(candidate), size)
                    if total == -inf:
                        continue
                    path = paths[row][source].extended(token, total, first + number * width + source)
                    if token == ends.end:
                        done[row].append(path)
                    elif len(extended) < width and len(path.tokens) <= limits[row]:
                        extended.append(path)
                        sources.append(source)
                if len(done[row]) >= width or not extended:
                    unfinished.remove(row)
            missing = width - len(extended)
            paths[row] = [*extended, *[_Prefix((ends.begin,), -inf)] * missing]
            index += [number * width + source for source in (*sources, *[0] * missing)]
        taken = torch.tensor(index).to(device)
        if 2 * len(unfinished) <= len(rows):
            remaining = [number for number, row in enumerate(rows) if row in unfinished]
            rows = [rows[number] for number in remaining]
            where = (
                (torch.tensor(remaining, dtype=torch.int64)[:, None] * width + torch.arange(width)).flatten().to(device)
            )
            taken, memory = taken[where], memory.take(where)
        state = state.take(taken)
    return done, history


class _WeightHistory:
    """The attention weights of all rows of all steps, numbered consecutively, on the device until the end."""

    def __init__(self) -> None:
        self.steps: list[Tensor] = []

    def add(self, weights: Tensor) -> int:
        """Store the weights (rows, S) of a step; returns the index of the first row."""
        self.steps.append(weights)
        return sum(map(len, self.steps[:-1]))

    def finished(
        self, paths: list[tuple[_Prefix, int]], encoded: EncodedBatch, ends: Ends, normalise: float
    ) -> list[Hypothesis]:
        """Hypotheses from finished prefixes, each given with the index of its sentence."""
        if not paths:
            return []
        flat = torch.tensor([row for path, _ in paths for row in path.rows])
        selected = torch.cat(self.steps)[flat.to(encoded.states.device)].cpu()
        lengths = encoded.lengths.tolist()
        found = []
        for (path, row), weights in zip(
            paths, torch.split(selected, [len(path.rows) for path, _ in paths]), strict=True
        ):
            tokens = path.tokens[:-1] if path.tokens[-1] == ends.end else path.tokens
            found.append(Hypothesis(tokens, path.total / len(path.tokens) ** normalise, weights[:, : lengths[row]]))
        return found

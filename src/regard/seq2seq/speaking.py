"""Speaking: from an encoded sentence to tokens, one at a time (greedy) or several hypotheses side by side (beam).

Sentences of a batch do not know of each other: each has its own limit of length, and ends when it ends, so that a batch
says what its sentences would say one by one. The host hears from the device once per step; who has ended leaves the
batch as soon as half of it has.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from regard.seq2seq.decoder import AttentionDecoder
from regard.seq2seq.encoder import Encoded


class Said(NamedTuple):
    """One hypothesis."""

    tokens: tuple[int, ...]  # without begin and end
    score: float  # log-probability over length^normalise, the end counted
    weights: Tensor  # (len(tokens) + 1 if it ended, S)  where each step looked, on the CPU


class Ends(NamedTuple):
    """The tokens that begin and end a sentence, and how long one may become: times its source, and so many more."""

    begin: int
    end: int
    times: float = 2.0
    more: int = 10

    def limits(self, lengths: Tensor) -> list[int]:
        return [int(self.times * length) + self.more for length in lengths.tolist()]


@torch.no_grad()
def greedy(decoder: AttentionDecoder, encoded: Encoded, ends: Ends, *, normalise: float = 1.0) -> list[Said]:
    """The most probable token at every step, for every sentence of a batch."""
    memory, state = decoder.remember(encoded), decoder.start(encoded)
    limits, history = ends.limits(encoded.lengths), _Weights()
    device = encoded.states.device
    token = torch.full((len(limits),), ends.begin, device=device)
    paths = [_Path() for _ in limits]
    rows = list(range(len(limits)))  # the sentence in each row of the batch
    spoken = set(rows)  # those that still speak
    while spoken:
        output, weights, state = decoder.step(token, state, memory)
        best, token = decoder.say(output).log_softmax(-1).max(-1)
        first = history.add(weights)
        # Numbers of tokens are exact in float64: one message instead of two.
        chances, said = torch.stack([best.double(), token.double()]).tolist()
        for place, row in enumerate(rows):
            if row not in spoken:
                continue
            path = paths[row] = paths[row].grown(int(said[place]), paths[row].total + chances[place], first + place)
            if path.tokens[-1] == ends.end or len(path.tokens) == limits[row]:
                spoken.remove(row)
        if 2 * len(spoken) <= len(rows):
            kept = [place for place, row in enumerate(rows) if row in spoken]
            rows = [rows[place] for place in kept]
            where = torch.tensor(kept, dtype=torch.int64, device=device)
            token, state, memory = token[where], state.take(where), memory.take(where)
    return history.finished([(path, row) for row, path in enumerate(paths)], encoded, ends, normalise)


@torch.no_grad()
def beam(
    decoder: AttentionDecoder, encoded: Encoded, ends: Ends, *, width: int = 5, normalise: float = 1.0
) -> list[list[Said]]:
    """The best hypotheses of every sentence, best first: at most ``width`` of them, and never a worse one than greedy.

    *Cost*: ``width`` times that of ``greedy``, and greedy itself.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    found = [[said] for said in greedy(decoder, encoded, ends, normalise=normalise)]
    if width == 1:
        return found
    sentences, history = _widened(decoder, encoded, ends, width)
    ended = [(path, row) for row, paths in enumerate(sentences) for path in paths]
    for (_, row), said in zip(ended, history.finished(ended, encoded, ends, normalise), strict=True):
        found[row].append(said)
    for row, several in enumerate(found):
        # The same words may have come to their end, or to the limit of length: the likelier one counts.
        told = {said.tokens: said for said in sorted(several, key=lambda said: said.score)}
        found[row] = sorted(told.values(), key=lambda said: -said.score)[:width]
    return found


class _Path(NamedTuple):
    """A hypothesis while it grows."""

    tokens: tuple[int, ...] = ()  # the end included
    total: float = 0.0  # log-probability
    rows: tuple[int, ...] = ()  # of each token, the number of its weights in ``_Weights``

    def grown(self, token: int, total: float, row: int) -> _Path:
        return _Path((*self.tokens, token), total, (*self.rows, row))


def _widened(decoder: AttentionDecoder, encoded: Encoded, ends: Ends, width: int) -> tuple[list[list[_Path]], _Weights]:
    """Hypotheses that ended, of every sentence; ``width`` rows of the batch belong to each while they grow."""
    limits, history, device = ends.limits(encoded.lengths), _Weights(), encoded.states.device
    rows = list(range(len(limits)))  # the sentence in each ``width`` rows of the batch
    every = torch.arange(len(rows), device=device).repeat_interleave(width)
    memory, state = decoder.remember(encoded).take(every), decoder.start(encoded).take(every)
    done: list[list[_Path]] = [[] for _ in rows]
    # A row without a hypothesis has a total of −inf, and so has all that would grow from it.
    paths = [[_Path(total=0.0 if place == 0 else -inf) for place in range(width)] for _ in rows]
    growing = set(rows)
    while growing:
        last = torch.tensor([path.tokens[-1] if path.tokens else ends.begin for row in rows for path in paths[row]])
        output, weights, state = decoder.step(last.to(device), state, memory)
        first = history.add(weights)
        chances = decoder.say(output).log_softmax(-1).double()
        so_far = torch.tensor([[path.total] for row in rows for path in paths[row]], dtype=torch.float64)
        totals = chances + so_far.to(device)
        words = totals.shape[1]
        # Of twice as many, at most half can be ends.
        best, place = totals.view(len(rows), width * words).topk(min(2 * width, width * words))
        heard, places = torch.stack([best, place.double()]).tolist()
        came_from: list[int] = []
        for number, row in enumerate(rows):
            grown, came = list[_Path](), list[int]()
            if row in growing:
                for total, where in zip(heard[number], places[number], strict=True):
                    came_place, token = divmod(int(where), words)
                    if total == -inf:
                        continue
                    path = paths[row][came_place]
                    path = path.grown(token, total, first + number * width + came_place)
                    if token == ends.end:
                        done[row].append(path)
                    elif len(grown) < width and len(path.tokens) <= limits[row]:
                        grown.append(path)
                        came.append(came_place)
                if len(done[row]) >= width or not grown:
                    growing.remove(row)
            missing = width - len(grown)
            paths[row] = [*grown, *[_Path((ends.begin,), -inf)] * missing]
            came_from += [number * width + came_place for came_place in (*came, *[0] * missing)]
        taken = torch.tensor(came_from).to(device)
        if 2 * len(growing) <= len(rows):
            kept = [number for number, row in enumerate(rows) if row in growing]
            rows = [rows[number] for number in kept]
            where = (torch.tensor(kept, dtype=torch.int64)[:, None] * width + torch.arange(width)).flatten().to(device)
            taken, memory = taken[where], memory.take(where)
        state = state.take(taken)
    return done, history


class _Weights:
    """Attention weights of every row of every step, numbered as they came, on the device until the end."""

    def __init__(self) -> None:
        self.steps: list[Tensor] = []
        self.count = 0

    def add(self, weights: Tensor) -> int:
        """Keep a step's weights (rows, S); returns the number of its first row."""
        self.steps.append(weights)
        self.count += len(weights)
        return self.count - len(weights)

    def finished(self, paths: list[tuple[_Path, int]], encoded: Encoded, ends: Ends, normalise: float) -> list[Said]:
        """Finished hypotheses, each given with its sentence."""
        if not paths:
            return []
        flat = torch.tensor([row for path, _ in paths for row in path.rows])
        every = torch.cat(self.steps)[flat.to(encoded.states.device)].cpu()
        lengths = encoded.lengths.tolist()
        found = []
        for (path, row), weights in zip(paths, torch.split(every, [len(path.rows) for path, _ in paths]), strict=True):
            tokens = path.tokens[:-1] if path.tokens[-1] == ends.end else path.tokens
            found.append(Said(tokens, path.total / len(path.tokens) ** normalise, weights[:, : lengths[row]]))
        return found

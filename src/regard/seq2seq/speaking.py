"""Speaking: from an encoded sentence to tokens, one at a time (greedy) or several hypotheses side by side (beam).

Sentences of a batch do not know of each other: each has its own limit of length, and ends when it ends, so that a batch
says what its sentences would say one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.seq2seq.decoder import AttentionDecoder, Memory, State
from regard.seq2seq.encoder import Encoded


class Said(NamedTuple):
    """One hypothesis."""

    tokens: tuple[int, ...]  # without begin and end
    score: float  # log-probability over length^normalise, the end counted
    weights: Tensor  # (len(tokens) + 1 if it ended, S)  where each step looked


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
    limits = ends.limits(encoded.lengths)
    token = encoded.lengths.new_full(encoded.lengths.shape, ends.begin)
    spoken: list[list[int]] = [[] for _ in limits]
    looked: list[list[Tensor]] = [[] for _ in limits]
    total = [0.0] * len(limits)
    open_rows = set(range(len(limits)))
    while open_rows:
        output, weights, state = decoder.step(token, state, memory)
        best, token = decoder.say(output).log_softmax(-1).max(-1)
        for row, (chance, said) in enumerate(zip(best.tolist(), token.tolist(), strict=True)):
            if row not in open_rows:
                continue
            total[row] += chance
            looked[row].append(weights[row, : encoded.lengths[row]])
            if said != ends.end:
                spoken[row].append(said)
            if said == ends.end or len(spoken[row]) == limits[row]:
                open_rows.remove(row)
    return [
        Said(tuple(tokens), chance / len(steps) ** normalise, torch.stack(steps))
        for tokens, chance, steps in zip(spoken, total, looked, strict=True)
    ]


@torch.no_grad()
def beam(
    decoder: AttentionDecoder, encoded: Encoded, ends: Ends, *, width: int = 5, normalise: float = 1.0
) -> list[list[Said]]:
    """The best hypotheses of every sentence, best first: at most ``width`` of them, and never a worse one than greedy.

    *Cost*: ``width`` times that of ``greedy``.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    found = [[said] for said in greedy(decoder, encoded, ends, normalise=normalise)]
    if width > 1:
        memory, state = decoder.remember(encoded), decoder.start(encoded)
        for row, limit in enumerate(ends.limits(encoded.lengths)):
            length = int(encoded.lengths[row])
            rows = encoded.lengths.new_full((1,), row)
            alone = Memory(*(part[:, :length] if part.ndim > 1 else part for part in memory.take(rows)))
            others = _widened(decoder, alone, state.take(rows), ends, width, limit, normalise)
            # The same words may have come to their end, or to the limit of length: the likelier one counts.
            told = {said.tokens: said for said in sorted((*others, *found[row]), key=lambda said: said.score)}
            found[row] = sorted(told.values(), key=lambda said: -said.score)[:width]
    return found


class _Path(NamedTuple):
    """A hypothesis that has not ended; its looks are found by walking back."""

    tokens: tuple[int, ...]
    total: float
    looked: tuple[Tensor, ...]


def _widened(
    decoder: AttentionDecoder, memory: Memory, state: State, ends: Ends, width: int, limit: int, normalise: float
) -> list[Said]:
    """Hypotheses of one sentence that ended, side by side in one batch while they grow."""
    paths, done = [_Path((), 0.0, ())], list[Said]()
    for length in range(1, limit + 2):
        rows = memory.lengths.new_zeros(len(paths))
        last = memory.lengths.new_tensor([path.tokens[-1] if path.tokens else ends.begin for path in paths])
        output, weights, after = decoder.step(last, state, memory.take(rows))
        chances = decoder.say(output).log_softmax(-1).double()
        totals = chances + chances.new_tensor([path.total for path in paths])[:, None]
        # Of twice as many, at most half can be ends.
        best, place = totals.flatten().topk(min(2 * width, totals.numel()))
        grown: list[_Path] = []
        kept: list[int] = []
        for total, where in zip(best.tolist(), place.tolist(), strict=True):
            came, token = divmod(where, totals.shape[1])
            path = paths[came]
            looked = (*path.looked, weights[came])
            if token == ends.end:
                done.append(Said(path.tokens, total / length**normalise, torch.stack(looked)))
            elif len(grown) < width and length <= limit:
                grown.append(_Path((*path.tokens, token), total, looked))
                kept.append(came)
        if len(done) >= width or not grown:
            break
        paths, state = grown, after.take(memory.lengths.new_tensor(kept))
    return done

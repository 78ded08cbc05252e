"""Batches: sentences of like length side by side, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.seq2seq.vocabulary import BOS, EOS, PAD

# Batches among which sentences are sorted by length: the more, the less padding, and the less shuffled.
POOL = 8


class Batch(NamedTuple):
    """Some pairs, ready to be learned from."""

    source: Tensor  # (B, S)
    lengths: Tensor  # (B,) on the CPU, where recurrent networks want them
    tokens: Tensor  # (B, T) begin, then the target
    wanted: Tensor  # (B, T) the target, then end; PAD behind it
    tokens_wanted: int  # how many, padding not counted

    def to(self, device: torch.device) -> Batch:
        source, tokens, wanted = (
            part.to(device, non_blocking=True) for part in (self.source, self.tokens, self.wanted)
        )
        return Batch(source, self.lengths, tokens, wanted, self.tokens_wanted)


class Texts:
    """Sentences of token numbers, one after the other in one tensor.

    >>> Texts([[5, 6], [7]]).padded([1, 0])
    tensor([[7, 0],
            [5, 6]])
    """

    def __init__(self, sentences: Sequence[Sequence[int]]) -> None:
        self.lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        self._starts = torch.from_numpy(np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64))
        # One more, so that there is something to read where nothing is.
        self._flat = torch.tensor([number for sentence in sentences for number in sentence] + [PAD])

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, rows: Sequence[int]) -> Tensor:
        """(B, longest) token numbers, PAD behind the end."""
        lengths = torch.from_numpy(self.lengths[list(rows)])
        place = torch.arange(int(lengths.max()))
        there = place < lengths[:, None]
        start = self._starts[list(rows)][:, None]
        return torch.where(there, self._flat[torch.where(there, start + place, 0)], PAD)


def collate(source: Texts, target: Texts, rows: Sequence[int]) -> Batch:
    """The batch of these rows."""
    said = target.padded(rows)
    lengths = torch.from_numpy(target.lengths[list(rows)])
    tokens = torch.cat([torch.full((len(said), 1), BOS), said], 1)
    wanted = torch.cat([said, torch.full((len(said), 1), PAD)], 1)
    wanted[torch.arange(len(said)), lengths] = EOS
    count = int(lengths.sum()) + len(said)
    return Batch(source.padded(rows), torch.from_numpy(source.lengths[list(rows)]), tokens, wanted, count)


def bucketed(source: Texts, target: Texts, batch_size: int, order: np.random.Generator) -> list[list[int]]:
    """All rows in batches: shuffled, sorted by length within pools of batches, and the batches shuffled.

    *Cost*: O(n log n).
    """
    rows = order.permutation(len(source))
    batches = []
    for first in range(0, len(rows), POOL * batch_size):
        pool = rows[first : first + POOL * batch_size]
        pool = pool[np.lexsort((source.lengths[pool], target.lengths[pool]))]
        batches += [pool[at : at + batch_size].tolist() for at in range(0, len(pool), batch_size)]
    return [batches[number] for number in order.permutation(len(batches))]


def in_order(source: Texts, target: Texts, batch_size: int) -> list[list[int]]:
    """All rows in batches, the longest first."""
    rows = np.lexsort((source.lengths, target.lengths))[::-1]
    return [rows[at : at + batch_size].tolist() for at in range(0, len(rows), batch_size)]

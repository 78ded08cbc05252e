"""Batches of sentences of similar length, so that there is little padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.seq2seq.vocabulary import BOS, EOS, PAD

# Sentences are sorted by length within groups of this many batches: larger groups pad less and shuffle less.
BATCHES_PER_GROUP = 8


class TokenBatch(NamedTuple):
    """A batch of sentence pairs as padded tensors."""

    source: Tensor  # (B, S)
    lengths: Tensor  # (B,) on the CPU, where recurrent networks need them
    tokens: Tensor  # (B, T) BOS, then the target
    wanted: Tensor  # (B, T) the target, then EOS, then PAD
    tokens_wanted: int  # their number, without padding

    def to(self, device: torch.device) -> TokenBatch:
        names = ("source", "tokens", "wanted")
        return self._replace(**{name: getattr(self, name).to(device, non_blocking=True) for name in names})


class Sentences:
    """Sentences of token ids, concatenated in one tensor.

    >>> Sentences([[5, 6], [7]]).padded([1, 0])
    tensor([[7, 0],
            [5, 6]])
    """

    def __init__(self, sentences: Sequence[Sequence[int]]) -> None:
        self.lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        self._starts = torch.from_numpy(np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64))
        # One more element, so that ``padded`` has an element to index even without tokens.
        self._flat = torch.tensor([number for sentence in sentences for number in sentence] + [PAD])

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, rows: Sequence[int]) -> Tensor:
        """(B, longest) token ids, padded with PAD at the end."""
        lengths = torch.from_numpy(self.lengths[list(rows)])
        position = torch.arange(int(lengths.max()))
        inside = position < lengths[:, None]
        start = self._starts[list(rows)][:, None]
        return torch.where(inside, self._flat[torch.where(inside, start + position, 0)], PAD)


def collate(source: Sentences, target: Sentences, rows: Sequence[int]) -> TokenBatch:
    """The batch of these rows."""
    padded = target.padded(rows)
    lengths = torch.from_numpy(target.lengths[list(rows)])
    tokens = torch.cat([torch.full((len(padded), 1), BOS), padded], 1)
    wanted = torch.cat([padded, torch.full((len(padded), 1), PAD)], 1)
    wanted[torch.arange(len(padded)), lengths] = EOS
    count = int(lengths.sum()) + len(padded)
    return TokenBatch(source.padded(rows), torch.from_numpy(source.lengths[list(rows)]), tokens, wanted, count)


def bucketed(
    source: Sentences, target: Sentences, size: int, order: np.random.Generator, *, by_tokens: bool = False
) -> list[list[int]]:
    """All rows in batches: shuffled, sorted by length within groups of batches, and the batches shuffled.

    ``size`` is the number of rows in a batch, or by tokens that of its tokens on the longer side, padding included.
    *Cost*: O(n log n).
    """
    rows = order.permutation(len(source))
    per_batch = size
    if by_tokens:
        mean = np.maximum(source.lengths, target.lengths).mean() + 1.0
        per_batch = max(1, int(size / mean))
    batches = []
    for first in range(0, len(rows), BATCHES_PER_GROUP * per_batch):
        group = rows[first : first + BATCHES_PER_GROUP * per_batch]
        group = group[np.lexsort((source.lengths[group], target.lengths[group]))]
        if by_tokens:
            batches += _filled(group, np.maximum(source.lengths, target.lengths + 1)[group], size)
        else:
            batches += [group[at : at + size].tolist() for at in range(0, len(group), size)]
    return [batches[number] for number in order.permutation(len(batches))]


def _filled(rows: NDArray[np.int64], lengths: NDArray[np.int64], tokens: int) -> list[list[int]]:
    """Rows in order, in batches of at most this many tokens with padding, or of one row."""
    batches: list[list[int]] = []
    longest = 0
    for row, length in zip(rows.tolist(), lengths.tolist(), strict=True):
        longest = max(longest, length)
        if not batches or longest * (len(batches[-1]) + 1) > tokens:
            batches.append([])
            longest = length
        batches[-1].append(row)
    return batches


def in_order(source: Sentences, target: Sentences, batch_size: int) -> list[list[int]]:
    """All rows in batches, longest targets first."""
    rows = np.lexsort((source.lengths, target.lengths))[::-1]
    return [rows[at : at + batch_size].tolist() for at in range(0, len(rows), batch_size)]

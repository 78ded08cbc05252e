"""Batches: every pair once, little padding, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from regard.seq2seq.token_batches import Sentences, bucketed, collate, in_order
from regard.seq2seq.vocabulary import BOS, EOS, PAD


@pytest.fixture(scope="module")
def sides() -> tuple[Sentences, Sentences]:
    draws = np.random.default_rng(0)
    sentences = [list(range(4, 4 + n)) for n in draws.integers(1, 40, 1000)]
    return Sentences(sentences), Sentences([sentence[: 1 + len(sentence) // 2] for sentence in sentences])


def test_every_row_is_in_one_batch(sides: tuple[Sentences, Sentences]) -> None:
    for batches in (bucketed(*sides, 32, np.random.default_rng(1)), in_order(*sides, 32)):
        assert sorted(row for batch in batches for row in batch) == list(range(1000))
        assert max(map(len, batches)) == 32


def test_the_seed_determines_the_order(sides: tuple[Sentences, Sentences]) -> None:
    first, again, other = (bucketed(*sides, 32, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_little_of_a_batch_is_padding(sides: tuple[Sentences, Sentences]) -> None:
    def filled(batches: list[list[int]]) -> float:
        there = [collate(*sides, rows) for rows in batches]
        return sum(int(batch.lengths.sum()) for batch in there) / sum(batch.source.numel() for batch in there)

    rows = np.random.default_rng(0).permutation(1000).tolist()
    shuffled = [rows[at : at + 32] for at in range(0, 1000, 32)]
    assert filled(bucketed(*sides, 32, np.random.default_rng(1))) > 0.9 > 0.6 > filled(shuffled)


def test_a_batch_begins_ends_and_pads() -> None:
    batch = collate(Sentences([[5, 6, 7], [8]]), Sentences([[9], [10, 11]]), [0, 1])
    assert batch.source.tolist() == [[5, 6, 7], [8, PAD, PAD]]
    assert batch.lengths.tolist() == [3, 1]
    assert batch.tokens.tolist() == [[BOS, 9, PAD], [BOS, 10, 11]]
    assert batch.wanted.tolist() == [[9, EOS, PAD], [10, 11, EOS]]
    assert batch.tokens_wanted == 5


def test_61_an_empty_target_is_only_its_end() -> None:
    batch = collate(Sentences([[5], [6, 7]]), Sentences([[], [8]]), [0, 1])
    assert batch.tokens.tolist() == [[BOS, PAD], [BOS, 8]]
    assert batch.wanted.tolist() == [[EOS, PAD], [8, EOS]]
    assert batch.tokens_wanted == 3
    alone = collate(Sentences([[5]]), Sentences([[]]), [0])
    assert alone.tokens.tolist() == [[BOS]]
    assert alone.wanted.tolist() == [[EOS]]


@pytest.mark.parametrize("tokens", [1, 12, 40, 10_000])
def test_batches_by_tokens_hold_every_row_once_and_no_more_tokens(tokens):
    order = np.random.default_rng(0)
    sides = [Sentences([[5] * n for n in order.integers(1, 12, 200)]) for _ in range(2)]
    batches = bucketed(*sides, tokens, np.random.default_rng(3), by_tokens=True)
    assert sorted(row for batch in batches for row in batch) == list(range(200))
    assert batches == bucketed(*sides, tokens, np.random.default_rng(3), by_tokens=True)
    assert batches != bucketed(*sides, tokens, np.random.default_rng(4), by_tokens=True)
    for batch in batches:
        made = collate(*sides, batch)
        assert len(batch) == 1 or max(made.source.numel(), made.tokens.numel()) <= tokens
    padded = sum(max(collate(*sides, batch).source.numel(), collate(*sides, batch).tokens.numel()) for batch in batches)
    assert len(batches) <= 1.8 * padded / tokens + 8

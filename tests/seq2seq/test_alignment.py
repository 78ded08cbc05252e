"""Alignments: links, their error rate, entropy, and both texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from regard.data import dates, number_words
from regard.seq2seq import Vocabulary, token_alignment
from regard.seq2seq.alignment import as_text, columns, entropy, error_rate, links, pharaoh, shown


class Aligned(NamedTuple):
    """As much of a translation as ``as_text`` reads."""

    tokens: tuple[str, ...]
    source_tokens: tuple[str, ...]
    weights: np.ndarray


ROWS = st.lists(st.lists(st.integers(0, 5), max_size=3, unique=True), max_size=8)


# ---------------------------------------------------------------- links


def test_links_are_the_largest_weights_and_nowhere_where_there_are_none():
    weights = np.array([[0.1, 0.6, 0.3], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]], np.float32)
    assert links(weights).tolist() == [1, 0, -1]
    assert links(np.zeros((2, 0))).tolist() == [-1, -1]
    assert links(np.zeros((0, 3))).tolist() == []


@pytest.mark.parametrize("wrong", [[0.5, 0.5], 0.5, [[[1.0]]]])
def test_links_need_two_axes(wrong):
    with pytest.raises(ValueError, match="weights must have shape"):
        links(wrong)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.1])
@pytest.mark.parametrize("function", [links, entropy])
def test_weights_are_numbers_from_zero(function, wrong):
    with pytest.raises(ValueError, match="weights must be finite and at least 0"):
        function([[0.5, wrong]])


# ---------------------------------------------------------------- error rate


@given(ROWS)
def test_the_gold_links_have_no_error_and_none_at_all_is_full_error(rows):
    assert error_rate(rows, rows) == 0.0
    assert error_rate([-1] * len(rows), rows) == float(any(rows))


@given(ROWS, st.randoms())
def test_the_rate_is_that_of_sets_of_pairs(gold, random):
    found = [random.randint(-1, 5) for _ in gold]
    judged = [t for t, row in enumerate(gold) if row]
    a = {(found[t], t) for t in judged if found[t] >= 0}
    s = {(there, t) for t in judged for there in gold[t]}
    expected = 1 - (len(a & s) + len(a & s)) / (len(a) + len(s)) if s else 0.0
    assert error_rate(found, gold) == pytest.approx(expected)
    assert error_rate([(there,) for there in found], gold) == error_rate(found, gold)
    assert error_rate(np.array(found, int), gold) == error_rate(found, gold)


def test_a_token_that_comes_from_nowhere_is_not_judged():
    pairs = dates(30, 3)
    letters = Vocabulary.learn(pairs.source, "characters"), Vocabulary.learn(pairs.target, "characters")
    gold = [token_alignment(*letters, *pair) for pair in zip(pairs.source, pairs.target, pairs.alignment, strict=True)]
    rows = [row for sentence in gold for row in sentence]
    assert rows.count(()) == 2 * len(pairs), "the dashes"
    assert error_rate([row[0] if row else 0 for row in rows], rows) == 0.0


def test_words_to_digits_by_one_hot_weights():
    pairs = number_words(20, 1)
    words, letters = Vocabulary("words", ()), Vocabulary("characters", ())
    for source, target, alignment in zip(pairs.source, pairs.target, pairs.alignment, strict=True):
        gold = token_alignment(words, letters, source, target, alignment)
        weights = np.zeros((len(gold), len(words.split(source))))
        for t, row in enumerate(gold):
            weights[t, list(row)] = 1.0
        assert error_rate(links(weights), gold) == 0.0


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="found and gold must have one entry per target token, got 2 and 1"):
        error_rate([0, 1], [(0,)])


# ---------------------------------------------------------------- entropy


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_entropy_of_one_hot_and_of_uniform(size):
    assert entropy(np.full((1, size), 1 / size))[0] == pytest.approx(np.log(size), abs=1e-12)
    one = np.eye(size)[:1]
    assert entropy(one)[0] == 0.0
    assert not np.signbit(entropy(one))[0]


@given(arrays(np.float64, (4, 6), elements=st.floats(0.0, 1.0)))
def test_masked_tokens_change_nothing_and_batches_neither(raw):
    weights = raw / np.maximum(raw.sum(1, keepdims=True), 1e-300)
    entropies = entropy(weights)
    assert (entropies >= -1e-12).all()
    assert (entropies <= np.log(6) + 1e-12).all()
    masked = np.concatenate([weights, np.zeros((4, 3))], 1)
    np.testing.assert_allclose(entropy(masked), entropies, atol=1e-14)
    np.testing.assert_array_equal(entropy(np.stack([weights, weights])), [entropies, entropies])
    direct = [-sum(w * np.log(w) for w in row if w > 0) for row in weights]
    np.testing.assert_allclose(entropies, direct, atol=1e-12)


def test_entropy_of_nothing():
    assert entropy(np.zeros((0, 3))).shape == (0,)
    assert entropy(np.zeros((2, 0))).tolist() == [0.0, 0.0]


# ---------------------------------------------------------------- text


def test_pharaoh_pairs_are_source_then_target():
    assert pharaoh([1, 0]) == "1-0 0-1"
    assert pharaoh([(), (2, 0), -1]) == "0-1 2-1"
    assert pharaoh([]) == ""


def test_text_has_one_line_per_target_token_in_columns():
    said = Aligned(
        ("2021", "-", "05", "<eos>"),
        ("二〇二一年", "五月", "mai", " "),
        np.array([[0.97, 0.03, 0.0, 0.0], [0.4, 0.35, 0.25, 0.0], [0.05, 0.05, 0.0, 0.9], [0.0, 0.0, 0.0, 0.0]]),
    )
    assert as_text(said).splitlines() == [
        "2021  ← 二〇二一年  97 %",
        "-     ← 二〇二一年  40 %  五月        35 %  mai         25 %",
        "05    ← ␣           90 %",
        "<eos>",
    ]


def test_columns_stand_under_each_other():
    weights = np.full((3, 3), 1 / 3)
    lines = as_text(Aligned(("十", "e\u0301", "abc"), ("月", "ab", "ｅ"), weights)).splitlines()
    for mark in ("←", "%"):
        assert len({columns(line[: line.index(mark)]) for line in lines}) == 1
    assert len({columns(line) for line in lines}) == 1


def test_the_largest_weight_is_listed_however_small():
    row = np.full((1, 20), 0.05)
    assert as_text(Aligned(("x",), ("s",) * 20, row)) == "x ← s   5 %"


def test_an_empty_translation_is_an_empty_text():
    assert as_text(Aligned((), (), np.zeros((0, 0)))) == ""


def test_what_cannot_be_printed_is_escaped():
    assert shown("a\x1b[31m\u200d") == "a\\x1b[31m\\u200d"


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"\(1, 2\), got \(2, 2\)"):
        as_text(Aligned(("a",), ("b", "c"), np.eye(2)))

"""Number words and reversals, and what they are aligned with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from regard.data import (
    dates,
    number_words,
    reversal,
)
from regard.data.number_words import spell
from support.soak import FULL

MULTI30K = Path(__file__).resolve().parents[3] / "shared" / "data" / "multi30k"


VALUES = {
    word: value
    for names, step, first in (
        ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
         "seventeen eighteen nineteen", 1, 0),
        ("twenty thirty forty fifty sixty seventy eighty ninety", 10, 20),
    )
    for value, word in zip(range(first, 1000, step), names.split(), strict=False)
}  # fmt: skip


def valued(text: str) -> int:
    """What number words add up to."""
    total = group = 0
    for word in re.findall("[a-z]+", text):
        if word == "thousand":
            total, group = group * 1000, 0
        elif word == "hundred":
            group *= 100
        elif word != "and":
            group += VALUES[word]
    return total + group


def test_every_number_is_spelled_so_that_it_can_be_read() -> None:
    texts = set()
    numbers = [*range(1200), *range(1200, 1_000_000, 7 if FULL else 701), 100_000, 100_005, 110_000, 999_999]
    for number in numbers:
        text, positions = spell(number)
        texts.add(text)
        assert valued(text) == number
        assert len(positions) == len(str(number))
        # The order of the digits is the order of the words.
        assert list(positions) == sorted(positions)
        for place, (digit, position) in enumerate(zip(str(number), positions, strict=True)):
            word = re.match("[a-z]+", text[position:]).group()  # type: ignore[union-attr]
            assert position == 0 or not text[position - 1].isalpha()
            if word in ("hundred", "thousand"):
                assert digit == "0"
            else:
                assert digit in str(VALUES[word])
                power = 10 ** ((len(str(number)) - 1 - place) % 3)
                # A word that says tens stands for tens and units; one that says units for units or hundreds.
                assert power in ((1, 10) if VALUES[word] >= 10 else (1, 100))
    assert len(texts) == len(set(numbers))


def test_number_words_of_the_brief() -> None:
    assert spell(312) == ("three hundred and twelve", (0, 18, 18))
    assert spell(1005) == ("one thousand and five", (0, 4, 4, 17))
    pairs = number_words(3000)
    assert [valued(text) for text in pairs.source] == [int(target) for target in pairs.target]
    assert {len(target) for target in pairs.target} == {1, 2, 3, 4, 5, 6}
    for wrong in (-1, 1_000_000):
        with pytest.raises(ValueError, match=f"number must be from 0 to 999,999, got {wrong}"):
            spell(wrong)


def test_reversal_is_its_own_inverse() -> None:
    pairs = reversal(3000)
    assert {len(text) for text in pairs.source} == set(range(1, 26))
    assert set("".join(pairs.source)) == set("abcdefghijklmnopqrstuvwxyz")
    for text, target, positions in zip(pairs.source, pairs.target, pairs.alignment, strict=True):
        assert target[::-1] == text
        assert "".join(text[position] for position in positions) == target
        assert sorted(positions) == list(range(len(text)))
    assert {len(text) for text in reversal(300, lengths=(26, 30)).source} == set(range(26, 31))


@pytest.mark.parametrize("lengths", [(0, 5), (6, 5), (-1, -1)])
def test_impossible_lengths_are_refused(lengths: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"lengths must be \(shortest, longest\)"):
        reversal(1, lengths=lengths)


@pytest.mark.parametrize("make", [dates, number_words, reversal])
def test_seeds_decide(make) -> None:
    assert make(50, seed=3) == make(50, 3)
    assert make(50, seed=3) != make(50, seed=4)
    assert make(50, seed=3).take(range(20)) == make(20, seed=3)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        make(0)

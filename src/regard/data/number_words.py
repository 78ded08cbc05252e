"""Two small tasks with known answers and alignments: number words, and reversed sequences.

    "three hundred and twelve"  →  "312"        3 from three, 1 and 2 from twelve
    "gattaca"                   →  "acattag"    each letter from its mirror image

A digit is aligned with the first letter of its word. A zero without a word is aligned with the word that implies it:
"hundred" in 305, "twenty" in 20.
"""

from __future__ import annotations

import numpy as np

from regard.data.text_pairs import Pairs

MAX_NUMBER = 999_999
SYMBOLS = "abcdefghijklmnopqrstuvwxyz"

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_BELOW_HUNDRED = "zero ten twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL, _TENS = _BELOW_TWENTY.split(), _BELOW_HUNDRED.split()


def number_words(n: int, seed: int = 0) -> Pairs:
    """Numbers from 0 to 999,999 in English words and in digits, with gold alignments.

    Parameters
    ----------
    n : int
        How many, at least 1. Each count of digits from one to six is as likely as any other.
    seed : int, default=0
        The same seed gives the same pairs; the first k of n are the k that ``n=k`` gives.

    Returns
    -------
    Pairs
        With their alignment.

    >>> pairs = number_words(1)
    >>> pairs.source, pairs.target, pairs.alignment
    (('three thousand four hundred and twenty-eight',), ('3428',), ((0, 15, 32, 39),))
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    numbers = []
    for size, where in np.random.default_rng(seed).random((n, 2)).tolist():
        digits = 1 + int(size * len(str(MAX_NUMBER)))
        low = 10 ** (digits - 1) if digits > 1 else 0
        numbers.append(low + int(where * (10**digits - low)))
    spelled = [spell(number) for number in numbers]
    return Pairs(
        tuple(text for text, _ in spelled),
        tuple(str(number) for number in numbers),
        tuple(positions for _, positions in spelled),
    )


def spell(number: int) -> tuple[str, tuple[int, ...]]:
    """A number from 0 to 999,999 in words, and for each of its digits the position of its word.

    >>> spell(312)
    ('three hundred and twelve', (0, 18, 18))
    """
    if not 0 <= number <= MAX_NUMBER:
        raise ValueError(f"number must be from 0 to {MAX_NUMBER:,}, got {number}")
    if number == 0:
        return _SMALL[0], (0,)
    thousands, rest = divmod(number, 1000)
    leading = thousands or rest
    text, places = _below_thousand("", leading, 0)
    places = places[-len(str(leading)) :]
    if thousands:
        implied = len(text) + 1
        text, more = _below_thousand(f"{text} thousand", rest, implied)
        places += more
    return text, tuple(places)


def _below_thousand(text: str, number: int, implied: int) -> tuple[str, list[int]]:
    """The text continued by a number below 1,000, and the position of the word of each of its three digits.

    ``implied`` is the position of the word that implies digits without a word of their own.
    """
    hundreds, below = divmod(number, 100)
    places = [implied] * 3
    if hundreds:
        text, places[0] = _append_word(text, _SMALL[hundreds])
        text, hundred = _append_word(text, "hundred")
        places[1:] = [hundred, hundred]
    if below:
        text += " and" if text else ""
        text, places[2] = _append_word(text, _SMALL[below] if below < 20 else _TENS[below // 10])
        if below >= 10:
            places[1] = places[2]
        if below > 20 and below % 10:
            places[2] = len(text) + 1
            text += f"-{_SMALL[below % 10]}"
    return text, places


def _append_word(text: str, word: str) -> tuple[str, int]:
    """The text with one more word, and where that word begins."""
    text += " " if text else ""
    return text + word, len(text)


def reversal(n: int, seed: int = 0, lengths: tuple[int, int] = (1, 25)) -> Pairs:
    """Sequences of lower-case letters and their reverse, with gold alignments: target j comes from source L − 1 − j.

    Parameters
    ----------
    n : int
        How many, at least 1.
    seed : int, default=0
        The same seed gives the same pairs; the first k of n are the k that ``n=k`` gives.
    lengths : tuple of two int, default=(1, 25)
        The shortest and the longest; every length between is equally likely.

    Returns
    -------
    Pairs
        With their alignment.

    >>> pairs = reversal(1, lengths=(3, 3))
    >>> pairs.source, pairs.target, pairs.alignment
    (('hba',), ('abh',), ((2, 1, 0),))
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    shortest, longest = lengths
    if not 1 <= shortest <= longest:
        raise ValueError(f"lengths must be (shortest, longest) with 1 ≤ shortest ≤ longest, got {lengths}")
    source = []
    for row in np.random.default_rng(seed).random((n, 1 + longest)).tolist():
        length = shortest + int(row[0] * (longest - shortest + 1))
        source.append("".join(SYMBOLS[int(draw * len(SYMBOLS))] for draw in row[1 : 1 + length]))
    return Pairs(
        tuple(source),
        tuple(text[::-1] for text in source),
        tuple(tuple(range(len(text)))[::-1] for text in source),
    )

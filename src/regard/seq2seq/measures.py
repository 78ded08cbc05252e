"""Quality of translations: the fraction that match exactly, BLEU and chrF.

``quality`` calls sacrebleu, whose figures are comparable between papers. ``corpus_bleu`` is the same BLEU where there
is no sacrebleu, as on machines for training.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from math import exp, log
from typing import Any, NamedTuple

# n-grams of BLEU.
ORDER = 4
# The tokens of mteval-v13a: punctuation and symbols by themselves, but points and commas within numbers stay, and so do
# dashes that do not follow a digit, and apostrophes.
_SYMBOLS = re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])")
_POINT_AFTER = re.compile(r"([^0-9])([\.,])")
_POINT_BEFORE = re.compile(r"([\.,])([^0-9])")
_DASH = re.compile(r"([0-9])(-)")
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))


class Quality(NamedTuple):
    """Measures of translations against their references."""

    pairs: int
    exact: float  # fraction of exact matches
    bleu: float  # 0 to 100
    chrf: float  # 0 to 100
    bleu_signature: str  # sacrebleu's signature of the settings


def quality(said: Sequence[str], wanted: Sequence[str]) -> Quality:
    """Compare translations with one reference each, by sacrebleu (``pip install 'regard[seq2seq]'``).

    Parameters
    ----------
    said : sequence of str
        Translations.
    wanted : sequence of str
        Their references, one each.

    Returns
    -------
    Quality
        ``pairs``, ``exact``, ``bleu``, ``chrf`` and sacrebleu's signature of the settings.

    Raises
    ------
    ValueError
        If there are no translations, or not as many references.

    >>> quality(["the cat sat on the mat", "a dog"], ["the cat sat on the mat", "a hog"]).exact
    0.5
    """
    _check_lengths(said, wanted)
    try:
        sacrebleu: Any = import_module("sacrebleu")
    except ImportError:
        raise ValueError("BLEU and chrF need sacrebleu; run pip install 'regard[seq2seq]'") from None
    bleu = sacrebleu.BLEU()
    score = bleu.corpus_score(list(said), [list(wanted)])
    chrf = sacrebleu.CHRF().corpus_score(list(said), [list(wanted)])
    return Quality(
        len(said), exact_fraction(said, wanted), float(score.score), float(chrf.score), str(bleu.get_signature())
    )


def exact_fraction(said: Sequence[str], wanted: Sequence[str]) -> float:
    """The fraction of translations that equal their reference."""
    return sum(a == b for a, b in zip(said, wanted, strict=True)) / len(said)


def corpus_bleu(said: Sequence[str], wanted: Sequence[str]) -> float:
    """BLEU (0 to 100) of translations against one reference each, as sacrebleu computes it by default.

    100·min(1, e^(1 − reference length/length))·(Π p_n)^(1/4), the p_n being the precisions of n-grams, n = 1 … 4, of
    the whole corpus; the k-th of them without a match counts as half of the one before, from 1/2 of a match.

    Parameters
    ----------
    said : sequence of str
        Translations.
    wanted : sequence of str
        Their references, one each.

    Returns
    -------
    float
        From 0 to 100; 0 without a match, or where no translation has four tokens.

    Raises
    ------
    ValueError
        If there are no translations, or not as many references.

    *Cost*: O(tokens).

    >>> round(corpus_bleu(["the cat sat on the mat"], ["the cat sat on a mat"]), 2)
    53.73
    """
    _check_lengths(said, wanted)
    matches, totals = [0] * ORDER, [0] * ORDER
    length = reference_length = 0
    for one, other in zip(said, wanted, strict=True):
        found, reference = bleu_tokens(one), bleu_tokens(other)
        length, reference_length = length + len(found), reference_length + len(reference)
        for n in range(ORDER):
            grams = _grams(found, n + 1)
            matches[n] += (grams & _grams(reference, n + 1)).total()
            totals[n] += grams.total()
    if not all(totals) or not any(matches):
        return 0.0
    logs, smoothed = 0.0, 1.0
    for match, total in zip(matches, totals, strict=True):
        smoothed = smoothed if match else smoothed / 2.0
        logs += log((match or smoothed) / total)
    return 100.0 * min(1.0, exp(1.0 - reference_length / length)) * exp(logs / ORDER)


def bleu_tokens(text: str) -> list[str]:
    """The tokens of a text that BLEU counts, by the rules of mteval-v13a."""
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    text = _SYMBOLS.sub(r" \1 ", f" {text} ")
    text = _POINT_BEFORE.sub(r" \1 \2", _POINT_AFTER.sub(r"\1 \2 ", text))
    return _DASH.sub(r"\1 \2 ", text).split()


def _check_lengths(said: Sequence[str], wanted: Sequence[str]) -> None:
    if len(said) != len(wanted) or not said:
        raise ValueError(f"said and wanted must have the same length of at least 1, got {len(said)} and {len(wanted)}")


def _grams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[at : at + n]) for at in range(len(tokens) - n + 1))

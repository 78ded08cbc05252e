"""Quality of translations: the fraction that match exactly, BLEU and chrF."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple


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
    if len(said) != len(wanted) or not said:
        raise ValueError(f"said and wanted must have the same length of at least 1, got {len(said)} and {len(wanted)}")
    try:
        sacrebleu: Any = import_module("sacrebleu")
    except ImportError:
        raise ValueError("BLEU and chrF need sacrebleu; run pip install 'regard[seq2seq]'") from None
    bleu = sacrebleu.BLEU()
    score = bleu.corpus_score(list(said), [list(wanted)])
    chrf = sacrebleu.CHRF().corpus_score(list(said), [list(wanted)])
    exact = sum(a == b for a, b in zip(said, wanted, strict=True)) / len(said)
    return Quality(len(said), exact, float(score.score), float(chrf.score), str(bleu.get_signature()))

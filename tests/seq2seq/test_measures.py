"""BLEU without sacrebleu is sacrebleu's."""

from __future__ import annotations

import random

import pytest

from regard.seq2seq.measures import bleu_tokens, corpus_bleu

PARTS = [
    *["the", "cat,", "sat", "on", "3.5", "mats", "-", "12-3", "a.b", "1,000.", "&quot;x&quot;", "&lt;p&gt;", "l'homme"],
    *["(yes)!", "C++", "@home", "émile", "猫", "$5", "50%", "…", "„a“", "x_y"],
]


def test_it_is_sacrebleus():
    sacrebleu = pytest.importorskip("sacrebleu")
    picks = random.Random(0)
    for _ in range(300):
        pairs = picks.randint(1, 5)
        said, wanted = (
            [" ".join(picks.choices(PARTS, k=picks.randint(least, 9))) for _ in range(pairs)] for least in (0, 1)
        )
        expected = sacrebleu.BLEU().corpus_score(said, [wanted]).score
        assert corpus_bleu(said, wanted) == pytest.approx(expected, abs=1e-9), (said, wanted)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A dog, 3.5 m.", ["A", "dog", ",", "3.5", "m", "."]),
        ("12-3 a-b", ["12", "-", "3", "a-b"]),
        ("&quot;x&quot;", ['"', "x", '"']),
        ("", []),
    ],
)
def test_tokens(text, tokens):
    assert bleu_tokens(text) == tokens


def test_ends_of_the_scale():
    assert corpus_bleu(["a b c d e"], ["a b c d e"]) == pytest.approx(100.0)
    assert corpus_bleu(["a b"], ["a b"]) == 0.0, "no run of four tokens"
    assert corpus_bleu([""], ["a"]) == 0.0
    with pytest.raises(ValueError, match="same length of at least 1, got 0 and 0"):
        corpus_bleu([], [])

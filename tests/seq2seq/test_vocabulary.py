"""Texts into ids and back."""

from __future__ import annotations

import json
import random
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import dates, number_words
from regard.seq2seq import BOS, EOS, PAD, UNK, Vocabulary, token_alignment

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=6)
# Sentences in which the rules about apostrophes, quotes and numbers meet often.
CROWDED = st.text(st.sampled_from("ls1٣ é\u0301.,'’\"-()%_?"), max_size=14)
WORDS = Vocabulary("words", ())


def test_frequent_tokens_come_first_and_ties_in_the_order_of_their_text() -> None:
    vocabulary = Vocabulary.learn(["b a c", "b a", "b d"])
    assert vocabulary.tokens == ("b", "a", "c", "d")
    assert len(vocabulary) == 8
    assert vocabulary.encode("b d") == [4, 7]
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_the_order_of_the_texts_does_not_matter(unit: str) -> None:
    texts = list(dates(300).source)
    shuffled = random.Random(0).sample(texts, len(texts))
    assert Vocabulary.learn(texts, unit) == Vocabulary.learn(shuffled, unit)


def test_rare_tokens_are_left_out() -> None:
    texts = ["a a a b b c"]
    assert Vocabulary.learn(texts, min_count=2).tokens == ("a", "b")
    assert Vocabulary.learn(texts, max_size=5).tokens == ("a",)
    assert Vocabulary.learn(texts, min_count=2).encode("a c b zebra") == [4, UNK, 5, UNK]


@given(TEXTS)
def test_characters_come_back_exactly(texts: list[str]) -> None:
    vocabulary = Vocabulary.learn([*texts, "x"], "characters")
    for text in texts:
        assert vocabulary.decode(vocabulary.encode(text)) == text
        assert UNK not in vocabulary.encode(text)
        assert vocabulary.positions(text) == list(range(len(text)))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Un homme dort.", "Un homme dort ."),
        ("l'homme d’hier, qu'il voit", "l' homme d’ hier , qu' il voit"),
        ("the man's dog isn't mine", "the man 's dog isn 't mine"),
        ("a t-shirt (blue) costs 1,234.50!", "a t-shirt ( blue ) costs 1,234.50 !"),
        ('he says "no" twice', 'he says " no " twice'),
        ("50% of cafe\u0301s", "50 % of cafe\u0301s"),
        ("3. Mai 2021", "3 . Mai 2021"),
    ],
)
def test_words_are_split_and_joined_as_people_write_them(text: str, tokens: str) -> None:
    assert WORDS.split(text) == tokens.split()
    assert WORDS.join(tokens.split()) == text


@given(st.one_of(CROWDED, st.text(st.characters(exclude_categories=["Cs"]), max_size=20)))
def test_joined_words_split_into_the_same_words(text: str) -> None:
    words = WORDS.split(text)
    assert WORDS.split(WORDS.join(words)) == words
    assert "".join(words) == "".join(text.split())
    where = WORDS.positions(text)
    assert len(where) == len(text)
    for number, word in enumerate(words):
        assert "".join(text[place] for place, token in enumerate(where) if token == number) == word
    assert all(text[place].isspace() == (number == -1) for place, number in enumerate(where))


def test_small_letters() -> None:
    vocabulary = Vocabulary.learn(["The THE the"], lower=True)
    assert vocabulary.tokens == ("the",)
    assert vocabulary.encode("THE") == [4]
    # One capital that becomes two characters does not move the others.
    assert Vocabulary("words", (), lower=True).positions("İx y") == [0, 0, -1, 1]


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_56_unknown_tokens(unit: str) -> None:
    vocabulary = Vocabulary.learn(["a b"], unit)
    assert vocabulary.encode("z") == [UNK]
    assert vocabulary.decode([UNK]) == "<unk>"
    assert vocabulary.split("z") == ["z"]


def test_58_the_literal_special_texts_are_ordinary_text() -> None:
    literal = "<pad> <unk> <bos> <eos>"
    for unit in ("words", "characters"):
        vocabulary = Vocabulary.learn([literal], unit)
        ids = vocabulary.encode(literal)
        assert min(ids) >= 4
        assert vocabulary.decode(ids).replace(" ", "") == literal.replace(" ", "")
    # Even a token with that very text has an id of its own.
    odd = Vocabulary("words", ("<pad>", "<eos>"))
    assert odd.decode([4, 5, EOS, 4]) == "<pad> <eos>"


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_59_lone_surrogates_are_refused(unit: str) -> None:
    vocabulary = Vocabulary(unit, ("a",))
    words = re.escape("text contains an unpaired surrogate (U+D800) at character 3")
    for call in (vocabulary.encode, vocabulary.split, vocabulary.positions):
        with pytest.raises(ValueError, match=words):
            call("ab\ud800c")
    with pytest.raises(ValueError, match=words):
        Vocabulary.learn(["ab\ud800c"], unit)


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_60_an_empty_text_has_no_ids(unit: str) -> None:
    vocabulary = Vocabulary(unit, ("a",))
    assert vocabulary.encode("") == []
    assert vocabulary.decode([]) == vocabulary.decode([BOS, EOS]) == vocabulary.decode([PAD]) == ""


def test_decoding_stops_at_eos_and_skips_padding() -> None:
    vocabulary = Vocabulary("words", ("a", "b"))
    assert vocabulary.decode([BOS, 4, PAD, 5, EOS, 4]) == "a b"
    assert [vocabulary.token(number) for number in range(6)] == ["<pad>", "<unk>", "<bos>", "<eos>", "a", "b"]
    for number in (-1, 6):
        with pytest.raises(ValueError, match=f"id must lie between 0 and 5, got {number}"):
            vocabulary.token(number)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"texts": "one string"}, "texts must be a sequence of strings, got a single string"),
        (
            {"texts": ["a"], "unit": "letters"},
            "unit must be one of 'words', 'characters', 'sentencepiece', 'bpe', got 'letters'",
        ),
        ({"texts": ["a"], "min_count": 0}, "min_count must be a whole number of at least 1, got 0"),
        ({"texts": ["a"], "max_size": 4}, "max_size must be above 4, got 4"),
        ({"texts": [], "min_count": 1}, "texts contain no token with a count of at least min_count=1"),
        ({"texts": ["a b"], "min_count": 2}, "texts contain no token with a count of at least min_count=2"),
        ({"texts": [b"a"]}, "text must be a string, got bytes"),
        (
            {"texts": ["a"], "unit": "sentencepiece"},
            "unit 'sentencepiece' needs max_size and min_count=1, got max_size=None and min_count=1",
        ),
    ],
)
def test_impossible_vocabularies_are_refused(given: dict, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Vocabulary.learn(**given)


# ---- as plain values


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_a_vocabulary_survives_json(unit: str) -> None:
    vocabulary = Vocabulary.learn(dates(100).source, unit, lower=True)
    assert Vocabulary.from_dict(json.loads(json.dumps(vocabulary.to_dict()))) == vocabulary


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"more": 1}, "a vocabulary must have exactly the entries unit, lower, tokens, model, got"),
        ({"lower": 1}, "lower of a vocabulary must be bool, got int"),
        ({"tokens": "ab"}, "tokens of a vocabulary must be list, got str"),
        ({"tokens": ["a", 1]}, "tokens of a vocabulary must be strings"),
        ({"tokens": ["a", "b", "a"]}, "tokens must be distinct, got 'a' more than once"),
        ({"unit": "x"}, "unit must be one of"),
        ({"model": "?"}, "model of a vocabulary is not base64"),
        ({"model": "AAAA"}, "model must be given if and only if unit is 'sentencepiece'"),
        ({"unit": "sentencepiece"}, "model must be given if and only if unit is 'sentencepiece'"),
    ],
)
def test_plain_values_that_are_no_vocabulary(change: dict, words: str) -> None:
    plain = Vocabulary("words", ("a",)).to_dict()
    with pytest.raises(ValueError, match=re.escape(words)):
        Vocabulary.from_dict({**plain, **change})
    with pytest.raises(ValueError, match="exactly the entries"):
        Vocabulary.from_dict([])  # type: ignore[arg-type]


# ---- alignments in tokens


def test_an_alignment_in_characters_becomes_one_in_words() -> None:
    pairs = number_words(200)
    letters = Vocabulary("characters", ())
    for source, target, row in zip(pairs.source, pairs.target, pairs.alignment, strict=True):
        words = WORDS.split(source)
        found = token_alignment(WORDS, letters, source, target, row)
        assert [len(numbers) for numbers in found] == [1] * len(target)
        for (number,), position in zip(found, row, strict=True):
            assert position == WORDS.positions(source).index(number) or "-" in words[number]


def test_separators_point_at_no_token_and_a_word_at_all_its_sources() -> None:
    letters = Vocabulary("characters", ())
    row = (6, 7, 8, 9, -1, 2, 2, -1, 0, 0)
    assert token_alignment(letters, letters, "3 mai 2021", "2021-05-03", row)[4] == ()
    by_words = token_alignment(WORDS, WORDS, "3 mai 2021", "2021-05-03", row)
    assert WORDS.split("2021-05-03") == ["2021-05-03"]
    assert by_words == ((0, 1, 2),)
    with pytest.raises(ValueError, match="alignment must have one position per character of target_text, got 1 for 2"):
        token_alignment(letters, letters, "a", "ab", (0,))


# ---- sentencepiece


def test_sentencepiece_that_is_not_there(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ValueError, match=re.escape("pip install 'regard[seq2seq]'")):
        Vocabulary.learn(["a b"], "sentencepiece", max_size=20)


@pytest.fixture(scope="module")
def pieces() -> Vocabulary:
    pytest.importorskip("sentencepiece")
    return Vocabulary.learn(number_words(2000).source, "sentencepiece", max_size=60)


def test_pieces_come_back(pieces: Vocabulary) -> None:
    assert 20 < len(pieces) <= 60
    for text in number_words(50, seed=1).source:
        ids = pieces.encode(text)
        assert min(ids) >= 4
        assert pieces.decode(ids) == text
        assert [pieces.token(number) for number in ids] == pieces.split(text)
    assert pieces.encode("") == []


def test_pieces_know_no_special_text(pieces: Vocabulary) -> None:
    for literal in ("<pad>", "<unk>", "<s>", "</s>"):
        assert not {PAD, BOS, EOS} & set(pieces.encode(literal))
    assert UNK in pieces.encode("数")
    with pytest.raises(ValueError, match="unpaired surrogate"):
        pieces.encode("\ud800")
    with pytest.raises(ValueError, match="positions are available for units"):
        pieces.positions("one")


def test_pieces_survive_json_and_a_broken_model_is_refused(pieces: Vocabulary) -> None:
    plain = json.loads(json.dumps(pieces.to_dict()))
    back = Vocabulary.from_dict(plain)
    assert back == pieces
    assert back.encode("three hundred") == pieces.encode("three hundred")
    with pytest.raises(ValueError, match="not a valid sentencepiece model"):
        Vocabulary.from_dict({**plain, "model": "AAAA"}).encode("one")
    assert Vocabulary.learn(number_words(2000).source, "sentencepiece", max_size=60) == pieces


TEXTS = [f"{a} {b} mountains and rivers" for a in ("high", "deep", "long") for b in ("blue", "green", "grey")] * 3


@pytest.mark.parametrize("unit", ["sentencepiece", "bpe"])
def test_sampled_segmentations_are_of_the_same_texts_and_reproducible(unit):
    pytest.importorskip("sentencepiece")
    vocabulary = Vocabulary.learn(TEXTS, unit, max_size=60)
    first, again, other = (vocabulary.sampled(TEXTS, 0.3, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert [vocabulary.decode(ids) for ids in first] == TEXTS
    assert any(ids != vocabulary.encode(text) for ids, text in zip(first, TEXTS, strict=True))
    assert vocabulary.encode(TEXTS[0]) == Vocabulary.from_dict(vocabulary.to_dict()).encode(TEXTS[0])
    assert vocabulary.sampled([], 0.1, 0) == []
    with pytest.raises(ValueError, match="segmentations are sampled for units 'sentencepiece' and 'bpe', got 'words'"):
        Vocabulary("words", ("a",)).sampled(["a"], 0.1, 0)


def test_byte_pairs_are_a_unit_of_their_own():
    pytest.importorskip("sentencepiece")
    pairs, pieces = (Vocabulary.learn(TEXTS, unit, max_size=60) for unit in ("bpe", "sentencepiece"))
    assert pairs.tokens != pieces.tokens
    assert pairs.decode(pairs.encode("high blue rivers")) == "high blue rivers"
    with pytest.raises(ValueError, match="unit 'bpe' needs max_size and min_count=1"):
        Vocabulary.learn(TEXTS, "bpe")
    with pytest.raises(ValueError, match=r"positions are available .* got 'bpe'"):
        pairs.positions("high")

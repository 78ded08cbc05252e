"""A translator: odd texts, files that something happened to, and a batch that says what its texts say alone."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.transformer import TransformerArchitecture
from regard.seq2seq.translator import MAX_TOKENS, NOTHING, Translator, TranslatorError
from regard.seq2seq.vocabulary import UNK, Vocabulary
from support.trainings import same, taught, words


@pytest.fixture(scope="module")
def letters() -> Translator:
    """Reverses a few letters, not always well."""
    return taught(epochs=6).translator


@pytest.fixture(scope="module")
def strangers() -> Translator:
    """Untrained, by words, and it says unknown words only."""
    vocabulary = Vocabulary.learn(["the man's dog <pad> saw l'homme ."])
    torch.manual_seed(0)
    model = Seq2Seq(Architecture(8, 8), len(vocabulary), len(vocabulary))
    with torch.no_grad():
        model.decoder.b_o[:] = -100.0
        model.decoder.b_o[UNK] = 100.0
    return Translator(model.eval(), vocabulary, vocabulary)


def test_weights_are_one_row_per_token_and_add_up_to_one(letters: Translator) -> None:
    for one in letters.translate(["abc", "zyxwv", "q"]):
        assert one.weights.shape == (len(one.tokens), len(one.source_tokens))
        np.testing.assert_allclose(one.weights.sum(1), 1.0, atol=1e-5)
        assert letters.target.join([token for token in one.tokens if token != "<eos>"]) == one.text
        assert one.score <= 0.0


@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_says_what_its_texts_say_alone(letters: Translator, beam: int) -> None:
    texts = list(words(60, longest=9)[0].source)
    together = letters.translate(texts, beam=beam)
    for batch_size in (1, 7):
        apart = letters.translate(texts, beam=beam, batch_size=batch_size)
        assert [one.text for one in apart] == [one.text for one in together]
        for a, b in zip(apart, together, strict=True):
            np.testing.assert_allclose(a.weights, b.weights, atol=1e-5)


def test_beam_never_scores_below_greedy(letters: Translator) -> None:
    texts = list(words(60, longest=9)[0].source)
    for wide, narrow in zip(letters.translate(texts, beam=5), letters.translate(texts), strict=True):
        assert wide.score >= narrow.score - 1e-6


def test_60_an_empty_text_has_an_empty_translation(letters: Translator) -> None:
    found = letters.translate(["", "ab", ""])
    assert found[0] == NOTHING
    assert found[2] == NOTHING
    assert found[1].text == letters.translate(["ab"])[0].text
    assert letters.translate([]) == []
    assert letters.translate(["", ""], beam=3) == [NOTHING, NOTHING]


def test_56_unknown_words_are_read(letters: Translator, strangers: Translator) -> None:
    assert letters.translate(["a!c"])[0].source_tokens == ("a", "!", "c")
    assert strangers.translate(["the cat"])[0].source_tokens == ("the", "cat")


def test_unknown_words_are_copied_from_the_most_attended_token(strangers: Translator) -> None:
    plain = strangers.translate(["the cat sat"])[0]
    copied = strangers.translate(["the cat sat"], copy_unknown=True)[0]
    assert set(plain.tokens) == {"<unk>"}
    assert "<unk>" in plain.text
    attended = plain.weights.argmax(1)
    assert list(copied.tokens) == [plain.source_tokens[number] for number in attended]
    assert "<unk>" not in copied.text
    assert np.array_equal(copied.weights, plain.weights)


def test_58_special_names_are_ordinary_text(strangers: Translator) -> None:
    assert (
        strangers.translate(["<pad> <eos>"])[0].source_tokens
        == strangers.translate(["< pad > < eos >"])[0].source_tokens
    )


def test_57_a_text_that_is_too_long_is_cut_with_a_warning(letters: Translator) -> None:
    with pytest.warns(
        UserWarning, match=f"text 2 has {MAX_TOKENS + 5:,} tokens and is truncated to the first {MAX_TOKENS:,}"
    ):
        found = letters.translate(["ab", "a" * (MAX_TOKENS + 5)])
    assert len(found[1].source_tokens) == MAX_TOKENS


def test_59_lone_surrogates_are_an_error(letters: Translator) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        letters.translate(["ab\ud800"])


def test_one_string_is_no_list_of_texts(letters: Translator) -> None:
    with pytest.raises(ValueError, match="texts must be a sequence of strings, got a single string"):
        letters.translate("abc")
    with pytest.raises(ValueError, match="at least 1, got 0"):
        letters.translate(["abc"], beam=0)


def test_align_is_translate_where_the_target_is_what_it_says(letters: Translator) -> None:
    texts = ["abc", "zyxwv", "q"]
    said = letters.translate(texts)
    for free, forced in zip(said, letters.align(texts, [one.text for one in said]), strict=True):
        assert forced.tokens == free.tokens
        assert forced.text == free.text
        np.testing.assert_allclose(forced.weights, free.weights, atol=1e-5)
        assert forced.score == pytest.approx(free.score, abs=1e-5)
    with pytest.raises(ValueError, match="sources and targets must have the same length, got 2 and 1"):
        letters.align(["a", "b"], ["c"])


def test_what_was_saved_says_the_same(letters: Translator, tmp_path: Path) -> None:
    letters.metadata = {"pairs": 160}
    letters.save(tmp_path / "m.regard")
    again = Translator.load(tmp_path / "m.regard")
    assert same(again.model.state_dict(), letters.model.state_dict())
    assert again.architecture == letters.architecture
    assert again.metadata == {"pairs": 160}
    texts = list(words(40)[1].source)
    assert [one.text for one in again.translate(texts)] == [one.text for one in letters.translate(texts)]
    with pytest.raises(TranslatorError, match="already exists"):
        letters.save(tmp_path / "m.regard")


def test_104_and_105_cut_short_or_changed(letters: Translator, tmp_path: Path) -> None:
    letters.save(tmp_path / "m.regard")
    content, picks = (tmp_path / "m.regard").read_bytes(), random.Random(0)
    for number in range(60):
        damaged = bytearray(content)
        damaged[picks.randrange(len(content))] ^= 1 << picks.randrange(8)
        (tmp_path / "m.regard").write_bytes(content[: len(content) * number // 60] if number % 2 else damaged)
        with pytest.raises(TranslatorError):
            Translator.load(tmp_path / "m.regard")


def forged(content: bytes, **changes: object) -> bytes:
    """The file with other entries in its description, and every checksum right."""
    import hashlib

    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "model.json":
                data = json.dumps({**json.loads(data), **changes}).encode()
            new.writestr(name, data)
        new.comment = b"sha256:" + b"0" * 64
    whole = buffer.getvalue()[:-64]
    return whole + hashlib.sha256(whole).hexdigest().encode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"version": 99}, "format version 99"),
        ({"format": "regard-model"}, "not a regard translator"),
        ({"architecture": {"hidden_size": 10**9}}, "damaged"),
        ({"architecture": {"colour": "red"}}, "damaged"),
        ({"architecture": {"cell": "os.system"}}, "cell must be one of"),
        ({"source": {}}, "a vocabulary must have exactly the entries"),
        ({"target": []}, "lacks one of"),
    ],
)
def test_108_forged_descriptions(letters: Translator, tmp_path: Path, changes: dict, message: str | None) -> None:
    letters.save(tmp_path / "m.regard")
    (tmp_path / "f.regard").write_bytes(forged((tmp_path / "m.regard").read_bytes(), **changes))
    if message is None:
        Translator.load(tmp_path / "f.regard")
        return
    with pytest.raises(TranslatorError, match=message):
        Translator.load(tmp_path / "f.regard")


def test_loading_and_translating_do_not_import_the_compiler(tmp_path):
    """torch._dynamo takes seconds to import, at each run, eval and align of the command line."""
    letters = Vocabulary.learn(["ab"], "characters")
    made = {
        "gru": Architecture(4, 4, score="bilinear"),
        "lstm": Architecture(4, 4, cell="lstm", score="gaussian", coverage=True),
        "dot": Architecture(4, 4, score="dot", layers=2),
        "transformer": TransformerArchitecture(8, 8, 1, 2),
    }
    for name, architecture in made.items():
        Translator(Seq2Seq(architecture, len(letters), len(letters)), letters, letters).save(tmp_path / name)
    code = f"""
import sys
from regard.seq2seq import Translator
for name in {list(made)!r}:
    translator = Translator.load({str(tmp_path)!r} + "/" + name)
    translator.translate(["ab"], beam=3), translator.align(["ab"], ["ba"])
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


def test_the_best_of_several_is_the_translation(letters: Translator) -> None:
    texts = ["abc", "", "zyxwv"]
    several = letters.n_best(texts, 3, beam=4)
    best = letters.translate(texts, beam=4)
    assert [some[0].text for some in several] == [one.text for one in best]
    assert several[1] == [NOTHING]
    for some in (several[0], several[2]):
        assert 1 < len(some) <= 3
        assert [one.score for one in some] == sorted((one.score for one in some), reverse=True)
        assert len({one.text for one in some}) == len(some)
        assert all(one.ended == (one.tokens[-1] == "<eos>") for one in some)
    assert [one.text for one in letters.n_best(["abc"], 2)[0]] == [
        one.text for one in letters.n_best(["abc"], 2, beam=2)[0]
    ]
    with pytest.raises(ValueError, match="beam must be at least count=3, got 2"):
        letters.n_best(texts, 3, beam=2)
    with pytest.raises(ValueError, match="count must be a whole number of at least 1, got 0"):
        letters.n_best(texts, 0)


@pytest.fixture(scope="module")
def others(letters: Translator) -> list[Translator]:
    """The same vocabulary and other weights: a transformer, and another GRU."""
    size = len(letters.source), len(letters.target)
    torch.manual_seed(7)
    made = Seq2Seq(TransformerArchitecture(8, 12, 1, 2), *size), Seq2Seq(letters.architecture, *size)
    return [Translator(model.eval(), letters.source, letters.target) for model in made]


def test_an_ensemble_is_the_mean_of_the_probabilities(letters: Translator, others: list[Translator]) -> None:
    members = [letters, *others]
    both = Translator.ensemble(members)
    targets = ["cba", "q"]
    found = both.align(["abc", "q"], targets)
    apart = [member.align(["abc", "q"], targets) for member in members]
    for row in range(2):
        np.testing.assert_allclose(found[row].weights, np.mean([one[row].weights for one in apart], 0), atol=1e-6)
    source = torch.tensor([letters.source.encode("abc")])
    given = source, torch.tensor([3]), torch.tensor([[2, *letters.target.encode("cb")]])
    logits, _ = both.model(*given)
    expected = torch.stack([member.model(*given)[0].softmax(-1) for member in members]).mean(0)
    torch.testing.assert_close(logits.exp(), expected)
    alone = Translator.ensemble([letters, letters, letters])
    assert [one.text for one in alone.translate(["abc", "zyx"], beam=3)] == [
        one.text for one in letters.translate(["abc", "zyx"], beam=3)
    ]
    # Of different sentences in one batch, each as alone.
    assert [one.text for one in both.translate(["abc", "q"], beam=3)] == [
        both.translate([text], beam=3)[0].text for text in ("abc", "q")
    ]


def test_an_ensemble_is_not_saved_and_needs_one_vocabulary(letters: Translator, tmp_path: Path) -> None:
    with pytest.raises(TranslatorError, match="an ensemble cannot be saved"):
        Translator.ensemble([letters]).save(tmp_path / "x")
    other = Vocabulary.learn(["ab"], "characters")
    stranger = Translator(Seq2Seq(Architecture(4, 4), len(other), len(other)), other, other)
    with pytest.raises(ValueError, match="translator 2 has other vocabularies than the first"):
        Translator.ensemble([letters, stranger])
    with pytest.raises(ValueError, match="at least one translator"):
        Translator.ensemble([])


def test_the_average_is_the_mean_of_the_weights(letters: Translator, others: list[Translator]) -> None:
    mean = Translator.average([letters, others[1]])
    for name, part in mean.model.state_dict().items():
        both = letters.model.state_dict()[name], others[1].model.state_dict()[name]
        torch.testing.assert_close(part, (both[0] + both[1]) / 2)
    assert Translator.average([letters, letters]).digest() == letters.digest() != mean.digest()
    with pytest.raises(ValueError, match="must have the same architecture to be averaged"):
        Translator.average([letters, others[0]])


def test_the_weights_of_every_attention_are_a_transformers(letters: Translator, others: list[Translator]) -> None:
    (every,) = others[0].source_weights(["abc"], ["ab"])
    assert every.shape == (1, 2, 2, 3)
    np.testing.assert_allclose(others[0].align(["abc"], ["ab"])[0].weights[:2], every[0].mean(0), atol=1e-6)
    with pytest.raises(ValueError, match="source_weights needs a transformer"):
        letters.source_weights(["abc"], ["ab"])

"""From pairs to a translator: it learns, reports what it leaves out, and follows its options."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.data import Pairs, number_words
from regard.seq2seq.alignment import error_rate, links
from regard.seq2seq.checkpoints import CheckpointError
from regard.seq2seq.measures import corpus_bleu, quality
from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.pair_training import Lesson, PairsTask, SampledSentences, learn
from regard.seq2seq.token_batches import Sentences
from regard.seq2seq.trainer import METRICS
from regard.seq2seq.training_settings import Training
from regard.seq2seq.translator import Translator
from regard.seq2seq.vocabulary import Vocabulary, token_alignment
from support.trainings import same, taught, words


def test_it_learns_to_reverse_and_aligns_correctly() -> None:
    train, valid = words(1500, longest=4)
    learned = learn(
        train,
        valid,
        architecture=Architecture(24, 32, order="luong"),
        lesson=Lesson(unit="characters", label_smoothing=0.0),
        training=Training(epochs=12, learning_rate=1e-2, warmup=20),
    )
    translator = learned.translator
    said = translator.translate(valid.source)
    assert quality([one.text for one in said], valid.target).exact > 0.95
    found, gold = [], []
    assert valid.alignment is not None
    for one, source, target, row in zip(
        translator.align(valid.source, valid.target), valid.source, valid.target, valid.alignment, strict=True
    ):
        gold += token_alignment(translator.source, translator.target, source, target, row)
        found += links(one.weights[: len(target)]).tolist()
    assert error_rate(found, gold) < 0.05


def test_a_folder_gets_the_model_and_the_metrics(tmp_path: Path) -> None:
    learned = taught(tmp_path)
    assert len((tmp_path / METRICS).read_text().splitlines()) == 2
    assert same(Translator.load(tmp_path / "model.regard").model.state_dict(), learned.translator.model.state_dict())


def test_the_two_sides_may_have_other_units() -> None:
    train, valid = number_words(200).split(0.2)
    learned = learn(
        train,
        valid,
        architecture=Architecture(4, 4),
        lesson=Lesson(unit="words", target_unit="characters"),
        training=Training(epochs=1),
    )
    assert learned.translator.source.unit == "words"
    assert learned.translator.target.unit == "characters"


def test_57_pairs_that_are_too_long_or_empty_are_left_out_and_counted() -> None:
    pairs = Pairs(("a b c", "a b", "", "b a"), ("c b a", "b a", "a", "a b"))
    train = Pairs(pairs.source * 10, pairs.target * 10)
    with pytest.warns(UserWarning, match=r"20 of 40 pairs of train are left out"):
        learn(
            train,
            Pairs(("a b",), ("b a",)),
            architecture=Architecture(4, 4),
            lesson=Lesson(max_tokens=2),
            training=Training(epochs=1),
        )
    with pytest.raises(ValueError, match="valid must contain a pair with 1 to 200 tokens"):
        learn(Pairs(("a",), ("b",)), Pairs(("",), ("a",)), architecture=Architecture(4, 4))


def task(**options: object) -> PairsTask:
    torch.manual_seed(0)
    texts = Sentences([[4, 5, 6], [7], [5, 5, 5, 5, 6]])
    model = Seq2Seq(Architecture(6, 6), 9, 9)
    return PairsTask(model, (texts, texts), (texts, texts), replace(Lesson(batch_size=3), **options), seed=0)


def test_the_loss_is_the_mean_over_tokens_and_padding_does_not_count() -> None:
    one = task(label_smoothing=0.0)
    with torch.no_grad():
        together, count = one.loss([0, 1, 2], 0.0)
        alone = [one.loss([row], 0.0) for row in range(3)]
    assert count == sum(tokens for _, tokens in alone) == 12
    assert float(together) == pytest.approx(sum(float(loss) * tokens for loss, tokens in alone) / 12, abs=1e-6)
    one.module.eval()
    with torch.no_grad():
        assert one.validate() == pytest.approx(float(together), abs=1e-6)


def test_label_smoothing_gives_every_token_a_share() -> None:
    sharp, smooth = task(label_smoothing=0.0), task(label_smoothing=0.3)
    with torch.no_grad():
        logits, _ = sharp.module(torch.tensor([[7]]), torch.tensor([1]), torch.tensor([[2, 7]]))
        logs = logits.log_softmax(-1)[0]
        wanted = -(logs[0, 7] + logs[1, 3]) / 2
        assert float(sharp.loss([1], 0.0)[0]) == pytest.approx(float(wanted), abs=1e-6)
        assert float(smooth.loss([1], 0.0)[0]) == pytest.approx(float(0.7 * wanted - 0.3 * logs.mean()), abs=1e-6)


def test_scheduled_sampling_rises_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    one, shares = task(scheduled_sampling=0.8), []
    forward = one.module.forward

    def watched(source, lengths, tokens, own=None, **options):
        shares.append(float(own.double().mean()))
        return forward(source, lengths, tokens, own, **options)

    monkeypatch.setattr(one.module, "forward", watched)
    with torch.no_grad():
        for progress in (0.0, 0.5, 0.99):
            for _ in range(25):
                one.loss([0, 1, 2], progress)
    # 18 tokens a batch, 25 batches
    means = [sum(shares[first : first + 25]) / 25 for first in (0, 25, 50)]
    assert means[0] == 0.0
    assert means[1] == pytest.approx(0.4, abs=0.08)
    assert means[2] == pytest.approx(0.79, abs=0.08)


def test_bfloat16_changes_little_and_gradients_stay_float32() -> None:
    plain, half = task(), task(precision="bfloat16")
    losses = [one.loss([0, 1, 2], 0.0)[0] for one in (plain, half)]
    losses[1].backward()
    assert float(losses[1].detach()) == pytest.approx(float(losses[0].detach()), rel=0.02)
    assert {part.grad.dtype for part in half.module.parameters() if part.grad is not None} == {torch.float32}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"max_tokens": 0}, "max_tokens must be a whole number of at least 1"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1"),
        ({"scheduled_sampling": -0.1}, "scheduled_sampling must be"),
        ({"precision": "float16"}, "precision must be one of 'float32', 'bfloat16', got 'float16'"),
    ],
)
def test_lessons_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Lesson(**options)


def test_quality_needs_as_many_as_it_has() -> None:
    with pytest.raises(ValueError, match="got 1 and 2"):
        quality(["a"], ["a", "b"])
    found = quality(["the cat sat on the mat"], ["the cat sat on the mat"])
    assert found.exact == 1.0
    assert found.bleu == pytest.approx(100.0)
    assert found.chrf == pytest.approx(100.0)


def test_one_vocabulary_for_both_sides():
    train, valid = words()
    learned = learn(
        train, valid, lesson=Lesson("characters", joint=True), training=Training(1), architecture=Architecture(4, 4)
    )
    assert learned.translator.source is learned.translator.target
    everything = Vocabulary.learn((*train.source, *train.target), "characters")
    assert learned.translator.source == everything
    with pytest.raises(ValueError, match="joint=True needs one unit for both sides, got 'words' and target_unit 'char"):
        Lesson(joint=True, target_unit="characters")


def test_a_training_continues_from_a_translator(tmp_path):
    first = taught(epochs=2).translator
    digest = first.digest()
    train, valid = words()
    options = {"lesson": Lesson("characters", batch_size=16), "training": Training(1, 1e-9, warmup=0), "start": first}
    again = learn(train, valid, **options).translator
    assert first.digest() == digest, "left unchanged"
    assert (again.source, again.architecture) == (first.source, first.architecture)
    for name, part in again.model.state_dict().items():
        torch.testing.assert_close(part, first.model.state_dict()[name], rtol=1e-4, atol=1e-6)
    # Pairs with tokens it does not know are fine; another architecture is not.
    learn(Pairs(("é",), ("é",)), valid, **options)
    with pytest.raises(ValueError, match="architecture must be None or that of start"):
        learn(train, valid, architecture=Architecture(4, 4), **options)
    with pytest.raises(ValueError, match="start must be one translator, got an ensemble"):
        learn(train, valid, **{**options, "start": Translator.ensemble([first])})
    learn(train, valid, **options, folder=tmp_path)
    with pytest.raises(CheckpointError, match="start"):
        learn(train, valid, **{**options, "start": again}, folder=tmp_path, resume=True)


@pytest.mark.parametrize("criterion", ["bleu", "exact"])
def test_translations_choose_the_epoch(criterion):
    train, valid = words()
    training = Training(3, 5e-3, warmup=3, criterion=criterion)
    learned = learn(train, valid, architecture=Architecture(8, 12), lesson=Lesson("characters"), training=training)
    texts = [one.text for one in learned.translator.translate(valid.source)]
    found = {
        "bleu": corpus_bleu(texts, valid.target),
        "exact": sum(a == b for a, b in zip(texts, valid.target, strict=True)) / len(valid),
    }
    assert learned.outcome.best == pytest.approx(found[criterion])
    with pytest.raises(ValueError, match="criterion must be one of 'loss', 'bleu', 'exact', got 'chrf'"):
        learn(train, valid, training=Training(criterion="chrf"))


def test_segmentations_are_sampled_in_every_epoch_and_a_resumed_training_ends_the_same(tmp_path):
    pytest.importorskip("sentencepiece")
    pairs = Pairs(tuple(f"{a} {b}" for a in NAMES for b in NAMES), tuple(f"{b} {a}" for a in NAMES for b in NAMES))
    train, valid = pairs.split(0.2)
    lesson = Lesson("bpe", max_size=40, joint=True, sampling=0.3, batch_tokens=64)
    options = {"architecture": Architecture(6, 6), "lesson": lesson, "training": Training(3, warmup=3, average=2)}
    whole = learn(train, valid, **options).translator
    seen = []

    def stop(at):
        seen.append(at.epoch)
        if seen.count(2) == 1 and at.epoch == 2:
            signal.raise_signal(signal.SIGTERM)

    assert learn(train, valid, **options, folder=tmp_path, watch=stop).outcome.ended == "interrupted"
    again = learn(train, valid, **options, folder=tmp_path, resume=True)
    assert again.translator.digest() == whole.digest()
    sampled = SampledSentences(train, whole, lesson, 0)
    epochs = [sampled(epoch)[0].padded(range(len(train))) for epoch in (0, 1, 0)]
    assert torch.equal(epochs[0], epochs[2])
    assert not (epochs[0].shape == epochs[1].shape and torch.equal(epochs[0], epochs[1]))
    sampled.close()


NAMES = ("anna", "berta", "carl", "dora", "emil", "frida", "gustav")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sampling": 1.0}, "sampling must be at least 0 and below 1, got 1.0"),
        ({"batch_tokens": 0}, "batch_tokens must be a whole number of at least 1, got 0"),
    ],
)
def test_more_settings_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Lesson(**given)

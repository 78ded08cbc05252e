"""Greedy and beam search: a batch says what its sentences say alone, and a beam is never worse than greedy."""

from __future__ import annotations

import itertools

import pytest
import torch

from regard.nn import AdditiveScore
from regard.seq2seq.decoder import AttentionDecoder
from regard.seq2seq.decoding import Ends, beam, greedy
from regard.seq2seq.encoder import Encoder
from regard.seq2seq.vocabulary import PAD

BEGIN, END = 1, 2
ENDS = Ends(BEGIN, END, times=1.0, more=3)


def model(seed, words=6):
    torch.manual_seed(seed)
    encoder = Encoder(9, 4, 5)
    decoder = AttentionDecoder(words, 4, 5, encoder.memory_size, AdditiveScore(5, 10, 4))
    with torch.no_grad():
        # Untrained models never make up their mind; these do.
        decoder.out.weight.mul_(6.0)
    return encoder.double().eval(), decoder.double().eval()


def sentences(seed, count=6):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 7, (count,), generator=generator)
    source = torch.randint(3, 9, (count, int(lengths.max())), generator=generator)
    return torch.where(torch.arange(source.shape[1]) < lengths[:, None], source, 0), lengths


def score_of(decoder, encoded, tokens, ended, normalise):
    given = torch.tensor([[BEGIN, *tokens]])
    said = torch.tensor([*tokens, END] if ended else list(tokens))
    chances = ENDS.predictable(decoder(given, encoded)[0][0].detach()).log_softmax(-1)
    return chances[torch.arange(len(said)), said].sum().item() / len(said) ** normalise


def one(encoder, source, lengths, row):
    return encoder(source[row : row + 1, : lengths[row]], lengths[row : row + 1])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("width", [1, 3])
def test_a_batch_says_what_its_sentences_say(seed, width):
    encoder, decoder = model(seed)
    source, lengths = sentences(seed)
    whole = beam(decoder, encoder(source, lengths), ENDS, width=width)
    for row in range(len(lengths)):
        (alone,) = beam(decoder, one(encoder, source, lengths, row), ENDS, width=width)
        assert [said.tokens for said in alone] == [said.tokens for said in whole[row]]
        for a, b in zip(alone, whole[row], strict=True):
            assert a.score == pytest.approx(b.score, rel=1e-9)
            torch.testing.assert_close(a.weights, b.weights, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("normalise", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_a_beam_is_never_worse_than_greedy_and_scores_are_true(seed, normalise):
    encoder, decoder = model(seed)
    source, lengths = sentences(seed)
    encoded = encoder(source, lengths)
    for row, plain in enumerate(greedy(decoder, encoded, ENDS, normalise=normalise)):
        alone = one(encoder, source, lengths, row)
        several = beam(decoder, alone, ENDS, width=4, normalise=normalise)[0]
        assert several[0].score >= plain.score - 1e-12
        assert [said.score for said in several] == sorted((said.score for said in several), reverse=True)
        assert len({said.tokens for said in several}) == len(several) <= 4
        for said in (plain, *several):
            ended = len(said.weights) == len(said.tokens) + 1
            assert said.score == pytest.approx(score_of(decoder, alone, said.tokens, ended, normalise), rel=1e-9)
            assert END not in said.tokens
            assert len(said.tokens) <= int(lengths[row]) + 3


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_there_is(seed):
    """Four words and at most three of them: all hypotheses can be counted."""
    encoder, decoder = model(seed, words=7)
    source, lengths = torch.tensor([[4, 5]]), torch.tensor([2])
    encoded, ends = encoder(source, lengths), Ends(BEGIN, END, times=0.0, more=3)
    every = [tokens for n in range(4) for tokens in itertools.product((3, 4, 5, 6), repeat=n)]
    scores = {tokens: score_of(decoder, encoded, tokens, True, 0.0) for tokens in every}
    hypotheses = beam(decoder, encoded, ends, width=90, normalise=0.0)[0]
    # What greedy was cut off at counts too, and has no end to pay for.
    best = next(said for said in hypotheses if len(said.weights) == len(said.tokens) + 1)
    assert best.tokens == max(scores, key=scores.get)
    assert best.score == pytest.approx(max(scores.values()), rel=1e-9)


def test_every_step_attends_to_the_whole_sentence_and_no_further():
    encoder, decoder = model(0)
    source, lengths = sentences(0)
    for said, length in zip(greedy(decoder, encoder(source, lengths), ENDS), lengths, strict=True):
        assert said.weights.shape[1] == length
        torch.testing.assert_close(said.weights.sum(1), torch.ones(len(said.weights)).double())


def test_begin_and_padding_are_never_predicted():
    """Not even by a decoder that prefers them to all else; the probabilities are those among the others."""
    encoder, decoder = model(0)
    with torch.no_grad():
        decoder.out.bias[[PAD, BEGIN]] = 50.0
    encoded = encoder(*sentences(0))
    several = beam(decoder, encoded, ENDS, width=4)
    for said in (*greedy(decoder, encoded, ENDS), *itertools.chain(*several)):
        assert not {PAD, BEGIN} & set(said.tokens)
        assert said.score > -20.0
    assert {len(some) for some in several} == {4}
    _, other = model(0)
    assert [said.tokens for said in greedy(other, encoded, ENDS)] == [
        said.tokens for said in greedy(decoder, encoded, ENDS)
    ]


def test_words():
    encoder, decoder = model(0)
    with pytest.raises(ValueError, match="width must be a whole number of at least 1, got 0"):
        beam(decoder, encoder(*sentences(0)), ENDS, width=0)


def test_finished_hypotheses_leave_the_batch(monkeypatch):
    """Rows computed: all of them while more than half are unfinished, then those that are left."""
    encoder, decoder = model(0)
    source, lengths = torch.full((8, 12), 5), torch.tensor([1, 1, 1, 1, 1, 1, 2, 12])
    rows = []
    step = decoder.step
    monkeypatch.setattr(decoder, "step", lambda *args: rows.append(len(args[0])) or step(*args))
    never = Ends(BEGIN, 99, times=1.0, more=0)
    said = greedy(decoder, encoder(source, lengths), never)
    assert [len(one.tokens) for one in said] == lengths.tolist()
    assert rows == [8, 2, *[1] * 10]
    rows.clear()
    # No hypothesis ends, so greedy's is what there is.
    several = beam(decoder, encoder(source, lengths), never, width=3)
    assert [[one.tokens for one in some] for some in several] == [[one.tokens] for one in said]
    assert max(rows) == 24
    assert rows[-1] == 3


@pytest.mark.parametrize("seed", range(3))
def test_in_float32_a_large_batch_says_what_its_sentences_say(seed):
    """Unless the two best tokens of a step are as good as equal."""
    encoder, decoder = (part.float() for part in model(seed))
    source, lengths = sentences(seed, count=40)
    whole = greedy(decoder, encoder(source, lengths), ENDS)
    several = beam(decoder, encoder(source, lengths), ENDS, width=4)
    for row in range(40):
        alone = one(encoder, source, lengths, row)
        (said,) = greedy(decoder, alone, ENDS)
        best = beam(decoder, alone, ENDS, width=4)[0]
        scores = decoder(torch.tensor([[BEGIN, *said.tokens]]), alone)[0].detach()
        top = ENDS.predictable(scores).topk(2).values
        if (top[..., 0] - top[..., 1]).min() > 1e-5:
            assert said.tokens == whole[row].tokens
        if best[0].score - best[1].score > 1e-5:
            assert best[0].tokens == several[row][0].tokens

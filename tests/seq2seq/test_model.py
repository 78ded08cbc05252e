"""Encoder and decoder: padding is never read, a batch is its sentences one by one, steps are the whole."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.nn import AdditiveScore, BilinearScore, DotProductScore, GaussianScore
from regard.seq2seq.decoder import AttentionDecoder
from regard.seq2seq.encoder import Encoder
from regard.seq2seq.recurrence import run_gru

LENGTHS = torch.tensor([5, 2, 4])
SOURCE = torch.tensor([[3, 7, 4, 9, 1], [8, 2, 0, 0, 0], [6, 6, 5, 1, 0]])
TARGET = torch.tensor([[1, 4, 2], [1, 3, 3], [1, 2, 5]])
# Encoder states have 12 numbers, the decoder's own 6.
SCORES = {"additive": lambda: AdditiveScore(6, 12, 5), "bilinear": lambda: BilinearScore(6, 12)}


def model(cell="gru", order="textbook", layers=1, score="additive", bidirectional=True):
    torch.manual_seed(0)
    encoder = Encoder(10, 4, 6, layers=layers, cell=cell, bidirectional=bidirectional)
    made = SCORES[score]() if bidirectional else DotProductScore()
    decoder = AttentionDecoder(11, 4, 6, encoder.memory_size, made, layers=layers, cell=cell, order=order)
    return encoder.double(), decoder.double()


every_kind = [
    pytest.param(
        {"cell": cell, "order": order, "layers": layers, "score": score}, id=f"{cell}-{order}-{layers}-{score}"
    )
    for cell, order, layers, score in [
        ("gru", "textbook", 1, "additive"),
        ("gru", "luong", 2, "bilinear"),
        ("lstm", "textbook", 2, "bilinear"),
        ("lstm", "luong", 1, "additive"),
    ]
]


@pytest.mark.parametrize("kind", every_kind)
def test_padding_changes_nothing(kind):
    encoder, decoder = model(**kind)
    logits, weights = decoder(TARGET, encoder(SOURCE, LENGTHS))
    garbage = torch.where(torch.arange(8) < LENGTHS[:, None], torch.nn.functional.pad(SOURCE, (0, 3)), 9)
    again, wider = decoder(TARGET, encoder(garbage, LENGTHS))
    torch.testing.assert_close(again, logits, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(wider[..., :5], weights, rtol=0.0, atol=1e-12)
    assert not wider[..., 5:].any()


@pytest.mark.parametrize("kind", every_kind)
def test_a_batch_is_its_sentences(kind):
    encoder, decoder = model(**kind)
    logits, weights = decoder(TARGET, encoder(SOURCE, LENGTHS))
    for row, length in enumerate(LENGTHS):
        alone, attended = decoder(
            TARGET[row : row + 1], encoder(SOURCE[row : row + 1, :length], LENGTHS[row : row + 1])
        )
        torch.testing.assert_close(alone[0], logits[row], rtol=0.0, atol=1e-12)
        torch.testing.assert_close(attended[0], weights[row, :, :length], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("kind", every_kind)
def test_steps_are_the_whole(kind):
    encoder, decoder = model(**kind)
    encoded = encoder(SOURCE, LENGTHS)
    logits, weights = decoder(TARGET, encoded)
    memory, state = decoder.remember(encoded), decoder.start(encoded)
    for t in range(3):
        output, attended, state = decoder.step(TARGET[:, t], state, memory)
        torch.testing.assert_close(decoder.say(output), logits[:, t], rtol=0.0, atol=1e-12)
        torch.testing.assert_close(attended, weights[:, t], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("kind", every_kind)
def test_other_sentences_can_be_taken(kind):
    """As a beam does: the same sentence several times, in another order."""
    encoder, decoder = model(**kind)
    encoded, rows = encoder(SOURCE, LENGTHS), torch.tensor([2, 0, 2])
    memory, state = decoder.remember(encoded), decoder.start(encoded)
    state = decoder.step(TARGET[:, 0], state, memory).state
    whole = decoder.step(TARGET[:, 1], state, memory)
    some = decoder.step(TARGET[rows, 1], state.take(rows), memory.take(rows))
    torch.testing.assert_close(some.output, whole.output[rows], rtol=0.0, atol=1e-12)
    for got, expected in zip(some.state.hidden, whole.state.hidden, strict=True):
        torch.testing.assert_close(got, expected[rows], rtol=0.0, atol=1e-12)


def test_weights_are_a_share_of_the_sentence():
    encoder, decoder = model()
    _, weights = decoder(TARGET, encoder(SOURCE, LENGTHS))
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 3).double())
    assert not weights[1, :, 2:].any()
    assert (weights[1, :, :2] > 0.0).all()


def test_the_query_is_the_state_before_the_step():
    """Of the first step in the textbook order that is the encoder's last state, whatever the token."""
    encoder, decoder = model()
    encoded = encoder(SOURCE, LENGTHS)
    memory, state = decoder.remember(encoded), decoder.start(encoded)
    expected = decoder.score(encoded.last[-1][:, None], encoded.states)[:, 0]
    for token in (1, 5):
        attended = decoder.step(torch.full((3,), token), state, memory).weights
        for row, length in enumerate(LENGTHS):
            torch.testing.assert_close(attended[row, :length], expected[row, :length].softmax(0))
    _, other = model(order="luong")
    first, second = (other.step(torch.full((3,), token), state, memory).weights for token in (1, 5))
    assert not torch.allclose(first, second)


def test_keys_are_projected_once(monkeypatch):
    encoder, decoder = model()
    calls = []

    keep = decoder.score.keep
    monkeypatch.setattr(decoder.score, "keep", lambda keys: calls.append(1) or keep(keys))
    decoder(TARGET, encoder(SOURCE, LENGTHS))
    assert len(calls) == 1


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
def test_steps_written_out_are_the_packed_network(layers, bidirectional):
    """States, last states and all gradients, against torch's own network on packed sentences."""
    encoder, _ = model(layers=layers, bidirectional=bidirectional)
    network, given = encoder.recurrent, encoder.embedding(SOURCE).detach()
    mask = encoder(SOURCE, LENGTHS).mask

    def packed(given, _):
        states, last = network(pack_padded_sequence(given, LENGTHS, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(states, batch_first=True, total_length=5)[0], last

    def ran(read):
        network.zero_grad()
        own = given.clone().requires_grad_()
        states, last = read(own, mask)
        (states.pow(3).sum() + last.sin().sum()).backward()
        return [states, last, own.grad, *[parameter.grad for parameter in network.parameters()]]

    for got, expected in zip(ran(lambda *args: run_gru(network, *args)), ran(packed), strict=True):
        torch.testing.assert_close(got, expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_everything_is_learned(bidirectional):
    encoder, decoder = model(bidirectional=bidirectional)
    decoder(TARGET, encoder(SOURCE, LENGTHS))[0].square().sum().backward()
    for part in (encoder, decoder):
        assert all(p.grad is not None and p.grad.any() for p in part.parameters())


@pytest.mark.parametrize("score", [AdditiveScore(3, 4, 5), BilinearScore(3, 4), DotProductScore(), GaussianScore(0.5)])
def test_kept_keys_score_as_keys_do(score):
    width = 4 if isinstance(score, AdditiveScore | BilinearScore) else 3
    queries, keys = torch.randn(2, 5, 3), torch.randn(2, 6, width)
    torch.testing.assert_close(score.between(queries, score.keep(keys)), score(queries, keys), rtol=0.0, atol=0.0)


def test_words():
    encoder, _ = model()
    with pytest.raises(ValueError, match="cell must be one of 'gru', 'lstm', got 'rnn'"):
        Encoder(3, 4, 5, cell="rnn")
    with pytest.raises(ValueError, match="cell must be one of"):
        AttentionDecoder(3, 4, 5, 6, DotProductScore(), cell="rnn")
    with pytest.raises(ValueError, match="order must be one of 'textbook', 'luong', got 'first'"):
        AttentionDecoder(3, 4, 5, 6, DotProductScore(), order="first")
    with pytest.raises(ValueError, match=r"source must have shape \(batch, tokens\)"):
        encoder(SOURCE[0], LENGTHS)
    for lengths in (torch.tensor([5, 0, 4]), torch.tensor([5, 6, 4])):
        with pytest.raises(ValueError, match="lengths must lie between 1 and 5"):
            encoder(SOURCE, lengths)

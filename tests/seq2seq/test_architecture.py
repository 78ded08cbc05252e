"""The whole model: every architecture keeps the laws, its kinds of attention do as they say, and it is checked."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from torch.nn import functional as F

from regard.seq2seq.decoder import AttentionDecoder
from regard.seq2seq.model import Architecture, Seq2Seq

LENGTHS = torch.tensor([5, 2, 4])
SOURCE = torch.tensor([[4, 7, 5, 9, 6], [8, 5, 0, 0, 0], [6, 6, 5, 4, 0]])
TARGET = torch.tensor([[2, 4, 8, 5], [2, 9, 9, 6], [2, 7, 5, 10]])

KINDS = {
    "standard": {},
    "untied": {"tied": False},
    "two layers": {"layers": 2},
    "lstm": {"cell": "lstm", "layers": 2, "score": "bilinear"},
    "luong": {"order": "luong", "cell": "lstm"},
    "dot": {"score": "dot", "order": "luong"},
    "dot, one direction": {"score": "dot", "bidirectional": False},
    "gaussian": {"score": "gaussian"},
    "coverage": {"coverage": True},
    "coverage, dot": {"coverage": True, "score": "dot", "order": "luong"},
    "hard": {"attention": "hard"},
    "none": {"attention": "none"},
    "none, lstm": {"attention": "none", "cell": "lstm", "order": "luong", "bidirectional": False, "layers": 2},
}


def model(seed=0, **kind):
    torch.manual_seed(seed)
    made = Seq2Seq(Architecture(**{"embed_size": 6, "hidden_size": 8, **kind}), 10, 11).eval()
    with torch.no_grad():
        if made.decoder.w_c is not None:
            made.decoder.w_c.normal_()
    return made


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_padding_steps_and_batches_change_nothing(kind):
    """In float32, as it is used: logits to 1e-5 whatever the padding, to 1e-6 step by step."""
    whole = model(**kind)
    logits, weights = whole(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))
    garbage = torch.where(torch.arange(9) < LENGTHS[:, None], F.pad(SOURCE, (0, 4)), 9)
    again, wider = whole(garbage, LENGTHS, TARGET)
    torch.testing.assert_close(again, logits, rtol=0.0, atol=1e-5)
    assert not wider[..., 5:].any()
    encoded = whole.encoder(SOURCE, LENGTHS)
    memory, state = whole.decoder.remember(encoded), whole.decoder.start(encoded)
    for t in range(4):
        output, attended, state = whole.decoder.step(TARGET[:, t], state, memory)
        torch.testing.assert_close(whole.decoder.say(output), logits[:, t], rtol=0.0, atol=1e-6)
        torch.testing.assert_close(attended, weights[:, t], rtol=0.0, atol=1e-6)
    for row, length in enumerate(LENGTHS):
        rows = slice(row, row + 1)
        alone, _ = whole(SOURCE[rows, :length], LENGTHS[rows], TARGET[rows])
        torch.testing.assert_close(alone[0], logits[row], rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_everything_is_learned(kind):
    whole = model(**kind).train()
    whole(SOURCE, LENGTHS, TARGET)[0].square().sum().backward()
    for name, parameter in whole.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_in_half_precision_it_says_about_the_same(kind):
    whole = model(**kind)
    expected, weights = whole(SOURCE, LENGTHS, TARGET)
    with torch.autocast("cpu", torch.bfloat16):
        logits, attended = whole(SOURCE, LENGTHS, TARGET)
        logits.float().square().sum().backward()
    assert attended.dtype == torch.float32
    # Hard attention may find another token the likeliest; a sentence that looks elsewhere says something else.
    alike = (
        (attended == weights).flatten(1).all(1)
        if kind.get("attention") == "hard"
        else torch.ones(len(SOURCE), dtype=bool)
    )
    assert alike.any()
    torch.testing.assert_close(logits.float()[alike], expected[alike], rtol=0.0, atol=0.05)


def test_the_standard_decoder_unrolled_is_the_loop(monkeypatch):
    """Values and all gradients, those through the weights included, against autograd through plain steps."""
    whole = model().double()

    def ran():
        whole.zero_grad()
        logits, weights = whole(SOURCE, LENGTHS, TARGET)
        (logits.square().sum() + weights.pow(3).sum()).backward()
        return [logits, weights, *[parameter.grad for parameter in whole.parameters()]]

    assert whole.decoder._can_unroll()
    unrolled = ran()
    monkeypatch.setattr(AttentionDecoder, "_can_unroll", lambda self: False)
    for got, expected in zip(unrolled, ran(), strict=True):
        torch.testing.assert_close(got, expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("used", ["logits", "weights"])
def test_gradients_are_those_of_differences(used):
    whole = model().double()
    parameters = {
        name: parameter
        for name, parameter in whole.named_parameters()
        if name.startswith(("decoder.recurrent", "decoder.score", "encoder.bridge"))
    }

    def value(*given):
        outputs = torch.func.functional_call(
            whole, dict(zip(parameters, given, strict=True)), (SOURCE[:2], LENGTHS[:2], TARGET[:2, :2])
        )
        return outputs[used == "weights"]

    assert torch.autograd.gradcheck(value, tuple(parameters.values()), fast_mode=True)


@pytest.mark.parametrize("kind", [KINDS["standard"], KINDS["lstm"], KINDS["none"]], ids=["standard", "lstm", "none"])
def test_where_own_is_set_the_input_is_the_last_prediction(kind):
    whole = model(**kind)
    expected, _ = whole(SOURCE, LENGTHS, TARGET)
    never, _ = whole(SOURCE, LENGTHS, TARGET, torch.zeros(3, 4, dtype=torch.bool))
    torch.testing.assert_close(never, expected, rtol=0.0, atol=1e-6)
    own = torch.tensor([[True, False, True, False], [False, False, False, True], [True, True, True, True]])
    logits, _ = whole(SOURCE, LENGTHS, TARGET, own)
    heard = TARGET.clone()
    for t in range(1, 4):
        heard[:, t] = torch.where(own[:, t], logits[:, t - 1].argmax(-1), TARGET[:, t])
    torch.testing.assert_close(whole(SOURCE, LENGTHS, heard)[0], logits, rtol=0.0, atol=1e-6)
    assert not torch.equal(heard, TARGET)


def test_hard_attention_takes_the_most_probable_token_or_samples():
    hard, soft = model(attention="hard"), model()
    _, likeliest = hard(SOURCE, LENGTHS, TARGET)
    assert set(likeliest.unique().tolist()) == {0.0, 1.0}
    encoded = hard.encoder(SOURCE, LENGTHS)
    query = encoded.last[-1][:, None]
    expected = (hard.decoder.score(query, encoded.states)[:, 0] + encoded.mask).softmax(-1)
    assert torch.equal(likeliest[:, 0].argmax(-1), expected.argmax(-1))
    hard.train()
    torch.manual_seed(0)
    many = 4000
    encoded = hard.encoder(SOURCE[:1].expand(many, -1), LENGTHS[:1].expand(many))
    _, drawn = hard.decoder(TARGET[:1, :1].expand(many, -1), encoded)
    share = drawn[:, 0].mean(0)
    error = (expected[0] * (1.0 - expected[0]) / many).sqrt()
    assert ((share - expected[0]).abs() < 4.0 * error).all()
    # Backward it is soft: where the score is, a slope is.
    whole = hard(SOURCE, LENGTHS, TARGET)[0].square().sum()
    (slope,) = torch.autograd.grad(whole, hard.decoder.score.w_v.weight)
    assert slope.any()
    assert soft.state_dict().keys() == hard.state_dict().keys()


def test_without_attention_the_context_is_the_encoders_end():
    whole = model(attention="none", layers=2)
    encoded = whole.encoder(SOURCE, LENGTHS)
    _, weights = whole(SOURCE, LENGTHS, TARGET)
    for row, length in enumerate(LENGTHS):
        assert (weights[row, :, length - 1] == 1.0).all()
        # Forwards the last token's state, backwards the first one's.
        torch.testing.assert_close(encoded.ends[row, :8], encoded.states[row, length - 1, :8])
        torch.testing.assert_close(encoded.ends[row, 8:], encoded.states[row, 0, 8:])
    memory, state = whole.decoder.remember(encoded), whole.decoder.start(encoded)
    torch.testing.assert_close(whole.decoder.step(TARGET[:, 0], state, memory).state.context, encoded.ends)


def test_coverage_enters_the_score():
    """w_v·tanh(W_q q + W_k k + c·w_c) for the additive score, c the weights of the steps before, added up."""
    whole = model(coverage=True)
    encoded = whole.encoder(SOURCE, LENGTHS)
    score, w_c = whole.decoder.score, whole.decoder.w_c
    memory, state = whole.decoder.remember(encoded), whole.decoder.start(encoded)
    covered = torch.zeros(3, 5)
    for t in range(3):
        inside = score.W_q(state.hidden[-1])[:, None] + score.W_k(encoded.states) + covered[..., None] * w_c
        expected = (score.w_v(torch.tanh(inside))[..., 0] + encoded.mask).softmax(-1)
        _, weights, state = whole.decoder.step(TARGET[:, t], state, memory)
        torch.testing.assert_close(weights, expected, rtol=0.0, atol=1e-6)
        covered = covered + weights
        torch.testing.assert_close(state.coverage, covered)


def test_new_coverage_changes_nothing():
    """Its weights start at zero: the model begins as the one without."""
    torch.manual_seed(0)
    with_it = Seq2Seq(Architecture(6, 8, coverage=True), 10, 11).eval()
    without = Seq2Seq(Architecture(6, 8), 10, 11).eval()
    without.load_state_dict({k: v for k, v in with_it.state_dict().items() if k != "decoder.w_c"})
    args = (SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(with_it(*args)[0], without(*args)[0], rtol=0.0, atol=1e-6)


def test_tied_there_is_one_matrix():
    names = {name for name, _ in model().decoder.named_parameters()}
    assert "out.weight" not in names
    whole = model(embed_size=256)
    assert whole(SOURCE, LENGTHS, TARGET)[0].std() < 3.0
    assert whole.decoder._embedded(torch.arange(11)).std().item() == pytest.approx(1.0, abs=0.1)


def test_dropout_is_for_training():
    whole = model(dropout=0.5, layers=2)
    args = (SOURCE, LENGTHS, TARGET)
    assert torch.equal(whole(*args)[0], whole(*args)[0])
    whole.train()
    assert not torch.equal(whole(*args)[0], whole(*args)[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"embed_size": 0}, "embed_size must be a whole number of at least 1, got 0"),
        ({"hidden_size": 2.5}, "hidden_size must be"),
        ({"layers": -1}, "layers must be"),
        ({"cell": "rnn"}, "cell must be one of 'gru', 'lstm', got 'rnn'"),
        ({"score": "cosine"}, "score must be one of 'additive', 'dot', 'bilinear', 'gaussian', got 'cosine'"),
        ({"order": "first"}, "order must be one of 'textbook', 'luong', got 'first'"),
        ({"attention": ["soft"]}, "attention must be one of 'soft', 'hard', 'none'"),
        ({"coverage": 1}, "coverage must be True or False, got 1"),
        ({"tied": "yes"}, "tied must be True or False"),
        ({"bidirectional": None}, "bidirectional must be True or False"),
        ({"coverage": True, "attention": "none"}, "coverage must be False with attention='none'"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"dropout": "0.1"}, "dropout must be at least 0 and below 1"),
        ({"dropout": float("nan")}, "dropout must be at least 0 and below 1"),
    ],
)
def test_words(given, message):
    with pytest.raises(ValueError, match=message):
        Architecture(**given)


def test_an_architecture_is_plain_data():
    made = Architecture(hidden_size=7, score="gaussian")
    assert Architecture(**asdict(made)) == made
    # A file is read into a model without memory first.
    with torch.device("meta"):
        bare = Seq2Seq(made, 10, 11)
    torch.manual_seed(0)
    whole = Seq2Seq(made, 10, 11)
    bare.load_state_dict(whole.state_dict(), assign=True)
    args = (SOURCE, LENGTHS, TARGET)
    assert torch.equal(bare(*args)[0], whole(*args)[0])


def test_decoder_words():
    with pytest.raises(ValueError, match="score must be None with attention='none' and only then"):
        AttentionDecoder(5, 4, 3, 6, None)
    with pytest.raises(ValueError, match="target_size must be a whole number"):
        Seq2Seq(Architecture(), 5, 0)

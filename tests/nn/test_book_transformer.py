"""The book's transformer and recurrent classes: formulas by hand, torch's own, both signatures, laws."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.nn import (
    AddNorm,
    EncoderDecoder,
    MultiHeadAttention,
    PositionalEncoding,
    PositionWiseFFN,
    Seq2SeqAttentionDecoder,
    Seq2SeqEncoder,
    TransformerDecoder,
    TransformerDecoderBlock,
    TransformerEncoder,
    TransformerEncoderBlock,
    bleu,
    nadaraya_watson,
)


def wide(*shape):
    return torch.randn(*shape, dtype=torch.float64)


# ---- attention in several heads

SIZES = {"key_size": 4, "query_size": 5, "value_size": 3}


@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_attention_is_torchs(bias):
    ours = MultiHeadAttention(6, 6, 6, 6, 3, 0.5, bias).double().eval()
    torchs = nn.MultiheadAttention(6, 3, bias=bias, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for number, layer in enumerate((ours.W_q, ours.W_k, ours.W_v)):
            layer.weight.copy_(torchs.in_proj_weight[6 * number : 6 * number + 6])
            if bias:
                torchs.in_proj_bias[6 * number : 6 * number + 6].copy_(layer.bias)
        torchs.out_proj.load_state_dict(ours.W_o.state_dict())
    q, k = wide(2, 3, 6), wide(2, 5, 6)
    padding = torch.arange(5) >= torch.tensor([[3], [5]])
    expected = torchs(q, k, k, key_padding_mask=padding, average_attn_weights=False)
    for lengths in (torch.tensor([3, 5]), torch.tensor([[3] * 3, [5] * 3])):
        assert torch.allclose(ours(q, k, k, lengths), expected[0], rtol=1e-12)
        assert torch.allclose(ours.attention_weights.unflatten(0, (2, 3)), expected[1], rtol=1e-12)
    assert not ours.attention_weights.requires_grad


@pytest.mark.parametrize(
    ("args", "kwargs", "lazy", "bias"),
    [
        ((4, 5, 3, 8, 2, 0.1), {}, False, False),
        ((4, 5, 3, 8, 2, 0.1, True), {}, False, True),
        ((), {**SIZES, "num_hiddens": 8, "num_heads": 2, "dropout": 0.1}, False, False),
        ((8, 2, 0.1), {}, True, False),
        ((8, 2, 0.1), {"bias": True}, True, True),
        ((), {"num_hiddens": 8, "num_heads": 2, "dropout": 0.1}, True, False),
    ],
)
def test_multi_head_attention_in_both_editions(args, kwargs, lazy, bias):
    attention = MultiHeadAttention(*args, **kwargs)
    assert isinstance(attention.W_q, nn.LazyLinear) == lazy
    output = attention.eval()(torch.ones(2, 4, 5), torch.ones(2, 6, 4), torch.ones(2, 6, 3), torch.tensor([3, 2]))
    assert output.shape == (2, 4, 8)
    assert (attention.W_q.bias is not None) == (attention.W_o.bias is not None) == bias
    assert attention.W_v.weight.shape == (8, 3)
    assert attention.attention.dropout.p == 0.1


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: MultiHeadAttention(8, 2),
            r"MultiHeadAttention\(key_size, .*, bias=False\) or MultiHeadAttention\(num_h",
        ),
        (lambda: MultiHeadAttention(8, 2, 0.1, dropout=0.1), "expected MultiHeadAttention"),
        (lambda: AddNorm(4, 0.1, 2), r"AddNorm\(normalized_shape, dropout\) or AddNorm\(norm_shape, dropout\)"),
        (lambda: PositionWiseFFN(4), "expected PositionWiseFFN"),
        (lambda: TransformerEncoder(9, 8, 16, 2), "expected TransformerEncoder"),
    ],
)
def test_other_signatures_are_refused(made, message):
    with pytest.raises(TypeError, match=message):
        made()


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="num_hiddens must be a multiple of num_heads, got 8 and 3"):
        MultiHeadAttention(8, 3, 0.0)
    with pytest.raises(ValueError, match="query_size must be num_hiddens=24, got 12"):
        TransformerEncoder(200, 24, 12, 24, 24, [24], 24, 48, 8, 2, 0.5)
    with pytest.raises(ValueError, match="at most max_len=3 positions, got 4"):
        PositionalEncoding(4, 0.0, max_len=3)(torch.zeros(1, 4, 4))


# ---- parts


@pytest.mark.parametrize("features", [32, 5])
def test_positions_are_the_books_formula(features):
    found = PositionalEncoding(features, 0.0)(torch.zeros(1, 60, features))[0]
    for i in (0, 1, 7, 59):
        for j in range(features):
            angle = i / 10_000 ** (j // 2 * 2 / features)
            assert found[i, j].item() == pytest.approx(math.cos(angle) if j % 2 else math.sin(angle), abs=1e-6)
    assert not PositionalEncoding(features, 0.0).state_dict()
    assert PositionalEncoding(features, 0.5).train()(torch.ones(1, 9, features)).eq(0).any()


def test_add_norm_and_network_are_their_formulas():
    X, Y = wide(2, 3, 4), wide(2, 3, 4)
    for norm in (AddNorm(4, 0.5), AddNorm(norm_shape=4, dropout=0.5), AddNorm([3, 4], 0.5)):
        norm = norm.double().eval()
        axes = list(range(3 - len(norm.ln.normalized_shape), 3))
        total = X + Y
        centred = total - total.mean(axes, keepdim=True)
        expected = centred / (centred.square().mean(axes, keepdim=True) + 1e-5).sqrt()
        assert torch.allclose(norm(X, Y), expected, rtol=1e-12)
    for ffn in (PositionWiseFFN(4, 5, 8), PositionWiseFFN(5, 8)):
        ffn(torch.ones(1, 4))
        ffn = ffn.double()
        expected = (X @ ffn.dense1.weight.T + ffn.dense1.bias).clamp(min=0) @ ffn.dense2.weight.T + ffn.dense2.bias
        assert torch.allclose(ffn(X), expected, rtol=1e-12)


# ---- the transformer


def torchs_layer(block, decoder):
    """torch's own layer with the parameters of a block of ours: bias zero, post-norm, relu."""
    kind = nn.TransformerDecoderLayer if decoder else nn.TransformerEncoderLayer
    layer = kind(12, 3, 20, 0.0, batch_first=True, dtype=torch.float64)
    names = {"attention1": "self_attn", "attention2": "multihead_attn"} if decoder else {"attention": "self_attn"}
    with torch.no_grad():
        for name, theirs in names.items():
            ours, theirs = getattr(block, name), getattr(layer, theirs)
            theirs.in_proj_weight.copy_(torch.cat([ours.W_q.weight, ours.W_k.weight, ours.W_v.weight]))
            theirs.in_proj_bias.zero_()
            theirs.out_proj.weight.copy_(ours.W_o.weight)
            theirs.out_proj.bias.zero_()
        layer.linear1.load_state_dict(block.ffn.dense1.state_dict())
        layer.linear2.load_state_dict(block.ffn.dense2.state_dict())
        for number in range(1, 4 if decoder else 3):
            norm = getattr(block, f"addnorm{number}").ln
            norm.weight.normal_()
            norm.bias.normal_()
            getattr(layer, f"norm{number}").load_state_dict(norm.state_dict())
    return layer


def test_blocks_are_torchs():
    lengths = torch.tensor([3, 5])
    padding = torch.arange(5) >= lengths[:, None]
    X, memory = wide(2, 5, 12), wide(2, 5, 12)
    encoder = TransformerEncoderBlock(12, 20, 3, 0.0).double()
    expected = torchs_layer(encoder, False)(X, src_key_padding_mask=padding)
    assert torch.allclose(encoder(X, lengths), expected, rtol=1e-10)
    decoder = TransformerDecoderBlock(12, 20, 3, 0.0, 0).double().train()
    layer = torchs_layer(decoder, True)
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    expected = layer(X, memory, tgt_mask=causal, memory_key_padding_mask=padding)
    assert torch.allclose(decoder(X, [memory, lengths, [None]])[0], expected, rtol=1e-10)


def pair(dropout=0.0):
    return EncoderDecoder(
        TransformerEncoder(20, 12, 16, 3, 2, dropout), TransformerDecoder(21, 12, 16, 3, 2, dropout)
    ).double()


SOURCE = torch.randint(20, (3, 6), generator=torch.Generator().manual_seed(0))
TARGET = torch.randint(21, (3, 5), generator=torch.Generator().manual_seed(1))
LENGTHS = torch.tensor([6, 2, 4])


def test_padding_is_deletion_and_later_tokens_do_not_matter():
    net = pair().train()
    whole, _ = net(SOURCE, TARGET, LENGTHS)
    other = torch.where(torch.arange(6) < LENGTHS[:, None], SOURCE, 19 - SOURCE)
    assert torch.allclose(net(other, TARGET, LENGTHS)[0], whole, rtol=1e-12)
    for row, length in enumerate(LENGTHS.tolist()):
        alone, _ = net(SOURCE[row : row + 1, :length], TARGET[row : row + 1], torch.tensor([length]))
        assert torch.allclose(alone[0], whole[row], rtol=1e-10)
    later = TARGET.clone()
    later[:, 3:] = 20 - later[:, 3:]
    assert torch.allclose(net(SOURCE, later, LENGTHS)[0][:, :3], whole[:, :3], rtol=1e-12)
    assert not torch.allclose(net(SOURCE, later, LENGTHS)[0][:, 3:], whole[:, 3:])


@pytest.mark.parametrize("steps", [(1, 1, 1, 1, 1), (2, 3), (5,)])
def test_token_by_token_is_all_at_once(steps):
    net = pair()
    whole, _ = net.train()(SOURCE, TARGET, LENGTHS)
    net.eval()
    state = net.decoder.init_state(net.encoder(SOURCE, LENGTHS), LENGTHS)
    outputs = []
    for tokens in TARGET.split(steps, 1):
        output, state = net.decoder(tokens, state)
        outputs.append(output)
    assert torch.allclose(torch.cat(outputs, 1), whole, rtol=1e-10)
    assert [weights.shape for weights in net.decoder.attention_weights[1]] == [(9, steps[-1], 6)] * 2
    assert [weights.shape for weights in net.encoder.attention_weights] == [(9, 6, 6)] * 2


def test_both_editions_have_the_same_parameters_under_the_books_names():
    first = TransformerEncoder(200, 24, 24, 24, 24, [24], 24, 48, 8, 2, 0.5)
    second = TransformerEncoder(200, 24, 48, 8, 2, 0.5)
    second.load_state_dict(first.state_dict())
    assert "blks.block0.attention.W_q.weight" in first.state_dict()
    assert TransformerEncoder(200, 24, 24, 24, 24, [100, 24], 24, 48, 8, 2, 0.5).blks[0].addnorm1.ln.weight.shape == (
        100,
        24,
    )
    decoder = TransformerDecoder(200, 24, 24, 24, 24, [24], 24, 48, 8, 2, 0.5)
    TransformerDecoder(200, 24, 48, 8, 2, 0.5).load_state_dict(decoder.state_dict())
    assert {"dense.weight", "blks.block1.attention2.W_o.weight", "blks.block1.addnorm3.ln.bias"} <= {
        *decoder.state_dict()
    }
    biased = TransformerEncoder(200, 24, 48, 8, 2, 0.5, use_bias=True)
    assert "blks.block0.attention.W_o.bias" in biased.state_dict()


def test_it_learns_to_copy():
    torch.manual_seed(0)
    net = EncoderDecoder(TransformerEncoder(8, 16, 32, 2, 1, 0.0), TransformerDecoder(8, 16, 32, 2, 1, 0.0)).train()
    trainer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(150):
        tokens = torch.randint(2, 8, (32, 4))
        given = torch.cat([torch.zeros(32, 1, dtype=torch.long), tokens[:, :-1]], 1)
        loss = F.cross_entropy(net(tokens, given, torch.full((32,), 4))[0].flatten(0, 1), tokens.flatten())
        trainer.zero_grad()
        loss.backward()
        trainer.step()
    assert loss.item() < 0.6  # chance is ln 6 = 1.8


# ---- the recurrent pair


def test_the_recurrent_pair_is_its_formula():
    net = EncoderDecoder(Seq2SeqEncoder(20, 4, 6, 2), Seq2SeqAttentionDecoder(21, 4, 6, 2)).double()
    scores, (keys, last, lengths) = net(SOURCE, TARGET, LENGTHS)
    states, hidden = net.encoder.rnn(net.encoder.embedding(SOURCE).transpose(0, 1))
    assert torch.equal(keys, states.transpose(0, 1))
    assert lengths is LENGTHS
    decoder = net.decoder
    for t in range(5):
        inside = torch.tanh(decoder.attention.W_q(hidden[-1])[:, None] + decoder.attention.W_k(keys))
        score = decoder.attention.w_v(inside).squeeze(-1)
        weights = score.masked_fill(torch.arange(6) >= LENGTHS[:, None], -math.inf).softmax(-1)
        assert torch.allclose(decoder.attention_weights[t][:, 0], weights, rtol=1e-10)
        context = (weights[..., None] * keys).sum(1)
        output, hidden = decoder.rnn(torch.cat([context, decoder.embedding(TARGET[:, t])], -1)[None], hidden)
        assert torch.allclose(scores[:, t], decoder.dense(output[0]), rtol=1e-10)
    assert torch.allclose(last, hidden, rtol=1e-12)
    assert sorted({name.split(".")[0] for name in decoder.state_dict()}) == ["attention", "dense", "embedding", "rnn"]
    assert len(decoder.attention_weights) == 5
    copy.deepcopy(net)
    later, _ = net(SOURCE, torch.cat([TARGET[:, :3], TARGET[:, 3:] * 0], 1), LENGTHS)
    assert torch.equal(later[:, :3], scores[:, :3])


# ---- functions


@pytest.mark.parametrize(
    ("predicted", "label", "k", "expected"),
    [
        ("va !", "va !", 2, 1.0),
        ("he is calm .", "he is calm .", 4, 1.0),
        ("a b c", "a b d e", 2, math.exp(1 - 4 / 3) * (2 / 3) ** 0.5 * 0.5**0.25),
        ("a a a", "a b", 1, (1 / 3) ** 0.5),
        ("x", "a b", 2, 0.0),
        ("a", "a", 3, 1.0),
    ],
)
def test_bleu_by_hand(predicted, label, k, expected):
    assert bleu(predicted, label, k) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("w", [0.5, 2.0])
def test_nadaraya_watson_is_the_pooled_mean(w):
    from regard import attention_weights, pool
    from regard.scores import Epanechnikov, Gaussian

    x, y, at = wide(30).sort().values, wide(30), wide(7)
    for kernel, score in (
        (lambda u: torch.exp(-((w * u) ** 2) / 2), Gaussian(w)),
        (lambda u: (1 - (0.2 * w * u) ** 2).clamp(min=0), Epanechnikov(0.2 * w)),
    ):
        y_hat, weights = nadaraya_watson(x, y, at, kernel)
        assert torch.allclose(weights.sum(0), torch.ones(7, dtype=torch.float64))
        assert torch.allclose(weights.T, torch.from_numpy(attention_weights(at.numpy(), x.numpy(), score)), atol=1e-12)
        assert torch.allclose(y_hat, torch.from_numpy(pool(at.numpy(), x.numpy(), y.numpy(), score).output), atol=1e-9)


def test_nadaraya_watson_has_a_gradient_and_empty_rows_are_zeros():
    x, y = wide(6), wide(6)
    h = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda h: nadaraya_watson(x, y, x + 0.1, lambda u: torch.relu(1 - (u / h).abs()))[0], h
    )
    y_hat, weights = nadaraya_watson(x, y, torch.tensor([100.0], dtype=torch.float64), lambda u: (u.abs() < 1).double())
    assert not y_hat.any()
    assert not weights.any()
    with pytest.raises(ValueError, match=r"must have shapes \(n,\), \(n,\) and \(m,\), got \(6,\), \(5,\), \(6,\)"):
        nadaraya_watson(x, y[:5], x, torch.exp)
    with pytest.raises(ValueError, match="at least 0"):
        nadaraya_watson(x, y, x, lambda u: u)

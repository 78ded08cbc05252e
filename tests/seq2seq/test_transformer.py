"""The transformer keeps the laws of the other models, is torch's own, and computes no token twice when it decodes."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.data import reversal
from regard.seq2seq.alignment import error_rate, links
from regard.seq2seq.decoding import Ends, beam, greedy
from regard.seq2seq.model import Architecture, Seq2Seq, as_plain, from_plain
from regard.seq2seq.pair_training import Lesson, learn
from regard.seq2seq.training_settings import Training
from regard.seq2seq.transformer import TransformerArchitecture, TransformerLayer
from regard.seq2seq.translator import Translator
from regard.seq2seq.vocabulary import Vocabulary, gold_alignments
from support.trainings import same, words

LENGTHS = torch.tensor([5, 2, 4])
SOURCE = torch.tensor([[4, 7, 5, 9, 6], [8, 5, 0, 0, 0], [6, 6, 5, 4, 0]])
TARGET = torch.tensor([[2, 4, 8, 5], [2, 9, 9, 6], [2, 7, 5, 9]])
ENDS = Ends(2, 3, times=1.0, more=4)

KINDS = {
    "standard": {},
    "post-norm": {"norm": "post"},
    "shared": {"shared": True},
    "untied, one layer": {"tied": False, "layers": 1},
    "one head aligns": {"alignment_layer": 2, "alignment_head": 1},
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def model(seed=0, **kind):
    torch.manual_seed(seed)
    return (
        Seq2Seq(TransformerArchitecture(**{"embed_size": 8, "ffn_size": 12, "heads": 2, **kind}), 10, 10)
        .double()
        .eval()
    )


@every_kind
def test_padding_steps_and_batches_change_nothing(kind):
    whole = model(**kind)
    logits, weights = whole(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, dtype=torch.float64))
    garbage = torch.where(torch.arange(5) < LENGTHS[:, None], SOURCE, 9)
    torch.testing.assert_close(whole(garbage, LENGTHS, TARGET)[0], logits)
    encoded = whole.encoder(SOURCE, LENGTHS)
    memory = whole.decoder.remember(encoded)
    for state in (whole.decoder.start(encoded), whole.decoder.start(encoded, capacity=7)):
        for t in range(4):
            output, attended, state = whole.decoder.step(TARGET[:, t], state, memory)
            torch.testing.assert_close(whole.decoder.say(output), logits[:, t])
            torch.testing.assert_close(attended, weights[:, t])
    for row, length in enumerate(LENGTHS.tolist()):
        alone, attended = whole(SOURCE[row : row + 1, :length], LENGTHS[row : row + 1], TARGET[row : row + 1])
        torch.testing.assert_close(alone[0], logits[row])
        torch.testing.assert_close(attended[0], weights[row, :, :length])
    assert not weights[1, :, 2:].any()


@every_kind
def test_later_tokens_do_not_matter(kind):
    whole = model(**kind)
    logits, weights = whole(SOURCE, LENGTHS, TARGET)
    later = TARGET.clone()
    later[:, 2:] = 4
    again, attended = whole(SOURCE, LENGTHS, later)
    torch.testing.assert_close(again[:, :2], logits[:, :2])
    torch.testing.assert_close(attended[:, :2], weights[:, :2])
    assert not torch.allclose(again[:, 2:], logits[:, 2:])


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("to_source", [False, True])
def test_a_layer_is_torchs(norm, to_source):
    torch.manual_seed(0)
    ours = TransformerLayer(TransformerArchitecture(8, 12, 1, 2, dropout=0.0, norm=norm), to_source=to_source).double()
    kind = nn.TransformerDecoderLayer if to_source else nn.TransformerEncoderLayer
    torchs = kind(8, 2, 12, 0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64)
    parts = [(ours.own, torchs.self_attn), *([(ours.source, torchs.multihead_attn)] if to_source else [])]
    norms = [ours.norm_own, *([ours.norm_source] if to_source else []), ours.norm_ffn]
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_()
        for attention, theirs in parts:
            theirs.in_proj_weight.copy_(torch.cat([attention.W_q.weight, attention.W_kv.weight]))
            theirs.in_proj_bias.copy_(torch.cat([attention.W_q.bias, attention.W_kv.bias]))
            theirs.out_proj.load_state_dict(attention.W_o.state_dict())
        for number, one in enumerate(norms, 1):
            getattr(torchs, f"norm{number}").load_state_dict(one.state_dict())
        torchs.linear1.load_state_dict(ours.W_1.state_dict())
        torchs.linear2.load_state_dict(ours.W_2.state_dict())
    x, memory = torch.randn(3, 5, 8).double(), torch.randn(3, 6, 8).double()
    inside = (torch.arange(6) < torch.tensor([[6], [2], [4]]))[:, None, None]
    if to_source:
        causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
        expected = torchs(x, memory, tgt_mask=causal, memory_key_padding_mask=~inside[:, 0, 0])
        both = ours.source.keys_values(memory)
        for need_weights in (False, True):
            y, weights = ours.attend(ours(x, is_causal=True), both, inside, need_weights=need_weights)
            torch.testing.assert_close(ours.transform(y), expected)
            assert (weights is None) != need_weights
    else:
        mask = inside[..., :5]
        expected = torchs(x, src_key_padding_mask=~mask[:, 0, 0])
        found = ours.transform(ours(x, mask))
        keep = mask[:, 0, 0]
        torch.testing.assert_close(found[keep], expected[keep])


def test_positions_matter():
    whole = model()
    turned = whole(SOURCE[:1].flip(1), LENGTHS[:1], TARGET[:1])[0]
    assert not torch.allclose(turned, whole(SOURCE[:1], LENGTHS[:1], TARGET[:1])[0])


def test_no_token_is_computed_twice():
    """Of every step each layer projects one token; the source is projected once."""
    whole, projected = model(), []
    for layer in whole.decoder.layers:
        for attention in (layer.own, layer.source):
            attention.W_kv.register_forward_hook(lambda _, given, __: projected.append(given[0].shape[1]))
    found = greedy(whole.decoder, whole.encoder(SOURCE, LENGTHS), ENDS)
    steps = max(len(one.weights) for one in found)
    assert projected == [5] * 3 + [1] * 3 * steps


@every_kind
def test_a_batch_says_what_its_sentences_say(kind):
    whole = model(seed=1, **kind)
    with torch.no_grad():
        whole.decoder.embedding.weight.mul_(4.0)
    several = beam(whole.decoder, whole.encoder(SOURCE, LENGTHS), ENDS, width=3)
    for row, length in enumerate(LENGTHS.tolist()):
        encoded = whole.encoder(SOURCE[row : row + 1, :length], LENGTHS[row : row + 1])
        (alone,) = beam(whole.decoder, encoded, ENDS, width=3)
        assert [one.tokens for one in alone] == [one.tokens for one in several[row]]
        for one, other in zip(alone, several[row], strict=True):
            assert one.score == pytest.approx(other.score, rel=1e-9)
            torch.testing.assert_close(one.weights, other.weights)
        assert alone[0].score >= greedy(whole.decoder, encoded, ENDS)[0].score - 1e-12


def test_the_weights_are_those_of_the_layer_and_head_chosen():
    whole = model()
    every = whole.decoder.source_weights(TARGET, whole.encoder(SOURCE, LENGTHS))
    assert every.shape == (3, 3, 2, 4, 5)
    torch.testing.assert_close(whole(SOURCE, LENGTHS, TARGET)[1], every[1].mean(1))
    logits = whole(SOURCE, LENGTHS, TARGET)[0]
    whole.align_by(2, 0)
    again, weights = whole(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(weights, every[2][:, 0])
    torch.testing.assert_close(again, logits)
    assert whole(SOURCE, LENGTHS, TARGET, need_weights=False)[1] is None
    with pytest.raises(ValueError, match="recurrent model has one attention"):
        Seq2Seq(Architecture(4, 4), 9, 9).align_by(0, None)


def test_scheduled_sampling_is_step_by_step():
    whole = model()
    nowhere = torch.zeros_like(TARGET, dtype=torch.bool)
    torch.testing.assert_close(whole(SOURCE, LENGTHS, TARGET, nowhere)[0], whole(SOURCE, LENGTHS, TARGET)[0])
    own = nowhere.clone()
    own[:, 2] = True
    predicted = TARGET.clone()
    predicted[:, 2] = whole(SOURCE, LENGTHS, TARGET)[0][:, 1].argmax(-1)
    torch.testing.assert_close(whole(SOURCE, LENGTHS, TARGET, own)[0], whole(SOURCE, LENGTHS, predicted)[0])


def test_gradients_are_those_of_differences():
    whole = model(layers=1, dropout=0.0).train()
    names = [name for name, _ in whole.named_parameters() if "norm" not in name][:6]
    wanted = torch.tensor([[4, 8, 5, 3], [9, 9, 6, 3], [7, 5, 9, 3]])

    def loss(*leaves):
        parameters = dict(zip(names, leaves, strict=True))
        logits = torch.func.functional_call(whole, parameters, (SOURCE, LENGTHS, TARGET))[0]
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    state = dict(whole.named_parameters())
    leaves = [state[name].detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(loss, leaves, fast_mode=True)


def test_a_shared_embedding_is_one_parameter_in_files_too(tmp_path):
    letters = Vocabulary.learn(["abc"], "characters")
    whole = Seq2Seq(TransformerArchitecture(8, 12, 2, 2, shared=True), len(letters), len(letters))
    assert [name for name in whole.state_dict() if "embedding" in name] == ["decoder.embedding.weight"]
    Translator(whole, letters, letters).save(tmp_path / "m.regard")
    again = Translator.load(tmp_path / "m.regard")
    assert same(again.model.state_dict(), whole.state_dict())
    assert again.architecture == whole.architecture
    with torch.no_grad():
        again.model.decoder.embedding.weight.zero_()
    source, lengths = torch.tensor([[4, 5]]), torch.tensor([2])
    before, after = (one.encoder(source, lengths).states for one in (whole, again.model))
    assert not torch.allclose(before, after), "the encoder has the decoder's embedding"


def test_an_architecture_is_plain_data():
    for made in (TransformerArchitecture(8, 12, 2, 2, norm="post", alignment_layer=1), Architecture(hidden_size=7)):
        assert from_plain(as_plain(made)) == made
    assert asdict(Architecture()) == as_plain(Architecture()), "files of recurrent models are as before"
    with pytest.raises(ValueError, match="kind must be one of 'transformer', got 'mamba'"):
        from_plain({"kind": "mamba"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"embed_size": 0}, "embed_size must be a whole number of at least 1, got 0"),
        ({"heads": 3}, "embed_size must be a multiple of heads, got 256 and 3"),
        ({"norm": "none"}, "norm must be one of 'pre', 'post', got 'none'"),
        ({"tied": 1}, "tied must be True or False, got 1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"alignment_layer": 3}, "alignment_layer must be None or lie between 0 and 2, got 3"),
        ({"alignment_head": True}, "alignment_head must be None or lie between 0 and 3, got True"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        TransformerArchitecture(**given)


def test_sizes_and_lengths_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"shared=True needs one vocabulary .* got sizes 9 and 8; .*joint=True"):
        Seq2Seq(TransformerArchitecture(8, 12, 1, 2, shared=True), 9, 8)
    with pytest.raises(ValueError, match="lengths must lie between 1 and 5, got 0 to 5"):
        model()(SOURCE, torch.tensor([5, 0, 2]), TARGET)
    train, valid = words()
    with pytest.raises(ValueError, match="shared=True needs one vocabulary for both sides"):
        learn(train, valid, architecture=TransformerArchitecture(8, 8, 1, 2, shared=True), lesson=Lesson("characters"))


def test_it_learns_and_its_alignment_is_chosen_and_recorded(tmp_path):
    train, valid = reversal(700, seed=0, lengths=(1, 3)).split(0.15)
    learned = learn(
        train,
        valid,
        architecture=TransformerArchitecture(48, 64, 2, 2, dropout=0.0, shared=True),
        lesson=Lesson("characters", joint=True, batch_tokens=256, label_smoothing=0.0),
        training=Training(25, 5e-3, schedule="inverse", warmup=60, beta2=0.98, criterion="exact", patience=25),
        folder=tmp_path,
    )
    assert learned.outcome.best > 0.5
    translator = Translator.load(tmp_path / "model.regard")
    chosen = translator.metadata["alignment"]
    assert translator.architecture.aligned == (chosen["layer"], chosen["head"])
    gold = gold_alignments(translator.source, translator.target, valid)
    found = translator.align(valid.source, valid.target)
    rows = [row for one, links_of in zip(found, gold, strict=True) for row in links(one.weights)[: len(links_of)]]
    wanted = [sources for one in gold for sources in one]
    assert error_rate(rows, wanted) == pytest.approx(chosen["validation_error_rate"])
    every = translator.source_weights(valid.source, valid.target)
    for layer in range(2):
        mean = [row for one in every for row in one[layer].mean(0).argmax(-1)]
        assert error_rate(mean, wanted) >= chosen["validation_error_rate"] - 1e-12

"""The exported program says what greedy says, in a process that has never heard of this package."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from regard.nn import ConcatenatedScore
from regard.seq2seq.decoding import Ends, greedy
from regard.seq2seq.export import Seq2SeqExportError, export_torchscript
from regard.seq2seq.model import Architecture, Seq2Seq
from regard.seq2seq.transformer import TransformerArchitecture
from regard.seq2seq.vocabulary import BOS, EOS
from support.soak import FULL

SOURCE = torch.tensor([[4, 7, 5, 9, 6], [8, 5, 0, 0, 0], [6, 6, 5, 4, 0]])
LENGTHS = torch.tensor([5, 2, 4])
ENDS = Ends(BOS, EOS, times=1.0, more=4)

KINDS = {
    "standard": {},
    "lstm": {"cell": "lstm", "layers": 2, "tied": False},
    "luong": {"order": "luong", "coverage": True, "score": "bilinear", "layers": 2},
    "dot": {"score": "dot", "bidirectional": False},
    "gaussian, hard": {"score": "gaussian", "attention": "hard"},
    "none": {"attention": "none", "cell": "lstm", "bidirectional": False},
    "transformer": {"transformer": True, "shared": True},
    "transformer, post": {"transformer": True, "norm": "post", "tied": False, "alignment_head": 1},
    "a score that Architecture does not name": {"custom": True},
}
# Both cells, one layer and two, one direction and both, both orders, with and without coverage, soft, hard and no
# attention, a transformer.
OF_EVERY_PATH = ("none", "luong", "gaussian, hard", "transformer, post")


def model(custom=False, transformer=False, **kind):
    torch.manual_seed(3)
    made = Seq2Seq(TransformerArchitecture(8, 12, 2, 2, **kind) if transformer else Architecture(6, 8, **kind), 10, 10)
    made.eval()
    if custom:
        made.decoder.score = ConcatenatedScore(8, 16, 8)
    with torch.no_grad():
        for parameter in made.decoder.parameters():
            # So that it makes up its mind, and ends now and then.
            parameter.mul_(2.0)
    return made


def loaded(path):
    return torch.export.load(path).module()


@pytest.mark.parametrize("name", KINDS if FULL else OF_EVERY_PATH)
def test_the_program_is_greedy(name, tmp_path):
    whole = model(**KINDS[name])
    export_torchscript(whole, tmp_path / "greedy.pt2", ends=ENDS)
    program = loaded(tmp_path / "greedy.pt2")
    for rows, most in ((slice(0, 3), 5), (slice(1, 2), 2), (slice(2, 3), 1)):  # other sizes than the example's
        source, lengths = SOURCE[rows, :most], LENGTHS[rows].clamp(max=most)
        with torch.no_grad():
            tokens, counts, weights = program(source, lengths)
            expected = greedy(whole.decoder, whole.encoder(source, lengths), ENDS)
        for row, said in enumerate(expected):
            steps = len(said.weights)
            ended = (EOS,) if steps > len(said.tokens) else ()
            assert tuple(tokens[row, :steps].tolist()) == (*said.tokens, *ended)
            assert counts[row] == steps
            assert not tokens[row, steps:].any()
            assert not weights[row, steps:].any()
            torch.testing.assert_close(weights[row, :steps, : lengths[row]], said.weights, rtol=0.0, atol=1e-6)


def test_it_replaces_a_file_only_by_force_and_runs_without_the_package(tmp_path):
    whole, path = model(), tmp_path / "greedy.pt2"
    path.write_bytes(b"mine")
    with pytest.raises(Seq2SeqExportError, match="already exists"):
        export_torchscript(whole, path)
    assert path.read_bytes() == b"mine"
    export_torchscript(whole, path, ends=ENDS, force=True)
    code = (
        "import sys, torch; sys.modules['regard'] = None;"
        f"tokens, counts, _ = torch.export.load({str(path)!r}).module()"
        f"(torch.tensor({SOURCE.tolist()}), torch.tensor({LENGTHS.tolist()})); print(tokens.tolist(), counts.tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tokens, counts, _ = loaded(path)(SOURCE, LENGTHS)
    assert done.stdout.strip() == f"{tokens.tolist()} {counts.tolist()}"

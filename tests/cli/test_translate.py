"""``regard translate``: train, run, eval and align, as a person at a terminal meets them."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.cli import main
from regard.data import reversal
from regard.seq2seq.trainer import Trainer
from regard.seq2seq.translator import Translator
from support.command import ok, refused

torch.set_num_threads(1)
SMALL = ("--unit", "characters", "--embed-size", "8", "--hidden-size", "12", "--batch-size", "16", "--warmup", "3")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pairs = reversal(150, lengths=(1, 4))
    lines = zip(pairs.source, pairs.target, strict=True)
    Path("pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in lines), encoding="utf-8")
    Path("a.txt").write_text("".join(f"{a}\n" for a in pairs.source), encoding="utf-8")
    Path("b.txt").write_text("".join(f"{b}\n" for b in pairs.target), encoding="utf-8")
    return tmp_path


def trained(capfd, *more: str) -> str:
    ok(capfd, "translate", "train", "pairs.tsv", "--out", "run", "--epochs", "2", *SMALL, *more)
    return "run/model.regard"


def fed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))


def test_train_writes_a_folder_and_says_what_it_kept(capfd) -> None:
    out, err = ok(capfd, "translate", "train", "pairs.tsv", "--out", "run", "--epochs", "2", *SMALL)
    assert out == ""
    assert "2 epochs, " in err
    assert "Best epoch" in err
    assert "nats per token" in err
    assert "saved run/model.regard" in err
    assert sorted(os.listdir("run")) == ["checkpoint.regard", "metrics.jsonl", "model.regard"]
    assert [json.loads(line)["epoch"] for line in Path("run/metrics.jsonl").read_text().splitlines()] == [1, 2]


def test_parallel_files_give_the_same_model_as_a_table(capfd) -> None:
    first = Path(trained(capfd)).read_bytes()
    ok(capfd, "translate", "train", "a.txt", "--target", "b.txt", "--out", "two", "--epochs", "2", *SMALL)
    assert Path("two/model.regard").read_bytes() == first


def test_lines_in_lines_out_and_an_empty_line_stays(capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(capfd)
    fed(monkeypatch, "abc\n\nq\n")
    out, _ = ok(capfd, "translate", "run", model)
    wanted = [one.text for one in Translator.load(model).translate(["abc", "", "q"])]
    assert out == "".join(f"{text}\n" for text in wanted)
    assert wanted[1] == ""
    Path("in.txt").write_text("abc\r\n\nq\n")
    assert ok(capfd, "translate", "run", model, "in.txt")[0] == out
    wide = [one.text for one in Translator.load(model).translate(["abc", "", "q"], beam=3)]
    assert ok(capfd, "translate", "run", model, "in.txt", "--beam", "3")[0] == "".join(f"{text}\n" for text in wide)


def test_eval_tells_exact_bleu_and_chrf(capfd) -> None:
    model = trained(capfd)
    out, _ = ok(capfd, "translate", "eval", model, "pairs.tsv")
    # Words of one to four letters are one token each.
    assert [line.split()[0] for line in out.splitlines()] == ["exact", "chrF", "BLEU", "pairs", "BLEU"]
    assert "most of these targets have fewer, typically 1: read the exact matches instead" in out
    told = json.loads(ok(capfd, "translate", "eval", model, "a.txt", "--target", "b.txt", "--json")[0])
    assert told["pairs"] == 150
    assert f"{told['exact']:.2%}" in out
    assert f"{told['chrf']:.2f}" in out


def test_eval_of_a_model_in_small_letters_compares_small_letters(capfd) -> None:
    lines = [line.split("\t") for line in Path("pairs.tsv").read_text().splitlines()]
    model = trained(capfd, "--lower")
    said = [one.text for one in Translator.load(model).translate([a for a, _ in lines])]
    Path("upper.tsv").write_text(
        "".join(f"{a.upper()}\t{text.upper()}\n" for (a, _), text in zip(lines, said, strict=True) if text)
    )
    assert json.loads(ok(capfd, "translate", "eval", model, "upper.tsv", "--json")[0])["exact"] == 1.0


def test_align_writes_where_it_looked(capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(capfd)
    Path("two.tsv").write_text("abc\tcba\nq\tq\n")
    pharaoh = ok(capfd, "translate", "align", model, "two.tsv")[0].splitlines()
    weights = Translator.load(model).align(["abc", "q"], ["cba", "q"])[0].weights
    assert pharaoh[0] == " ".join(f"{there}-{here}" for here, there in enumerate(weights[:3].argmax(1)))
    assert pharaoh[1] == "0-0"
    text = ok(capfd, "translate", "align", model, "two.tsv", "--as", "text")[0]
    assert "q     ← q 100 %" in text
    rows = [
        json.loads(line) for line in ok(capfd, "translate", "align", model, "two.tsv", "--as", "json")[0].splitlines()
    ]
    assert rows[0]["source"] == ["a", "b", "c"]
    assert rows[0]["target"] == ["c", "b", "a", "<eos>"]
    assert [len(row) for row in rows[0]["weights"]] == [3, 3, 3, 3]


def test_ctrl_c_saves_and_the_same_command_resumes(capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path(trained(capfd)).read_bytes()
    step = Trainer._step
    calls: list[int] = []

    def interrupted(self: Trainer, *rest: Any) -> Any:
        calls.append(1)
        if len(calls) == 12:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, *rest)

    again = ("translate", "train", "pairs.tsv", "--out", "again", "--epochs", "2", *SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupted)
        assert main(again) == 130
    err = capfd.readouterr().err
    assert "stopped after 12 steps; continue with the same command and --resume" in err
    assert not Path("again/model.regard").exists()
    ok(capfd, *again, "--resume")
    assert Path("again/model.regard").read_bytes() == whole


def test_a_folder_that_holds_something_is_left_alone(capfd) -> None:
    model = Path(trained(capfd))
    before = model.read_bytes()
    again = ("translate", "train", "pairs.tsv", "--out", "run", "--epochs", "1", *SMALL)
    assert "is not empty; continue its training with --resume, or start a new one with --force" in refused(
        capfd, *again
    )
    assert model.read_bytes() == before
    ok(capfd, *again, "--force")
    assert model.read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "none.tsv", "--out", "x"), "none.tsv: no such file"),
        (
            ("train", "pairs.tsv", "--out", ".", "--resume"),
            ".: contains no checkpoint.regard to resume from, but a.txt",
        ),
        (("train", "pairs.tsv", "--out", "x", "--resume", "--force"), "--resume and --force exclude each other"),
        (("train", "pairs.tsv", "--out", "x", "--cell", "rnn"), "cell must be one of 'gru', 'lstm', got 'rnn'"),
        (("train", "pairs.tsv", "--out", "x", "--epochs", "0"), "epochs must be a whole number of at least 1, got 0"),
        (("train", "pairs.tsv", "--out", "x", "--unit", "syllables"), "unit must be one of 'words', 'characters'"),
        (("train", "pairs.tsv", "--out", "x", "--device", "tpu"), "--device must be cpu or cuda, got 'tpu'"),
        (("train", "pairs.tsv", "--out", "a.txt"), "a.txt: is not a folder"),
        (("train", "pairs.tsv", "--out", "x", "--valid-target", "b.txt"), "--valid-target needs --valid"),
        (("train", "a.txt", "--out", "x"), "a.txt: line 1 must be source<TAB>target or"),
        (("run", "pairs.tsv"), "pairs.tsv: is not a regard translator"),
        (("run", "none.regard"), "none.regard: no such file"),
        (("run", "pairs.tsv", "--beam", "0"), "--beam"),
        (("eval", "none.regard", "pairs.tsv"), "none.regard: no such file"),
        (("align", "none.regard", "pairs.tsv", "--as", "svg"), "'svg' is not one of 'pharaoh', 'text', 'json'"),
    ],
)
def test_bad_arguments_are_one_line(capfd, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(capfd, "translate", *arguments)
    assert not Path("x").exists() or not os.listdir("x")


def test_cuda_is_refused_where_there_is_none(capfd) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    err = refused(capfd, "translate", "train", "pairs.tsv", "--out", "x", "--device", "cuda")
    assert "--device cuda needs a CUDA device" in err


def test_a_model_of_another_kind_is_refused(capfd) -> None:
    import numpy as np

    import regard

    regard.save(regard.NadarayaWatsonRegressor().fit(np.arange(9.0)[:, None], np.arange(9.0)), "m.regard")
    assert "is a zip file, but not a regard translator" in refused(capfd, "translate", "run", "m.regard", "a.txt")


def test_58_and_59_odd_lines(capfd) -> None:
    model = trained(capfd)
    Path("odd.txt").write_bytes("<pad>\n\u202eabc\n".encode())
    out, _ = ok(capfd, "translate", "run", model, "odd.txt")
    assert out.count("\n") == 2
    Path("bad.txt").write_bytes(b"ab\n\xff\xfe\n")
    assert "bad.txt: line 2" in refused(capfd, "translate", "run", model, "bad.txt")

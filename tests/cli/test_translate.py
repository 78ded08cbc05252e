"""``regard translate``: train, run, eval and align, as a person at a terminal meets them."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.cli import main
from regard.data import reversal
from regard.seq2seq.trainer import Trainer, TrainingProgress
from regard.seq2seq.transformer import TransformerArchitecture
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


def test_eval_prints_exact_bleu_and_chrf(capfd) -> None:
    model = trained(capfd)
    out, _ = ok(capfd, "translate", "eval", model, "pairs.tsv")
    # Words of one to four letters are one token each.
    assert [line.split()[0] for line in out.splitlines()] == ["exact", "chrF", "BLEU", "pairs", "BLEU"]
    assert "most of these targets have fewer, typically 1: read the exact matches instead" in out
    report = json.loads(ok(capfd, "translate", "eval", model, "a.txt", "--target", "b.txt", "--json")[0])
    assert report["pairs"] == 150
    assert f"{report['exact']:.2%}" in out
    assert f"{report['chrf']:.2f}" in out


def test_eval_of_a_model_in_small_letters_compares_small_letters(capfd) -> None:
    lines = [line.split("\t") for line in Path("pairs.tsv").read_text().splitlines()]
    model = trained(capfd, "--lower")
    said = [one.text for one in Translator.load(model).translate([a for a, _ in lines])]
    Path("upper.tsv").write_text(
        "".join(f"{a.upper()}\t{text.upper()}\n" for (a, _), text in zip(lines, said, strict=True) if text)
    )
    assert json.loads(ok(capfd, "translate", "eval", model, "upper.tsv", "--json")[0])["exact"] == 1.0


def test_align_writes_the_most_attended_tokens(capfd, monkeypatch: pytest.MonkeyPatch) -> None:
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


# ---- models, settings, files


def test_a_transformer_is_trained_like_the_others(capfd) -> None:
    _, err = ok(
        capfd, "translate", "train", "pairs.tsv", "--out", "run", "--epochs", "2", "--unit", "characters",
        "--model", "transformer", "--embed-size", "16", "--ffn-size", "16", "--heads", "2", "--layers", "1", "--joint",
        "--shared", "--batch-tokens", "128", "--schedule", "inverse", "--warmup", "3", "--average", "2",
        "--criterion", "bleu", "--optimizer", "adamw", "--weight-decay", "0.01", "--accumulate", "2",
    )  # fmt: skip
    assert "with a BLEU of" in err
    translator = Translator.load("run/model.regard")
    assert translator.source == translator.target
    assert translator.architecture == TransformerArchitecture(16, 16, 1, 2, dropout=0.2, shared=True)
    assert len(ok(capfd, "translate", "run", "run/model.regard", "a.txt", "--beam", "2")[0].splitlines()) == 150
    assert len(ok(capfd, "translate", "align", "run/model.regard", "pairs.tsv")[0].splitlines()) == 150


def test_fine_tuning_starts_where_another_training_ended(capfd) -> None:
    model = trained(capfd)
    before = Translator.load(model)
    ok(
        capfd,
        "translate",
        "train",
        "pairs.tsv",
        "--out",
        "more",
        "--from",
        model,
        "--epochs",
        "1",
        "--learning-rate",
        "1e-9",
    )
    after = Translator.load("more/model.regard")
    assert (after.source, after.target, after.architecture) == (before.source, before.target, before.architecture)
    for name, part in after.model.state_dict().items():
        torch.testing.assert_close(part, before.model.state_dict()[name], rtol=1e-4, atol=1e-6)
    refusal = refused(capfd, "translate", "train", "pairs.tsv", "--out", "x", "--from", model, "--unit", "words2")
    assert "--unit and --from exclude each other: the translator has its own" in refusal


def test_a_file_of_settings_is_the_same_as_options(capfd) -> None:
    first = Path(trained(capfd)).read_bytes()
    Path("settings.toml").write_text(
        'data = "pairs.tsv"\nout = "two"\nunit = "characters"\nembed-size = 8\nhidden_size = 12\nbatch_size = 16\n'
        "warmup = 3\nepochs = 9\nlower = false\n"
    )
    ok(capfd, "translate", "train", "pairs.tsv", "--out", "two", "--config", "settings.toml", "--epochs", "2")
    assert Path("two/model.regard").read_bytes() == first
    ok(capfd, "translate", "train", "--config", "settings.toml", "--epochs", "2", "--force")
    assert Path("two/model.regard").read_bytes() == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3\n", "settings.toml: there is no option --epoch"),
        ("epochs = [3]\n", "settings.toml: epochs must be a text, a number or true or false"),
        ("epochs = \n", "settings.toml: cannot be read as TOML"),
        ('epochs = "many"\n', "Invalid value for '--epochs'"),
        ("force = true\nresume = true\n", "--resume and --force exclude each other"),
    ],
)
def test_bad_settings_are_one_line(capfd, text: str, message: str) -> None:
    Path("settings.toml").write_text(text)
    assert message in refused(capfd, "translate", "train", "pairs.tsv", "--out", "x", "--config", "settings.toml")
    assert "none.toml: cannot be read" in refused(
        capfd, "translate", "train", "pairs.tsv", "--out", "x", "--config", "none.toml"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--heads", "2"), "a recurrent model has no --heads"),
        (("--shared",), "a recurrent model has no --shared"),
        (("--model", "transformer", "--cell", "lstm"), "a transformer model has no --cell"),
        (("--model", "mamba"), "must be recurrent or transformer, got 'mamba'"),
        (("--model", "transformer", "--shared"), "shared=True needs one vocabulary"),
        (("--criterion", "chrf"), "criterion must be one of 'loss', 'bleu', 'exact', got 'chrf'"),
        (("--threads", "0"), "threads must be a whole number of at least 1"),
        (("--sampling", "0.1"), "segmentations are sampled for units 'sentencepiece' and 'bpe', got 'words'"),
        (("--tensorboard",), "TensorBoard logs need tensorboard"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    capfd, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert message in refused(capfd, "translate", "train", "pairs.tsv", "--out", "x", "--epochs", "1", *arguments)


# ---- stopped, killed, resumed


@pytest.mark.parametrize("leftovers", [("metrics.jsonl",), ()])
def test_killed_before_its_first_checkpoint_a_training_starts_anew(capfd, leftovers: tuple[str, ...]) -> None:
    whole = Path(trained(capfd)).read_bytes()
    command = ("translate", "train", "pairs.tsv", "--epochs", "2", *SMALL)
    for name, more in (("again", ()), ("resumed", ("--resume",))):
        Path(name).mkdir()
        for leftover in leftovers:
            Path(name, leftover).write_text('{"epoch": 1}\n')
        _, err = ok(capfd, *command, "--out", name, *more)
        assert Path(name, "model.regard").read_bytes() == whole
        assert ("there is no checkpoint yet, the training starts from the beginning" in err) == bool(more)
        assert len(Path(name, "metrics.jsonl").read_text().splitlines()) == 2


def test_sigterm_is_like_ctrl_c(capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path(trained(capfd)).read_bytes()
    step, calls = Trainer._step, []

    def terminated(self: Trainer, *rest: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *rest)

    again = ("translate", "train", "pairs.tsv", "--out", "again", "--epochs", "2", *SMALL)
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", terminated)
        assert main(again) == 130
    assert "stopped after 5 steps; continue with the same command and --resume" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    ok(capfd, *again, "--resume")
    assert Path("again/model.regard").read_bytes() == whole


def test_sigterm_while_reading_is_like_ctrl_c(capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "regard.cli.translate.train.read_data", lambda *_: os.kill(os.getpid(), signal.SIGTERM) or [][0]
    )
    assert main(("translate", "train", "pairs.tsv", "--out", "x", *SMALL)) == 130
    assert capfd.readouterr().err == "regard: stopped\n"


# ---- progress


def test_log_lines_are_text_or_json(capfd) -> None:
    _, err = ok(capfd, "translate", "train", "pairs.tsv", "--out", "run", "--epochs", "2", *SMALL)
    lines = err.splitlines()
    assert lines[0].startswith("epoch 1/2, step 9/18: loss ")
    assert lines[1].startswith("epoch 2/2, step 18/18: loss ")
    assert ", valid " in lines[0]
    _, err = ok(
        capfd, "translate", "train", "pairs.tsv", "--out", "two", "--epochs", "2", *SMALL,
        "--log", "json", "--criterion", "exact",
    )  # fmt: skip
    first, second = (json.loads(line) for line in err.splitlines()[:2])
    assert (first["epoch"], second["epoch"], second["step"]) == (1, 2, 18)
    assert set(first) >= {"loss", "validation_loss", "validation_exact", "validation_bleu", "tokens_per_second"}


@pytest.mark.parametrize("measures", [{"loss": 0.00123}, {"loss": 0.00123, "bleu": 38.8, "exact": 0.00123}])
def test_the_progress_line_fits_80_columns(measures: dict[str, float]) -> None:
    from rich.console import Console
    from rich.progress import Progress

    from regard.cli import progress_bars
    from regard.cli.translate.train import _show

    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=200, color_system=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rich.console.Console", lambda **_: console)
        with progress_bars.progress_bar("Learning", elapsed=False) as update:
            losses = [float(n) for n in range(30)]
            _show(
                update,
                losses,
                TrainingProgress(100, 200, 999_999, 9_999_999, 0.00123, 0.00123, 1.2e6, 59_999.0, measures),
            )
            assert isinstance(update.func.__self__, Progress)
            update.func.__self__.refresh()
    lines = [line.split("\x1b")[0].rstrip() for line in re.split(r"[\n\r]|\x1b\[2K", written.getvalue())]
    shown = next(line for line in lines if line.startswith("epoch 100/200"))
    assert "valid 0.00123" in shown
    assert "left" in shown
    assert len(shown) <= 80, (len(shown), shown)


# ---- run and eval


def test_n_best_lists_and_json(capfd) -> None:
    model = trained(capfd)
    Path("in.txt").write_text("abc\n\nq\n")
    wanted = Translator.load(model).n_best(["abc", "", "q"], 3, beam=4)
    out, _ = ok(capfd, "translate", "run", model, "in.txt", "--n-best", "3", "--beam", "4")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [(int(row[0]), row[2]) for row in rows] == [
        (number, one.text) for number, several in enumerate(wanted, 1) for one in several
    ]
    assert [float(row[1]) for row in rows] == [pytest.approx(one.score, abs=1e-4) for some in wanted for one in some]
    lines = ok(capfd, "translate", "run", model, "in.txt", "--n-best", "3", "--beam", "4", "--json")[0].splitlines()
    found = [json.loads(line) for line in lines]
    assert [one["source"] for one in found] == ["abc", "", "q"]
    assert [[part["text"] for part in one["translations"]] for one in found] == [
        [one.text for one in several] for several in wanted
    ]
    best = found[0]["translations"][0]
    assert len(best["alignment"].split()) == len([token for token in best["tokens"] if token != "<eos>"])
    assert found[1]["translations"] == [{"text": "", "score": 0.0, "tokens": [], "alignment": ""}]
    assert "must be at least that of --n-best, 3, got 2" in refused(
        capfd, "translate", "run", model, "in.txt", "--n-best", "3", "--beam", "2"
    )


def test_a_line_is_answered_before_the_next_is_written(capfd) -> None:
    model = trained(capfd)
    wanted = [one.text for one in Translator.load(model).translate(["abc", "zyx"])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "regard.cli", "translate", "run", model],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for line, answer in zip(("abc", "zyx"), wanted, strict=True):
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{answer}\n"
        process.stdin.write("abc")  # without an end of line
        process.stdin.close()
        assert process.stdout.read() == f"{wanted[0]}\n"
    assert process.returncode == 0


def test_an_ensemble_translates_and_other_vocabularies_are_refused(capfd) -> None:
    model = trained(capfd)
    ok(capfd, "translate", "train", "pairs.tsv", "--out", "two", "--epochs", "2", *SMALL, "--seed", "1")
    both = Translator.ensemble([Translator.load(model), Translator.load("two/model.regard")])
    out, _ = ok(capfd, "translate", "run", model, "a.txt", "--ensemble", "two/model.regard")
    assert out.splitlines() == [one.text for one in both.translate(Path("a.txt").read_text().splitlines())]
    printed = ok(capfd, "translate", "eval", model, "pairs.tsv", "--ensemble", "two/model.regard", "--json")[0]
    assert json.loads(printed)["pairs"] == 150
    Path("few.tsv").write_text("ab\tba\n" * 30 + "ba\tab\n" * 30)
    ok(capfd, "translate", "train", "few.tsv", "--valid", "few.tsv", "--out", "few", "--epochs", "1", *SMALL)
    refusal = refused(capfd, "translate", "run", model, "a.txt", "--ensemble", "few/model.regard")
    assert f"few/model.regard: has other vocabularies than {model}" in refusal


def test_eval_of_sentences_leads_with_bleu(capfd) -> None:
    lines = "".join(f"{a} {b} c d e\te d c {b} {a}\n" for a in "abcdefg" for b in "abcdefg")
    Path("long.tsv").write_text(lines)
    ok(
        capfd,
        "translate",
        "train",
        "long.tsv",
        "--out",
        "long",
        "--epochs",
        "1",
        "--embed-size",
        "8",
        "--hidden-size",
        "8",
    )
    out, _ = ok(capfd, "translate", "eval", "long/model.regard", "long.tsv")
    assert [line.split()[0] for line in out.splitlines()] == ["BLEU", "chrF", "exact", "pairs"]

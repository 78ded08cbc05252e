"""The command: what it prints, what it writes, how it ends (lines 64 and 77–80 of the list, and every exit code)."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.cli import main
from regard.cli import tour as tour_command
from regard.data import Table, houses, read_table, write_table

COMMAND = [sys.executable, "-m", "regard.cli"]
HOUSES = houses(n=60)


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """An own folder with a table of houses and one of kinds."""
    monkeypatch.chdir(tmp_path)
    columns: dict[str, Any] = dict(zip(HOUSES.feature_names, HOUSES.X.T, strict=True))
    write_table(Table((*columns, "price"), {**columns, "price": HOUSES.y}), "houses.csv")
    kind = np.where(HOUSES.y > 200.0, "dear", "cheap").astype(object)
    write_table(Table((*columns, "kind"), {**columns, "kind": kind}), "kinds.csv")
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def ok(capfd, *arguments: str) -> tuple[str, str]:
    code = main(arguments)
    out, err = capfd.readouterr()
    assert code == 0, err
    return out, err


def refused(capfd, *arguments: str) -> str:
    code = main(arguments)
    out, err = capfd.readouterr()
    assert (code, out) == (2, ""), err
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    return err


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# ---- fit


def test_fit_says_what_it_did_on_stderr(here: Path, capfd) -> None:
    out, err = ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard")
    assert out == ""
    assert "NadarayaWatsonRegressor: price from 7 features, 60 rows of houses.csv" in err
    assert "by the rule scott" in err
    model = regard.load("m.regard")
    for name, width in zip(HOUSES.feature_names, model.bandwidth_, strict=True):
        assert f"  {name:<11}  {width:.4g}\n" in err
    assert "saved m.regard" in err
    assert files(here) == ["houses.csv", "kinds.csv", "m.regard"]


def test_fit_is_the_library_fit(here: Path, capfd) -> None:
    arguments = ["--features", "area, age", "--kernel", "tricube", "--bandwidth", "60,40"]
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", *arguments)
    model = regard.load("m.regard")
    assert model.get_params() == {
        "kernel": "tricube", "bandwidth": [60.0, 40.0], "empty": "nearest", "engine": "auto", "tol": None,
    }  # fmt: skip
    assert model.feature_names_in_.tolist() == ["area", "age"]
    assert np.array_equal(model.key_, HOUSES.X[:, :2])
    assert np.array_equal(model.value_, HOUSES.y)
    assert model.sample_weight_ is None


@pytest.mark.parametrize(
    ("given", "expected"), [("2.5", 2.5), ("silverman", "silverman"), ("inf", np.inf), ("-3", -3.0)]
)
def test_bandwidths(given: str, expected: Any, here: Path, capfd) -> None:
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", f"--bandwidth={given}")
    assert regard.load("m.regard").bandwidth == expected


@pytest.mark.parametrize(("cells", "kind"), [(("1", "2", "0"), "i"), (("1.0", "2.5", "0"), "f")])
def test_whole_weights_stay_whole(cells: tuple[str, ...], kind: str, here: Path, capfd) -> None:
    Path("w.csv").write_text("x,y,n\n" + "".join(f"{i},{i * i},{cell}\n" for i, cell in enumerate(cells)))
    ok(capfd, "fit", "w.csv", "--target", "y", "--out", "m.regard", "--sample-weight", "n")
    model = regard.load("m.regard")
    assert model.sample_weight_.dtype.kind == kind
    assert model.feature_names_in_.tolist() == ["x"]


def test_a_text_target_makes_a_classifier(here: Path, capfd) -> None:
    _, err = ok(capfd, "fit", "kinds.csv", "--target", "kind", "--out", "m.regard")
    assert "NadarayaWatsonClassifier: kind (2 classes)" in err
    assert regard.load("m.regard").classes_.tolist() == ["cheap", "dear"]


def test_a_constant_feature_is_reported(here: Path, capfd) -> None:
    Path("c.csv").write_text("x,same,y\n1,7,1\n2,7,2\n3,7,3\n")
    _, err = ok(capfd, "fit", "c.csv", "--target", "y", "--out", "m.regard")
    assert "  same  inf (does not vary, ignored)\n" in err


def test_parquet_goes_in_and_out(here: Path, capfd) -> None:
    write_table(read_table("houses.csv"), "houses.parquet")
    ok(capfd, "fit", "houses.parquet", "--target", "price", "--out", "p.regard")
    ok(capfd, "fit", "houses.csv", "--target", "price", "--out", "c.regard")
    assert Path("p.regard").read_bytes() == Path("c.regard").read_bytes()
    ok(capfd, "predict", "p.regard", "houses.parquet", "--out", "out.parquet")
    assert np.array_equal(read_table("out.parquet").columns["price"], predictions("p.regard"))


REFUSED_FITS = [
    (["nowhere.csv", "--target", "price"], "nowhere.csv: no such file"),
    (["houses.csv", "--target", "cost"], "has no column 'cost'; its columns are 'area', 'age'"),
    (["houses.csv", "--target", "price", "--features", "area,cost"], "has no column 'cost'"),
    (["houses.csv", "--target", "price", "--features", "area,price"], "also the column of --target"),
    (["houses.csv", "--target", "price", "--features", "area,area"], "not a list of different column names"),
    (["houses.csv", "--target", "price", "--features", ""], "not a list of different column names"),
    (["houses.csv", "--target", "price", "--features", '"area'], "not a list of different column names"),
    (["houses.csv", "--target", "price", "--sample-weight", "price"], "is also the target"),
    (["houses.csv", "--target", "price", "--sample-weight", "n"], "has no column 'n'"),
    (["houses.csv", "--target", "price", "--features", "age", "--sample-weight", "age"], "--sample-weight"),
    (["houses.csv", "--target", "price", "--kernel", "square"], "kernel must be one of 'gaussian'"),
    (["houses.csv", "--target", "price", "--bandwidth", "0"], "bandwidth must be"),
    (["houses.csv", "--target", "price", "--bandwidth", "nan"], "bandwidth must be"),
    (["houses.csv", "--target", "price", "--bandwidth", "1,2"], "bandwidth has 2 numbers but X has 7"),
    (["houses.csv", "--target", "price", "--bandwidth", "wide"], "bandwidth must be"),
    (["kinds.csv", "--target", "price"], "has no column 'price'"),
    (
        ["kinds.csv", "--target", "area"],
        "column 'kind' is text and cannot be a feature; choose numeric columns, such as",
    ),
    (["only.csv", "--target", "y"], "no column left to learn from besides the target 'y'"),
    (["zero.csv", "--target", "y", "--sample-weight", "n"], "sample_weight"),
    (["negative.csv", "--target", "y", "--sample-weight", "n"], "sample_weight"),
    (["unlabelled.csv", "--target", "kind"], "row 2, column 'kind': is empty"),
    ([], "Missing argument"),
    (["houses.csv"], "Missing option '--target'"),
    (["houses.csv", "--target", "price", "--colour", "red"], "No such option: --colour"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED_FITS)
def test_fits_that_are_refused(arguments: list[str], words: str, here: Path, capfd) -> None:
    Path("only.csv").write_text("y\n1\n2\n")
    Path("zero.csv").write_text("x,y,n\n1,1,0\n2,2,0\n")
    Path("negative.csv").write_text("x,y,n\n1,1,-1\n2,2,1\n")
    Path("unlabelled.csv").write_text("x,kind\n1,a\n2,\n")
    before = files(here)
    assert words in refused(capfd, "fit", *arguments, "--out", "m.regard")
    assert files(here) == before


def test_a_model_cannot_go_to_stdout(here: Path, capfd) -> None:
    assert "a model is a file" in refused(capfd, "fit", "houses.csv", "--target", "price", "--out", "-")


def test_the_suggested_features_work(here: Path, capfd) -> None:
    err = refused(capfd, "fit", "kinds.csv", "--target", "area", "--out", "m.regard")
    suggested = err.split("--features ")[1].strip()
    ok(capfd, "fit", "kinds.csv", "--target", "area", "--out", "m.regard", "--features", suggested)


# ---- predict and attend


def trained(capfd, data: str = "houses.csv", target: str = "price") -> str:
    ok(capfd, "fit", data, "--target", target, "--out", "m.regard")
    return "m.regard"


def predictions(model: str) -> Any:
    import polars

    return regard.load(model).predict(polars.DataFrame(HOUSES.X, schema=list(HOUSES.feature_names)))


def test_predict_writes_one_column_named_after_the_target(here: Path, capfd) -> None:
    model = trained(capfd)
    out, err = ok(capfd, "predict", model, "houses.csv")
    assert err == ""
    assert list(rows(out)[0]) == ["price"]
    assert [float(row["price"]) for row in rows(out)] == predictions(model).tolist()


def test_columns_are_matched_by_name(here: Path, capfd) -> None:
    model = trained(capfd)
    straight, _ = ok(capfd, "predict", model, "houses.csv")
    table = read_table("houses.csv")
    names = (*reversed(table.names[:-1]), "extra")
    columns = {**table.columns, "extra": np.array(["text"] * len(table), object)}
    write_table(Table(names, {name: columns[name] for name in names}), "turned.csv")
    turned, _ = ok(capfd, "predict", model, "turned.csv")
    assert turned == straight


def test_predict_to_a_file_is_predict_to_stdout(here: Path, capfd) -> None:
    model = trained(capfd)
    out, _ = ok(capfd, "predict", model, "houses.csv")
    for name in ("p.csv", "p.csv.gz"):
        assert ok(capfd, "predict", model, "houses.csv", "--out", name) == ("", "")
    assert Path("p.csv").read_text() == out
    assert read_table("p.csv.gz").columns["price"].tolist() == read_table("p.csv").columns["price"].tolist()


def test_64_missing_columns_list_those_there_are(here: Path, capfd) -> None:
    model = trained(capfd)
    Path("new.csv").write_text("area,rooms\n1,2\n")
    err = refused(capfd, "predict", model, "new.csv")
    assert "new.csv: lacks 'age', 'distance'" in err
    assert "its columns are 'area', 'rooms'" in err


def test_bad_rows_to_predict_are_named(here: Path, capfd) -> None:
    Path("xy.csv").write_text("x,y\n1,2\n3,4\n")
    model = trained(capfd, "xy.csv", "y")
    Path("new.csv").write_text("x\n1\nmany\n")
    for command in ("predict", "attend"):
        assert "new.csv: row 2, column 'x': 'many'" in refused(capfd, command, model, "new.csv")


@pytest.mark.parametrize("command", ["predict", "attend"])
def test_what_is_no_model(command: str, here: Path, capfd) -> None:
    assert "houses.csv: is not a regard model" in refused(capfd, command, "houses.csv", "houses.csv")
    assert "no such file" in refused(capfd, command, "m.regard", "houses.csv")


def test_attend_shows_where_predictions_come_from(here: Path, capfd) -> None:
    model = trained(capfd)
    out, _ = ok(capfd, "attend", model, "houses.csv", "--top", "60")
    found = rows(out)
    assert list(found[0]) == ["query", "rank", "key", "weight", "value", "mass"]
    predicted = predictions(model)
    for query in range(60):
        mine = [row for row in found if int(row["query"]) == query + 1]
        assert [int(row["rank"]) for row in mine] == list(range(1, len(mine) + 1))
        weights = [float(row["weight"]) for row in mine]
        assert weights == sorted(weights, reverse=True)
        assert all(float(row["mass"]) == pytest.approx(1.0) for row in mine)
        assert all(float(row["value"]) == HOUSES.y[int(row["key"]) - 1] for row in mine)
        assert sum(float(row["weight"]) * float(row["value"]) for row in mine) == pytest.approx(predicted[query])


def test_attend_keeps_to_top(here: Path, capfd) -> None:
    model = trained(capfd)
    found = rows(ok(capfd, "attend", model, "houses.csv")[0])
    assert len(found) == 5 * 60
    for number in range(0, len(found), 5):
        shown = found[number : number + 5]
        assert float(shown[0]["mass"]) == pytest.approx(sum(float(row["weight"]) for row in shown))
    assert "--top" in refused(capfd, "attend", model, "houses.csv", "--top", "0")
    assert len(rows(ok(capfd, "attend", model, "houses.csv", "--top", "1000")[0])) <= 60 * 60


def test_attend_leaves_out_keys_without_weight(here: Path, capfd) -> None:
    Path("xy.csv").write_text("x,y\n0,1\n1,2\n5,3\n")
    ok(capfd, "fit", "xy.csv", "--target", "y", "--out", "m.regard", "--kernel", "boxcar", "--bandwidth", "1")
    found = rows(ok(capfd, "attend", "m.regard", "xy.csv")[0])
    assert [(row["query"], row["key"]) for row in found] == [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2"), ("3", "3")]


def test_attend_shows_labels(here: Path, capfd) -> None:
    model = trained(capfd, "kinds.csv", "kind")
    found = rows(ok(capfd, "attend", model, "kinds.csv", "--top", "1")[0])
    kinds = np.where(HOUSES.y > 200.0, "dear", "cheap")
    assert all(row["value"] == kinds[int(row["key"]) - 1] for row in found)


def test_a_warning_is_one_line_on_stderr(here: Path, capfd) -> None:
    Path("xy.csv").write_text("x,y\n0,1\n1,2\n")
    ok(capfd, "fit", "xy.csv", "--target", "y", "--out", "m.regard", "--kernel", "boxcar", "--bandwidth", "1")
    Path("new.csv").write_text("x\n0\n100\n")
    out, err = ok(capfd, "predict", "m.regard", "new.csv")
    assert out == "y\n1.5\n2.0\n"
    assert err.startswith("regard: warning: 1 of 2 rows")
    assert err.count("\n") == 1


def test_models_saved_in_python(here: Path, capfd) -> None:
    pairs = np.column_stack([HOUSES.y, -HOUSES.y])
    regard.save(regard.NearestKeyRegressor().fit(HOUSES.X[:, :2], pairs), "two.regard")
    Path("new.csv").write_text(f"p,q\n{HOUSES.X[0, 0]},{HOUSES.X[0, 1]}\n")
    out, _ = ok(capfd, "predict", "two.regard", "new.csv")
    assert out == f"prediction_1,prediction_2\n{HOUSES.y[0]},{-HOUSES.y[0]}\n"
    out, _ = ok(capfd, "attend", "two.regard", "new.csv")
    assert out == f"query,rank,key,weight,value_1,value_2,mass\n1,1,1,1.0,{HOUSES.y[0]},{-HOUSES.y[0]},1.0\n"
    assert "must have exactly 2 columns; it has 8" in refused(capfd, "predict", "two.regard", "houses.csv")
    regard.save(regard.AveragePoolingRegressor().fit(HOUSES.X[:, :2], HOUSES.y), "mean.regard")
    out, _ = ok(capfd, "predict", "mean.regard", "new.csv")
    assert float(rows(out)[0]["prediction"]) == pytest.approx(HOUSES.y.mean())


# ---- 77: outputs


@pytest.mark.parametrize("command", ["fit", "predict", "attend"])
@pytest.mark.parametrize("taken", ["file", "link", "dangling link"])
def test_77_what_is_there_stays_without_force(command: str, taken: str, here: Path, capfd) -> None:
    model = trained(capfd)
    out = here / "out.csv"
    (here / "precious").write_text("precious")
    if taken == "file":
        out.write_text("precious")
    else:
        out.symlink_to("precious" if taken == "link" else "nowhere")
    arguments = {
        "fit": ["fit", "houses.csv", "--target", "price", "--out", "out.csv"],
        "predict": ["predict", model, "houses.csv", "--out", "out.csv"],
        "attend": ["attend", model, "houses.csv", "--out", "out.csv"],
    }[command]
    words = "already exists" if taken == "file" else "is a symbolic link"
    assert f"out.csv: {words}; it is replaced only by force" in refused(capfd, *arguments)
    assert out.is_symlink() == (taken != "file")
    assert taken == "dangling link" or out.read_text() == "precious"
    ok(capfd, *arguments, "--force")
    assert not out.is_symlink()
    assert (here / "precious").read_text() == "precious"
    assert not (here / "nowhere").exists()


def test_77_inputs_are_never_overwritten(here: Path, capfd) -> None:
    model = trained(capfd)
    Path("link.csv").symlink_to("houses.csv")
    before = Path("houses.csv").read_bytes()
    for arguments in (
        ["fit", "houses.csv", "--target", "price", "--out", "houses.csv", "--force"],
        ["fit", "link.csv", "--target", "price", "--out", "houses.csv", "--force"],
        ["predict", model, "houses.csv", "--out", "houses.csv", "--force"],
    ):
        assert "is also read from" in refused(capfd, *arguments)
    assert Path("houses.csv").read_bytes() == before


def test_77_outputs_that_cannot_be(here: Path, capfd) -> None:
    model = trained(capfd)
    (here / "folder.csv").mkdir()
    for out, words in (
        ("folder.csv", "is a directory"),
        ("absent/out.csv", "there is no folder absent"),
        ("out.xlsx", "must end in one of"),
    ):
        assert words in refused(capfd, "predict", model, "houses.csv", "--out", out, "--force")


def test_a_failed_command_leaves_the_old_output(here: Path, capfd) -> None:
    model = trained(capfd)
    Path("p.csv").write_text("precious")
    Path("bad.csv").write_text("x\n1\n")
    refused(capfd, "predict", model, "bad.csv", "--out", "p.csv", "--force")
    assert Path("p.csv").read_text() == "precious"


# ---- 78: formulas


def test_78_texts_that_a_spreadsheet_would_run_get_an_apostrophe(here: Path, capfd) -> None:
    labels = ["=HYPERLINK(1)", "+x", "-x", "@x", "plain", "a=b"]
    Path("f.csv").write_text("x,=kind\n" + "".join(f"{10 * i},{label}\n" for i, label in enumerate(labels)))
    ok(capfd, "fit", "f.csv", "--target", "=kind", "--out", "m.regard", "--bandwidth", "1")
    out, _ = ok(capfd, "predict", "m.regard", "f.csv")
    safe = ["'=HYPERLINK(1)", "'+x", "'-x", "'@x", "plain", "a=b"]
    assert out.splitlines() == ["'=kind", *safe]
    out, _ = ok(capfd, "attend", "m.regard", "f.csv", "--top", "1")
    assert [row["value"] for row in rows(out)] == safe


def test_78_numbers_stay_numbers(here: Path, capfd) -> None:
    Path("xy.csv").write_text("x,y\n0,-5\n10,-7\n")
    ok(capfd, "fit", "xy.csv", "--target", "y", "--out", "m.regard", "--bandwidth", "1")
    assert ok(capfd, "predict", "m.regard", "xy.csv")[0] == "y\n-5.0\n-7.0\n"


# ---- 79, 80: how it ends, in a process of its own


def process(*arguments: str, unbuffered: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        # A shell may have told its children to ignore Ctrl-C.
        preexec_fn=restore_interrupt,
    )


def restore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(running: subprocess.Popen[bytes]) -> int:
    """Exit code after Ctrl-C, pressed again if it fell into the instant before a process begins to wait."""
    for _ in range(10):
        running.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return running.wait(timeout=10)
    running.kill()
    return running.wait()


def test_the_whole_way_in_pipes(here: Path) -> None:
    fitting = process("fit", "-", "--target", "price", "--out", "m.regard")
    out, err = fitting.communicate(Path("houses.csv").read_bytes(), timeout=120)
    assert (fitting.returncode, out) == (0, b""), err
    assert b"60 rows of standard input" in err
    assert b"\x1b" not in err  # no spinner where there is no terminal
    predicting = process("predict", "m.regard", "-", "--out", "-")
    out, err = predicting.communicate(Path("houses.csv").read_bytes(), timeout=120)
    assert (predicting.returncode, err) == (0, b"")
    assert [float(row["price"]) for row in rows(out.decode())] == predictions("m.regard").tolist()


@pytest.mark.parametrize(("lines", "unbuffered"), [(3, ""), (20_000, ""), (20_000, "1")])
def test_79_a_closed_pipe_ends_quietly(lines: int, unbuffered: str, here: Path, capfd) -> None:
    Path("xy.csv").write_text("x,y\n0,1\n1,2\n3,4\n")
    model = trained(capfd, "xy.csv", "y")
    Path("many.csv").write_text("x\n" + "".join(f"{i / 7000}\n" for i in range(lines)))
    with process("predict", model, "many.csv", unbuffered=unbuffered) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        # Many lines are more than a pipe holds: the command is still writing. Few are not yet written at all.
        if lines > 1000:
            assert running.stdout.readline() == b"y\n"
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_80_ctrl_c_leaves_no_output(command: str, here: Path, capfd) -> None:
    model = trained(capfd)
    Path("out.csv").write_text("precious")
    before = files(here)
    arguments = {
        "fit": ["fit", "-", "--target", "price", "--out", "out.csv", "--force"],
        "predict": ["predict", model, "-", "--out", "out.csv", "--force"],
    }[command]
    running = process(*arguments)
    assert running.stdin is not None
    header, first = Path("houses.csv").read_bytes().split(b"\n")[:2]
    # More than a pipe holds: once it is all written, the command is surely reading.
    running.stdin.write(header + b"\n" + (first + b"\n") * 5_000)
    running.stdin.flush()
    assert interrupted(running) == 130
    out, err = running.communicate()
    assert (out, err) == (b"", b"regard: stopped\n")
    assert Path("out.csv").read_text() == "precious"
    assert files(here) == before


def test_80_ctrl_c_while_writing(here: Path, capfd, monkeypatch) -> None:
    model = trained(capfd)
    before = files(here)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    assert main(["predict", model, "houses.csv", "--out", "p.csv"]) == 130
    assert capfd.readouterr().err == "regard: stopped\n"
    assert files(here) == before


def test_a_bug_is_one_line_too(here: Path, capfd, monkeypatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("a bug\nof two lines")

    monkeypatch.setattr("regard.data.read_table", broken)
    assert main(["fit", "houses.csv", "--target", "price", "--out", "m.regard"]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("regard: a bug in regard")


@pytest.mark.parametrize(
    ("error", "words"),
    [(MemoryError(), "not enough memory"), (OSError(28, "No space left on device"), "No space left on device")],
)
def test_what_the_machine_refuses(error: Exception, words: str, here: Path, capfd, monkeypatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("regard.data.read_table", failing)
    assert words in refused(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard")


# ---- help, version, what is not installed


def test_version(capfd) -> None:
    assert ok(capfd, "--version")[0] == f"regard {regard.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["fit", "--help"], ["predict", "-h"], ["attend", "-h"], ["tour", "-h"]]
)
def test_help_documents_the_exit_codes(arguments: list[str], capfd) -> None:
    out = " ".join(ok(capfd, *arguments)[0].split())
    for words in ("0 fine", "1 a bug", "2 bad input or usage", "130 stopped by Ctrl-C", "141 the pipe"):
        assert words in out


def test_an_unknown_command(capfd) -> None:
    assert "No such command 'dance'" in refused(capfd, "dance")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from regard.cli import main; main(['--help']); main(['fit', '--help'])\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'numba', 'polars', 'matplotlib', 'torch', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra(module: str, capfd, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert f"the command needs {module}; run pip install 'regard[cli]'" in refused(capfd, "--version")


def test_without_polars(here: Path, capfd, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    err = refused(capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard")
    assert "polars is missing; run pip install 'regard[cli]'" in err


# ---- tour


class Told:
    """What a tour returns, without the walk."""

    page = Path("index.html")
    columns = ("Station", "Question", "Answer")
    rows = (("Average pooling", "How far off is the mean?", "0.9"),)


@pytest.fixture
def quick_tour(monkeypatch) -> list[dict[str, Any]]:
    import regard.tour

    calls: list[dict[str, Any]] = []

    def run(out: Path, lang: str, seed: int, progress: Any) -> type[Told]:
        calls.append({"lang": lang, "seed": seed})
        progress(1, 1, "Average pooling")
        (out / "figures").mkdir(parents=True)
        (out / "figures" / "01.png").write_bytes(b"png")
        (out / "index.html").write_text("page")
        return Told

    monkeypatch.setattr(regard.tour, "run", run)
    return calls


def test_tour_writes_its_folder_and_prints_its_table(here: Path, capfd, quick_tour) -> None:
    out, err = ok(capfd, "tour", "--out", "t", "--lang", "zh")
    assert quick_tour == [{"lang": "zh", "seed": 0}]
    assert "How far off is the" in out
    assert err == "wrote t/index.html\n"
    assert sorted(str(p.relative_to("t")) for p in Path("t").rglob("*")) == ["figures", "figures/01.png", "index.html"]
    assert files(here) == ["houses.csv", "kinds.csv", "t"]


def test_tour_folders(here: Path, capfd, quick_tour) -> None:
    Path("empty").mkdir()
    ok(capfd, "tour", "--out", "empty")
    assert "not empty; its files are replaced only with --force" in refused(capfd, "tour", "--out", "empty")
    Path("empty/mine.txt").write_text("precious")
    Path("empty/index.html").write_text("old")
    ok(capfd, "tour", "--out", "empty", "--force")
    assert Path("empty/mine.txt").read_text() == "precious"
    assert Path("empty/index.html").read_text() == "page"
    assert "is a file" in refused(capfd, "tour", "--out", "houses.csv", "--force")
    assert "there is no folder" in refused(capfd, "tour", "--out", "a/b")
    Path("link").symlink_to("empty")
    assert "is a symbolic link" in refused(capfd, "tour", "--out", "link")
    assert "--lang" in refused(capfd, "tour", "--lang", "fr")
    assert len(quick_tour) == 2


def test_80_ctrl_c_during_the_tour(here: Path, capfd, monkeypatch, quick_tour) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tour_command, "_move", interrupt)
    before = files(here)
    assert main(["tour"]) == 130
    assert files(here) == before


def test_the_console_script_is_this_command() -> None:
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="regard")
    assert script.load() is main

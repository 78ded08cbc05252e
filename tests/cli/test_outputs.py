"""What the command writes over and what it does not, and cells safe to open (lines 77 and 78 of the list)."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from support.command import ok, refused, rows

# ---- 77: outputs


@pytest.mark.parametrize("command", ["fit", "predict", "attend"])
@pytest.mark.parametrize("taken", ["file", "link", "dangling link"])
def test_77_what_is_there_stays_without_force(command: str, taken: str, here: Path, model: str, capfd) -> None:
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


def test_77_inputs_are_never_overwritten(here: Path, model: str, capfd) -> None:
    Path("link.csv").symlink_to("houses.csv")
    before = Path("houses.csv").read_bytes()
    for arguments in (
        ["fit", "houses.csv", "--target", "price", "--out", "houses.csv", "--force"],
        ["fit", "link.csv", "--target", "price", "--out", "houses.csv", "--force"],
        ["predict", model, "houses.csv", "--out", "houses.csv", "--force"],
    ):
        assert "is an input file too" in refused(capfd, *arguments)
    assert Path("houses.csv").read_bytes() == before


def test_77_outputs_that_cannot_be(here: Path, model: str, capfd) -> None:
    (here / "folder.csv").mkdir()
    for out, words in (
        ("folder.csv", "is a directory"),
        ("absent/out.csv", "there is no folder absent"),
        ("out.xlsx", "must end in one of"),
    ):
        assert words in refused(capfd, "predict", model, "houses.csv", "--out", out, "--force")


def test_a_failed_command_leaves_the_old_output(here: Path, model: str, capfd) -> None:
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


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n"])
def test_78_every_start_of_a_formula(start: str, here: Path, capfd) -> None:
    labels = [f"{start}SUM(1)", "plain"]
    with open("f.csv", "w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["x", "kind"], ["0", labels[0]], ["10", labels[1]]])
    ok(capfd, "fit", "f.csv", "--target", "kind", "--out", "m.regard", "--bandwidth", "1")
    for command, column in (("predict", "kind"), ("attend", "value")):
        ok(capfd, command, "m.regard", "f.csv", "--out", f"{command}.csv")
        with open(f"{command}.csv", newline="") as file:
            found = [row[column] for row in csv.DictReader(file)]
        assert found[0] == "'" + labels[0]
        assert "plain" in found


def test_78_numbers_stay_numbers(here: Path, capfd) -> None:
    Path("xy.csv").write_text("x,y\n0,-5\n10,-7\n")
    ok(capfd, "fit", "xy.csv", "--target", "y", "--out", "m.regard", "--bandwidth", "1")
    assert ok(capfd, "predict", "m.regard", "xy.csv")[0] == "y\n-5.0\n-7.0\n"

"""``regard tour``: its folder, its table, and Ctrl-C on the way (line 80 of the list)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.cli import main, tour_command
from support.command import files, ok, refused


class TourResult:
    """What a tour returns, without its computations."""

    page = Path("index.html")
    columns = ("Station", "Question", "Answer")
    rows = (("Average pooling", "How far off is the mean?", "0.9"),)


@pytest.fixture
def quick_tour(monkeypatch) -> list[dict[str, Any]]:
    import regard.tour

    calls: list[dict[str, Any]] = []

    def run(out: Path, lang: str, seed: int, progress: Any) -> type[TourResult]:
        calls.append({"lang": lang, "seed": seed})
        progress(1, 1, "Average pooling")
        (out / "figures").mkdir(parents=True)
        (out / "figures" / "01.png").write_bytes(b"png")
        (out / "index.html").write_text("page")
        return TourResult

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

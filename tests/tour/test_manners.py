"""The tour's manners: progress, failures, settings, arguments, and the README's pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest

import book_pictures
import performance_page
from regard.tour import guide, pictures, run
from regard.tour.station import Findings, Visit
from regard.tour.stations import STATIONS

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")


def test_progress_is_reported_before_each_station(tmp_path, monkeypatch):
    monkeypatch.setattr(guide, "STATIONS", STATIONS[1:3])
    heard = []
    run(tmp_path, lang="zh", progress=lambda *what: heard.append(what))
    assert heard == [(1, 2, "平均汇聚"), (2, 2, "硬注意力")]


def test_a_failing_station_leaves_nothing_behind(tmp_path, monkeypatch):
    def compute(visit: Visit) -> Findings:
        raise KeyboardInterrupt

    monkeypatch.setattr(guide, "STATIONS", (STATIONS[1], replace(STATIONS[2], compute=compute)))
    before = dict(matplotlib.rcParams)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "tour")
    assert not (tmp_path / "tour").exists()
    assert dict(matplotlib.rcParams) == before


def test_a_readers_settings_neither_matter_nor_change(tmp_path, monkeypatch):
    monkeypatch.setattr(guide, "STATIONS", STATIONS[1:2])
    plain = run(tmp_path / "plain").figures[1].read_bytes()
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "savefig.bbox": "tight"}):
        mine = dict(matplotlib.rcParams)
        assert run(tmp_path / "own").figures[1].read_bytes() == plain
        assert dict(matplotlib.rcParams) == mine


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"lang": "fr"}, ValueError, "lang must be one of en, zh, got 'fr'"),
        ({"seed": -1}, ValueError, "seed must be a whole number, 0 or more, got -1"),
        ({"seed": 1.5}, ValueError, "seed must be a whole number, 0 or more, got 1.5"),
        ({"seed": True}, ValueError, "seed must be a whole number, 0 or more, got True"),
    ],
)
def test_errors_name_the_argument(tmp_path, arguments, kind, message):
    with pytest.raises(kind, match=message):
        run(tmp_path / "tour", **arguments)
    assert not (tmp_path / "tour").exists()


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "tour").write_text("mine")
    with pytest.raises(NotADirectoryError, match="out must be a folder, got the file"):
        run(tmp_path / "tour")
    assert (tmp_path / "tour").read_text() == "mine"


# ---------------------------------------------------------------- the pictures of README and docs/


def test_every_picture_can_be_drawn_again(tmp_path):
    drawn = pictures.draw(tmp_path / "images")
    names = "hero query-key-value attention-stages sequence-to-sequence more-data uncertainty"
    assert [path.name for path in drawn] == [f"{name}.png" for name in names.split()]
    kept = Path(__file__).resolve().parents[2] / "docs" / "images"
    others = {f"{name}.png" for name in book_pictures.PICTURES}
    charts = {performance_page.chart_path(name).name for name in performance_page.CHARTS}
    assert {path.name for path in kept.glob("*.png")} == {path.name for path in drawn} | others | charts
    for path in [*drawn, *kept.glob("*.png")]:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size < 150_000

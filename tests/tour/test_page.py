"""The tour's page stands alone, and its figures are the files beside it."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from regard.data import notes, notes_truth
from regard.data.text import LANGUAGES
from regard.tour import guide, run
from regard.tour.stations import STATIONS
from support.soak import FULL
from support.story import FIGURES, error

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")

# Of the page, and of all in it but pictures and the font.
MAX_BYTES, MAX_PROSE = 3_000_000, 150_000


class Reader(HTMLParser):
    """Collects addresses and tags, and insists that every tag is closed in turn."""

    VOID = frozenset({"meta", "link", "img", "br", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.handlers: list[str] = []
        self.alts: list[str | None] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)
        self.addresses += [given[name] for name in ("src", "href", "srcset", "action", "data") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag == "img":
            self.alts.append(given.get("alt"))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def _read(tour):
    reader = Reader()
    html = tour.page.read_text(encoding="utf-8")
    reader.feed(html)
    reader.close()
    return reader, html


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_is_self_contained(tours, lang):
    reader, html = _read(tours[lang])
    assert reader.open == []
    assert len(html.encode()) < MAX_BYTES
    prose = re.sub(r'"data:image[^"]*"|url\(data:font/otf;base64,[\w+/=]*\)', "", html)
    assert len(prose) < MAX_PROSE
    prose = prose.replace('"http://www.w3.org/2000/svg"', "")  # the name of a kind of element
    assert not re.search(r"https?:|//[a-z]|@import|url\(", prose)
    assert reader.handlers == []
    data, script = re.findall(r"<script type=.+?>(.*?)</script>", prose, re.S)
    assert html.count("<script") == 2
    assert set(json.loads(data)) == {*notes()._asdict(), "words"}
    assert not re.search(
        r"innerHTML|outerHTML|document\.write|\beval\b|Function|fetch|XMLHttp|Socket|\bimport\b", script
    )
    assert not reader.tags & {"iframe", "object", "embed", "video", "audio"}
    for address in reader.addresses:
        assert address.startswith(("data:", "#")), address[:60]
        assert not address.startswith("#") or address[1:] in reader.ids
    # Sections, the table, and what the script reads.
    assert len(set(reader.ids)) == len(reader.ids) == len(STATIONS) + 2
    assert len(reader.alts) == len(FIGURES)
    assert all(reader.alts)
    assert f'<html lang="{"zh-CN" if lang == "zh" else "en"}">' in html


def test_embedded_figures_are_the_files_and_point_nowhere_else(tours):
    reader, _ = _read(tours["en"])
    head = "data:image/svg+xml;base64,"
    embedded = [base64.b64decode(a.removeprefix(head)) for a in reader.addresses if a.startswith(head)]
    assert embedded == [path.read_bytes() for path in tours["en"].figures if path.suffix == ".svg"]
    for svg in embedded:
        for element in ET.fromstring(svg).iter():
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:"))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_figure_is_there_as_png_and_svg(tours, lang):
    tour = tours[lang]
    names = [f"{number:02d}-{name}" for number, name in FIGURES]
    assert [path.name for path in tour.figures] == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    assert sorted(p for p in tour.page.parent.rglob("*") if p.is_file()) == sorted([tour.page, *tour.figures])
    for path in tour.figures:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG") if path.suffix == ".png" else b"<svg" in content


def test_the_answer_stands_in_its_section_and_in_the_table(tours):
    html = tours["en"].page.read_text(encoding="utf-8")
    assert html.count("misses the truth by 0.943") == 2
    assert "n<sup>−1/5</sup> (slope" in html


def test_the_same_seed_gives_the_same_bytes(tours, tmp_path, monkeypatch):
    """All of it under soak, otherwise every third station."""
    some = slice(None) if FULL else slice(None, None, 3)
    before = tours["en"]
    monkeypatch.setattr(guide, "STATIONS", STATIONS[some])
    again = run(tmp_path, lang="en", seed=0)
    assert again.rows == before.rows[some]
    # Their names begin with the number of the station.
    figures = {path.name[3:]: path.read_bytes() for path in before.figures}
    assert len(again.figures) >= 2 * len(again.rows)
    assert all(path.read_bytes() == figures[path.name[3:]] for path in again.figures)
    if some == slice(None):
        assert again.page.read_bytes() == before.page.read_bytes()


def test_another_seed_gives_other_numbers(tours, tmp_path, monkeypatch):
    before = tours["en"]
    monkeypatch.setattr(guide, "STATIONS", STATIONS[1:2])
    other = run(tmp_path, seed=7)
    expected = error(notes(seed=7).y_train.mean(), notes_truth(notes().x_test))
    assert f"by {expected:.3f}" in other.rows[0].answer
    assert other.rows[0] != before.rows[1]
    assert "seed=7" in other.page.read_text(encoding="utf-8")
    assert "regard tour --lang en" in before.page.read_text(encoding="utf-8")

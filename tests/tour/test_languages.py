"""The tour speaks two languages, and its figures only letters that their font has."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
from matplotlib import font_manager

from regard.plot import fonts
from regard.text import LANGUAGES, Text
from regard.tour import guide, page, run
from regard.tour.station import Told, Visit
from regard.tour.stations import STATIONS
from story import CJK, FIGURES

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")


# ---------------------------------------------------------------- two languages


def _texts():
    for station in STATIONS:
        for field in fields(station):
            if isinstance(words := getattr(station, field.name), Text):
                yield f"{station.name}.{field.name}", words
    yield from ((f"page.{name}", words) for name, words in page.WORDS.items())
    yield from ((f"column.{words.en}", words) for words in guide.COLUMNS)


@pytest.mark.parametrize("words", [pytest.param(words, id=where) for where, words in _texts()])
def test_every_text_is_there_in_both_languages(words):
    assert words.en.strip()
    assert not CJK.search(words.en)
    assert CJK.search(words.zh)


def test_answers_and_captions_are_in_both_languages(tours):
    for lang in LANGUAGES:
        html = tours[lang].page.read_text(encoding="utf-8")
        captions = re.findall(r"<figcaption>(.*?)</figcaption>", html)
        assert len(captions) == len(FIGURES)
        for words in [*captions, *(row.answer for row in tours[lang].rows)]:
            assert bool(CJK.search(words)) == (lang == "zh"), words


def test_both_languages_say_the_same_numbers(tours):
    for en, zh in zip(tours["en"].rows, tours["zh"].rows, strict=True):
        numbers = [sorted(set(re.findall(r"\d+\.\d+", row.answer))) for row in (en, zh)]
        assert numbers[0] == numbers[1]


def test_an_english_page_has_no_chinese(tours):
    assert not CJK.search(tours["en"].page.read_text(encoding="utf-8"))


def test_chinese_lines_join_without_a_space(tours):
    html = tours["zh"].page.read_text(encoding="utf-8")
    stories = "".join(re.findall(r'<div class="story">(.*?)</div>', html, flags=re.DOTALL))
    assert not re.search(r"[\u4e00-\u9fff，。；：）]\s+[\u4e00-\u9fff，。；：（]", stories)


# ---------------------------------------------------------------- letters in figures


def test_without_a_chinese_font_figures_stay_english_and_the_page_says_so(monkeypatch, tmp_path, tours):
    seen = []

    def tell(visit: Visit) -> Told:
        seen.append(visit.lettering)
        return STATIONS[1].tell(visit)

    monkeypatch.setattr(fonts, "chinese_family", lambda: None)
    monkeypatch.setattr(guide, "STATIONS", (replace(STATIONS[1], tell=tell),))
    result = run(tmp_path, lang="zh")
    html = result.page.read_text(encoding="utf-8")
    assert seen == ["en"]
    assert page.WORDS["letters"].zh in html
    assert CJK.search(result.rows[0].answer)
    assert page.WORDS["letters"].en not in tours["en"].page.read_text(encoding="utf-8")


def test_a_font_without_chinese_letters_is_not_chosen(monkeypatch):
    latin = font_manager.findfont(fonts.LATIN)
    pretender = SimpleNamespace(name="SimHei", fname=latin)
    monkeypatch.setattr(font_manager, "fontManager", SimpleNamespace(ttflist=[pretender]))
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert fonts.chinese_family() is None
    monkeypatch.setattr(fonts, "_has_letters", lambda path: path == latin)
    assert fonts.chinese_family() == "SimHei"


def test_the_more_legible_font_wins(monkeypatch):
    known = [SimpleNamespace(name=name, fname=name) for name in ("SimSun", "Noto Sans CJK SC", "DejaVu Sans")]
    monkeypatch.setattr(font_manager, "fontManager", SimpleNamespace(ttflist=known))
    monkeypatch.setattr(fonts, "_has_letters", lambda path: True)
    assert fonts.chinese_family() == "Noto Sans CJK SC"


def test_fonts_installed_since_are_found(monkeypatch):
    known: list[SimpleNamespace] = []

    def add(path):
        known.append(SimpleNamespace(name="WenQuanYi Micro Hei", fname=path))

    monkeypatch.setattr(font_manager, "fontManager", SimpleNamespace(ttflist=known, addfont=add))
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: ["/fonts/Lato.ttf", "/fonts/wqy-microhei.ttc"])
    monkeypatch.setattr(fonts, "_has_letters", lambda path: True)
    assert fonts.chinese_family() == "WenQuanYi Micro Hei"
    assert [entry.fname for entry in known] == ["/fonts/wqy-microhei.ttc"]

"""The tour speaks two languages, and its figures only letters that their font has."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from regard.data.text import LANGUAGES, Text
from regard.tour import guide, page, run
from regard.tour.station import Told, Visit
from regard.tour.stations import STATIONS
from support.story import CJK, FIGURES

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


def test_figures_are_in_the_language_of_the_tour(monkeypatch, tmp_path):
    lettering = []

    def tell(visit: Visit) -> Told:
        lettering.append(visit.lettering)
        return STATIONS[1].tell(visit)

    monkeypatch.setattr(guide, "STATIONS", (replace(STATIONS[1], tell=tell),))
    for lang in LANGUAGES:
        run(tmp_path / lang, lang=lang)
    assert lettering == list(LANGUAGES)


def test_figures_say_nothing_on_the_terminal(tours, logged):
    """A family that is not found, or a letter missing from a formula, is only logged."""
    assert tours.keys() == set(LANGUAGES)
    assert logged == []

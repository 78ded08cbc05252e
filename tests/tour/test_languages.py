"""The tour speaks two languages, and its figures only letters that their font has."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from regard.data.text import LANGUAGES
from regard.tour import guide, run
from regard.tour.station import Findings, Visit
from regard.tour.stations import STATIONS
from regard.tour.texts import read_texts
from support.story import CJK, FIGURES

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")


# ---------------------------------------------------------------- two languages


# The same in both languages.
NEUTRAL = ("formula", "code")


def _texts():
    for station in STATIONS:
        yield from ((f"{station.name}.{name}", words) for name, words in station.texts.items() if name not in NEUTRAL)
    yield from ((f"page.{name}", words) for name, words in read_texts("tour_page").items())


def test_every_text_is_there_in_both_languages():
    for where, words in _texts():
        assert words.en.strip(), where
        assert not CJK.search(words.en), where
        assert CJK.search(words.zh.replace("，", "一")), f"{where}: a formula is Chinese by its comma"


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
    prose = re.sub(r"(?s)<pre.*?</pre>|<[^>]*>", "", html.partition("<main>")[2].partition("</main>")[0])
    assert not re.search(r"[，。；：（）、] +\S|\S +[，。；：（）、]", prose)


# ---------------------------------------------------------------- letters in figures


def test_figures_are_in_the_language_of_the_tour(monkeypatch, tmp_path):
    languages = []

    def compute(visit: Visit) -> Findings:
        languages.append(visit.lang)
        return STATIONS[1].compute(visit)

    monkeypatch.setattr(guide, "STATIONS", (replace(STATIONS[1], compute=compute),))
    for lang in LANGUAGES:
        run(tmp_path / lang, lang=lang)
    assert languages == list(LANGUAGES)


def test_no_text_of_a_figure_covers_another(tours, overlaps):
    assert len([tours[lang] for lang in LANGUAGES]) == 2
    assert overlaps == []


def test_figures_say_nothing_on_the_terminal(tours, logged):
    """A family that is not found, or a letter missing from a formula, is only logged."""
    assert len([tours[lang] for lang in LANGUAGES]) == 2
    assert logged == []

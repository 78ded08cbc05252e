"""Dates: read back by a reader that shares nothing with the writer."""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from datetime import date, timedelta
from pathlib import Path

import pytest

from regard.data import (
    DATE_FORMATS,
    DATE_LANGUAGES,
    dates,
)
from support.soak import FULL

MULTI30K = Path(__file__).resolve().parents[3] / "shared" / "data" / "multi30k"


# The beginnings that tell a month in small letters, and weekdays from Monday on, in every language at once.
MONTHS = [
    "jan ene", "feb fév fev", "mar mär", "apr avr abr", "may mai", "juin jun", "jul juil",
    "aug aoû ago", "sep", "oct okt", "nov", "dec déc dez dic",
]  # fmt: skip
WEEKDAYS = [
    "monday lundi montag lunes 星期一", "tuesday mardi dienstag martes 星期二",
    "wednesday mercredi mittwoch miércoles 星期三", "thursday jeudi donnerstag jueves 星期四",
    "friday vendredi freitag viernes 星期五",
    "saturday samedi samstag sábado 星期六", "sunday dimanche sonntag domingo 星期日",
]  # fmt: skip
NUMERALS = {digit: number for number, digit in enumerate("〇一二三四五六七八九")}
FILLERS = {"le", "am", "el", "of", "de", "del", "er", "st", "nd", "rd", "th"}


def chinese(text: str) -> int:
    """十 is ten, 二十三 is 2 · 10 + 3."""
    if "十" not in text:
        return int("".join(str(NUMERALS[digit]) for digit in text))
    tens, units = text.split("十")
    return (NUMERALS[tens] if tens else 1) * 10 + (NUMERALS[units] if units else 0)


def understood(text: str) -> tuple[date, int | None]:
    """The date a text means, and the weekday it claims."""
    text, weekday = text.lower(), None
    for number, names in enumerate(WEEKDAYS):
        for name in names.split():
            if text.startswith(name):
                text, weekday = text.removeprefix(name).lstrip(", "), number
    if found := re.fullmatch(r"([〇一二三四五六七八九]{4})年(\w+)月(\w+)日", text):
        return date(*(chinese(part) for part in found.groups())), weekday
    numbers = [int(digits) for digits in re.findall(r"[0-9]+", text)]
    words = [word for word in re.findall(r"[^\W\d_]+", text) if word not in FILLERS]
    if words and words[0] not in "年月日号":
        (word,) = words
        (month,) = (number for number, names in enumerate(MONTHS, 1) if any(word.startswith(n) for n in names.split()))
        day, year = sorted(numbers)
        return date(year, month, day), weekday
    return date(*(numbers if numbers[0] > 31 else numbers[::-1])), weekday


def justified(text: str, target: str, positions: tuple[int, ...]) -> bool:
    """Does every target character point at something that says it?"""
    month = int(target[5:7])
    for place, (character, position) in enumerate(zip(target, positions, strict=True)):
        if character == "-":
            if position != -1:
                return False
            continue
        there = text[position]
        if there.isascii() and there.isdigit():
            # A copied digit, or a zero that was left unwritten before a lone digit.
            lone = not re.search(r"[0-9]", text[max(position - 1, 0) : position] + text[position + 1 : position + 2])
            if there != character and not (character == "0" and lone and place in (5, 8)):
                return False
        elif there in NUMERALS or there == "十":
            said = {"十": "01"}.get(there, str(NUMERALS.get(there, "")))
            if character not in said and not (character == "0" and place in (5, 8)):
                return False
        else:
            start = text[position:].lower()
            if place not in (5, 6) or not any(start.startswith(name) for name in MONTHS[month - 1].split()):
                return False
            if position and text[position - 1].isalpha():
                return False
    return True


def every_day(year: int) -> list[date]:
    return [date(year, 1, 1) + timedelta(days=days) for days in range(365 + isleap(year))]


@pytest.mark.parametrize("name", DATE_FORMATS)
def test_every_day_is_written_so_that_it_can_be_read(name: str) -> None:
    form = DATE_FORMATS[name]
    # A leap year; in soak runs also a century that is none and one that is, and the last year.
    for day in [day for year in ((1900, 1999, 2000, 2024, 2099) if FULL else (2024,)) for day in every_day(year)]:
        for weekday in {False, form.weekday}:
            text, positions = form.write(day, weekday=weekday)
            for cased in (text, text.upper(), text.lower()):
                assert len(cased) == len(text)
                assert understood(cased) == (day, day.weekday() if weekday else None), cased
                assert justified(cased, day.isoformat(), positions), (cased, positions)


def test_each_target_digit_has_its_own_part_of_the_source() -> None:
    """Positions of year, month and day never overlap: no digit is justified by another part's digit."""
    for form in DATE_FORMATS.values():
        _, positions = form.write(date(2022, 2, 22))
        year, month, day = set(positions[:4]), set(positions[5:7]), set(positions[8:])
        assert len(year) == 4, form.name
        assert len(year | month | day) == len(year) + len(month) + len(day), form.name


def test_dates_mean_what_their_target_says() -> None:
    pairs = dates(4000, seed=1)
    claimed = 0
    for text, target, positions in zip(pairs.source, pairs.target, pairs.alignment, strict=True):
        day, weekday = understood(text)
        assert day == date.fromisoformat(target)
        assert weekday in (None, day.weekday())
        assert justified(text, target, positions)
        claimed += weekday is not None
    assert 0.05 < claimed / len(pairs) < 0.2
    assert 0.03 < sum(text.isupper() for text in pairs.source) / len(pairs) < 0.2


def test_a_text_never_means_two_dates() -> None:
    meaning: dict[str, date] = {}
    for form in DATE_FORMATS.values():
        for day in every_day(2011) + every_day(2012):
            text = form.write(day)[0].lower()
            assert meaning.setdefault(text, day) == day, text


def test_examples_of_the_forms() -> None:
    day = date(2021, 5, 3)
    written = {name: form.write(day)[0] for name, form in DATE_FORMATS.items()}
    assert written["fr-day-month"] == "3 mai 2021"
    assert written["en-month-ordinal"] == "May 3rd, 2021"
    assert written["de-day-month"] == "3. Mai 2021"
    assert written["zh-year-month-day"] == "2021年5月3日"
    assert written["zh-numerals"] == "二〇二一年五月三日"
    assert written["en-slashes"] == written["fr-slashes"] == "03/05/2021"
    assert DATE_FORMATS["fr-day-month"].write(date(2021, 5, 1), weekday=True)[0] == "samedi 1er mai 2021"
    endings = [DATE_FORMATS["en-ordinal-of"].write(date(2021, 1, d))[0].split()[0] for d in (1, 2, 3, 11, 13, 22, 31)]
    assert endings == ["1st", "2nd", "3rd", "11th", "13th", "22nd", "31st"]


def test_dates_are_spread_over_formats_languages_years_and_days() -> None:
    assert {form.language for form in DATE_FORMATS.values()} == set(DATE_LANGUAGES)
    days = [date.fromisoformat(target) for target in dates(20_000).target]
    assert {day.year for day in days} == set(range(1900, 2100))
    assert {day.month for day in days} == set(range(1, 13))
    assert any(day.day == monthrange(day.year, day.month)[1] for day in days)
    for name, form in DATE_FORMATS.items():
        only = dates(50, formats=[name], years=[2021])
        allowed = {
            cased(form.write(day, weekday=weekday)[0])
            for day in every_day(2021)
            for weekday in {False, form.weekday}
            for cased in (str, str.upper, str.lower)
        }
        assert set(only.source) <= allowed, name


def test_formats_languages_and_years_can_be_held_out() -> None:
    kept = [year for year in range(1900, 2100) if year % 10 != 7]
    assert not any(target[3] == "7" for target in dates(2000, years=kept).target)
    chinese_only = dates(500, languages=["zh"], formats=["zh-numerals"])
    assert all("年" in text and not re.search("[0-9]", text) for text in chinese_only.source)
    without = dates(
        2000, languages=["de"], formats=[name for name in DATE_FORMATS if name[:2] == "de" and name != "de-am"]
    )
    assert not any(text.lower().startswith("am ") for text in without.source)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n": 0}, "n must be at least 1, got 0"),
        ({"n": 1, "languages": ["en", "xx"]}, "languages: 'xx' is not one of en, fr, de, es, zh"),
        ({"n": 1, "languages": []}, "languages is empty"),
        ({"n": 1, "formats": ["nope"]}, "formats: 'nope' is not one of en-day-month, "),
        ({"n": 1, "languages": ["de"], "formats": ["fr-le"]}, "formats: 'fr-le' is not one of de-day-month, "),
        ({"n": 1, "formats": []}, "formats is empty"),
        ({"n": 1, "years": []}, "years is empty; give some of 1900 to 2099"),
        ({"n": 1, "years": [2000, 2100]}, "years must be between 1900 and 2099, got 2100"),
    ],
)
def test_impossible_dates_are_refused(given: dict, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        dates(**given)


def test_a_format_without_weekday_takes_none() -> None:
    with pytest.raises(ValueError, match="weekday must be False for format 'de-dots'"):
        DATE_FORMATS["de-dots"].write(date(2021, 5, 3), weekday=True)

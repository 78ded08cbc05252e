"""Dates in the formats of several languages and in ISO format, with the source character of each digit.

    "May 3rd, 2021"  "le 3 mai 2021"  "3. Mai 2021"  "二〇二一年五月三日"   →   "2021-05-03"

A digit of the target is aligned with the digit that it copies. If there is none, it is aligned with what expresses it:
the first letter of a month's name, or the only digit of "3" for both digits of "03". The dashes have no source (-1).
Numeric dates put the day first in every language but Chinese, where the year comes first: so no text is ambiguous.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache

import numpy as np

from regard.data.text_pairs import NOWHERE, Pairs

DATE_LANGUAGES = ("en", "fr", "de", "es", "zh")
FIRST_YEAR, LAST_YEAR = 1900, 2099

_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
}
_SHORT_MONTHS = {
    "en": "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
    "fr": "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
    "de": "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.",
    "es": "ene feb mar abr may jun jul ago sep oct nov dic",
}
# Monday first, and the separator between the name and the date.
_WEEKDAYS = {
    "en": ("Monday Tuesday Wednesday Thursday Friday Saturday Sunday", ", "),
    "fr": ("lundi mardi mercredi jeudi vendredi samedi dimanche", " "),
    "de": ("Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag", ", "),
    "es": ("lunes martes miércoles jueves viernes sábado domingo", ", "),
    "zh": ("星期一 星期二 星期三 星期四 星期五 星期六 星期日", " "),
}
_CHINESE_DIGITS = "〇一二三四五六七八九"
# Probability of a leading weekday if the format allows it, and of upper case and lower case.
_WEEKDAY_PROBABILITY = 0.2
_UPPER_PROBABILITY = 0.1
_LOWER_PROBABILITY = 0.15

# A text and, for each digit of its part of the target, the position of its source character.
Written = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class DateFormat:
    """One way to write a date.

    Parameters
    ----------
    name : str
        Name in ``DATE_FORMATS``.
    language : str
        One of ``DATE_LANGUAGES``.
    template : str
        Text with fields in braces.
    weekday : bool
        Whether the name of the weekday may come first.

    >>> DATE_FORMATS["en-month-ordinal"].write(date(2021, 5, 3))
    ('May 3rd, 2021', (9, 10, 11, 12, -1, 0, 0, -1, 4, 4))
    """

    name: str
    language: str
    template: str  # text with fields in braces
    weekday: bool  # whether the name of the weekday may come first

    def write(self, day: date, *, weekday: bool = False) -> Written:
        """The date as text, and for each character of its ISO form its source position, or -1.

        Parameters
        ----------
        day : date
            The date to write.
        weekday : bool, default=False
            Put the name of the weekday first.

        Returns
        -------
        tuple of str and tuple of int
            The text, and ten positions in it.

        Raises
        ------
        ValueError
            If the format has no weekday.
        """
        text = ""
        if weekday:
            if not self.weekday:
                raise ValueError(f"weekday must be False for format {self.name!r}, which has no weekday")
            names, after = _WEEKDAYS[self.language]
            text = names.split()[day.weekday()] + after
        place = {}
        for literal, field in _pieces(self.template):
            text += literal
            if field:
                part, (written, offsets) = _field(field, self.language, day)
                place[part] = [len(text) + offset for offset in offsets]
                text += written
        return text, (*place["year"], NOWHERE, *place["month"], NOWHERE, *place["day"])


@cache
def _pieces(template: str) -> tuple[tuple[str, str], ...]:
    """ "{d}. {month}" → (("", "d"), (". ", "month"), ("", ""))."""
    found = re.split(r"\{(\w+)\}", template)
    return tuple(zip(found[::2], [*found[1::2], ""], strict=True))


def _field(field: str, language: str, day: date) -> tuple[str, Written]:
    """The part of the date that a field writes, and its text."""
    match field:
        case "year":
            return "year", (str(day.year), (0, 1, 2, 3))
        case "chinese_year":
            return "year", ("".join(_CHINESE_DIGITS[int(digit)] for digit in str(day.year)), (0, 1, 2, 3))
        case "month" | "mon":
            names = (_MONTHS if field == "month" else _SHORT_MONTHS)[language]
            return "month", (names.split()[day.month - 1], (0, 0))
        case "m" | "mm" | "chinese_month":
            return "month", _number(field, day.month)
        case "ordinal":
            return "day", _number("d", day.day, _english_ending(day.day))
        case "premier":
            return "day", _number("d", day.day, "er" if day.day == 1 else "")
        case "d" | "dd" | "chinese_day":
            return "day", _number(field, day.day)
    raise ValueError(f"no such field: {field!r}")


def _number(field: str, number: int, ending: str = "") -> Written:
    """A day or a month in digits, two of them if the field has two letters, or in Chinese."""
    tens, units = divmod(number, 10)
    if field.startswith("chinese"):
        text = ("", "十")[tens] if tens < 2 else _CHINESE_DIGITS[tens] + "十"
        if units:
            text += _CHINESE_DIGITS[units]
        return text, (0, len(text) - 1)
    text = str(number).zfill(len(field))
    return text + ending, (0, len(text) - 1)


def _english_ending(number: int) -> str:
    if number in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


#   name                  template                              weekday first?
_TABLE = """
en-day-month            {d} {month} {year}                      yes
en-day-mon              {d} {mon} {year}                        yes
en-month-day            {month} {d}, {year}                     yes
en-month-ordinal        {month} {ordinal}, {year}               yes
en-ordinal-of           {ordinal} of {month} {year}             no
en-slashes              {dd}/{mm}/{year}                        no
fr-day-month            {premier} {month} {year}                yes
fr-day-mon              {d} {mon} {year}                        yes
fr-le                   le {premier} {month} {year}             no
fr-slashes              {dd}/{mm}/{year}                        no
fr-bare-slashes         {d}/{m}/{year}                          no
de-day-month            {d}. {month} {year}                     yes
de-day-mon              {d}. {mon} {year}                       yes
de-am                   am {d}. {month} {year}                  no
de-dots                 {dd}.{mm}.{year}                        no
de-bare-dots            {d}.{m}.{year}                          no
es-de                   {d} de {month} de {year}                yes
es-day-mon              {d} {mon} {year}                        yes
es-el                   el {d} de {month} del {year}            no
es-dashes               {dd}-{mm}-{year}                        no
zh-year-month-day       {year}年{m}月{d}日                       yes
zh-padded               {year}年{mm}月{dd}日                     no
zh-hao                  {year}年{m}月{d}号                       yes
zh-numerals             {chinese_year}年{chinese_month}月{chinese_day}日   yes
zh-slashes              {year}/{m}/{d}                          no
zh-dashes               {year}-{mm}-{dd}                        no
"""


DATE_FORMATS = {
    name: DateFormat(name, name[:2], template, weekday == "yes")
    for name, template, weekday in (re.split(r"  +", line) for line in _TABLE.strip().splitlines())
}


def dates(
    n: int,
    seed: int = 0,
    *,
    languages: Iterable[str] = DATE_LANGUAGES,
    formats: Iterable[str] | None = None,
    years: Iterable[int] = range(FIRST_YEAR, LAST_YEAR + 1),
) -> Pairs:
    """Dates in many formats and in ISO format, with gold alignments.

    The format, year, month and day of each pair are drawn uniformly. If the format allows it, one in five begins with
    the weekday; one in ten is in upper case and about one in seven in lower case.

    Parameters
    ----------
    n : int
        How many, at least 1. The first k of n are the k that ``n=k`` gives.
    seed : int, default=0
        The same seed gives the same pairs.
    languages : iterable of str
        Some of ``DATE_LANGUAGES``; all by default.
    formats : iterable of str, default=None
        Names in ``DATE_FORMATS``; None is all of these languages. Leave one out to hold it out.
    years : iterable of int
        Between 1900 and 2099; all by default. Leave some out to hold them out.

    Returns
    -------
    Pairs
        With their alignment.

    *Cost*: about 10 µs a pair.

    >>> pairs = dates(1, formats=["fr-le"], years=[2021])
    >>> pairs.source, pairs.target
    (('le 1er janvier 2021',), ('2021-01-01',))
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    chosen, span = _chosen(languages, formats), _span(years)
    source, target, alignment = [], [], []
    for row in np.random.default_rng(seed).random((n, 6)).tolist():
        form = chosen[int(row[0] * len(chosen))]
        year, month = span[int(row[1] * len(span))], 1 + int(row[2] * 12)
        day = date(year, month, 1 + int(row[3] * monthrange(year, month)[1]))
        text, positions = form.write(day, weekday=form.weekday and row[4] < _WEEKDAY_PROBABILITY)
        if row[5] < _UPPER_PROBABILITY:
            text = text.upper()
        elif row[5] < _UPPER_PROBABILITY + _LOWER_PROBABILITY:
            text = text.lower()
        source.append(text)
        target.append(day.isoformat())
        alignment.append(positions)
    return Pairs(tuple(source), tuple(target), tuple(alignment))


def _chosen(languages: Iterable[str], formats: Iterable[str] | None) -> list[DateFormat]:
    """The formats to draw from, in the order of the table."""
    tongues = _named("languages", languages, DATE_LANGUAGES)
    names = [name for name, form in DATE_FORMATS.items() if form.language in tongues]
    wanted = set(names) if formats is None else _named("formats", formats, names)
    return [DATE_FORMATS[name] for name in names if name in wanted]


def _named(argument: str, given: Iterable[str], known: Iterable[str]) -> set[str]:
    found = {given} if isinstance(given, str) else set(given)
    known = tuple(known)
    for name in sorted(found - set(known), key=str):
        raise ValueError(f"{argument}: {name!r} is not one of {', '.join(known)}")
    if not found:
        raise ValueError(f"{argument} is empty; give some of {', '.join(known)}")
    return found


def _span(years: Iterable[int]) -> list[int]:
    span = sorted(set(years))
    if not span:
        raise ValueError(f"years is empty; give some of {FIRST_YEAR} to {LAST_YEAR}")
    for year in (span[0], span[-1]):
        if not FIRST_YEAR <= year <= LAST_YEAR:
            raise ValueError(f"years must be between {FIRST_YEAR} and {LAST_YEAR}, got {year}")
    return [int(year) for year in span]

"""Pairs that know their alignment, and pairs in files."""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
from calendar import isleap, monthrange
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import (
    DATE_FORMATS,
    DATE_LANGUAGES,
    Pairs,
    PairsError,
    dates,
    number_words,
    read_lines,
    read_pairs,
    read_parallel,
    reversal,
)
from regard.data.number_words import spell

FULL = bool(os.environ.get("REGARD_SOAK"))
MULTI30K = Path(__file__).resolve().parents[3] / "shared" / "data" / "multi30k"

# ---- dates: read back by a reader that shares nothing with the writer

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
        ({"n": 1, "years": [2000, 2100]}, "years must lie within 1900 and 2099, got 2100"),
    ],
)
def test_impossible_dates_are_refused(given: dict, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        dates(**given)


def test_a_format_without_weekday_takes_none() -> None:
    with pytest.raises(ValueError, match="'de-dots' takes no weekday"):
        DATE_FORMATS["de-dots"].write(date(2021, 5, 3), weekday=True)


# ---- number words and reversal

VALUES = {
    word: value
    for names, step, first in (
        ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
         "seventeen eighteen nineteen", 1, 0),
        ("twenty thirty forty fifty sixty seventy eighty ninety", 10, 20),
    )
    for value, word in zip(range(first, 1000, step), names.split(), strict=False)
}  # fmt: skip


def valued(text: str) -> int:
    """What number words add up to."""
    total = group = 0
    for word in re.findall("[a-z]+", text):
        if word == "thousand":
            total, group = group * 1000, 0
        elif word == "hundred":
            group *= 100
        elif word != "and":
            group += VALUES[word]
    return total + group


def test_every_number_is_spelled_so_that_it_can_be_read() -> None:
    texts = set()
    numbers = [*range(1200), *range(1200, 1_000_000, 7 if FULL else 701), 100_000, 100_005, 110_000, 999_999]
    for number in numbers:
        text, positions = spell(number)
        texts.add(text)
        assert valued(text) == number
        assert len(positions) == len(str(number))
        # The order of the digits is the order of the words.
        assert list(positions) == sorted(positions)
        for place, (digit, position) in enumerate(zip(str(number), positions, strict=True)):
            word = re.match("[a-z]+", text[position:]).group()  # type: ignore[union-attr]
            assert position == 0 or not text[position - 1].isalpha()
            if word in ("hundred", "thousand"):
                assert digit == "0"
            else:
                assert digit in str(VALUES[word])
                power = 10 ** ((len(str(number)) - 1 - place) % 3)
                # A word that says tens stands for tens and units; one that says units for units or hundreds.
                assert power in ((1, 10) if VALUES[word] >= 10 else (1, 100))
    assert len(texts) == len(set(numbers))


def test_number_words_of_the_brief() -> None:
    assert spell(312) == ("three hundred and twelve", (0, 18, 18))
    assert spell(1005) == ("one thousand and five", (0, 4, 4, 17))
    pairs = number_words(3000)
    assert [valued(text) for text in pairs.source] == [int(target) for target in pairs.target]
    assert {len(target) for target in pairs.target} == {1, 2, 3, 4, 5, 6}
    for wrong in (-1, 1_000_000):
        with pytest.raises(ValueError, match=f"number must be from 0 to 999,999, got {wrong}"):
            spell(wrong)


def test_reversal_is_its_own_inverse() -> None:
    pairs = reversal(3000)
    assert {len(text) for text in pairs.source} == set(range(1, 26))
    assert set("".join(pairs.source)) == set("abcdefghijklmnopqrstuvwxyz")
    for text, target, positions in zip(pairs.source, pairs.target, pairs.alignment, strict=True):
        assert target[::-1] == text
        assert "".join(text[position] for position in positions) == target
        assert sorted(positions) == list(range(len(text)))
    assert {len(text) for text in reversal(300, lengths=(26, 30)).source} == set(range(26, 31))


@pytest.mark.parametrize("lengths", [(0, 5), (6, 5), (-1, -1)])
def test_impossible_lengths_are_refused(lengths: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"lengths must be \(shortest, longest\)"):
        reversal(1, lengths=lengths)


@pytest.mark.parametrize("make", [dates, number_words, reversal])
def test_seeds_decide(make) -> None:
    assert make(50, seed=3) == make(50, 3)
    assert make(50, seed=3) != make(50, seed=4)
    assert make(50, seed=3).take(range(20)) == make(20, seed=3)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        make(0)


# ---- pairs in memory


def test_a_split_keeps_equal_sources_together_and_loses_nothing() -> None:
    pairs = reversal(4000, lengths=(1, 3))
    learn, held = pairs.split(0.25, seed=1)
    assert not set(learn.source) & set(held.source)
    rows = list(zip(pairs.source, pairs.target, pairs.alignment, strict=True))
    both = [row for part in (learn, held) for row in zip(part.source, part.target, part.alignment, strict=True)]
    assert sorted(both) == sorted(rows)
    assert 0.2 < len(held) / len(pairs) < 0.3
    assert (learn, held) == pairs.split(0.25, seed=1)
    assert held != pairs.split(0.25, seed=2)[1]
    # More pairs move nobody to the other side.
    assert set(pairs.take(range(1000)).split(0.25, seed=1)[1].source) <= set(held.source)


def test_a_split_by_target_holds_a_date_out_in_every_format() -> None:
    learn, held = dates(3000, years=[2020, 2021]).split(0.2, by="target")
    assert not set(learn.target) & set(held.target)
    assert not set(learn.source) & set(held.source)
    assert len(held) > 300


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share must lie strictly between 0 and 1"):
        reversal(2).split(share)
    with pytest.raises(ValueError, match="by must be 'source' or 'target', got 'both'"):
        reversal(2).split(0.5, by="both")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((("a",), ()), "source has 1 texts, target has 0"),
        ((("a",), ("b",), ()), "alignment has 0 rows, target has 1 texts"),
        ((("a",), ("bc",), ((0,),)), "alignment of pair 1 has 1 positions, its target 2"),
        ((("a", "a"), ("b", "b"), ((0,), (1,))), "alignment of pair 2 must lie within -1 and 0, got 1 to 1"),
        ((("a",), ("b",), ((-2,),)), "alignment of pair 1 must lie within -1 and 0, got -2 to -2"),
    ],
)
def test_pairs_that_disagree_are_refused(given, words: str) -> None:
    with pytest.raises(PairsError, match=re.escape(words)):
        Pairs(*given)


def test_pairs_may_be_none() -> None:
    assert len(Pairs((), ())) == 0
    assert len(Pairs(("",), ("",), ((),))) == 1


# ---- pairs in files


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["fra.txt", "pairs.tsv", "pairs.tsv.gz", "noending"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_the_book_s_form_is_read(tmp_path: Path, name: str, end: str, bom: str) -> None:
    lines = ["Go.\tVa !\tCC-BY 2.0 #1", "Hi.\tSalut\u202f!", '"No"\t "Non" \t', "猫 \u2028x\tchat"]
    path = written(tmp_path, name, (bom + end.join(lines) + end + end).encode())
    pairs = read_pairs(path)
    assert pairs.source == ("Go.", "Hi.", '"No"', "猫 \u2028x")
    assert pairs.target == ("Va !", "Salut\u202f!", '"Non"', "chat")
    assert pairs.alignment is None


def test_parallel_files_are_read_line_by_line(tmp_path: Path) -> None:
    source = written(tmp_path, "a.de", "\ufeffEin Hund\r\n zwei\tKatzen \r\n".encode())
    target = written(tmp_path, "a.en.gz", b"a dog\ntwo cats\n\n\n")
    pairs = read_parallel(source, target)
    assert pairs == Pairs(("Ein Hund", "zwei\tKatzen"), ("a dog", "two cats"))


BAD_LINES = [
    (b"", "is empty"),
    (b"\n\r\n  \n", "is empty"),
    (b"a\tb\n\nc\td\n", "line 2 is empty, yet text follows it"),
    (b"a\tb\nc\n", "line 2: has 0 tabs; a line is source<TAB>target"),
    (b"a\tb\tc\td\n", "line 1: has 3 tabs"),
    (b"a\tb\n \tc\n", "line 2: the source is empty"),
    (b"a\t \tc\n", "line 1: the target is empty"),
    (b"a\tb\n\x00c\td\n", "line 2: holds a NUL byte"),
    (b"a\tb\nc\t\xe9t\xe9\n", "line 2: byte 0xe9 is not UTF-8"),
    (b"a\t\xed\xa0\x80\n", "line 1: byte 0xed is not UTF-8"),
    ("a\tb\n".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    (b"a\tb\rc\td\r", "line 1: a carriage return stands alone"),
    (gzip.compress(b"a\tb\n", mtime=0), "is gzipped; give it a name that ends in .gz"),
    (b"a\t" + b"b" * (1 << 20), "line 1: is longer than 1,048,576 bytes"),
]


@pytest.mark.parametrize(("content", "words"), BAD_LINES)
def test_lines_that_cannot_be_used_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = written(tmp_path, "t.tsv", content)
    with pytest.raises(PairsError, match=re.escape(f"{path}: {words}")):
        read_pairs(path)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (b"a\nb\nc\n", b"a\nb\n", "s.txt has 3 lines, .*t.txt has 2"),
        (b"a\n", b"", "t.txt: is empty"),
        (b"a\n\nc\n", b"a\nb\nc\n", "s.txt: line 2 is empty"),
        (b"a\nb\n", b"a\n\xff\n", "t.txt: line 2: byte 0xff is not UTF-8"),
    ],
)
def test_parallel_files_that_do_not_match_are_refused(tmp_path: Path, source: bytes, target: bytes, words: str) -> None:
    paths = written(tmp_path, "s.txt", source), written(tmp_path, "t.txt", target)
    with pytest.raises(PairsError, match=words):
        read_parallel(*paths)


def test_files_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(PairsError, match="no such file"):
        read_pairs(tmp_path / "none.tsv")
    with pytest.raises(PairsError, match="is a directory, not a regular file"):
        read_lines(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PairsError, match="is a pipe, not a regular file"):
        read_lines(tmp_path / "pipe")
    with pytest.raises(PairsError, match="both standard input"):
        read_parallel("-", "-")


def test_bombs_and_broken_gzip_files_are_refused(tmp_path: Path) -> None:
    bomb = written(tmp_path, "bomb.gz", b"a\tb\n" * 500_000)
    with pytest.raises(PairsError, match="holds more than 1,000,000 bytes of data once decoded"):
        read_pairs(bomb, max_bytes=1_000_000)
    whole = bomb.read_bytes()
    for content in (whole[: len(whole) // 2], b"a\tb\n", whole[:-8] + b"\0" * 8):
        bomb.write_bytes(content)
        with pytest.raises(PairsError, match="is not a whole gzip file"):
            read_pairs(bomb)


def test_standard_input(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"un\n\ndeux\r\n")))
    assert read_lines("-") == ("un", "", "deux")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\nc\n")))
    with pytest.raises(PairsError, match="standard input: line 2: has 0 tabs"):
        read_pairs("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(PairsError, match="standard input is closed"):
        read_lines("-")


TEXTS = st.text(st.characters(exclude_characters="\0\r\n\t", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8))
def test_any_texts_come_back(tmp_path_factory, rows) -> None:
    rows = [(f"a{source}a", f"b{target}b") for source, target in rows]
    folder = tmp_path_factory.mktemp("fuzz")
    tabbed = written(folder, "t.tsv", "".join(f"{source}\t{target}\n" for source, target in rows).encode())
    sides = [
        written(folder, name, "\n".join(row[side] for row in rows).encode()) for side, name in enumerate(("s", "t.gz"))
    ]
    assert read_pairs(tabbed) == read_parallel(*sides) == Pairs(*zip(*rows, strict=True))


@given(st.binary(max_size=100), st.sampled_from(["t.tsv", "t.tsv.gz"]))
def test_any_bytes_give_pairs_or_an_error_that_names_the_file(tmp_path_factory, content: bytes, name: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(content)
    message = str(path)
    try:
        pairs = read_pairs(path)
        assert all(text.strip() == text != "" for side in (pairs.source, pairs.target) for text in side)
    except PairsError as error:
        message = str(error)
    assert str(path) in message


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="multi30k is not beside the checkout")
def test_multi30k_is_read() -> None:
    pairs = read_parallel(MULTI30K / "val.de.gz", MULTI30K / "val.fr.gz")
    assert len(pairs) == 1014

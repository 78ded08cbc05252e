"""Each line of the list of bad input is a test, with its number in the name or in the table that it runs through."""

from __future__ import annotations

import re
from pathlib import Path

LIST = Path(__file__).with_name("LIST.md")
TESTS = LIST.parents[1]
NAME = re.compile(r"def test_(\d+(?:_(?:to_|and_)?\d+)*)_")
ROW = re.compile(r'^    (?:"(\d+) [^"]+": |\((\d+), )', re.MULTILINE)


def lines_of(source: str) -> set[int]:
    found = {int(number) for row in ROW.findall(source) for number in row if number}
    for name in NAME.findall(source):
        numbers = [int(number) for number in re.findall(r"\d+", name)]
        found |= set(range(numbers[0], numbers[-1] + 1)) if "to" in name else set(numbers)
    return found


def test_names_and_rows_are_read():
    source = (
        'def test_3_to_5_some():\ndef test_7_9_and_11_more():\n    (12, bad),\n    "13 a case": 1,\ndef test_of_14():\n'
    )
    assert lines_of(source) == {3, 4, 5, 7, 9, 11, 12, 13}


def test_every_line_is_a_test():
    last = max(map(int, re.findall(r"· (\d+) ", LIST.read_text(encoding="utf-8"))))
    sources = [path for path in TESTS.rglob("*.py") if path.name.startswith("test_") or path.name == "bad_tables.py"]
    found = set().union(*(lines_of(path.read_text(encoding="utf-8")) for path in sources))
    assert last >= 110
    assert not set(range(1, last + 1)) - found

"""docs/notes.md: up to date in both languages, complete, and every place that it names exists."""

from __future__ import annotations

import ast
import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

import notes_page
import regard
from regard.tour.stations import ORDER

ROOT = notes_page.ROOT
ITEMS = notes_page.items()
PLACES = sorted({place for item in ITEMS for place in item["shown"]})
# The notes themselves, in the order of their numbers.
NOTES = sorted((ROOT.parent / "shared" / "seeds").glob("*.txt"))
# Lines that say nothing by themselves: fences, rules, dollars, labels of formulas, headings, the fold of a page.
BARE = re.compile(r"\s*(```.*|---|\$\$|:label:.*|#.*|<!--more-->)?\s*")


@pytest.fixture(scope="module")
def known():
    return notes_page.numbers()


@pytest.mark.parametrize("language", notes_page.PAGES)
def test_the_page_is_up_to_date(language, known):
    """Otherwise: python tools/notes_page.py"""
    assert notes_page.PAGES[language].read_text(encoding="utf-8") == notes_page.page(language, known)


@pytest.mark.parametrize("language", notes_page.PAGES)
def test_every_number_is_used(language, known):
    used = {name for item in ITEMS for name in re.findall(r"\{(\w+)", item.get(f"why_{language}", ""))}
    assert used == set(known) - {"noise"}


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["en"][:40])
def test_an_item_is_complete(item):
    assert item["verdict"] in notes_page.VERDICTS
    assert item["kind"] in notes_page.KINDS
    assert item["en"]
    assert re.search(r"[一-鿿]", item["zh"]) or not re.search(r"[A-Za-z]{12}", item["en"])
    assert ("why_en" in item) == ("why_zh" in item)
    assert item["shown"]
    if item["verdict"] in ("right if", "wrong", "answered", "unfinished"):
        assert item["why_en"]
        assert re.search(r"[一-鿿]", item["why_zh"])
    # The numbers of a verdict are the same in both languages.
    fields = [re.findall(r"\{(\w+)", item.get(f"why_{language}", "")) for language in ("en", "zh")]
    assert sorted(fields[0]) == sorted(fields[1])
    if fields[0]:
        assert any(place.startswith(("test:", "station:")) for place in item["shown"])


def exists(place: str) -> bool:
    kind, name = place.split(":", 1)
    if kind == "station":
        return name in ORDER
    if kind == "api":
        parts = name.split(".")
        start = regard
        if len(parts) > 2 and parts[1].islower():
            start, parts = import_module(".".join(parts[:2])), parts[1:]
        return reduce(getattr, parts[1:], start) is not None
    if kind == "doc":
        page, _, heading = name.partition("#")
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        return not heading or re.search(rf"^#+ {re.escape(heading)}$", text, re.M) is not None
    if kind == "notebook":
        return all((ROOT / "notebooks" / language / f"{name}.ipynb").exists() for language in notes_page.PAGES)
    if kind == "image":
        return (ROOT / "docs" / "images" / name).exists()
    path, _, test = name.partition("::")
    functions = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    return kind == "test" and any(isinstance(one, ast.FunctionDef) and one.name == test for one in functions)


@pytest.mark.parametrize("place", PLACES)
def test_every_place_exists(place):
    assert exists(place), place


def test_a_place_that_does_not_exist_is_found():
    assert not exists("station:nowhere")
    assert not exists("doc:masks.md#Nothing")
    assert not exists("notebook:9_nothing")
    assert not exists("test:tests/notes/test_claims.py::test_nothing")
    with pytest.raises(AttributeError):
        exists("api:regard.nothing")


@pytest.mark.skipif(len(NOTES) != len(notes_page.NOTES), reason="the notes are not beside this checkout")
def test_no_line_of_the_notes_is_left_out():
    """Every line that says something belongs to an item, and no item to lines that are not there."""
    listed: dict[str, set[int]] = {number: set() for number in notes_page.NOTES}
    for item in ITEMS:
        for place in item["at"]:
            number, lines = place.split(":")
            first, _, last = lines.partition("-")
            listed[number] |= set(range(int(first), int(last or first) + 1))
    for number, path in zip(notes_page.NOTES, NOTES, strict=True):
        lines = path.read_text(encoding="utf-8").splitlines()
        opens = 1 + lines.index("---", 1) if lines[0] == "---" else 0  # the header of a page
        left = [
            n for n, line in enumerate(lines, 1) if n > opens and not BARE.fullmatch(line) and n not in listed[number]
        ]
        assert left == [], (number, left)
        assert max(listed[number]) <= len(lines)


@pytest.mark.parametrize("language", notes_page.PAGES)
def test_links_lead_somewhere(language):
    path: Path = notes_page.PAGES[language]
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "tour/stations" not in target:  # in test_every_place_exists, by ORDER
            assert (path.parent / target).exists(), target

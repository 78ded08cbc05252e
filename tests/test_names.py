"""Names mean one thing in the whole package, and its words are the field's."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import regard

ROOT = Path(regard.__file__).parent
SOURCES = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
REPOSITORY = Path(__file__).parents[1]
# Python beside the package, but for this file, which lists the words.
BESIDE = {
    path.relative_to(REPOSITORY): path.read_text(encoding="utf-8")
    for folder in ("tests", "benchmarks", "tools", "examples")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
    if path != Path(__file__)
}
# Names in saved files stay.
SAVED = re.compile(r'"Shelves"|\bshelves_')
# Words of no field: rows are not told anything, engines do not vouch.
UNWANTED = ("told", "nobody", "whoever", "vouch", "vouches", "shelves", "walks", "valleys")


def repeated(found: list[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that stand in several places, and where."""
    places = defaultdict(list)
    for name, path in found:
        places[name].append(str(path))
    return {name: where for name, where in places.items() if len(where) > 1}


def test_a_module_name_occurs_once():
    """A traceback shows little more of a file than its name. Public import paths at the root share those of a room."""
    rooms = [(path.name, path) for path in SOURCES if path.name not in ("__init__.py", "__main__.py")]
    assert repeated([(name, path) for name, path in rooms if len(path.parts) > 1]) == {}


def test_a_class_name_occurs_once():
    classes = [
        (node.name, path)
        for path, source in SOURCES.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    ]
    assert repeated(classes) == {}


def test_words_that_mean_nothing_in_the_field_do_not_occur():
    # Also as parts of names, which underscores join.
    unwanted = re.compile(rf"(?<![a-z])(?:{'|'.join(UNWANTED)})(?![a-z])", re.IGNORECASE)
    lines = [
        f"{path}:{number}: {line.strip()}"
        for path, source in {**SOURCES, **BESIDE}.items()
        for number, line in enumerate(source.splitlines(), 1)
        if unwanted.search(SAVED.sub("", line))
    ]
    assert lines == []

"""The notebooks are up to date with their sources, have the structure of the format, and run."""

from __future__ import annotations

import json
import re
import warnings

import pytest
import torch
from matplotlib.figure import Figure

import notebooks

EVERY = [(source, language) for source in notebooks.SOURCES for language in notebooks.LANGUAGES]
NAMES = [f"{source.stem}-{language}" for source, language in EVERY]


@pytest.mark.parametrize(("source", "language"), EVERY, ids=NAMES)
def test_a_notebook_is_up_to_date(source, language):
    """Otherwise: python tools/notebooks.py"""
    assert notebooks.path_of(source, language).read_text(encoding="utf-8") == notebooks.text_of(source, language)


def test_every_notebook_has_a_source():
    written = {path.relative_to(notebooks.NOTEBOOKS) for path in notebooks.NOTEBOOKS.rglob("*.ipynb")}
    assert written == {notebooks.path_of(*one).relative_to(notebooks.NOTEBOOKS) for one in EVERY}
    assert len(EVERY) == 8


@pytest.mark.parametrize(("source", "language"), EVERY, ids=NAMES)
def test_a_notebook_has_the_structure_of_the_format(source, language):
    """Version 4.5 of nbformat: the keys that it requires, and no others."""
    found = json.loads(notebooks.path_of(source, language).read_text(encoding="utf-8"))
    assert set(found) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    assert found["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in found["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in found["cells"]:
        more = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | more
        assert cell["cell_type"] in ("code", "markdown")
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell["id"])
        assert "".join(cell["source"]).strip()
        assert not cell.get("outputs")


@pytest.mark.parametrize("source", notebooks.SOURCES, ids=lambda source: source.stem)
def test_nothing_of_a_source_is_lost_and_every_text_has_two_languages(source):
    text = source.read_text(encoding="utf-8")
    english, chinese = (notebooks.cells(text, language) for language in notebooks.LANGUAGES)
    assert [kind for kind, _ in english] == [kind for kind, _ in chinese]
    assert [code for kind, code in english if kind == "code"] == [code for kind, code in chinese if kind == "code"]
    for (kind, one), (_, other) in zip(english, chinese, strict=True):
        if kind == "markdown":
            assert not re.search(r"[一-鿿]", one)
            assert re.search(r"[一-鿿]", other)
            assert "```" not in one + other
    left = re.sub(r"<!-- (en|zh) -->|```(python)?", "", text)
    for _, part in [*english, *chinese]:
        left = left.replace(part, "")
    assert not left.strip()


@pytest.mark.parametrize("source", notebooks.SOURCES, ids=lambda source: source.stem)
def test_a_notebook_runs(source, tmp_path, monkeypatch):
    """Cell by cell in one namespace; the code is the same in both languages. What a cell ends with can be shown."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    names: dict = {"__name__": "__main__"}
    figures = 0
    for kind, text in notebooks.cells(source.read_text(encoding="utf-8"), "en"):
        if kind == "code":
            shown = run(text, names)
            picture = shown._repr_png_() if hasattr(shown, "_repr_png_") else None
            assert picture is not None or not isinstance(shown, Figure)
            figures += picture is not None
    assert figures >= 2
    assert list(tmp_path.iterdir()) == []


def run(cell: str, names: dict) -> object:
    """Run a cell and return the value of its last line, as a notebook does."""
    import ast

    body = ast.parse(cell).body
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        *statements, last = body
        exec(compile(ast.Module(statements, []), "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        exec(compile(ast.Module([last], []), "cell", "exec"), names)
    return None

"""Write the notebooks in both languages from notebooks/sources: ``python tools/notebooks.py``.

A source is Markdown. ``<!-- en -->`` and ``<!-- zh -->`` begin a text in one language; a block of Python is a cell of
both. The notebooks are committed without outputs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
SOURCES = sorted((NOTEBOOKS / "sources").glob("*.md"))
LANGUAGES = ("en", "zh")
_PART = re.compile(
    r"```python\n(?P<code>.*?)\n```|<!-- (?P<language>en|zh) -->\n(?P<text>.*?)(?=\n<!-- |\n```python|\Z)", re.S
)


def cells(source: str, language: str) -> list[tuple[str, str]]:
    """The cells of a notebook in one language: "markdown" or "code", and what is in it."""
    found = []
    for part in _PART.finditer(source):
        if part["code"] is not None:
            found.append(("code", part["code"]))
        elif part["language"] == language:
            found.append(("markdown", part["text"].strip()))
    return found


def notebook(source: str, language: str) -> dict[str, Any]:
    """A notebook of format 4.5 without outputs."""
    made = []
    for number, (kind, text) in enumerate(cells(source, language)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def text_of(source: Path, language: str) -> str:
    """The file of a notebook."""
    made = notebook(source.read_text(encoding="utf-8"), language)
    return json.dumps(made, ensure_ascii=False, indent=1) + "\n"


def path_of(source: Path, language: str) -> Path:
    return NOTEBOOKS / language / f"{source.stem}.ipynb"


def main() -> None:
    for source in SOURCES:
        for language in LANGUAGES:
            path = path_of(source, language)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text_of(source, language), encoding="utf-8")


if __name__ == "__main__":
    main()

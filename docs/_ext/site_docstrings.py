"""Docstrings of the house as reStructuredText.

They are written to be read as plain text: cost and empty rows follow the sections, an example ends them, and names such
as ``w_`` or |w| stand as they are. Here what follows the sections becomes notes and examples, before numpydoc reads
it, and signs that mean something in reStructuredText are escaped after it.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

SECTION = re.compile(r"^-{3,}$")
# Literals, among which nothing is escaped.
LITERAL = re.compile(r"(``.+?``|`[^`]+`)", re.S)


def rearranged(lines: list[str]) -> list[str]:
    """Paragraphs after the sections as Notes, doctests as Examples.

    >>> rearranged(["What.", "", "Returns", "-------", "int", "", "*Cost*: 1.", "", ">>> f()", "1"])[6:]
    ['Notes', '-----', '*Cost*: 1.', '', 'Examples', '--------', '>>> f()', '1', '']
    """
    first = next((i for i, line in enumerate(lines) if SECTION.match(line.strip()) and i), None)
    body, notes, examples = ([], [], []) if first is None else (lines[: first - 1], [], [])
    for block in blocks(lines if first is None else lines[first - 1 :]):
        if block[0].startswith(">>>"):
            examples += [*block, ""]
        elif first is not None and is_prose(block):
            notes += [*block, ""]
        else:
            body += [*block, ""]
    for title, part in (("Notes", notes), ("Examples", examples)):
        if part:
            body += [title, "-" * len(title), *part]
    return body


def blocks(lines: list[str]) -> list[list[str]]:
    """Lines between blank lines."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [block for block in found if block]


def is_prose(block: list[str]) -> bool:
    """A paragraph that is neither a section nor part of an item of one."""
    if block[0].startswith(" ") or (len(block) > 1 and SECTION.match(block[1].strip())):
        return False
    return not re.match(r"\*{0,2}\w+(, \*{0,2}\w+)* : ", block[0])


def escaped(text: str) -> str:
    """Text with the underscores at the ends of names and with bars escaped.

    >>> escaped("w_ and |w| but not ``w_``"), escaped("ax_, figure_")
    ('w\\\\_ and \\\\|w\\\\| but not ``w_``', 'ax\\\\_, figure\\\\_')
    """
    parts = LITERAL.split(re.sub(r"\bdocs/(\w+)\.md\b", r":doc:`/\1`", text))
    for i in range(0, len(parts), 2):
        part = re.sub(r"(?<!\\)\|", r"\\|", parts[i])
        parts[i] = re.sub(r"(?<=\w)_(?!\w)", r"\\_", part)
    return "".join(parts)


def before_numpydoc(_app: Sphinx, _what: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = rearranged(lines)


def after_numpydoc(_app: Sphinx, _what: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    out: list[str] = []
    plain: list[str] = []
    for line in [*lines, None]:
        # Doctests, tables and directives stay as they are.
        if line is not None and line.strip() and not line.lstrip().startswith((">>>", "...", "..", ":", "===")):
            plain.append(line)
            continue
        # A doctest's output follows its input without a blank line.
        verbatim = bool(out) and out[-1].lstrip().startswith((">>>", "..."))
        out += plain if verbatim else escaped("\n".join(plain)).split("\n") if plain else []
        plain = []
        if line is not None:
            out.append(line)
    lines[:] = out


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", before_numpydoc, priority=100)
    app.connect("autodoc-process-docstring", after_numpydoc, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

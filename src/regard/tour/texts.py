"""The tour's texts: Markdown files beside the code, in both languages, with places for the numbers."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any

from regard.data.text import LANGUAGES, Text

# Chinese characters and their full-width punctuation.
_FULL_WIDTH = "\u3001-\u303f\uff00-\uffef"
_CJK = rf"\u2018-\u201d\u4e00-\u9fff{_FULL_WIDTH}"


@cache
def read_texts(path: str) -> dict[str, Text]:
    r"""The texts in ``tour/<path>.md`` by name.

    The file begins with the texts that fit on one line, as ``name.en: text`` between two lines ``---``; there ``\n``
    stands for a line break. Longer texts follow, each under a heading ``## name.en``. In these, a line break is a space
    (or nothing, between Chinese characters and beside full-width punctuation) and an empty line separates paragraphs. A
    name without a language holds for both, and its text is taken as it stands.

    >>> read_texts("stations/soft")["title"].en
    'Nonparametric attention pooling'
    """
    _, head, body = files("regard.tour").joinpath(f"{path}.md").read_text(encoding="utf-8").split("---\n", 2)
    found = {name: text.replace(r"\n", "\n") for name, text in (line.split(": ", 1) for line in head.splitlines())}
    _, *sections = re.split(r"^## (.+)\n", body, flags=re.MULTILINE)
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        found[name] = (
            _unwrapped(text.strip()) if name.endswith(tuple(f".{lang}" for lang in LANGUAGES)) else text.strip()
        )
    names = dict.fromkeys(re.sub(rf"\.({'|'.join(LANGUAGES)})$", "", name) for name in found)
    return {name: Text(*(found.get(name) or found[f"{name}.{lang}"] for lang in LANGUAGES)) for name in names}


def _unwrapped(text: str) -> str:
    """Paragraphs on one line each."""
    tags = r"(?:<[^>]+>)*"
    between = rf"(?<=[{_CJK}])({tags})\n({tags})(?=[{_CJK}])"
    beside = rf"(?<=[{_FULL_WIDTH}])({tags})\n(?!\n)|(?<!\n)\n({tags})(?=[{_FULL_WIDTH}])"
    joined = re.sub(beside, r"\1\2", re.sub(between, r"\1\2", text))
    return re.sub(r"(?<!\n)\n(?!\n)", " ", joined)


class _NumberFormatter(Formatter):
    """Formats numbers as they are printed: a true minus sign, no sign on zero, powers of ten for ``e``."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if not isinstance(value, int | float):
            return str(super().format_field(value, format_spec))
        if format_spec.endswith("e"):
            return scientific(value)
        return f"{value:{'z' * format_spec.endswith('f')}{format_spec}}".replace("-", "−")


def fill(text: Text, **values: Any) -> Text:
    """The text with the values that it names in braces; a value that is a text itself is filled in by language.

    >>> fill(Text("{slope:.2f} ({verdict})", "{slope:.2f}（{verdict}）"), slope=-0.281, verdict=Text("low", "低")).zh
    '−0.28（低）'
    """
    plain = {name: value for name, value in values.items() if not isinstance(value, Text)}
    formatted = []
    for lang in LANGUAGES:
        inner = {
            name: _NumberFormatter().vformat(value.said(lang), (), plain)
            for name, value in values.items()
            if isinstance(value, Text)
        }
        formatted.append(_NumberFormatter().vformat(text.said(lang), (), plain | inner).strip())
    return Text(*formatted)


def scientific(number: float) -> str:
    """A very small number as people write it.

    >>> scientific(2.2e-16).replace("\N{NO-BREAK SPACE}", " ")
    '2.2 × 10⁻¹⁶'
    """
    if number == 0.0:
        return "0"
    digits, power = f"{number:.1e}".split("e")
    return f"{digits}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}10" + str(int(power)).translate(
        str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    )

"""Docstrings in sections: what they say about parameters, and what the signature says."""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

from torch import nn

# Underlined titles; the lines below each belong to it.
TITLE = re.compile(r"^([A-Z][A-Za-z ]*)\n(-{3,})\n", re.M)
ITEM = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$", re.M)


class Documented(NamedTuple):
    """A docstring taken apart."""

    summary: str
    sections: dict[str, str]
    example: bool

    def names(self, *titles: str) -> list[str]:
        """Names that sections list, in order: the lines of theirs that are not indented."""
        found = [line for title in titles for line in ITEM.findall(self.sections.get(title, ""))]
        return [name.lstrip("*") for line in found for name in line.split(", ")]


def taken_apart(value: Any) -> Documented:
    text = inspect.getdoc(value) or ""
    parts = TITLE.split(text)
    # text, title, underline, text, title, underline, text, …
    sections = {title: until_plain_text(body) for title, body in zip(parts[1::3], parts[3::3], strict=True)}
    return Documented(parts[0].strip().split("\n\n")[0], sections, ">>> " in text)


def until_plain_text(body: str) -> str:
    """A section's items; a paragraph that follows them, or a doctest, is not part of it."""
    kept = []
    for block in body.strip("\n").split("\n\n"):
        if block.startswith((">>>", "*")) and not re.match(r"\*{1,2}\w+( : |$)", block):
            break
        kept.append(block)
    return "\n".join(kept)


def parameters(value: Any) -> list[str]:
    """Names in the signature; of a method without the first, of a class whose base has it elsewhere none."""
    if inspect.isclass(value) and issubclass(value, nn.Module):
        own = [base for base in value.__mro__ if base.__module__.startswith("regard.")]
        if not any("__init__" in vars(base) for base in own):
            return []
    try:
        names = list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return []
    return [name for name in names if name not in ("self", "cls")]


def gives_something(value: Any) -> bool:
    """Whether it returns anything but None or itself."""
    returned = inspect.signature(value).return_annotation
    return returned not in (None, "None", "Self", inspect.Signature.empty)

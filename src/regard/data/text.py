"""Text in every language of the package."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from importlib.resources.abc import Traversable


@dataclass(frozen=True)
class Text:
    """The same text in English and in Chinese.

    >>> Text(en="key", zh="键").said("zh")
    '键'
    """

    en: str
    zh: str

    def said(self, lang: str) -> str:
        """The text in that language."""
        return str(getattr(self, lang))


LANGUAGES = tuple(language.name for language in fields(Text))


def load_texts(file: Traversable) -> dict[str, dict[str, Text]]:
    """Texts of a TOML file by group and name: ``[group.name]``, then one line per language."""
    groups = tomllib.loads(file.read_text(encoding="utf-8"))
    return {group: {name: Text(**text) for name, text in texts.items()} for group, texts in groups.items()}

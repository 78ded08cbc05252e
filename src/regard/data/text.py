"""Text in every language of the house, side by side."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Text:
    """The same words in English and in Chinese.

    >>> Text(en="key", zh="键").said("zh")
    '键'
    """

    en: str
    zh: str

    def said(self, lang: str) -> str:
        """The words in that language."""
        return str(getattr(self, lang))


LANGUAGES = tuple(language.name for language in fields(Text))

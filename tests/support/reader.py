"""A stand-in for the date model: it knows the dates that the tests write, and looks where the generator says."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from regard.data import DATE_FORMATS

# Half of a step's attention is on one character, the rest evenly everywhere.
SURE = 0.5
DAY = date(2021, 5, 3)
WRITTEN = {form.write(DAY)[0]: form.write(DAY)[1] for form in DATE_FORMATS.values()}


def translation_of(text: str) -> Any:
    """As a ``Translation``; what is no date of ours is translated to itself, aligned from left to right."""
    said, places = (DAY.isoformat(), WRITTEN[text]) if text in WRITTEN else (text, tuple(range(len(text))))
    weights = np.full((len(said) + 1, len(text)), (1.0 - SURE) / len(text))
    for row, place in zip(weights, (*places, -1), strict=True):
        row[place if place >= 0 else 0] += SURE
    return SimpleNamespace(text=said, tokens=(*said, "<eos>"), source_tokens=tuple(text), weights=weights)


class Reader:
    """Has of a ``Translator`` what the playground asks for."""

    def translate(self, texts: list[str]) -> list[Any]:
        return [translation_of(text) for text in texts]

    def save(self, path: Path, *, force: bool) -> None:
        assert force
        path.write_bytes(b"a file of another kind")


def learned_at_once(watch: Any) -> Reader:
    watch(SimpleNamespace(step=10, steps=10))
    return Reader()

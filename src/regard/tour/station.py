"""What a station of the tour is: a question, a figure, an answer with a number.

A new station is three things in ``stations/``: a Markdown file with its texts (see ``texts.py``), a Python file that
computes its numbers and draws its figures and ends in ``STATION = Station(…)``, and a line in ``__init__.py``. Its
mathematics is called from the library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from regard.data import NotesData
from regard.data.text import Text
from regard.tour.texts import fill, read_texts


@dataclass(frozen=True)
class Visit:
    """What a station is given: the notes' data, the seed, and the language of its figures."""

    data: NotesData
    seed: int
    lang: str

    def label(self, text: Text, **values: Any) -> str:
        """Words for a figure in its language, with the values that they name."""
        return fill(text, **values).said(self.lang)

    @property
    def lines(self) -> tuple[str, str, str]:
        """Names of truth, prediction and training data, as the stations' regression figures call them."""
        shared = read_texts("tour_page")
        return self.label(shared["truth"]), self.label(shared["prediction"]), self.label(shared["training"])


class Drawing(NamedTuple):
    """One figure of a station."""

    name: str  # of its files
    figure: Figure
    caption: Text  # plain text


class Findings(NamedTuple):
    """What a station found out."""

    drawings: tuple[Drawing, ...]
    number: Text  # the answer at a glance: lines "value | what it is"
    answer: Text  # one or two plain sentences with the number in them


def findings(texts: Mapping[str, Text], figures: Mapping[str, Figure], **values: Any) -> Findings:
    """A station's captions, number and answer with the values that they name, beside its figures by name."""
    return Findings(
        tuple(Drawing(name, figure, fill(texts[f"caption.{name}"], **values)) for name, figure in figures.items()),
        fill(texts["number"], **values),
        fill(texts["answer"], **values),
    )


def needs_torch(compute: Callable[[Visit], Findings]) -> Callable[[Visit], Findings]:
    """Let a station that learns with torch answer that torch is missing, if it is."""

    @wraps(compute)
    def checked(visit: Visit) -> Findings:
        try:
            return compute(visit)
        except ModuleNotFoundError as missing:
            if missing.name != "torch":
                raise
        return Findings((), Text("—", "—"), read_texts("tour_page")["needs_torch"])

    return checked


@dataclass(frozen=True)
class Station:
    """One stop of the tour.

    Parameters
    ----------
    name : short, for addresses and files
    texts : by name. ``title``, ``question``, ``number``, ``answer``, captions and the figures' labels are plain text;
        ``story``, ``exercise`` and ``solution`` (in paragraphs) and ``formula`` (one part to a line, which is not
        broken) are HTML; ``code`` runs as it stands and prints the numbers of the answer
    compute : the figures and numbers
    """

    name: str
    texts: Mapping[str, Text]
    compute: Callable[[Visit], Findings]

    def code(self, seed: int = 0) -> str:
        """The code without the fence around it; it is written for seed 0."""
        plain = self.texts["code"].en.removeprefix("```python\n").removesuffix("\n```")
        return re.sub(r"\b(seed|random_state)=0\b", rf"\g<1>={seed}", plain)

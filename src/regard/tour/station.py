"""What a station of the tour is: a question, a picture, an answer with a number.

A new station is one file in ``stations/`` that ends in ``STATION = Station(…)`` and one line in
``stations/__init__.py``. Its mathematics is called from the library; the station only tells the story.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import NamedTuple

from matplotlib.figure import Figure

from regard.data import NotesData
from regard.data.text import Text


@dataclass(frozen=True)
class Visit:
    """What a station is given: the notes' data, the seed, and the language of its figures."""

    data: NotesData
    seed: int
    lettering: str

    def label(self, en: str, zh: str) -> str:
        """Words for a figure, in its language."""
        return Text(en, zh).said(self.lettering)

    @property
    def lines(self) -> tuple[str, str, str]:
        """Names of truth, prediction and training data, as the stations' regression figures call them."""
        return self.label("Truth", "真实函数"), self.label("Pred", "预测"), self.label("Training", "训练样本")


class Drawing(NamedTuple):
    """One figure of a station."""

    name: str  # of its files
    figure: Figure
    caption: Text  # plain text
    wide: bool = False  # has panels side by side, so a phone should scroll rather than shrink it


class Told(NamedTuple):
    """What a station found out."""

    drawings: tuple[Drawing, ...]
    number: str  # the answer at a glance
    answer: Text  # one or two plain sentences with the number in them


def needs_torch(tell: Callable[[Visit], Told]) -> Callable[[Visit], Told]:
    """A station that learns with torch; it says so where there is none."""

    @wraps(tell)
    def told(visit: Visit) -> Told:
        try:
            return tell(visit)
        except ModuleNotFoundError as missing:
            if missing.name != "torch":
                raise
        answer = Text(
            "This stop learns with torch, which is not installed here. pip install 'regard[nn]' brings it; then walk "
            "the tour again.",
            "这一站要用 torch 来学习，而这里没有安装。运行 pip install 'regard[nn]' 之后再走一遍导览。",
        )
        return Told((), "—", answer)

    return told


@dataclass(frozen=True)
class Station:
    """One stop of the tour. ``story`` and ``formula`` are HTML; all other text is plain."""

    name: str  # short, for addresses and files
    title: Text
    question: Text
    story: Text
    formula: tuple[str, ...]  # parts that each stay on one line
    code: str  # how to do it yourself; runs as it stands once the notes' arrays are there
    tell: Callable[[Visit], Told]

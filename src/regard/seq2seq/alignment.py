"""Alignments: where each step of a decoder looked, as links, as a number, and as text.

    links        the source token each target token looked at most
    error_rate   how far such links are from the gold ones
    entropy      how widely each step looked
    as_text      one line per target token, for a terminal
    pharaoh      "0-0 1-2", the form that other tools read

Arrays of weights in, so that any model's can be read; gold alignments are those of ``token_alignment``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.data.pairs import NOWHERE

# A source token is named beside a target token if it holds this share of the attention, the three largest at most.
SHOWN_SHARE, SHOWN_MOST = 0.1, 3


# For each target token one source position, or several.
Links = Sequence[int] | Sequence[Collection[int]] | NDArray[np.int64]


class Aligned(Protocol):
    """What ``as_text`` reads of a translation."""

    @property
    def tokens(self) -> Sequence[str]: ...

    @property
    def source_tokens(self) -> Sequence[str]: ...

    @property
    def weights(self) -> NDArray[Any]: ...


def links(weights: ArrayLike) -> NDArray[np.int64]:
    """The source position (T,) that each target token looked at most, the first of equals.

    Parameters
    ----------
    weights : (T, S), as a ``Translation`` has them.

    *Empty rows*: -1. *Cost*: O(T·S).

    >>> links([[0.1, 0.9], [0.7, 0.3], [0.0, 0.0]]).tolist()
    [1, 0, -1]
    """
    table = _checked(weights, axes=2)
    if not table.shape[1]:
        return np.full(len(table), NOWHERE)
    return np.where(table.any(1), table.argmax(1), NOWHERE)


def error_rate(found: Links, gold: Sequence[Collection[int]]) -> float:
    """Alignment error rate: 0 where the links found are the gold ones, 1 where none is.

    1 − 2·|found ∩ gold| / (|found| + |gold|), that of Och and Ney with every gold link sure

    A target token without a gold link is not judged: a dash of a date comes from nowhere, and a decoder looks
    somewhere all the same. The rate of many sentences is that of their rows one after another.

    Parameters
    ----------
    found : for each target token the source position, as ``links`` gives it, or several; -1 is none.
    gold : for each target token its source positions, as ``token_alignment`` gives them.

    *Empty rows*: 0 where there is nothing to judge. *Cost*: O(links).

    >>> error_rate([0, 1, 1], [(0,), (2,), ()])
    0.5
    """
    if len(found) != len(gold):
        raise ValueError(f"found has {len(found)} target tokens, gold has {len(gold)}")
    right = total = 0
    for there, true in zip(_sets(found), _sets(gold), strict=True):
        if true:
            right += len(there & true)
            total += len(there) + len(true)
    return 1.0 - 2.0 * right / total if total else 0.0


def entropy(weights: ArrayLike) -> NDArray[np.float64]:
    """How widely each step looked, in nats (…, T): 0 at one token, log S at all of them alike.

    −Σₛ weights[…, s] · log weights[…, s], where 0 · log 0 is 0

    Parameters
    ----------
    weights : (…, T, S), zero where a token could not be attended to.

    *Empty rows*: 0. *Cost*: O(size of weights).

    >>> entropy([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).round(3).tolist()
    [0.693, 0.0]
    """
    table = _checked(weights)
    told: NDArray[np.float64] = (table * np.log(np.where(table > 0.0, table, 1.0))).sum(-1)
    return 0.0 - told  # −told would print a zero as −0.0


def pharaoh(found: Links) -> str:
    """Links as "source-target" pairs, numbered from 0, in the order of the target.

    >>> pharaoh([0, 2, -1, (1, 3)])
    '0-0 2-1 1-3 3-3'
    """
    return " ".join(f"{there}-{here}" for here, row in enumerate(_sets(found)) for there in sorted(row))


def as_text(translation: Aligned) -> str:
    """One line per target token: what was said, and the source tokens it looked at, with their share in percent.

    Columns are aligned on a terminal, where Chinese characters are two wide. A space is shown as ␣, and what cannot be
    printed as its escape.

    *Empty rows*: a step that looked nowhere stands alone. *Cost*: O(T·S).
    """
    table = _checked(translation.weights, axes=2)
    told, sources = ([shown(token) for token in tokens] for tokens in (translation.tokens, translation.source_tokens))
    if table.shape != (len(told), len(sources)):
        raise ValueError(
            f"weights must have shape (target tokens, source tokens), {len(told)} and {len(sources)}, got {table.shape}"
        )
    looked = [_most(row) for row in table]
    left = max(map(columns, told), default=0)
    right = max((columns(sources[s]) for row in looked for s, _ in row), default=0)
    lines = []
    for token, row in zip(told, looked, strict=True):
        cells = "  ".join(f"{padded(sources[s], right)} {100 * weight:3.0f} %" for s, weight in row)
        lines.append(f"{padded(token, left)} ← {cells}".rstrip() if row else token)
    return "\n".join(lines)


def shown(token: str) -> str:
    """A token as people can see it.

    >>> shown(" "), shown("é"), shown("\\t")
    ('␣', 'é', '\\\\t')
    """
    return "".join("␣" if c == " " else c if c.isprintable() else repr(c)[1:-1] for c in token)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes.

    >>> columns("mai"), columns("五月"), columns("e\u0301")
    (3, 4, 1)
    """
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def padded(text: str, width: int) -> str:
    """The text with spaces up to so many columns."""
    return text + " " * (width - columns(text))


def _most(row: NDArray[np.float64]) -> list[tuple[int, float]]:
    """The source positions to name, the largest share first, and that one always."""
    order = np.argsort(-row, kind="stable")[:SHOWN_MOST]
    return [
        (int(s), float(row[s])) for rank, s in enumerate(order) if row[s] >= SHOWN_SHARE or (rank == 0 and row[s] > 0.0)
    ]


def _sets(rows: Links) -> list[set[int]]:
    found = ({int(row)} if isinstance(row, int | np.integer) else {int(each) for each in row} for row in rows)
    return [row - {NOWHERE} for row in found]


def _checked(weights: ArrayLike, axes: int | None = None) -> NDArray[np.float64]:
    table = np.asarray(weights, np.float64)
    if table.ndim == 0 or (axes is not None and table.ndim != axes):
        raise ValueError(f"weights must have shape (target tokens, source tokens), got {table.shape}")
    # Written so that NaN is refused too.
    if table.size and not (table.min() >= 0.0 and table.max() < np.inf):
        raise ValueError(f"weights must be at least 0 and finite, got {table.min()} to {table.max()}")
    return table

"""Alignments: the attention weights of a decoder as links, as a number, and as text.

    links        the source token with the largest weight, for each target token
    error_rate   how far such links are from the gold ones
    entropy      how widely the attention of each step is distributed
    as_text      one line per target token, for a terminal
    pharaoh      "0-0 1-2", the format that other tools read

The functions take arrays of weights, of any model; ``token_alignment`` gives gold alignments.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.data.text_pairs import NOWHERE
from regard.seq2seq.translator import Translation

# ``as_text`` shows the source tokens with at least this weight, but no more than this many.
MIN_WEIGHT_SHOWN = 0.1
MAX_SOURCES_SHOWN = 3


# For each target token one source position, or several.
Links = Sequence[int] | Sequence[Collection[int]] | NDArray[np.int64]


def links(weights: ArrayLike) -> NDArray[np.int64]:
    """The source position (T,) with the largest weight for each target token, the first one if tied.

    Parameters
    ----------
    weights : array (T, S)
        The ``weights`` of a ``Translation``.

    Returns
    -------
    array (T,) of int

    *Empty rows*: -1. *Cost*: O(T·S).

    >>> links([[0.1, 0.9], [0.7, 0.3], [0.0, 0.0]]).tolist()
    [1, 0, -1]
    """
    table = _checked(weights, axes=2)
    if not table.shape[1]:
        return np.full(len(table), NOWHERE)
    return np.where(table.any(1), table.argmax(1), NOWHERE)


def error_rate(found: Links, gold: Sequence[Collection[int]]) -> float:
    """Alignment error rate: 0 if the links found are the gold ones, 1 if none of them is.

    1 − 2·|found ∩ gold| / (|found| + |gold|), that of Och and Ney with every gold link sure

    Target tokens without a gold link are left out: the dash of a date has no source, but a decoder always attends to
    some token. For the rate of many sentences, concatenate their rows.

    Parameters
    ----------
    found : sequence of int, or of collections of int
        For each target token the source position, as ``links`` gives it, or several; -1 is none.
    gold : sequence of collections of int
        For each target token its source positions, as ``token_alignment`` gives them.

    Returns
    -------
    float
        From 0 to 1.

    *Empty rows*: 0 if there are no gold links. *Cost*: O(links).

    >>> error_rate([0, 1, 1], [(0,), (2,), ()])
    0.5
    """
    if len(found) != len(gold):
        raise ValueError(f"found and gold must have one entry per target token, got {len(found)} and {len(gold)}")
    right = total = 0
    for predicted, true in zip(_sets(found), _sets(gold), strict=True):
        if true:
            right += len(predicted & true)
            total += len(predicted) + len(true)
    return 1.0 - 2.0 * right / total if total else 0.0


def entropy(weights: ArrayLike) -> NDArray[np.float64]:
    """The entropy of the weights of each step, in nats (…, T): 0 for one token, log S for S equal weights.

    −Σₛ weights[…, s] · log weights[…, s], where 0 · log 0 is 0

    Parameters
    ----------
    weights : array (…, T, S)
        Zero where a token could not be attended to.

    Returns
    -------
    array (…, T)

    *Empty rows*: 0. *Cost*: O(size of weights).

    >>> entropy([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).round(3).tolist()
    [0.693, 0.0]
    """
    table = _checked(weights)
    negative: NDArray[np.float64] = (table * np.log(np.where(table > 0.0, table, 1.0))).sum(-1)
    return 0.0 - negative  # the negation of 0.0 would be −0.0


def pharaoh(found: Links) -> str:
    """Links as "source-target" pairs, numbered from 0, in the order of the target.

    Parameters
    ----------
    found : sequence of int, or of collections of int
        For each target token its source positions; -1 is none.

    Returns
    -------
    str

    >>> pharaoh([0, 2, -1, (1, 3)])
    '0-0 2-1 1-3 3-3'
    """
    return " ".join(f"{source}-{target}" for target, row in enumerate(_sets(found)) for source in sorted(row))


def as_text(translation: Translation) -> str:
    """One line per target token: the token, and the source tokens with the largest weights, in percent.

    Columns are aligned on a terminal, where Chinese characters are two wide. A space is shown as ␣, and an
    unprintable character as its escape sequence.

    Parameters
    ----------
    translation : Translation
        Has ``weights``, ``tokens`` and ``source_tokens``.

    Returns
    -------
    str

    *Empty rows*: the target token alone. *Cost*: O(T·S).

    >>> from regard.seq2seq import Translation
    >>> print(as_text(Translation("05", ("05",), ("mai", "2021"), np.array([[0.9, 0.1]]), -0.1)))
    05 ← mai   90 %  2021  10 %
    """
    table = _checked(translation.weights, axes=2)
    targets, sources = (
        [shown(token) for token in tokens] for tokens in (translation.tokens, translation.source_tokens)
    )
    if table.shape != (len(targets), len(sources)):
        raise ValueError(
            f"weights must have shape (target tokens, source tokens), {(len(targets), len(sources))}, got {table.shape}"
        )
    largest = [_largest(row) for row in table]
    left = max(map(columns, targets), default=0)
    right = max((columns(sources[s]) for row in largest for s, _ in row), default=0)
    lines = []
    for token, row in zip(targets, largest, strict=True):
        cells = "  ".join(f"{padded(sources[s], right)} {100 * weight:3.0f} %" for s, weight in row)
        lines.append(f"{padded(token, left)} ← {cells}".rstrip() if row else token)
    return "\n".join(lines)


def shown(token: str) -> str:
    """A token in printable characters.

    >>> shown(" "), shown("é"), shown("\\t")
    ('␣', 'é', '\\\\t')
    """
    return "".join("␣" if c == " " else c if c.isprintable() else repr(c)[1:-1] for c in token)


def columns(text: str) -> int:
    """The width of a text in columns of a terminal.

    >>> columns("mai"), columns("五月"), columns("e\u0301")
    (3, 4, 1)
    """
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def padded(text: str, width: int) -> str:
    """The text padded with spaces to a width in columns."""
    return text + " " * (width - columns(text))


def _largest(row: NDArray[np.float64]) -> list[tuple[int, float]]:
    """The source positions to show with their weights, largest first; the first one is shown unless it is zero."""
    order = np.argsort(-row, kind="stable")[:MAX_SOURCES_SHOWN]
    return [
        (int(s), float(row[s]))
        for rank, s in enumerate(order)
        if row[s] >= MIN_WEIGHT_SHOWN or (rank == 0 and row[s] > 0.0)
    ]


def _sets(rows: Links) -> list[set[int]]:
    found = ({int(row)} if isinstance(row, int | np.integer) else {int(each) for each in row} for row in rows)
    return [row - {NOWHERE} for row in found]


def _checked(weights: ArrayLike, axes: int | None = None) -> NDArray[np.float64]:
    table = np.asarray(weights, np.float64)
    if table.ndim == 0 or (axes is not None and table.ndim != axes):
        raise ValueError(f"weights must have shape (target tokens, source tokens), got {table.shape}")
    # Written so that NaN fails the test, too.
    if table.size and not (table.min() >= 0.0 and table.max() < np.inf):
        raise ValueError(f"weights must be finite and at least 0, got values from {table.min()} to {table.max()}")
    return table

"""Pairs of texts, a source and its target, and the files they come in.

    read_pairs      source<TAB>target, and whatever attribution follows a second tab: the form of the book's fra.txt
    read_parallel   two files, line by line
    read_lines      one file, for translating

All are UTF-8 with or without a BOM, gzipped if the name ends in .gz, and read strictly: an invalid line is an error
with its number. White space around a text is stripped; the text itself is unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from regard.data.delimited import LONE_CARRIAGE_RETURN, lines_of
from regard.data.files import PathLike, opened
from regard.data.formats import MAX_BYTES
from regard.data.table import TableError

# In an alignment: a target character that does not come from the source.
NOWHERE = -1


class PairsError(ValueError):
    """Invalid pairs; the message names the file and the line.

    >>> try:
    ...     Pairs(("a", "b"), ("c",))
    ... except PairsError as reason:
    ...     print(reason)
    source has 2 texts, target has 1
    """


@dataclass(frozen=True)
class Pairs:
    """Source texts, their targets and, if known, the source position of each target character.

    Parameters
    ----------
    source : tuple of str
        Source texts.
    target : tuple of str
        Target texts, as many.
    alignment : tuple of tuples of int, default=None
        For each pair the source position of each character of the target text, -1 if there is none. The position of the
        first letter of a word refers to the word.

    Raises
    ------
    PairsError
        If the lengths do not agree.

    >>> pairs = Pairs(("ab", "c"), ("ba", "c"), ((1, 0), (0,)))
    >>> len(pairs), pairs.take([1]).target
    (2, ('c',))
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    # The source position of each character of the target text, -1 if there is none. The position of the first letter of
    # a word refers to the word.
    alignment: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise PairsError(f"source has {len(self.source)} texts, target has {len(self.target)}")
        if self.alignment is None:
            return
        if len(self.alignment) != len(self.target):
            raise PairsError(f"alignment has {len(self.alignment)} rows, target has {len(self.target)} texts")
        for number, (source, target, row) in enumerate(zip(self.source, self.target, self.alignment, strict=True), 1):
            if len(row) != len(target):
                raise PairsError(f"alignment of pair {number} has {len(row)} positions, its target {len(target)}")
            if row and not (min(row) >= NOWHERE and max(row) < len(source)):
                raise PairsError(
                    f"alignment of pair {number} must be between -1 and {len(source) - 1}, got {min(row)} to {max(row)}"
                )

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: Iterable[int]) -> Pairs:
        """The pairs of these rows, in this order.

        Parameters
        ----------
        rows : iterable of int
            Which pairs.

        Returns
        -------
        Pairs
        """
        rows = tuple(rows)
        alignment = None if self.alignment is None else tuple(self.alignment[row] for row in rows)
        return Pairs(tuple(self.source[row] for row in rows), tuple(self.target[row] for row in rows), alignment)

    def split(self, share: float, seed: int = 0, *, by: str = "source") -> tuple[Pairs, Pairs]:
        """Training pairs and held-out pairs, with no source text in both.

        A pair is held out when the SHA-256 of the seed and its source, as a fraction, is below ``share``. So equal
        sources go to the same side, and a source stays there when pairs are added.

        Parameters
        ----------
        share : float
            Approximate fraction to hold out, strictly between 0 and 1.
        seed : int, default=0
            Another seed gives another split.
        by : {"source", "target"}, default="source"
            "target" if no target text may be in both: a date that is held out in one format is then held out in all.

        Returns
        -------
        tuple of two Pairs
            Those to learn from, and those held out.

        >>> learn, held = Pairs(tuple("abcdefgh"), tuple("abcdefgh")).split(0.25)
        >>> learn.source, held.source
        (('c', 'e', 'f', 'g', 'h'), ('a', 'b', 'd'))
        """
        if not 0.0 < share < 1.0:
            raise ValueError(f"share must be strictly between 0 and 1, got {share}")
        if by not in ("source", "target"):
            raise ValueError(f"by must be 'source' or 'target', got {by!r}")
        out = [_fraction(text, seed) < share for text in (self.source if by == "source" else self.target)]
        return (
            self.take(row for row, held in enumerate(out) if not held),
            self.take(row for row, held in enumerate(out) if held),
        )


def _fraction(text: str, seed: int) -> float:
    digest = hashlib.sha256(f"{int(seed)}\n{text}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64


def read_pairs(path: PathLike, *, max_bytes: int = MAX_BYTES) -> Pairs:
    r"""The pairs in a file of lines ``source<TAB>target`` or ``source<TAB>target<TAB>attribution``.

    Parameters
    ----------
    path : str or path
        Any name; a file whose name ends in .gz is decompressed; "-" is standard input.
    max_bytes : int, default=2**31
        Largest size of the decoded file that is accepted.

    Returns
    -------
    Pairs

    Raises
    ------
    PairsError
        Naming the file and the line. There is no header; blank lines are accepted at the end only.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "fra.txt").write_text("Go.\tVa !\n")
    ...     read_pairs(Path(folder) / "fra.txt").target
    ('Va !',)
    """
    source, target = [], []
    for number, line in enumerate(_until_blank(path, max_bytes), 1):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) not in (2, 3):
            raise PairsError(
                f"{_display_name(path)}: line {number} must be source<TAB>target or source<TAB>target<TAB>attribution, "
                f"got {len(cells) - 1} tabs"
            )
        for side, text in zip(("source", "target"), cells[:2], strict=True):
            if not text:
                raise PairsError(f"{_display_name(path)}: line {number}: the {side} is empty")
        source.append(cells[0])
        target.append(cells[1])
    return Pairs(tuple(source), tuple(target))


def read_parallel(source: PathLike, target: PathLike, *, max_bytes: int = MAX_BYTES) -> Pairs:
    """The pairs in two files, line n of one with line n of the other.

    Parameters
    ----------
    source : str or path
        Any name; a file whose name ends in .gz is decompressed; "-" is standard input.
    target : str or path
        As ``source``; not both can be standard input.
    max_bytes : int, default=2**31
        Largest size of a decoded file that is accepted.

    Returns
    -------
    Pairs

    Raises
    ------
    PairsError
        Naming the file and the line. Blank lines are accepted at the end only.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = [(Path(folder) / name).write_text(text) for name, text in (("en", "Go."), ("fr", "Va !"))]
    ...     read_parallel(Path(folder) / "en", Path(folder) / "fr").source
    ('Go.',)
    """
    if str(source) == str(target) == "-":
        raise PairsError("only one of source and target can be standard input")
    left, right = (_until_blank(path, max_bytes) for path in (source, target))
    if len(left) != len(right):
        raise PairsError(f"{_display_name(source)} has {len(left):,} lines, {_display_name(target)} has {len(right):,}")
    return Pairs(tuple(line.strip() for line in left), tuple(line.strip() for line in right))


def read_lines(path: PathLike, *, max_bytes: int = MAX_BYTES) -> tuple[str, ...]:
    r"""The lines of a text file without their ends (LF or CRLF), blank ones included.

    Parameters
    ----------
    path : str or path
        Any name; a file whose name ends in .gz is decompressed; "-" is standard input.
    max_bytes : int, default=2**31
        Largest size of the decoded file that is accepted.

    Returns
    -------
    tuple of str

    Raises
    ------
    PairsError
        Naming the file and the line.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "new.txt").write_text("Go.\n\nRun!\n")
    ...     read_lines(Path(folder) / "new.txt")
    ('Go.', '', 'Run!')
    """
    texts, name = [], _display_name(path)
    try:
        with opened(path, PairsError) as (_, stream):
            for number, line in enumerate(lines_of(stream, name, max_bytes), 1):
                texts.append(line.removesuffix("\n").removesuffix("\r"))
                if "\r" in texts[-1]:
                    raise PairsError(f"{name}: line {number}: {LONE_CARRIAGE_RETURN}")
    except TableError as reason:
        raise PairsError(str(reason)) from None
    return tuple(texts)


def _until_blank(path: PathLike, max_bytes: int) -> tuple[str, ...]:
    """The lines without blank lines at the end; a blank line before that is an error."""
    lines, name = read_lines(path, max_bytes=max_bytes), _display_name(path)
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    if not end:
        raise PairsError(f"{name}: is empty")
    for number, line in enumerate(lines[:end], 1):
        if not line.strip():
            raise PairsError(f"{name}: line {number} is blank, but text follows it")
    return lines[:end]


def _display_name(path: PathLike) -> str:
    return "standard input" if str(path) == "-" else str(path)

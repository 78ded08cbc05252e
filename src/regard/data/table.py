"""A table: named columns of equal length, each numeric or text, with errors that name the cell.

A column is one of
  int64 or float64    every cell is a number; NaN marks an empty cell
  object, of ``str``  any other, exactly as written

``numbers`` and ``matrix`` return numbers, ``labels`` text, ``cells`` either, with dates as numbers of days. Their
errors name the first invalid cell.
Rows are counted from 0, as everywhere in ``regard``: row 0 is the first below the header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Appended to errors that name a row.
ROW_COUNTING = "rows are counted from 0, below the header"

PLAIN_NUMBER = re.compile(r"[ \t]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[ \t]*", re.ASCII)
# Not a plain number, but intended as one: 1,000 or 1_000 or 12% or $5 or 0x10 or nan.
_INTENDED_NUMBER = re.compile(
    r"\s*[+-]?\s*[$€£¥]?\s*(\d[\d.,_' ]*([eE][+-]?\d+)?\s*[%€]?|0[xX][0-9a-fA-F]+|nan|inf(inity)?)\s*", re.IGNORECASE
)
# A date, or a date and a time, in the order of ISO 8601.
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?", re.ASCII)
# Digits as in a date, in an order that depends on the country: 31.12.2024, 12/31/24.
DATE_OF_ANOTHER_ORDER = re.compile(r"\s*\d{1,4}([-./])\d{1,2}\1\d{1,4}(\s.*)?", re.ASCII)
SECONDS_PER_DAY = 86_400.0
# Names of columns and characters of a cell in error messages.
MAX_NAMES_LISTED = 20
MAX_CHARACTERS_SHOWN = 40
# What other programs write for a missing entry. Only empty cells are read as missing: NA may be Namibia.
_MISSING_MARKS = ("na", "n/a", "nan", "null", "none", "-", "?", ".")


class TableError(ValueError):
    """An invalid table; the message names the file, the row and the column.

    >>> try:
    ...     Table(("x",), {"x": np.array([1.0, np.nan])}).numbers("x")
    ... except TableError as reason:
    ...     print(reason)
    table: row 1, column 'x': is empty; missing values are not supported (rows are counted from 0, below the header)
    """


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of one length.

    Parameters
    ----------
    names : tuple of str
        Names of the columns, in order.
    columns : dict of str to array (rows,)
        Columns of int64, float64 or object of ``str``.
    source : str, default="table"
        Its name in errors.
    first : int, default=0
        Number of its first row in the longer table that it is a part of.

    Raises
    ------
    TableError
        If names and columns differ, or columns have different lengths.

    >>> table = Table(("x", "kind"), {"x": np.array([1.0, 2.0]), "kind": np.array(["a", "b"], object)})
    >>> table.matrix(["x"]).shape, table.is_text("kind")
    ((2, 1), True)
    """

    names: tuple[str, ...]
    columns: Mapping[str, Array]  # name → (rows,), int64, float64 or object of str
    source: str = "table"  # its name in errors
    first: int = 0  # number of its first row in the longer table that it is a part of

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names) or set(self.names) != set(self.columns):
            raise TableError(f"{self.source}: names {self.names} and columns {tuple(self.columns)} must be the same")
        if len({column.shape for column in self.columns.values()}) > 1:
            raise TableError(f"{self.source}: columns must have the same length")

    def __len__(self) -> int:
        return len(self.columns[self.names[0]]) if self.names else 0

    def column(self, name: str) -> Array:
        """One column as stored; raises TableError listing the columns for an unknown name.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        array (rows,)
        """
        if name not in self.columns:
            raise TableError(f"{self.source}: has no column {name!r}; its columns are {listing(self.names)}")
        return self.columns[name]

    def is_text(self, name: str) -> bool:
        """True if no cell of the column resembles a number; a column that mixes both is not a text column.

        Nor is one of dates.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        bool
        """
        column = self.column(name)
        return column.dtype == object and not (
            any(_INTENDED_NUMBER.fullmatch(cell) and not DATE_OF_ANOTHER_ORDER.fullmatch(cell) for cell in set(column))
            or self.has_dates(name)
        )

    def has_dates(self, name: str) -> bool:
        """True if every cell of the column is a date such as 2024-12-31 or 2024-12-31 18:30, or empty.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        bool
        """
        return _days(self.column(name)) is not None

    def numbers(self, name: str) -> Array:
        """One column (rows,) of finite numbers, int64 or float64.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        array (rows,)

        Raises
        ------
        TableError
            Naming the first row that is empty or not a finite number.
        """
        column = self.column(name)
        if column.dtype == object:
            raise self._not_numbers(name, column)
        bad = ~np.isfinite(column)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            what = "is empty; missing values are not supported" if np.isnan(column[row]) else "is not finite"
            raise self.error(row, name, what)
        return column

    def cells(self, name: str) -> Array:
        """One column (rows,) with missing values: text, None for empty cells, or finite float64, NaN for empty cells.

        Dates are days since 1970-01-01, with the time as a fraction of the day.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        array (rows,)

        Raises
        ------
        TableError
            Naming the first cell that is neither, in a column that is not text throughout.
        """
        column = self.column(name)
        if (days := _days(column)) is not None:
            return days
        if column.dtype == object:
            if not self.is_text(name) and any(cell.strip() for cell in column):
                raise self._not_numbers(name, column)
            return np.array([cell if cell.strip() else None for cell in column], object)
        infinite = np.isinf(column)
        if infinite.any():
            raise self.error(int(infinite.argmax()), name, "is not finite")
        return column.astype(np.float64)

    def matrix(self, names: Sequence[str]) -> Array:
        """Several columns side by side: (rows, len(names)) float64. Raises as ``numbers`` does.

        Parameters
        ----------
        names : sequence of str
            Names of the columns, in the order wanted.

        Returns
        -------
        array (rows, len(names))
        """
        out = np.empty((len(self), len(names)))
        for number, name in enumerate(names):
            out[:, number] = self.numbers(name)
        return out

    def labels(self, name: str) -> Array:
        """One text column (rows,) of object ``str``, none of them empty.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        array (rows,)

        Raises
        ------
        TableError
            If the column holds numbers, or naming the first empty cell.
        """
        column = self.column(name)
        if column.dtype != object:
            raise TableError(f"{self.source}: column {name!r} holds numbers, not text")
        for row, cell in enumerate(column):
            if not cell.strip():
                raise self.error(row, name, "is empty; missing values are not supported")
        return column

    def error(self, row: int, name: str, what: str) -> TableError:
        """The error for one cell; ``row`` counts from 0 in this part, the message from 0 in the whole table.

        Parameters
        ----------
        row : int
            Counted from 0 in this part of the table.
        name : str
            Name of the column.
        what : str
            What is wrong with the cell.

        Returns
        -------
        TableError
            To be raised.
        """
        return TableError(f"{self.source}: row {self.first + row}, column {name!r}: {what} ({ROW_COUNTING})")

    def _not_numbers(self, name: str, column: Array) -> TableError:
        # Valid are finite decimal numbers, as float() reads them: no separators, no hexadecimals, no nan.
        plain = (PLAIN_NUMBER.fullmatch(cell) is not None and isfinite(float(cell)) for cell in column)
        row = next(row for row, is_number in enumerate(plain) if not is_number)
        cell = column[row]
        if not cell.strip():
            return self.error(row, name, "is empty; missing values are not supported")
        if PLAIN_NUMBER.fullmatch(cell):
            return self.error(row, name, f"{shown(cell)} is beyond the largest float64, about 1.8e308")
        if self.has_dates(name):
            return self.error(row, name, f"{shown(cell)} is not a number: this is a column of dates")
        if DATE_OF_ANOTHER_ORDER.fullmatch(cell):
            return self.error(row, name, f"{shown(cell)} is not a date such as 2024-12-31, nor a plain number")
        if self.is_text(name):
            return self.error(row, name, f"{shown(cell)} is not a number: this is a column of text")
        advice = "; leave the cell empty if the entry is missing" if cell.strip().lower() in _MISSING_MARKS else ""
        return self.error(row, name, f"{shown(cell)} is not a plain number such as 1000, -2.5 or 1e-3{advice}")


def _days(column: Array) -> Array | None:
    """Days since 1970-01-01 (rows,), NaN for empty cells; None unless all other cells are dates, and one is."""
    if column.dtype != object:
        return None
    days: dict[str, float] = {}
    for cell in set(column):
        text = cell.strip()
        if not text:
            days[cell] = np.nan
            continue
        if not _DATE.fullmatch(text):
            return None
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            return None
        # Times without an offset count as UTC.
        days[cell] = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() / SECONDS_PER_DAY
    found = np.array([days[cell] for cell in column])
    return None if np.isnan(found).all() else found


def from_dataframe(frame: Any, source: str = "dataframe", first: int = 0) -> Table:
    """A Table from a dataframe of any library narwhals knows (pandas, polars, pyarrow, …).

    Integers stay integers unless cells are missing; booleans become 0 and 1; text, categories and dates become text.

    Parameters
    ----------
    frame : dataframe
        Eager or lazy.
    source : str, default="dataframe"
        Its name in errors.
    first : int, default=0
        Number of its first row in the longer table that it is a part of.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        If it is no dataframe, has no rows, or a column is of nested or binary type.

    >>> import pandas
    >>> from_dataframe(pandas.DataFrame({"x": [1, 2]})).matrix(["x"]).tolist()
    [[1.0], [2.0]]
    """
    import narwhals as nw

    try:
        eager = nw.from_native(frame)
    except TypeError as reason:
        raise TableError(f"{source}: must be a dataframe, got {type(frame).__name__}") from reason
    if isinstance(eager, nw.LazyFrame):
        eager = eager.collect()
    names = tuple(eager.columns)
    check_names([str(name) for name in names], source)
    if not len(eager):
        raise TableError(f"{source}: has columns but no rows")
    columns = {str(name): _array(nw, eager[name], str(name), source) for name in names}
    return Table(tuple(map(str, names)), columns, source, first)


def _array(nw: Any, series: Any, name: str, source: str) -> Array:
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        whole = (dtype.is_integer() or dtype == nw.Boolean) and not series.is_null().any()
        if whole:
            array = np.asarray(series.to_numpy())
            # A uint64 beyond int64 would wrap around.
            if dtype == nw.Boolean or array.size == 0 or int(array.max()) <= np.iinfo(np.int64).max:
                return array.astype(np.int64)
        return np.asarray(series.cast(nw.Float64).to_numpy(), np.float64)
    if dtype.is_nested() or dtype == nw.Binary:
        raise TableError(f"{source}: column {name!r} has type {dtype}; only numbers, booleans, text and dates are read")
    texts = series.cast(nw.String).to_list() if dtype != nw.Object else series.to_list()
    return text_array(["" if _missing(cell) else str(cell) for cell in texts])


def _missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and cell != cell) or str(cell) == "<NA>"


def text_array(cells: Sequence[str]) -> Array:
    """Cells as an object array; equal texts share one string, which saves memory."""
    shared: dict[str, str] = {}
    out = np.empty(len(cells), object)
    out[:] = [shared.setdefault(cell, cell) for cell in cells]
    return out


def check_names(names: Sequence[str], source: str) -> None:
    """Raise TableError for columns without a name or with repeated names."""
    earlier: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name:
            raise TableError(f"{source}: column {number} has no name; is it a saved row index?")
        if name in earlier:
            raise TableError(f"{source}: column name {name!r} appears more than once")
        earlier.add(name)


def listing(names: Sequence[str]) -> str:
    """Names as a comma-separated list, at most ``MAX_NAMES_LISTED`` of them."""
    more = f" and {len(names) - MAX_NAMES_LISTED} more" if len(names) > MAX_NAMES_LISTED else ""
    return ", ".join(repr(name) for name in names[:MAX_NAMES_LISTED]) + more


def shown(cell: str) -> str:
    """A cell as quoted in errors: escaped, and shortened to ``MAX_CHARACTERS_SHOWN`` characters."""
    return repr(cell if len(cell) <= MAX_CHARACTERS_SHOWN else cell[: MAX_CHARACTERS_SHOWN - 1] + "…")

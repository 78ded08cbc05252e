"""Numbers, tables and dataframes as reports give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from regard.core.arrays import Array

LIBRARIES = ("pandas", "polars", "pyarrow")


def number(value: float) -> str:
    """Three digits or so, for people.

    >>> number(12.3456), number(123456.0), number(2.0)
    ('12.3', '123,456', '2')
    """
    return f"{value:,.0f}" if 1000.0 <= abs(value) < 1e7 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share for people.

    >>> percent(0.195), percent(1.0), percent(0.0001)
    ('19.5 %', '100 %', '< 0.1 %')
    """
    return "< 0.1 %" if 0.0 < abs(share) < 0.0005 else f"{round(100.0 * share, 1):g} %"


def row_words(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a small table, right-aligned.

    >>> row_words(["row", "y"], [["7", "1.5"]])
    ['    row    y', '      7  1.5']
    """
    wide = [max(len(line[j]) for line in (head, *body)) for j in range(len(head))]
    return ["    " + "  ".join(cell.rjust(w) for cell, w in zip(line, wide, strict=True)) for line in (head, *body)]


def table_of(name: str, values: Array) -> dict[str, Array]:
    """Values (m,) as one column, (m, P) as P columns numbered from 0."""
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{j}": values[:, j] for j in range(values.shape[1])}


def frame_of(columns: Mapping[str, Array], library: str | None) -> Any:
    """A dataframe of columns (m,) in "pandas", "polars" or "pyarrow"; None takes the first that is installed."""
    import narwhals as nw

    if library is not None and library not in LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(map(repr, LIBRARIES))} or None, got {library!r}")
    found: list[Any] = [name for name in LIBRARIES if library in (None, name) and find_spec(name) is not None]
    if not found:
        wanted = library or " or ".join(LIBRARIES)
        raise ModuleNotFoundError(f"a dataframe needs {wanted}, which is not installed; columns() gives plain arrays")
    return nw.from_dict({name: column.tolist() for name, column in columns.items()}, backend=found[0]).to_native()

"""Numbers and small tables as text for people, and columns as dataframes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from regard.core.arrays import Array

LIBRARIES = ("pandas", "polars", "pyarrow")


def format_number(value: float) -> str:
    """About three significant digits.

    >>> format_number(12.3456), format_number(123456.0), format_number(2.0)
    ('12.3', '123,456', '2')
    """
    return f"{value:,.0f}" if 1000.0 <= abs(value) < 1e7 else f"{value:.3g}"


def format_percent(fraction: float) -> str:
    """A fraction in percent.

    >>> format_percent(0.195), format_percent(1.0), format_percent(0.0001)
    ('19.5 %', '100 %', '< 0.1 %')
    """
    return "< 0.1 %" if 0.0 < abs(fraction) < 0.0005 else f"{round(100.0 * fraction, 1):g} %"


def format_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a small right-aligned table.

    >>> format_table(["row", "y"], [["7", "1.5"]])
    ['    row    y', '      7  1.5']
    """
    widths = [max(len(line[j]) for line in (head, *body)) for j in range(len(head))]
    return ["    " + "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in (head, *body)]


def numbered_columns(name: str, values: Array) -> dict[str, Array]:
    """Values (m,) as one column, (m, P) as P columns numbered from 0."""
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{j}": values[:, j] for j in range(values.shape[1])}


def to_dataframe(columns: Mapping[str, Array], library: str | None) -> Any:
    """A dataframe of columns (m,) in "pandas", "polars" or "pyarrow"; None takes the first one installed."""
    import narwhals as nw

    if library is not None and library not in LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(map(repr, LIBRARIES))} or None, got {library!r}")
    found: list[Any] = [name for name in LIBRARIES if library in (None, name) and find_spec(name) is not None]
    if not found:
        wanted = library or " or ".join(LIBRARIES)
        raise ModuleNotFoundError(f"a dataframe needs {wanted}, which is not installed; columns() gives plain arrays")
    return nw.from_dict({name: column.tolist() for name, column in columns.items()}, backend=found[0]).to_native()

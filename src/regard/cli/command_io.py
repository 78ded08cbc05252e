"""Input and output that commands share: models, the columns they need, and tables safe to open in a spreadsheet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.console import escaped, on_terminal, spinner

if TYPE_CHECKING:
    from regard.data import Table
    from regard.store.models import Saved

# A spreadsheet runs a cell that starts with one of these: signs of a formula, also in full width, and blanks it skips.
FORMULA_STARTS = (*"=+-@＝＋－＠", "\t", "\r", "\n")


class Language(StrEnum):
    """The values of ``--lang``."""

    en = "en"
    zh = "zh"


def check_distinct(out: str, *inputs: str) -> None:
    """Raise ValueError if ``out`` is one of the input files, even with --force."""
    for given in inputs:
        if (
            out != "-"
            and given != "-"
            and os.path.exists(out)
            and os.path.exists(given)
            and os.path.samefile(out, given)
        ):
            raise ValueError(f"{out}: is an input file too; choose another file to write to")


def as_dataframe(table: Table, names: Sequence[str]) -> Any:
    """Columns of a table as a dataframe, so that the estimator stores their names; empty cells stay missing."""
    import polars

    cells = {name: table.cells(name) for name in names}
    kinds = {name: polars.String if column.dtype == object else polars.Float64 for name, column in cells.items()}
    return polars.DataFrame({name: column.tolist() for name, column in cells.items()}, schema=kinds)


def query_rows(saved: Saved, table: Table) -> Any:
    """The rows of a table as the model needs them: its columns by name or, if it was fitted without names, in order."""
    from regard.data import TableError
    from regard.data.table import listing

    names = getattr(saved.model, "feature_names_in_", None)
    if names is not None:
        missing = [name for name in names if name not in table.columns]
        if missing:
            raise TableError(
                f"{table.source}: lacks {listing(missing)}, which the model was fitted with; "
                f"its columns are {listing(table.names)}"
            )
        _check_kinds(saved.model, table)
        return as_dataframe(table, [str(name) for name in names])
    wanted = saved.model.n_features_in_
    if len(table.names) != wanted:
        raise TableError(
            f"{table.source}: the model was fitted without column names, so the table must have exactly "
            f"{wanted} columns; it has {len(table.names)}: {listing(table.names)}"
        )
    return table.matrix(table.names)


def _check_kinds(model: Any, table: Table) -> None:
    """Raise TableError for numbers in a column that was text in fit, and vice versa; empty columns are accepted."""
    from regard.data import TableError
    from regard.data.columns import is_missing
    from regard.data.table import DATE_OF_ANOTHER_ORDER, shown

    parts = model.coding_.parts if hasattr(model, "coding_") else ()
    text_columns = {part.names[0] for part in parts if part.levels and isinstance(part.levels[0], str)}
    for name in map(str, model.feature_names_in_):
        cells = table.cells(name)
        if is_missing(cells).all():
            continue
        if cells.dtype == object and name not in text_columns:
            text = next(cell for cell in cells if cell is not None)
            raise TableError(
                f"{table.source}: column {name!r} contains text such as {shown(text)}, but the model was fitted with "
                "numbers in it"
                + (
                    "; dates are recognised as such in the form 2024-12-31 only"
                    if DATE_OF_ANOTHER_ORDER.fullmatch(text)
                    else ""
                )
            )
        if cells.dtype != object and name in text_columns:
            raise TableError(
                f"{table.source}: column {name!r} contains numbers, but the model was fitted with text in it"
            )


def load_model(model: str, data: str, out: str, *, force: bool) -> Saved:
    """The saved model, after checking that ``out`` can be written to."""
    from regard.data.formats import check_table_output
    from regard.store.models import load_with_metadata

    check_table_output(out, force=force)
    check_distinct(out, model, data)
    with spinner(f"Reading {model}"):
        return load_with_metadata(model)


def target_names(saved: Saved, fallback: str) -> list[str]:
    """One name per value column: that of the target, if it was saved with the model."""
    name = str(saved.metadata.get("target", fallback))
    value = saved.model.value_
    return [name] if value.ndim == 1 else [f"{name}_{number + 1}" for number in range(value.shape[1])]


def by_name(values: Any, names: Sequence[str]) -> dict[str, Any]:
    """Columns of values (n,) or (n, P) by name."""
    columns = values[:, None] if values.ndim == 1 else values
    return {name: columns[:, number] for number, name in enumerate(names)}


def spreadsheet_safe(text: str) -> str:
    """Text that no spreadsheet runs as a formula: a leading apostrophe is added if it starts like one.

    >>> spreadsheet_safe("=1+1"), spreadsheet_safe("cat")
    ("'=1+1", 'cat')
    """
    return "'" + text if text.startswith(FORMULA_STARTS) else text


def safe_table(columns: dict[str, Any], out: str) -> Table:
    """A table to write to ``out``, with texts and column names safe to open in a spreadsheet.

    On a terminal their control characters are escaped as well; numbers are not changed.
    """
    import numpy as np

    from regard.data import Table
    from regard.data.table import text_array

    def safe_text(text: str) -> str:
        return escaped(spreadsheet_safe(text)) if out == "-" and on_terminal() else spreadsheet_safe(text)

    safe = {}
    for name, column in columns.items():
        array = np.asarray(column)
        texts = array.dtype.kind not in "iuf"
        safe[safe_text(name)] = text_array([safe_text(str(cell)) for cell in array]) if texts else array
    return Table(tuple(safe), safe, "output")


def file_size(path: str) -> str:
    """The size of a file in bytes, kB or MB."""
    size = Path(path).stat().st_size
    return (
        f"{size:,} bytes"
        if size < 10_000
        else f"{size / 1e3:,.0f} kB"
        if size < 10_000_000
        else f"{size / 1e6:,.0f} MB"
    )

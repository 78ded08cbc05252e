"""What the commands share on the way in and out: models, the columns they want, and cells safe to open."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.console import on_terminal, visible, working

if TYPE_CHECKING:
    from regard.data import Table
    from regard.store.models import Saved

# What makes a spreadsheet run a cell: signs of a formula, as they are and in full width, and blanks it may skip.
FORMULA_STARTS = (*"=+-@＝＋－＠", "\t", "\r", "\n")


class Language(StrEnum):
    """What ``--lang`` may be."""

    en = "en"
    zh = "zh"


def check_distinct(out: str, *inputs: str) -> None:
    """Refuse to write over what we read, even by force."""
    for given in inputs:
        if (
            out != "-"
            and given != "-"
            and os.path.exists(out)
            and os.path.exists(given)
            and os.path.samefile(out, given)
        ):
            raise ValueError(f"{out}: is also read from; choose another --out")


def frame(table: Table, names: Sequence[str]) -> Any:
    """Columns by name as a dataframe, so that the estimator sees and keeps their names; gaps stay gaps."""
    import polars

    cells = {name: table.cells(name) for name in names}
    kinds = {name: polars.String if column.dtype == object else polars.Float64 for name, column in cells.items()}
    return polars.DataFrame({name: column.tolist() for name, column in cells.items()}, schema=kinds)


def queries(saved: Saved, table: Table) -> Any:
    """What the model wants of a table: its columns by name or, where it never saw names, all of them in order."""
    from regard.data import TableError
    from regard.data.table import listing

    names = getattr(saved.model, "feature_names_in_", None)
    if names is not None:
        missing = [name for name in names if name not in table.columns]
        if missing:
            raise TableError(
                f"{table.source}: lacks {listing(missing)}, which the model needs; "
                f"its columns are {listing(table.names)}"
            )
        _check_kinds(saved.model, table)
        return frame(table, [str(name) for name in names])
    wanted = saved.model.n_features_in_
    if len(table.names) != wanted:
        raise TableError(
            f"{table.source}: the model was fitted without column names, so the table must have exactly "
            f"{wanted} columns; it has {len(table.names)}: {listing(table.names)}"
        )
    return table.matrix(table.names)


def _check_kinds(model: Any, table: Table) -> None:
    """Refuse numbers where the model knows text, and the other way round; a column that is empty is neither."""
    from regard.data import TableError
    from regard.data.columns import is_missing

    parts = model.coding_.parts if hasattr(model, "coding_") else ()
    words = {part.names[0] for part in parts if part.levels and isinstance(part.levels[0], str)}
    for name in map(str, model.feature_names_in_):
        cells = table.cells(name)
        if is_missing(cells).all():
            continue
        if cells.dtype == object and name not in words:
            raise TableError(f"{table.source}: column {name!r} is text, and the model knows it as numbers")
        if cells.dtype != object and name in words:
            raise TableError(f"{table.source}: column {name!r} holds numbers, and the model knows it as text")


def loaded(model: str, data: str, out: str, *, force: bool) -> Saved:
    """A model for a table, read once it is sure that the answer can go to ``out``."""
    from regard.data.formats import check_table_output
    from regard.store.models import load_with_metadata

    check_table_output(out, force=force)
    check_distinct(out, model, data)
    with working(f"Reading {model}"):
        return load_with_metadata(model)


def target_names(saved: Saved, fallback: str) -> list[str]:
    """One name per value column: the target's where the model knows it."""
    name = str(saved.metadata.get("target", fallback))
    value = saved.model.value_
    return [name] if value.ndim == 1 else [f"{name}_{number + 1}" for number in range(value.shape[1])]


def by_name(values: Any, names: Sequence[str]) -> dict[str, Any]:
    """Columns of values (n,) or (n, P) under their names."""
    columns = values[:, None] if values.ndim == 1 else values
    return {name: columns[:, number] for number, name in enumerate(names)}


def spreadsheet_safe(text: str) -> str:
    """Text that no spreadsheet takes for a formula: one that starts as a formula may gets an apostrophe.

    >>> spreadsheet_safe("=1+1"), spreadsheet_safe("cat")
    ("'=1+1", 'cat')
    """
    return "'" + text if text.startswith(FORMULA_STARTS) else text


def safe_table(columns: dict[str, Any], out: str) -> Table:
    """A table ready to be written to ``out``: texts and column names are made safe, numbers stay numbers.

    In a file or a pipe they are exact but for that; on a terminal their control characters are shown.
    """
    import numpy as np

    from regard.data import Table
    from regard.data.table import text_array

    def said(text: str) -> str:
        return visible(spreadsheet_safe(text)) if out == "-" and on_terminal() else spreadsheet_safe(text)

    safe = {}
    for name, column in columns.items():
        array = np.asarray(column)
        texts = array.dtype.kind not in "iuf"
        safe[said(name)] = text_array([said(str(cell)) for cell in array]) if texts else array
    return Table(tuple(safe), safe, "output")


def size_in_words(path: str) -> str:
    """A file's size for people."""
    size = Path(path).stat().st_size
    return (
        f"{size:,} bytes"
        if size < 10_000
        else f"{size / 1e3:,.0f} kB"
        if size < 10_000_000
        else f"{size / 1e6:,.0f} MB"
    )

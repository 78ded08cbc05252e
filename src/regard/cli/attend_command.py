"""``regard attend``: the attention weights of training rows in each prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.command_io import by_name, load_model, query_rows, safe_table, target_names
from regard.cli.console import spinner

if TYPE_CHECKING:
    from regard.data import Table
    from regard.store.models import Saved


@dataclass(frozen=True)
class Attend:
    """Show the training rows with the largest attention weights for each prediction.

    Writes one line per query and training row, largest weight first: query (row number in this table), rank,
    key (row number in the training table), weight (all weights of a query sum to 1), value (the training row's
    target) and mass (the sum of the weights shown for the query). Rows are counted from 0: row 0 is the first below
    the header.
    """

    model: Annotated[str, typer.Argument(help="Model file written by regard fit or regard.save.")]
    data: Annotated[str, typer.Argument(help="Table of queries: .csv, .tsv, .csv.gz, .parquet, or - for stdin.")]
    top: Annotated[int, typer.Option(min=1, help="Number of training rows to show for each query.")] = 5
    out: Annotated[str, typer.Option(help="File to write; - is standard output, as CSV.")] = "-"
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False

    def run(self) -> None:
        from regard.data import read_table, write_table

        saved = load_model(self.model, self.data, self.out, force=self.force)
        with spinner(f"Reading {self.data}") as now:
            X = query_rows(saved, read_table(self.data))
            now(f"Computing weights of {len(saved.model.key_):,} training rows for {len(X):,} queries")
            attention = saved.model.attend(X, top=min(self.top, len(saved.model.key_)))
        write_table(_long_table(saved, attention, self.out), self.out, force=self.force)


def _long_table(saved: Saved, attention: Any, out: str) -> Table:
    """One row per query and key; keys with weight 0 are omitted."""
    import numpy as np

    query, rank = np.nonzero(attention.weight)
    key = attention.index[query, rank]
    value = saved.model.value_[key]
    if hasattr(saved.model, "classes_"):
        value = saved.model.classes_[value]
    names = ["value"] if value.ndim == 1 else target_names(saved, "value")
    return safe_table(
        {
            "query": query,
            "rank": rank + 1,
            "key": saved.model.row_ids_[key],
            "weight": attention.weight[query, rank],
            **by_name(value, names),
            "mass": attention.mass[query],
        },
        out,
    )

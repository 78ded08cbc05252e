"""``regard attend``: which training rows each prediction looked at, and how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.command_io import by_name, loaded, queries, safe_table, target_names
from regard.cli.console import working

if TYPE_CHECKING:
    from regard.data import Table
    from regard.store.models import Saved


@dataclass(frozen=True)
class Attend:
    """Show which training rows each prediction looked at.

    Writes one line per query and training row, most attended first: query (row number in this table), rank,
    key (row number in the training table), weight (all weights of a query sum to 1), value (the training row's
    target) and mass (the sum of the weights shown for the query). Rows are counted from 0: row 0 is the first below
    the header.
    """

    model: Annotated[str, typer.Argument(help="Model file, as regard fit or regard.save wrote it.")]
    data: Annotated[str, typer.Argument(help="Table of queries: .csv, .tsv, .csv.gz, .parquet, or - for stdin.")]
    top: Annotated[int, typer.Option(min=1, help="How many training rows to show for each query.")] = 5
    out: Annotated[str, typer.Option(help="Where to write; - is standard output as CSV.")] = "-"
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False

    def run(self) -> None:
        from regard.data import read_table, write_table

        saved = loaded(self.model, self.data, self.out, force=self.force)
        with working(f"Reading {self.data}") as now:
            X = queries(saved, read_table(self.data))
            now(f"Attending to {len(saved.model.key_):,} training rows, {len(X):,} queries")
            attention = saved.model.attend(X, top=min(self.top, len(saved.model.key_)))
        write_table(_long(saved, attention, self.out), self.out, force=self.force)


def _long(saved: Saved, attention: Any, out: str) -> Table:
    """One line per query and attended key; keys without any weight are left out."""
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

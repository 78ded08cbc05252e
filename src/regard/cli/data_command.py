"""``regard data``: a data set of ``regard.data`` as a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.data import Table


class TableName(StrEnum):
    """The data sets of ``regard.data`` that are tables."""

    houses = "houses"
    notes = "notes"


@dataclass(frozen=True)
class Data:
    """Write a data set that comes with regard.

    houses: 400 houses with seven features and their price, made by a formula and noise. notes: the study notes' fifty
    noisy points (x, y) on a curve. The same seed gives the same rows; another one gives new rows to predict.
    """

    name: Annotated[TableName, typer.Argument(help="Name of the data set.")]
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")] = 0
    out: Annotated[str, typer.Option(help="File to write; - is standard output, as CSV.")] = "-"
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False

    def run(self) -> None:
        from regard.data import write_table

        write_table(_table(self.name, self.seed), self.out, force=self.force)


def _table(name: TableName, seed: int) -> Table:
    from regard.data import Table, houses, notes

    if name == TableName.notes:
        points = notes(seed=seed)
        columns = {"x": points.x_train, "y": points.y_train}
    else:
        data = houses(seed=seed)
        columns = {**dict(zip(data.feature_names, data.X.T, strict=True)), data.target_name: data.y}
    return Table(tuple(columns), columns, name.value)

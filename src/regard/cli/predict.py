"""``regard predict``: a saved model and a table in, one prediction per row out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from regard.cli.inputs import asking, safe_table, target_names


@dataclass(frozen=True)
class Predict:
    """Checked arguments of ``regard predict``."""

    model: str
    data: str
    out: str
    force: bool

    def run(self) -> None:
        from regard.data import write_table

        with asking(self.model, self.data, self.out, force=self.force) as (saved, X, now):
            now(f"Predicting {len(X):,} rows from {len(saved.model.key_):,} training rows")
            predicted = saved.model.predict(X)
        names = target_names(saved, "prediction")
        columns = predicted[:, None] if predicted.ndim == 1 else predicted
        result = safe_table({name: columns[:, number] for number, name in enumerate(names)})
        write_table(result, self.out, force=self.force)


def command(
    model: Annotated[str, typer.Argument(help="Model file, as regard fit or regard.save wrote it.")],
    data: Annotated[
        str, typer.Argument(help="Table of rows to predict: .csv, .tsv, .csv.gz, .parquet, or - for stdin.")
    ],
    out: Annotated[str, typer.Option(help="Where to write; - is standard output as CSV.")] = "-",
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")] = False,
) -> Predict:
    """Predict the target for every row of a table.

    Writes one column, named after the target, with one row per row of the table. Columns are matched by name;
    those the model does not know are ignored. Text that a spreadsheet would run as a formula (it starts with
    = + - or @) gets a leading apostrophe.
    """
    return Predict(model, data, out, force)

"""Cells of a table as a report shows them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from regard.reporting.report_facts import ReportFacts
from regard.reporting.report_sentences import cell
from regard.reporting.table_rows import cells_of


class TableCells:
    """Cells of the rows of X, and of the training rows if known, formatted for a reader."""

    def __init__(self, model: Any, X: Any, facts: ReportFacts) -> None:
        self._X, self._facts = X, facts
        coding = getattr(model, "coding_", None)
        # Columns of X that belong to each name, and their own names.
        self._columns = [part.columns for part in coding.parts] if coding else [(j,) for j in range(len(facts.names))]
        self._names = [part.names for part in coding.parts] if coding else [(name,) for name in facts.names]
        # Without a coding, the model keeps training rows in the units of X.
        self._key = None if coding or facts.left_out else model.key_
        self._known: dict[int, list[Any]] = {}

    def given(self, row: int, name: int) -> str:
        """A cell of a row of X."""
        return ", ".join(self._formatted(self._column(j)[row], j) for j in self._columns[name])

    def trained(self, row: int, name: int) -> str:
        """A cell of a training row; of a mixed table it is known only if X is the training table."""
        if self._facts.left_out:
            return self.given(row, name)
        return "" if self._key is None else self._formatted(self._key[row, name], self._columns[name][0])

    def _column(self, j: int) -> list[Any]:
        if j not in self._known:
            self._known[j] = cells_of(self._X, j)
        return self._known[j]

    def _formatted(self, value: Any, j: int) -> str:
        if value is None or value != value:
            return "–"
        if isinstance(value, str):
            return escape(value)
        numbers = np.array([float(one) for one in self._column(j) if one is not None])
        return cell(float(value), numbers)

    def columns(self, name: int) -> Iterator[tuple[str, list[Any]]]:
        """Names of the columns of X that belong to a name, and their cells in the rows evaluated."""
        for j, own in zip(self._columns[name], self._names[name], strict=True):
            column = self._column(j)
            yield own, [column[row] for row in self._facts.rows]

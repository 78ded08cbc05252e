"""A table uploaded by a page: read, fitted by ``KernelRegressor``, and the rows behind a prediction."""

from __future__ import annotations

import io
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.data import Table, TableError
from regard.data.delimited import read_delimited
from regard.model.explanation import explain
from regard.model.naive_answers import naive_answers, root_mean_square
from regard.play.job_queue import Job
from regard.play.security import Refused
from regard.play.w_training import SendMessage

MAX_BYTES = 4_000_000
MAX_ROWS = 5000
MAX_COLUMNS = 100
MAX_FEATURES = 30
# Tables in memory at once; the least recently used one is dropped first.
MAX_TABLES = 12
MAX_SECONDS = 90.0
# Training rows sent with the explanation of a prediction.
ROWS_EXPLAINED = 8
INTERVAL_COVERAGE = 0.9
INTERVAL_METHOD = "conformal"


class TableStore:
    """The uploaded tables of this run by name; names are random, so that they cannot be guessed."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, Table] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, table: Table) -> str:
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._tables[name] = table
            while len(self._tables) > MAX_TABLES:
                self._tables.popitem(last=False)
        return name

    def __getitem__(self, name: str) -> Table:
        with self._lock:
            if name not in self._tables:
                raise Refused(404, "this table is no longer in memory; upload it again")
            self._tables.move_to_end(name)
            return self._tables[name]

    def __len__(self) -> int:
        return len(self._tables)


class FittedTable(NamedTuple):
    """A model, and the table and columns that it was fitted to."""

    model: Any
    table: Table
    target: str
    features: tuple[str, ...]


def read(content: bytes) -> Table:
    """A CSV as a table; refused with 422 if it is malformed or too large for a page."""
    try:
        table = read_delimited(io.BufferedReader(io.BytesIO(content)), ",", "the table", 4 * MAX_BYTES)  # type: ignore[arg-type]
    except TableError as reason:
        raise Refused(422, str(reason)) from None
    if len(table) > MAX_ROWS or len(table.names) > MAX_COLUMNS:
        raise Refused(
            422,
            f"the table must have at most {MAX_ROWS:,} rows and {MAX_COLUMNS} columns, got {len(table):,} and "
            f"{len(table.names):,}; use regard fit for larger ones",
        )
    return table


def describe(table: Table) -> dict[str, Any]:
    """The columns from which a page can choose: names, and why a column cannot be used."""
    columns = []
    for name in table.names:
        try:
            numbers = table.numbers(name)
            why = "" if np.ptp(numbers.astype(np.float64)) > 0.0 else "does not vary"
        except TableError as reason:
            why = str(reason).removeprefix(f"{table.source}: ")
        columns.append({"name": name, "why_not": why})
    if sum(not column["why_not"] for column in columns) < 2:
        raise Refused(422, "the table needs at least two columns of numbers that vary")
    return {"rows": len(table), "columns": columns}


def chosen_columns(table: Table, target: str, features: Sequence[str]) -> tuple[Array, Array]:
    """X (n, d) and y (n,) from the columns that a page has chosen."""
    if target in features:
        raise Refused(422, "the target cannot be one of the features")
    try:
        X, y = table.matrix(list(features)), table.numbers(target).astype(np.float64)
    except TableError as reason:
        raise Refused(422, str(reason)) from None
    if len(X) < 3:
        raise Refused(422, f"the table must have at least 3 rows to learn from, got {len(X)}")
    return X, y


class JobCallback:
    """A scikit-learn callback that reports every evaluation, and stops the search once its job is over."""

    def __init__(self, job: Job, send: SendMessage) -> None:
        self._job, self._send = job, send

    def setup(self, estimator: Any, context: Any) -> None:
        """Nothing to prepare."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to clean up."""

    def on_fit_task_begin(self, estimator: Any, context: Any, **kwargs: Any) -> None:
        """Evaluations are too short to report their start."""

    def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any = None, **kwargs: Any) -> bool:  # noqa: ARG002
        if metadata and "criterion" in metadata:
            self._send({"did": "progress", "done": metadata.get("done")})
        return self._job.halt()


def fit(table: Table, target: str, features: Sequence[str], job: Job, send: SendMessage) -> FittedTable | None:
    """Fit ``KernelRegressor`` and send its errors, relevances and left-out predictions, then its interval width."""
    from regard import KernelRegressor

    X, y = chosen_columns(table, target, features)
    model = KernelRegressor()
    if hasattr(model, "set_callbacks"):  # scikit-learn before 1.9 has none
        model.set_callbacks(JobCallback(job, send))
    try:
        model.fit(X, y)
    except KeyboardInterrupt:
        send({"did": "stopped"})
        return None
    if hasattr(model, "set_callbacks"):
        model.set_callbacks()
    diagnosis, rows = model.diagnose(), np.arange(len(y))
    simple = naive_answers(X, X, y, (rows, rows))
    send(
        {
            "did": "fitted",
            "rows": len(y),
            "target": target,
            "features": list(features),
            "relevance": model.feature_relevance_.tolist(),
            "bandwidth": [float(h) if np.isfinite(h) else None for h in model.bandwidth_],
            "score": float(model.loo_score_),
            "error": root_mean_square(y - model.loo_predictions_),
            "mean_error": root_mean_square(y - simple.mean),
            "nearest_error": root_mean_square(y - simple.nearest),
            "verdict": diagnosis.verdict,
            "neighbours": float(diagnosis.neighbours),
            "actual": y.tolist(),
            "predicted": np.asarray(model.loo_predictions_, np.float64).tolist(),
            "stopped": job.halted,
        }
    )
    if not job.over:
        # With too few rows for the rank, intervals are infinite.
        ends = model.predict_interval(X, INTERVAL_COVERAGE, INTERVAL_METHOD)
        half = float(np.median(ends[:, 1] - ends[:, 0])) / 2.0
        send({"did": "sure", "half": half if np.isfinite(half) else None})
    return FittedTable(model, table, target, tuple(features))


def explain_row(fitted: FittedTable, row: int, send: SendMessage) -> None:
    """Send the training rows behind the prediction of one row, and the interval for a new row like it."""
    X, y = chosen_columns(fitted.table, fitted.target, fitted.features)
    if row >= len(X):
        raise Refused(422, f"row must be less than {len(X)}, the number of rows")
    asked = X[row : row + 1]
    explanation = fitted.model.explain(asked, top=ROWS_EXPLAINED)[0]
    # A row is never far from itself: whether it is far from the others is asked of a model without it.
    others = fitted.model._configured_smoother.with_rows(np.delete(np.arange(len(X)), row))
    low, high = fitted.model.predict_interval(asked, INTERVAL_COVERAGE, INTERVAL_METHOD)[0].tolist()
    rows = [
        {
            "row": int(key),
            "weight": float(weight),
            "effective": float(effective),
            "y": float(y[key]),
            "x": X[key].tolist(),
        }
        for key, weight, effective in zip(explanation.index, explanation.weight, explanation.effective, strict=True)
    ]
    send(
        {
            "did": "explained",
            "row": row,
            "actual": float(y[row]),
            "predicted": float(explanation.answer),
            "left_out": float(fitted.model.loo_predictions_[row]),
            "interval": [low, high] if np.isfinite(high - low) else None,
            "neighbours": explanation.neighbours,
            "mass": explanation.mass,
            "nearness": explanation.nearness.tolist(),
            "far": bool(explain(others, asked, 1, fitted.model._to_predictions)[0].far[0]),
            "rows": rows,
        }
    )

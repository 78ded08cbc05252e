"""A page's own table: read strictly, fitted by ``KernelRegressor``, and the rows behind a prediction."""

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
from regard.model.baselines import root_mean_square, simple_answers
from regard.model.explanation import explain
from regard.play.fair import Job
from regard.play.security import Refused
from regard.play.training import Tell

MOST_BYTES = 4_000_000
MOST_ROWS, MOST_COLUMNS = 5000, 100
MOST_FEATURES = 30
# Tables kept at once; the one not looked at for longest goes first.
MOST_TABLES = 12
SECONDS = 90.0
# Rows shown behind a prediction.
SHOWN = 8
# Of intervals.
COVERAGE, METHOD = 0.9, "conformal"


class Tables:
    """The tables of this run, each behind a name that nobody guesses."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Table] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, table: Table) -> str:
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._kept[name] = table
            while len(self._kept) > MOST_TABLES:
                self._kept.popitem(last=False)
        return name

    def __getitem__(self, name: str) -> Table:
        with self._lock:
            if name not in self._kept:
                raise Refused(404, "this table is not here any more; drop it again")
            self._kept.move_to_end(name)
            return self._kept[name]

    def __len__(self) -> int:
        return len(self._kept)


class Fitted(NamedTuple):
    """A model, and the table and columns it was made from."""

    model: Any
    table: Table
    target: str
    features: tuple[str, ...]


def read(content: bytes) -> Table:
    """A CSV as a table small enough for a page; 422 says what is wrong with it, and where."""
    try:
        table = read_delimited(io.BufferedReader(io.BytesIO(content)), ",", "the table", 4 * MOST_BYTES)  # type: ignore[arg-type]
    except TableError as reason:
        raise Refused(422, str(reason)) from None
    if len(table) > MOST_ROWS or len(table.names) > MOST_COLUMNS:
        raise Refused(422, f"the page takes at most {MOST_ROWS:,} rows and {MOST_COLUMNS} columns; use regard fit")
    return table


def described(table: Table) -> dict[str, Any]:
    """What a page needs in order to choose columns: names, whether they can be used, and if not, why."""
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


def chosen(table: Table, target: str, features: Sequence[str]) -> tuple[Array, Array]:
    """X (n, d) and y (n,) of the columns a page has chosen."""
    if target in features:
        raise Refused(422, "the target cannot be one of the features")
    try:
        X, y = table.matrix(list(features)), table.numbers(target).astype(np.float64)
    except TableError as reason:
        raise Refused(422, str(reason)) from None
    if len(X) < 3:
        raise Refused(422, "learning needs at least three rows")
    return X, y


class Watcher:
    """A callback of scikit-learn that tells of every evaluation, and stops the search once its job is over."""

    def __init__(self, job: Job, tell: Tell) -> None:
        self._job, self._tell = job, tell

    def setup(self, estimator: Any, context: Any) -> None:
        """Nothing to prepare."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to put away."""

    def on_fit_task_begin(self, estimator: Any, context: Any, **told: Any) -> None:
        """Evaluations are too short to announce."""

    def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any = None, **told: Any) -> bool:  # noqa: ARG002
        if metadata and "criterion" in metadata:
            self._tell({"did": "progress", "done": metadata.get("done")})
        return self._job.halt()


def fit(table: Table, target: str, features: Sequence[str], job: Job, tell: Tell) -> Fitted | None:
    """Fit the regressor to use, and tell how good it is, what it looks at, every left-out prediction; then how sure."""
    from regard import KernelRegressor

    X, y = chosen(table, target, features)
    model = KernelRegressor()
    if hasattr(model, "set_callbacks"):  # scikit-learn before 1.9 has none
        model.set_callbacks(Watcher(job, tell))
    try:
        model.fit(X, y)
    except KeyboardInterrupt:
        tell({"did": "stopped"})
        return None
    if hasattr(model, "set_callbacks"):
        model.set_callbacks()
    said, rows = model.diagnose(), np.arange(len(y))
    simple = simple_answers(X, X, y, (rows, rows))
    tell(
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
            "verdict": said.verdict,
            "neighbours": float(said.neighbours),
            "actual": y.tolist(),
            "predicted": np.asarray(model.loo_predictions_, np.float64).tolist(),
            "stopped": job.halted,
        }
    )
    if not job.over:
        # Where rows are too few for the rank, intervals have no end.
        ends = model.predict_interval(X, COVERAGE, METHOD)
        half = float(np.median(ends[:, 1] - ends[:, 0])) / 2.0
        tell({"did": "sure", "half": half if np.isfinite(half) else None})
    return Fitted(model, table, target, tuple(features))


def look(fitted: Fitted, row: int, tell: Tell) -> None:
    """Tell which rows the model looks at when it predicts one of them, and where a new row like it should lie."""
    X, y = chosen(fitted.table, fitted.target, fitted.features)
    if row >= len(X):
        raise Refused(422, f"the table has {len(X)} rows")
    asked = X[row : row + 1]
    told = fitted.model.explain(asked, top=SHOWN)[0]
    # It is never far from itself; is it from the others?
    others = fitted.model._asked.with_rows(np.delete(np.arange(len(X)), row))
    low, high = fitted.model.predict_interval(asked, COVERAGE, METHOD)[0].tolist()
    rows = [
        {
            "row": int(key),
            "weight": float(weight),
            "effective": float(effective),
            "y": float(y[key]),
            "x": X[key].tolist(),
        }
        for key, weight, effective in zip(told.index, told.weight, told.effective, strict=True)
    ]
    tell(
        {
            "did": "looked",
            "row": row,
            "actual": float(y[row]),
            "predicted": float(told.answer),
            "left_out": float(fitted.model.loo_predictions_[row]),
            "interval": [low, high] if np.isfinite(high - low) else None,
            "neighbours": told.neighbours,
            "mass": told.mass,
            "nearness": told.nearness.tolist(),
            "far": bool(explain(others, asked, 1, fitted.model._decided)[0].far[0]),
            "rows": rows,
        }
    )

"""Reports: a fitted model and its data in, one self-contained HTML page out (``regard.report``)."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.files import atomic_write, check_output
from regard.data.text import LANGUAGES
from regard.model.diagnosis import diagnose
from regard.model.smoother import Smoother
from regard.plot.printing import lettered, saved
from regard.pooling.functions import explain_plan
from regard.reporting.certainty import certainty_of
from regard.reporting.certainty_sections import CertaintySections
from regard.reporting.example_rows import examples
from regard.reporting.figures import figures
from regard.reporting.report_facts import facts_of
from regard.reporting.report_page import ReportPage
from regard.reporting.table_cells import TableCells

__all__ = ["report"]


def report(
    model: Any,
    X: Any,
    y: Any,
    path: str | PathLike[str],
    *,
    target: str = "y",
    lang: str = "en",
    force: bool = False,
) -> Path:
    """Write a page about a fitted model: accuracy, intervals, explained examples, relevant features and attention.

    Parameters
    ----------
    model : estimator
        A fitted estimator of ``regard``.
    X : array or dataframe (n, d)
        The training table, evaluated by leave-one-out; or new rows. Rows with empty cells are skipped and counted;
        training rows of zero weight are skipped.
    y : array (n,)
        Numbers or labels, one for each row of X.
    path : str or path
        The file to write; it is self-contained and needs no network.
    target : str, default="y"
        Name of y.
    lang : {"en", "zh"}, default="en"
        Language of the page.
    force : bool, default=False
        Replace an existing file.

    Returns
    -------
    Path
        The path of the page.

    Raises
    ------
    ValueError
        If the path cannot be written, or X and y do not fit the model.

    *Cost*: leave-one-out answers of all rows, O(n·K·d); attention of 400 rows; ``diagnose``; ``predict_interval`` of
    2,000 rows, its residual scale estimated from 5,000 training rows if there are more than 10,000 and it is not known
    yet; ``explain`` of three rows.

    >>> import tempfile
    >>> from regard import NadarayaWatsonRegressor
    >>> from regard.data import houses
    >>> data = houses(60)
    >>> model = NadarayaWatsonRegressor(bandwidth="scott").fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = report(model, data.X, data.y, Path(folder) / "page.html", target="price")
    ...     page.name, "price" in page.read_text()
    ('page.html', True)
    """
    if lang not in LANGUAGES:
        raise ValueError(f"lang must be one of {', '.join(LANGUAGES)}, got {lang!r}")
    check_output(path, force, ValueError)
    facts = facts_of(model, X, y)
    certainty = certainty_of(model, X, facts)
    chosen = examples(model, facts, certainty)
    with lettered():
        pictures = {name: saved(figure, "svg") for name, figure in figures(facts, certainty, target, lang).items()}
    page = ReportPage(facts, TableCells(model, X, facts), target, lang, pictures)
    sections = CertaintySections(page, certainty, chosen).sections()
    has_width = model._HAS_BANDWIDTH and facts.whole.heads[0].neighbours is None and len(facts.whole.rows.key) > 1
    found = diagnose(facts.whole) if has_width else None
    html = page.html(sections, found, _plan(facts.whole), _code(model, target))
    with atomic_write(path, force=force, error=ValueError) as file:
        file.write(html.encode())
    return Path(path)


def _plan(smoother: Smoother) -> str:
    """The plan of pooling the training rows under the first head."""
    head, rows = smoother.heads[0], smoother.rows
    key = rows.placed(head.transform)
    return str(explain_plan(key, key, np.zeros(len(key)), head.score, sample_weight=rows.sample_weight))


def _code(model: Any, target: str) -> str:
    return "\n".join(
        [
            "import regard",
            "",
            f"model = regard.{model!r}",
            f"model.fit(X, {target if target.isidentifier() else 'y'})",
            "model.predict(X_new)           # predictions",
            "model.predict_set(X_new)       # sets of classes that contain the correct one nine of ten times"
            if model._IS_CLASSIFIER
            else "model.predict_interval(X_new)  # intervals that contain y nine of ten times",
            "model.explain(X_new)           # the training rows behind each prediction",
        ]
    )

"""Reports: a fitted model and its data in, one self-contained page out. ``regard.report`` is the way in."""

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
from regard.reporting.doubts import Cells, Doubts
from regard.reporting.facts import facts_of
from regard.reporting.figures import figures
from regard.reporting.page import Page
from regard.reporting.sure import sure_of
from regard.reporting.why import examples

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
    """Write a page about a fitted model: how good it is, how sure and why, and what it looks at.

    Parameters
    ----------
    model : a fitted estimator of ``regard``.
    X : (n, d) array or dataframe, y : (n,) numbers or labels
        The rows the model was fitted to: each is then answered by all others. Or new rows, to see how it does there.
        Rows with empty cells are passed over, and their number is told; so are training rows without weight.
    path : where to write the page; it holds everything, and needs no network.
    target : what to call y.
    lang : "en" or "zh".
    force : replace a file that is there.

    Returns
    -------
    The path. *Cost*: of leaving every row out once, O(n·K·d), of attention from 400 rows, of ``diagnose``, of
    ``predict_interval`` for 2,000 rows (where the model has more than 10,000 and does not know its residuals yet, from
    5,000 of these) and of ``explain`` for three.
    """
    if lang not in LANGUAGES:
        raise ValueError(f"lang must be one of {', '.join(LANGUAGES)}, got {lang!r}")
    check_output(path, force, ValueError)
    facts = facts_of(model, X, y)
    sure = sure_of(model, X, facts)
    why = examples(model, facts, sure)
    with lettered():
        pictures = {name: saved(figure, "svg") for name, figure in figures(facts, sure, target, lang).items()}
    page = Page(facts, target, lang, pictures)
    doubts = Doubts(page, sure, why, Cells(model, X, facts))
    judged = model._BANDWIDTH and facts.whole.heads[0].neighbours is None and len(facts.whole.rows.key) > 1
    found = diagnose(facts.whole) if judged else None
    html = page.whole(doubts.sections(), found, _plan(facts.whole), _code(model, target))
    with atomic_write(path, force=force, error=ValueError) as file:
        file.write(html.encode())
    return Path(path)


def _plan(smoother: Smoother) -> str:
    """How an answer to one training row would be computed."""
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
            "model.predict(X_new)           # answers",
            "model.predict_set(X_new)       # the classes it may be"
            if model._LABELS
            else "model.predict_interval(X_new)  # where the truth should lie",
            "model.explain(X_new)           # the rows they come from, and what made them near",
        ]
    )

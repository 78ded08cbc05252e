"""Reports: a fitted model and its data in, one self-contained page out. ``regard.report`` is the way in."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.files import atomic_write, check_output
from regard.plot.printing import lettered, saved
from regard.pooling import explain_plan
from regard.reporting.facts import facts_of
from regard.reporting.figures import figures
from regard.reporting.page import Page
from regard.text import LANGUAGES

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
    """Write a page about a fitted model: how good it is, what it looks at, and whether it looks too closely.

    Parameters
    ----------
    model : a fitted estimator of ``regard``.
    X : (n, d) array or dataframe, y : (n,) numbers or labels
        The rows the model was fitted to: each is then answered by all others. Or new rows, to see how it does there.
    path : where to write the page; it holds everything, and needs no network.
    target : what to call y.
    lang : "en" or "zh".
    force : replace a file that is there.

    Returns
    -------
    The path. *Cost*: of leaving every row out once, O(n·K·d), of attention from 400 rows, and of ``diagnose``.
    """
    if lang not in LANGUAGES:
        raise ValueError(f"lang must be one of {', '.join(LANGUAGES)}, got {lang!r}")
    check_output(path, force, ValueError)
    facts = facts_of(model, X, y)
    with lettered(lang) as lettering:
        pictures = {name: saved(figure, "svg") for name, figure in figures(facts, lettering).items()}
    page = Page(facts, target, lang, pictures)
    html = page.whole(_diagnosis(model), _plan(model), _code(model, target), lettering != lang)
    with atomic_write(path, force=force, error=ValueError) as file:
        file.write(html.encode())
    return Path(path)


def _diagnosis(model: Any) -> Any:
    """None for models that have no one width to judge."""
    if not hasattr(model, "diagnose") or hasattr(model, "neighbours_"):
        return None
    rows = len(model.key_) if model.sample_weight_ is None else int((model.sample_weight_ > 0).sum())
    return model.diagnose() if rows > 1 else None


def _plan(model: Any) -> str:
    """How an answer to one training row would be computed."""
    key = np.asarray(getattr(model, "embedding_", model.key_))
    if hasattr(model, "heads_"):
        head = model.heads_[0]
        key, score = model.scaling_(model.key_, head.share), _head_score(head)
    else:
        score = model.attention_score_
    return str(explain_plan(key, key, np.zeros(len(key)), score, sample_weight=model.sample_weight_))


def _head_score(head: Any) -> Any:
    from regard.scores import Gaussian

    return Gaussian(head.w)


def _code(model: Any, target: str) -> str:
    return "\n".join(
        [
            "import regard",
            "",
            f"model = regard.{model!r}",
            f"model.fit(X, {target if target.isidentifier() else 'y'})",
            "model.predict(X_new)          # answers",
            "model.attend(X_new, top=5)    # the rows they come from",
        ]
    )

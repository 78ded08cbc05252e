"""What a report says in numbers: a fitted model and rows in, plain numbers out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from regard.core.arrays import Array
from regard.estimators.inputs import query_array
from regard.model.baselines import root_mean_square, simple_answers
from regard.model.diagnosis import relevance
from regard.model.residuals import left_out_answers
from regard.model.smoother import Smoother, TrainingRows
from regard.pooling.functions import pool
from regard.reporting.rows import rows_of

# Rows looked at where there are more: for baselines, and for the picture of attention.
MOST, SHOWN = 5000, 400
# Rows of the table of those looked at most.
FOREMOST = 8


@dataclass(frozen=True)
class Contestant:
    """How one way to predict did on rows it had not seen."""

    name: str  # "model", "mean" or "nearest"
    error: float  # root mean squared error, or the log-loss
    score: float  # R², or the share of right classes


@dataclass(frozen=True)
class Facts:
    """All that the page tells."""

    names: tuple[str, ...]  # of the features
    classes: tuple[str, ...]  # empty for numbers
    rows: Array  # (n,) which of the rows given: those without empty cells, and with a weight
    gaps: int  # how many have empty cells
    X: Array  # (n, d)
    query: Array  # (n, d) the same as the model takes it
    whole: Smoother  # over the training rows without empty cells that have a weight; empty rows get NaN, not an error
    y: Array  # (n,) numbers, or numbers of classes
    left_out: bool  # whether the answers are those of rows left out; else X is new to the model
    answer: Array  # (n,) numbers, or (n, classes) probabilities
    contestants: tuple[Contestant, ...]
    relevance: Array | None  # (d,)
    reach: Array | None  # (d,) bandwidths in the features' units
    shown: Array  # (m,) rows of X in the picture of attention
    attention: Array  # (m, K)
    key: Array  # (K,) the training rows along ``along``
    along: int  # the feature that decides most
    foremost: Array  # training rows looked at most, among those without empty cells
    numbers: Array  # (len(foremost),) their places among all
    attended: Array  # (len(foremost),) their share of all attention
    expected: float  # the share that every row would have alike


def facts_of(model: Any, X: Any, y: Any) -> Facts:
    """Look at a fitted model through these rows; those it was fitted to are each answered by the others.

    Rows with empty cells, and training rows without weight, are passed over.
    """
    check_is_fitted(model)
    query = query_array(model, X)
    given = query.astype(np.float64)
    target, classes = _target(model, len(given), y)
    seen = np.array_equal(given, model.key_.astype(np.float64), equal_nan=True)
    smoother = model._asked
    known = np.flatnonzero(~np.isnan(model.key_).any(axis=1) & smoother.rows.counted)
    places = known if seen else np.flatnonzero(~np.isnan(given).any(axis=1))
    if len(places) < 1 + seen:
        need = "leaves rows out and needs two rows" if seen else "needs a row"
        told = " without empty cells" if len(places) < len(given) else ""
        raise ValueError(f"a report {need}{told}; {'this model has' if seen else 'X has'} {len(places)}")
    rows, target = given[places], target[places]
    whole = smoother.with_rows(known) if len(known) < len(model.key_) else smoother
    answer = _left_out(model, whole, known) if seen else np.asarray(_answers(model, rows_of(X, places)), np.float64)
    shares = relevance(model._smoother) if model._BANDWIDTH else None
    along = 0 if shares is None else int(np.argmax(shares))
    shown = np.random.default_rng(0).permutation(len(rows))[:SHOWN]
    attention = np.asarray(model._reported(whole.weights(query[places[shown]])), np.float64)
    total = attention.mean(axis=0)
    foremost = np.argsort(-total, kind="stable")[:FOREMOST]
    reach = None if getattr(model, "bandwidth_", None) is None else _reach(model, rows.shape[1])
    return Facts(
        names=_names(model, rows.shape[1]),
        classes=classes,
        rows=places,
        gaps=int(np.isnan(given).any(axis=1).sum()),
        X=rows,
        query=query[places],
        whole=replace(whole, empty="nan") if whole.empty == "raise" else whole,
        y=target,
        left_out=seen,
        answer=answer,
        contestants=(_judged("model", answer, target), *_baselines(whole.rows, rows, target, seen)),
        relevance=shares,
        reach=reach,
        shown=shown,
        attention=attention,
        key=whole.rows.key[:, along],
        along=along,
        foremost=foremost,
        numbers=known[foremost],
        attended=total[foremost],
        expected=1.0 / len(known),
    )


def _target(model: Any, rows: int, y: Any) -> tuple[Array, tuple[str, ...]]:
    """y as numbers, or as numbers of classes with their names."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"a report is about one target: y must have shape ({rows},), got {labels.shape}")
    if len(labels) != rows:
        raise ValueError(f"X has {rows} rows but y has {len(labels)}")
    if not hasattr(model, "classes_"):
        if model.value_.ndim > 1:
            raise ValueError(f"a report is about one target; this model predicts {model.value_.shape[1]}")
        value = labels.astype(np.float64)
        if not np.isfinite(value).all():
            raise ValueError("y must be finite")
        return value, ()
    place = {label: i for i, label in enumerate(model.classes_.tolist())}
    unknown = [label for label in labels.tolist() if label not in place]
    if unknown:
        raise ValueError(f"y holds {unknown[0]!r}, which is none of the model's classes")
    return np.array([place[label] for label in labels.tolist()]), tuple(map(str, model.classes_))


def _names(model: Any, width: int) -> tuple[str, ...]:
    if "coding_" in vars(model):
        return tuple(model.coding_.features)
    names = vars(model).get("feature_names_in_")
    return tuple(f"x{i}" for i in range(width)) if names is None else tuple(map(str, names))


def _reach(model: Any, width: int) -> Array:
    """Bandwidths of features (d,); of those of a mixed table, 1/w."""
    if "coding_" not in vars(model):
        return np.broadcast_to(model.bandwidth_, width)
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / np.asarray(model.w_))


def _answers(model: Any, X: Any) -> Any:
    return model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X)


def _left_out(model: Any, whole: Smoother, known: Array) -> Array:
    """Every training row that is known (n,) as the others answer it."""
    answer, rows = getattr(model, "loo_predictions_", None), whole.rows
    if answer is not None and not np.isnan(answer[known]).any():
        return np.asarray(answer[known], np.float64)
    if model._BANDWIDTH and whole.heads[0].neighbours is None:
        answer = left_out_answers(whole.objectives())
        return np.asarray(answer[:, 0] if rows.single else answer)
    labels = np.arange(len(known))
    options: dict[str, Any] = {"sample_weight": rows.sample_weight, "exclude": (labels, labels)}
    return np.asarray(pool(rows.key, rows.key, _values(rows), whole.heads[0].score, **options).output, np.float64)


def _values(rows: TrainingRows) -> Array:
    """y (K,) of training rows in float64, or one column per class."""
    return rows.columns[:, 0] if rows.single else rows.columns


def _baselines(trained: TrainingRows, rows: Array, target: Array, seen: bool) -> tuple[Contestant, ...]:
    """The mean and the nearest of the others, on some of the rows where there are many."""
    key, value = trained.key.astype(np.float64), _values(trained)
    some = np.sort(np.random.default_rng(1).permutation(len(rows))[:MOST])
    found = simple_answers(rows[some], key, value, (some, np.arange(len(key))) if seen else None)
    # Left-out frequencies would always speak against the class that was left out.
    mean = found.mean if trained.single else np.tile(value.mean(axis=0), (len(some), 1))
    return _judged("mean", mean, target[some]), _judged("nearest", found.nearest, target[some])


def _judged(name: str, answer: Array, target: Array) -> Contestant:
    if answer.ndim == 2:
        # A class that was given no chance at all would cost infinitely much.
        chance = np.maximum(answer[np.arange(len(target)), target.astype(int)], 1e-3)
        return Contestant(name, float(-np.log(chance).mean()), float((answer.argmax(axis=1) == target).mean()))
    # In units of a power of two: neither sums nor squares leave float64.
    power = np.frexp(np.abs(target).max())[1]
    error, spread = root_mean_square(answer - target), float(np.ldexp(np.ldexp(target, -power).std(), power))
    return Contestant(name, error, 1.0 - (error / spread) ** 2 if spread > 0.0 else float(error == 0.0))

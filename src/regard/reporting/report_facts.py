"""What a report says in numbers: a fitted model and rows in, plain numbers out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from regard.core.arrays import Array
from regard.estimators.validation import query_array
from regard.model.diagnosis import relevance
from regard.model.naive_answers import naive_answers, root_mean_square
from regard.model.residuals import left_out_answers
from regard.model.smoother import Smoother, TrainingRows
from regard.pooling.functions import pool
from regard.reporting.table_rows import rows_of

# Larger tables are subsampled for the baselines and for the map of attention.
MAX_ROWS_OF_BASELINES = 5000
MAX_ROWS_OF_MAP = 400
COUNT_OF_MOST_ATTENDED = 8


@dataclass(frozen=True)
class MethodScore:
    """How accurate one method is on rows it was not fitted to."""

    name: str  # "model", "mean" or "nearest"
    error: float  # root mean squared error, or the log-loss
    score: float  # R², or the share of correct classes


@dataclass(frozen=True)
class ReportFacts:
    """The numbers of the page."""

    names: tuple[str, ...]  # (C,) of the columns; latitude and longitude are one
    columns: int  # of the table
    classes: tuple[str, ...]  # empty for numbers
    rows: Array  # (n,) indices into the rows given: those without empty cells and of positive weight
    gaps: int  # how many have empty cells
    X: Array  # (n, d)
    query: Array  # (n, d) the same as validated by the model
    whole: Smoother  # over training rows without empty cells and of positive weight; empty rows give NaN, not an error
    y: Array  # (n,) numbers, or class numbers
    left_out: bool  # whether answers are leave-one-out answers of the training rows; else X is new to the model
    answer: Array  # (n,) numbers, or (n, classes) probabilities
    methods: tuple[MethodScore, ...]
    relevance: Array | None  # (C,)
    bandwidth: Array | None  # (C,) in the columns' units; λ of categories
    max_lambda: Array  # (C,) the λ at which a column of categories does not matter; NaN for numbers
    varies: Array  # (C,) booleans
    mapped: Array  # (m,) rows of X in the map of attention
    attention: Array  # (m, K)
    key: Array  # (K,) feature ``along`` of the training rows
    along: int  # the most relevant feature
    feature: str  # its name
    most_attended: Array  # (c,) indices into the rows of ``whole``
    numbers: Array  # (c,) their indices among all training rows
    attended: Array  # (c,) their share of all attention
    expected: float  # share of each row if attention were uniform


def facts_of(model: Any, X: Any, y: Any) -> ReportFacts:
    """Facts about a fitted model, from its leave-one-out answers if X is its training table, else from answers to X.

    Rows with empty cells and training rows of zero weight are skipped.
    """
    check_is_fitted(model)
    query = query_array(model, X)
    given = query.astype(np.float64)
    target, classes = _target(model, len(given), y)
    left_out = np.array_equal(given, model.key_.astype(np.float64), equal_nan=True)
    smoother = model._configured_smoother
    known = np.flatnonzero(~np.isnan(model.key_).any(axis=1) & smoother.rows.counted)
    places = known if left_out else np.flatnonzero(~np.isnan(given).any(axis=1))
    if len(places) < 1 + left_out:
        need = "two training rows" if left_out else "one row"
        without = " without empty cells" if len(places) < len(given) else ""
        raise ValueError(f"a report needs at least {need}{without}, got {len(places)}")
    rows, target = given[places], target[places]
    whole = smoother.with_rows(known) if len(known) < len(model.key_) else smoother
    answer = _left_out(model, whole, known) if left_out else np.asarray(_answers(model, rows_of(X, places)), np.float64)
    shares = relevance(model._smoother) if model._HAS_BANDWIDTH else None
    along = 0 if shares is None else int(np.argmax(shares))
    mapped = np.random.default_rng(0).permutation(len(rows))[:MAX_ROWS_OF_MAP]
    coding, (names, fold) = vars(model).get("coding_"), model._smoother.rows.fold
    features = names if coding is None else coding.features
    attention = np.asarray(model._handle_empty_rows(whole.weights(query[places[mapped]])), np.float64)
    total = attention.mean(axis=0)
    most = np.argsort(-total, kind="stable")[:COUNT_OF_MOST_ATTENDED]
    return ReportFacts(
        names=names,
        columns=rows.shape[1] if coding is None else coding.columns,
        classes=classes,
        rows=places,
        gaps=int(np.isnan(given).any(axis=1).sum()),
        X=rows,
        query=query[places],
        whole=replace(whole, empty="nan") if whole.empty == "raise" else whole,
        y=target,
        left_out=left_out,
        answer=answer,
        methods=(_score_of("model", answer, target), *_baselines(whole.rows, rows, target, left_out)),
        relevance=None if shares is None else shares @ fold,
        bandwidth=_bandwidth(model, len(names)),
        max_lambda=np.array([part.max_lambda if part.levels else np.nan for part in coding.parts])
        if coding is not None
        else np.full(len(names), np.nan),
        varies=(np.ptp(rows, axis=0) > 0.0) @ fold > 0.0,
        mapped=mapped,
        attention=attention,
        key=whole.rows.key[:, along],
        along=along,
        feature=features[along],
        most_attended=most,
        numbers=known[most],
        attended=total[most],
        expected=1.0 / len(known),
    )


def _target(model: Any, rows: int, y: Any) -> tuple[Array, tuple[str, ...]]:
    """y as numbers, or as class numbers with the names of the classes."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"a report needs a single target: y must have shape ({rows},), got {labels.shape}")
    if len(labels) != rows:
        raise ValueError(f"X has {rows} rows but y has {len(labels)}")
    if not hasattr(model, "classes_"):
        if model.value_.ndim > 1:
            raise ValueError(f"a report needs a model with a single target, got one with {model.value_.shape[1]}")
        value = labels.astype(np.float64)
        if not np.isfinite(value).all():
            raise ValueError("y must be finite")
        return value, ()
    place = {label: i for i, label in enumerate(model.classes_.tolist())}
    unknown = [label for label in labels.tolist() if label not in place]
    if unknown:
        raise ValueError(f"y contains {unknown[0]!r}, which is not one of the model's classes")
    return np.array([place[label] for label in labels.tolist()]), tuple(map(str, model.classes_))


def _bandwidth(model: Any, parts: int) -> Array | None:
    """Bandwidths of the columns (C,); None if the model has no single bandwidth."""
    if getattr(model, "bandwidth_", None) is None:
        return None
    if "coding_" not in vars(model):
        return np.broadcast_to(model.bandwidth_, parts)
    return np.asarray(model.bandwidth_)[[part.columns[0] for part in model.coding_.parts]]


def _answers(model: Any, X: Any) -> Any:
    return model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X)


def _left_out(model: Any, whole: Smoother, known: Array) -> Array:
    """Leave-one-out answers of the ``known`` training rows."""
    answer, rows = getattr(model, "loo_predictions_", None), whole.rows
    if answer is not None and not np.isnan(answer[known]).any():
        return np.asarray(answer[known], np.float64)
    if model._HAS_BANDWIDTH and whole.heads[0].neighbours is None:
        answer = whole.tempered(left_out_answers(whole.objectives()))
        return np.asarray(answer[:, 0] if rows.single else answer)
    labels = np.arange(len(known))
    options: dict[str, Any] = {"sample_weight": rows.sample_weight, "exclude": (labels, labels)}
    return np.asarray(pool(rows.key, rows.key, _values(rows), whole.heads[0].score, **options).output, np.float64)


def _values(rows: TrainingRows) -> Array:
    """y (K,) of training rows in float64, or one column per class."""
    return rows.columns[:, 0] if rows.single else rows.columns


def _baselines(trained: TrainingRows, rows: Array, target: Array, left_out: bool) -> tuple[MethodScore, ...]:
    """The mean and the nearest of the other rows, on a subsample of large tables."""
    key, value = trained.key.astype(np.float64), _values(trained)
    some = np.sort(np.random.default_rng(1).permutation(len(rows))[:MAX_ROWS_OF_BASELINES])
    found = naive_answers(rows[some], key, value, (some, np.arange(len(key))) if left_out else None)
    # Leave-one-out frequencies are biased against the class of the row left out.
    mean = found.mean if trained.single else np.tile(value.mean(axis=0), (len(some), 1))
    return _score_of("mean", mean, target[some]), _score_of("nearest", found.nearest, target[some])


def _score_of(name: str, answer: Array, target: Array) -> MethodScore:
    if answer.ndim == 2:
        # A probability of 0 would make the log-loss infinite.
        chance = np.maximum(answer[np.arange(len(target)), target.astype(int)], 1e-3)
        return MethodScore(name, float(-np.log(chance).mean()), float((answer.argmax(axis=1) == target).mean()))
    # Scaled by a power of two, so that neither sums nor squares overflow.
    power = np.frexp(np.abs(target).max())[1]
    error, deviation = root_mean_square(answer - target), float(np.ldexp(np.ldexp(target, -power).std(), power))
    return MethodScore(name, error, 1.0 - (error / deviation) ** 2 if deviation > 0.0 else float(error == 0.0))

"""Predictions where the rows are: of training rows on a cluster, and of lazy queries.

Answers are as queries are: a dask array for X of dask, numbers for numbers.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from regard.bandwidth.losses import as_probabilities
from regard.chunks.pooling import as_array
from regard.chunks.rows import Block, Rows, examined, rows_of
from regard.chunks.states import Look, pairs_in_reach, states
from regard.cluster import compute, tasks_of
from regard.folds import Fold
from regard.lines import local_fit
from regard.scores import Gaussian

Array = NDArray[Any]


class Head(NamedTuple):
    """One attention of a model, and its part in the mix."""

    weight: float
    look: Look
    ridge: float


class Answered(NamedTuple):
    """Answers to a block of queries."""

    output: Array
    nobody: Array  # (Q,) boolean


def lazy_answers(model: Any, X: Any, method: str) -> Array:
    """What ``model.predict`` or ``predict_proba`` says of X of dask, computed when asked for."""
    check_is_fitted(model)
    names = list(getattr(X, "columns", ()))
    if names and hasattr(model, "feature_names_in_") and names != list(model.feature_names_in_):
        raise ValueError(
            f"X has the columns {names}, and fit saw {list(model.feature_names_in_)}: same names, same order"
        )
    queries = rows_of("X", X)
    if queries.width != model.n_features_in_:
        raise ValueError(
            f"X has {queries.width} features, but {type(model).__name__} is expecting {model.n_features_in_} "
            "features as input"
        )
    (queries,) = examined(queries)
    if method == "predict_proba":
        shape: tuple[int, ...] = (len(model.classes_),)
        dtype = queries.dtype
    elif hasattr(model, "classes_"):
        shape, dtype = (), model.classes_.dtype
    else:
        shape, dtype = tuple(model.value_.shape[1:]), queries.dtype
    parts = _told(model, queries, method) if hasattr(model, "_rows") else _asked(model, queries, method, shape, dtype)
    lazy: Array = as_array(parts, queries.lengths, shape, dtype)
    return lazy


def answers_from_cluster(model: Any, query: Array) -> tuple[Array, Array]:
    """Answers to queries in memory from rows on a cluster, and which queries had nobody in reach."""
    (queries,) = examined(rows_of("X", query))
    found = compute(_answers(model, queries))
    return np.concatenate([one.output for one in found]), np.concatenate([one.nobody for one in found])


def _asked(model: Any, queries: Rows, method: str, shape: tuple[int, ...], dtype: Any) -> list[Any]:
    """A model in memory, asked block by block; of a block without rows there is nothing to ask."""
    task, here = tasks_of("predict", ask), tasks_of("model", _itself)((0,), model)
    none = tasks_of("nobody", np.empty)
    return [
        task((at,), here, block, method) if queries.lengths[at] else none((at,), (0, *shape), dtype)
        for at, block in enumerate(queries.blocks)
    ]


def _itself(model: Any) -> Any:
    return model


def ask(model: Any, query: Block, method: str) -> Array:
    """One block, on the worker that answers it."""
    if hasattr(model, "feature_names_in_"):
        # Names were compared when the block was only a promise.
        model = _unnamed(model)
    return np.asarray(getattr(model, method)(query.key))


def _unnamed(model: Any) -> Any:
    bare = copy(model)
    del bare.__dict__["feature_names_in_"]
    return bare


def _told(model: Any, queries: Rows, method: str) -> list[Any]:
    """Rows on a cluster: answers to every block, as ``method`` gives them."""
    task = tasks_of("answer", _as_method)
    classes = getattr(model, "classes_", None) if method == "predict" else None
    return [task((at,), one, model.empty, method, classes) for at, one in enumerate(_answers(model, queries))]


def _as_method(found: Answered, empty: str, method: str, classes: Array | None) -> Array:
    count = int(found.nobody.sum())
    if count and (empty == "raise" or (empty == "nan" and classes is not None)):
        raise ValueError(
            f"{count} of {len(found.nobody)} rows of a chunk of X have no training row within the bandwidth; widen "
            f"bandwidth, or choose another empty= than {empty!r}"
        )
    if method == "predict_proba":
        return as_probabilities(found.output)
    return found.output if classes is None else np.asarray(classes[found.output.argmax(axis=1)])


def _answers(model: Any, queries: Rows) -> list[Any]:
    """One delayed Answered for each block of queries."""
    keys, heads = model._rows, _heads(model)
    found = [states(queries, keys, head.look, pairs_in_reach(queries, keys, head.look)) for head in heads]
    task, single = tasks_of("mix", answered), keys.single and not hasattr(model, "classes_")
    prior = _prior(keys, len(model.classes_)) if model.empty == "prior" else None
    return [
        task((at,), block, heads, [states[at] for states in found], model.empty, prior, single)
        for at, block in enumerate(queries.blocks)
    ]


def _prior(keys: Rows, classes: int) -> Any:
    """The delayed frequencies of the classes."""
    each = tasks_of("frequency", _frequency)
    return tasks_of("prior", _shares)((0,), [each((at,), block, classes) for at, block in enumerate(keys.blocks)])


def _frequency(block: Block, classes: int) -> Array:
    return np.bincount(block.value, block.weight, minlength=classes)  # type: ignore[arg-type]


def _shares(counts: list[Array]) -> Array:
    total = np.sum(counts, axis=0)
    return np.asarray(total / total.sum())


def _heads(model: Any) -> list[Head]:
    """The attentions of a model, as a cluster is told of them."""
    rows, degree = model._rows, getattr(model, "_DEGREE", 0)
    classes = len(model.classes_) if hasattr(model, "classes_") else 0
    common: dict[str, Any] = {"engine": model._engine, "tol": model.tol, "degree": 2 * degree, "classes": classes}
    if degree:
        centre, ends = rows.mean, rows.value_bounds
        largest = np.maximum(np.abs(ends.high - centre), np.abs(ends.low - centre))
        common |= {"centre": centre, "scale": np.where(largest > 0.0, largest, 1.0)}
    if not hasattr(model, "heads_"):
        nearest = model.empty == "nearest"
        return [Head(1.0, Look(model.attention_score_, nearest=nearest, **common), getattr(model, "ridge_", 0.0))]
    return [
        Head(head.weight, Look(Gaussian(head.w), rescale=partial(model.scaling_, t=head.share), **common), head.ridge)
        for head in model.heads_
    ]


def answered(
    query: Block, heads: list[Head], folds: list[Fold], empty: str, prior: Array | None, single: bool
) -> Answered:
    """Answers to a block of queries from the states of all heads."""
    total: Any = 0.0
    nobody = np.zeros(len(query.key), bool)
    for (weight, look, ridge), fold in zip(heads, folds, strict=True):
        output, alone = _one(look, ridge, fold, query.key.shape[1])
        total, nobody = total + weight * output, nobody | alone
    if nobody.any() and empty in ("nan", "prior"):
        total[nobody] = np.nan if prior is None else prior
    dtype = query.key.dtype if query.key.dtype.kind == "f" else np.dtype(np.float64)
    with np.errstate(over="ignore"):
        output = np.asarray(total).astype(dtype)
    return Answered(output[:, 0] if single else output, nobody)


def _one(look: Look, ridge: float, fold: Fold, width: int) -> tuple[Array, Array]:
    """Outputs (Q, P) of one attention over so many features, and who had nobody in reach."""
    score: Any = look.score
    compact = score.kernel.compact and not fold.hard
    alone = fold.soft.mass <= 0.0 if compact else np.zeros(len(fold.tail), bool)
    if not look.degree:
        return fold.finished().output, alone
    columns = len(fold.power)
    state, limit = fold.moments()
    attended = state.mass > 0.0
    fit = local_fit(state, columns, width, 1, score.w, ridge)
    mean = state.moments[:, :columns] / np.where(attended, state.mass, 1.0)[:, None]
    output = np.where((limit & alone)[:, None], mean, fit.output)
    assert look.centre is not None
    return np.where(attended[:, None], look.centre + look.scale * output, 0.0), alone

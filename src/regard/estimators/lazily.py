"""Predictions where the rows are: of training rows on a cluster, and of lazy queries.

Answers are as queries are: a dask array for X of dask, numbers for numbers.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from regard.bandwidth.losses import as_probabilities
from regard.cluster.pooling import as_array
from regard.cluster.rows import Block, Rows, examined, rows_of
from regard.cluster.states import Look, pairs_in_reach, states
from regard.core.lines import local_fit
from regard.engines.tasks import compute, tasks_of
from regard.model.smoother import IDENTITY, Answer, Head
from regard.pooling.folds import Fold

Array = NDArray[Any]


def lazy_answers(model: Any, X: Any, method: str) -> Array:
    """What ``model.predict`` or ``predict_proba`` says of X of dask, computed when asked for."""
    check_is_fitted(model)
    names = list(getattr(X, "columns", ()))
    known = list(vars(model).get("feature_names_in_", ()))
    if names and known and names != known:
        raise ValueError(f"X has the columns {names}, and fit saw {known}: same names, same order")
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
    elif model._LABELS:
        shape, dtype = (), model.classes_.dtype
    else:
        shape, dtype = tuple(model.value_.shape[1:]), queries.dtype
    parts = _told(model, queries, method) if model._rows is not None else _asked(model, queries, method, shape, dtype)
    lazy: Array = as_array(parts, queries.lengths, shape, dtype)
    return lazy


def answers_from_cluster(model: Any, query: Array) -> Answer:
    """Answers to queries in memory from rows on a cluster."""
    (queries,) = examined(rows_of("X", query))
    found = compute(_answers(model, queries))
    return Answer(*(np.concatenate(part) for part in zip(*found, strict=True)))


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
    # Names were compared when the block was only a promise.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return np.asarray(getattr(model, method)(query.key))


def _told(model: Any, queries: Rows, method: str) -> list[Any]:
    """Rows on a cluster: answers to every block, as ``method`` gives them."""
    task = tasks_of("answer", _as_method)
    classes = model.classes_ if model._LABELS and method == "predict" else None
    return [task((at,), one, model.empty, method, classes) for at, one in enumerate(_answers(model, queries))]


def _as_method(found: Answer, empty: str, method: str, classes: Array | None) -> Array:
    count = int(found.empty.sum())
    if count and (empty == "raise" or (empty == "nan" and classes is not None)):
        raise ValueError(
            f"{count} of {len(found.empty)} rows of a chunk of X have no training row within the bandwidth; widen "
            f"bandwidth, or choose another empty= than {empty!r}"
        )
    if method == "predict_proba":
        return as_probabilities(found.output)
    return found.output if classes is None else np.asarray(classes[found.output.argmax(axis=1)])


def _answers(model: Any, queries: Rows) -> list[Any]:
    """One delayed Answer for each block of queries."""
    keys, heads, looks = model._rows, model._smoother.heads, _looks(model)
    found = [states(queries, keys, look, pairs_in_reach(queries, keys, look)) for look in looks]
    task, single = tasks_of("mix", answered), keys.single and not model._LABELS
    prior = _prior(keys, len(model.classes_)) if model.empty == "prior" else None
    return [
        task((at,), block, heads, looks, [states[at] for states in found], model.empty, prior, single)
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


def _looks(model: Any) -> list[Look]:
    """What every head asks of the blocks of training rows."""
    rows, smoother = model._rows, model._asked
    degree = smoother.heads[0].degree
    classes = len(model.classes_) if model._LABELS else 0
    common: dict[str, Any] = {**smoother.run.options, "degree": 2 * degree, "classes": classes}
    if degree:
        centre, ends = rows.mean, rows.value_bounds
        largest = np.maximum(np.abs(ends.high - centre), np.abs(ends.low - centre))
        common |= {"centre": centre, "scale": np.where(largest > 0.0, largest, 1.0)}
    if len(smoother.heads) == 1 and smoother.heads[0].transform is IDENTITY:
        return [Look(smoother.heads[0].score, nearest=model.empty == "nearest", **common)]
    return [Look(head.score, rescale=head.transform.keys, **common) for head in smoother.heads]


def answered(
    query: Block,
    heads: tuple[Head, ...],
    looks: list[Look],
    folds: list[Fold],
    empty: str,
    prior: Array | None,
    single: bool,
) -> Answer:
    """Answers to a block of queries from the states of all heads."""
    total: Any = 0.0
    alone = np.zeros(len(query.key), bool)
    for head, look, fold in zip(heads, looks, folds, strict=True):
        output, nowhere = _one(look, head.ridge, fold, query.key.shape[1])
        total, alone = total + head.mix * output, alone | nowhere
    if alone.any() and empty in ("nan", "prior"):
        total[alone] = np.nan if prior is None else prior
    dtype = query.key.dtype if query.key.dtype.kind == "f" else np.dtype(np.float64)
    with np.errstate(over="ignore"):
        output = np.asarray(total).astype(dtype)
    return Answer(output[:, 0] if single else output, alone)


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

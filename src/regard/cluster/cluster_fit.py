"""``fit`` of dask arrays and dataframes: rows are validated where they are, and stay there.

With few rows the whole of ``fit`` runs on one worker; with many the bandwidth is learned by map and reduce
(``cluster_objective``). Only what was learned comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from operator import getitem
from typing import Any

import numpy as np
from sklearn.base import clone

from regard.bandwidth import CRITERIA, Width, learned, resolve
from regard.bandwidth.binary_scaling import powers_of_two, unscaled
from regard.bandwidth.losses import AbsoluteError, LogLoss, SquaredError
from regard.cluster.blocked_rows import BlockedRows, RowBlock, blocked_rows, concatenate_blocks, with_summaries
from regard.cluster.chunked_pooling import lazy_array
from regard.cluster.cluster_objective import cluster_objective, divide_keys, learn_heads_on_cluster, learnable
from regard.cluster.cluster_predict import ClusterRows
from regard.core.arrays import Array, is_chunked
from regard.engines.tasks import cancelling, compute, task_for_each, tasks_of
from regard.model.smoother import RunOptions

# Most rows from which one worker learns everything, as one machine does: a single w, and several heads.
MAX_ROWS_ON_ONE_WORKER = 1_000_000
MAX_ROWS_ON_ONE_WORKER_FOR_HEADS = 100_000
# And most bytes of them: a worker's memory also holds chunks.
MAX_BYTES_ON_ONE_WORKER = 1 << 28


def fit_on_cluster(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    ridge: float | None,
    watched: Callable[[Any], AbstractContextManager[Any]],
) -> Width | None:
    """``fit`` of a regressor or classifier from dask collections; returns its bandwidth if it has a single one.

    ``ridge`` None is learned; ``watched(model)`` is a context that gives the progress function of a model.
    """
    model._check_parameters()
    _check_supported(model)
    if y is None:
        raise ValueError(f"This {type(model).__name__} estimator requires y to be passed, but the target y is None")
    rows = blocked_rows("X", X, y, sample_weight, groups, names=("y", "sample_weight", "groups"))
    if model._IS_CLASSIFIER:
        rows, model.classes_ = _numbered(rows, "value")
        if not len(model.classes_):
            raise ValueError("X and y must have at least one row with a positive sample weight")
    if groups is not None:
        rows, _ = _numbered(rows, "labels")
    (rows,) = with_summaries(rows)
    if not rows.size:
        raise ValueError(f"X must have at least one row, got shape (0, {rows.width})")
    if not rows.weighted_rows:
        raise ValueError("all sample weights are zero")
    # What an earlier fit learned is removed.
    for name in [name for name in vars(model) if name.endswith("_") and name != "classes_" and name[0] != "_"]:
        del model.__dict__[name]
    model.n_features_in_ = rows.width
    names = list(getattr(X, "columns", ()))
    if names and all(isinstance(name, str) for name in names):
        model.feature_names_in_ = np.array(names, object)
    width = None
    if model._HAS_BANDWIDTH:
        with cancelling():
            width = _learn(model, rows, ridge, watched)
    model._set_training_rows(*_lazy_rows(rows, model._IS_CLASSIFIER))
    model._make_rows = partial(ClusterRows, blocks=rows)
    return width


def _check_supported(model: Any) -> None:
    """Refuse parameters that need all rows in memory."""
    name = type(model).__name__
    if "embed" in model.get_params(deep=False):
        raise TypeError(
            f"X is a dask collection, but {name} needs data in memory; call X.compute() and y.compute() first"
        )
    bandwidth, kernel = getattr(model, "bandwidth", None), getattr(model, "kernel", None)
    if isinstance(bandwidth, str) and bandwidth == "adaptive":
        raise ValueError("bandwidth='adaptive' needs data in memory; with dask collections use 'loo' or a number")
    if kernel is not None and not isinstance(kernel, str):
        raise ValueError(f"kernels per column need data in memory; with dask collections {name} takes one kernel name")
    if model.missing == "ignore":
        raise ValueError("missing='ignore' needs data in memory; with dask collections fill or drop missing values")
    if getattr(model, "calibrate", False):
        raise ValueError("calibrate=True needs data in memory; with dask collections use calibrate=False")


def _lazy_rows(rows: BlockedRows, labels: bool) -> tuple[Any, Any, Any]:
    """Keys, values and weights as dask arrays."""

    def array(field: int, shape: tuple[int, ...], dtype: Any) -> Any:
        return lazy_array(rows.tasks("field", getitem, field), rows.lengths, shape, dtype)

    value = array(1, () if labels or rows.single else (rows.columns,), np.int64 if labels else rows.dtype)
    weight = array(2, (), np.int64 if rows.repeats else np.float64) if rows.weighted else None
    return array(0, (rows.width,), rows.dtype), value, weight


def _numbered(rows: BlockedRows, part: str) -> tuple[BlockedRows, Array]:
    """Rows whose "value" (classes) or "labels" (groups) are replaced by numbers from 0, and what they number."""
    found = [each for each in compute(rows.tasks("distinct", _distinct, part)) if len(each)]
    names = np.unique(np.concatenate(found or [np.zeros(0)]))
    return rows.map_blocks("number", _with_numbers, part, names), names


def _distinct(block: RowBlock, part: str) -> Array:
    """The classes of rows of positive weight, or the groups of all rows."""
    column = getattr(block, part)
    if part == "labels":
        return np.unique(column)
    if column.ndim > 1 or column.dtype.kind not in "OUSTiub":
        raise ValueError(f"y must hold labels, text or whole numbers, got dtype {column.dtype}")
    return np.unique(column if block.weight is None else column[block.weight > 0])


def _with_numbers(block: RowBlock, part: str, names: Array) -> RowBlock:
    # A row of weight zero may have a class that no other row has.
    return block._replace(**{part: np.minimum(np.searchsorted(names, getattr(block, part)), len(names) - 1)})


# ---- learning


def _learn(
    model: Any, rows: BlockedRows, ridge: float | None, watched: Callable[[Any], AbstractContextManager[Any]]
) -> Width | None:
    """Learn what was not given; returns the bandwidth of a model that has a single one and does not have it yet."""
    heads, bandwidth = "bandwidth" not in model.get_params(deep=False), getattr(model, "bandwidth", "loo")
    if not isinstance(bandwidth, str):
        if rows.labelled:
            raise ValueError("groups are for learning: they need bandwidth='loo'")
        return resolve(bandwidth, np.empty((0, rows.width)))
    limit: float = MAX_ROWS_ON_ONE_WORKER if bandwidth in CRITERIA else np.inf
    limit = MAX_ROWS_ON_ONE_WORKER_FOR_HEADS if heads else limit
    if rows.weighted_rows <= limit and sum(each.nbytes for each in rows.summaries) <= MAX_BYTES_ON_ONE_WORKER:
        (found,) = compute([tasks_of("fit", _fit_on_worker)(clone(model), list(rows.blocks), rows.labelled)])
        vars(model).update(found)
        return None
    if bandwidth != "loo":
        raise ValueError(
            f"bandwidth={bandwidth!r} is learned from dask collections of at most {MAX_ROWS_ON_ONE_WORKER:,} rows and "
            f"{MAX_BYTES_ON_ONE_WORKER >> 20} MB, and X has {rows.weighted_rows:,} rows; use 'loo'"
        )
    options: dict[str, Any] = {
        "degree": model._DEGREE,
        "classes": len(model.classes_) if model._IS_CLASSIFIER else 0,
        "engine": RunOptions(model.engine, model.tol, model.device).options["engine"],
    }
    with watched(model) as progress:
        if not heads:
            return _learn_bandwidth(model, rows, ridge, progress, options)
        found = learn_heads_on_cluster(rows, seed=model._seed(), progress=progress, **options)
    model.heads_, model.scaling_ = found.heads, found.scaling
    model.search_, model.loo_score_ = found.search, found.score
    if found.tempering is not None:
        model.tempering_ = found.tempering
    return None


def _fit_on_worker(model: Any, blocks: Sequence[RowBlock], grouped: bool) -> dict[str, Any]:
    """What an estimator learns from all rows, on one worker."""
    key, value, weight, labels = concatenate_blocks(blocks)
    model.fit(key, value, sample_weight=weight, groups=labels if grouped else None)
    rows = ("key_", "value_", "sample_weight_", "classes_", "n_features_in_")
    return {name: found for name, found in vars(model).items() if name.endswith("_") and name not in rows}


def _learn_bandwidth(
    model: Any, rows: BlockedRows, ridge: float | None, progress: Any, options: dict[str, Any]
) -> Width:
    """A bandwidth, by map and reduce."""
    if model.optimizer == "sgd":
        raise ValueError(
            f"optimizer='sgd' takes dask collections of at most {MAX_ROWS_ON_ONE_WORKER:,} rows, and X has "
            f"{rows.weighted_rows:,} rows; use 'lbfgs'"
        )
    power = powers_of_two(rows.overall_bounds("key"), common=model.metric == "scalar")
    options |= {"kernel": model.kernel, "loss": getattr(model, "loss", "squared")}
    objective = cluster_objective(learnable(rows), partial(divide_keys, power=power), **options)
    width = learned(objective, metric=model.metric, ridge=ridge, seed=model._seed(), progress=progress)
    search, loss = width.search, objective.loss
    assert search is not None
    value = search.value / loss.unit
    if isinstance(loss, AbsoluteError):
        squared = SquaredError(loss.columns, loss.centre, loss.scale)
        value = replace(objective, loss=squared)(search.w, search.ridge).value
    model.loo_score_ = -value if isinstance(loss, LogLoss) else 1.0 - value
    answers = _answers_of_all_rows(search.answer, rows)
    model.loo_predictions_ = answers[:, 0] if rows.single and not options["classes"] else answers
    width = unscaled(width._replace(search=search._replace(answer=answers)), power)
    model.search_ = width.search
    return width


def _answers_of_all_rows(answer: Any, rows: BlockedRows) -> Any:
    """Lazy answers of the rows of positive weight, with NaN for the others between them."""
    if not rows.weighted:
        return answer
    parts = zip(np.asarray(answer.to_delayed()).ravel(), rows.blocks, strict=True)
    made = task_for_each("answer", _fill_with_nan, parts)
    return lazy_array(made, rows.lengths, (answer.shape[1],), np.dtype(np.float64))


def _fill_with_nan(answer: Array, block: RowBlock) -> Array:
    assert block.weight is not None
    out = np.full((len(block.key), answer.shape[1]), np.nan)
    out[block.weight > 0] = answer
    return out


def with_rows_in_memory(model: Any) -> Any:
    """The same model with its rows in this machine's memory; left-out answers not computed yet are NaN."""
    here = clone(model)
    vars(here).update(
        {name: value for name, value in vars(model).items() if name not in ("_make_rows", "_smoother_cache")}
    )
    names = [name for name in ("key_", "value_", "sample_weight_") if getattr(model, name) is not None]
    vars(here).update(zip(names, compute([getattr(model, name) for name in names]), strict=True))
    answers: Any = vars(model).get("loo_predictions_")
    if is_chunked(answers):
        here.loo_predictions_ = np.full(answers.shape, np.nan)
    if is_chunked(getattr(vars(model).get("search_"), "answer", None)):
        here.search_ = model.search_._replace(answer=np.full(model.search_.answer.shape, np.nan))
    return here

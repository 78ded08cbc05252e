"""``fit`` of dask arrays and dataframes: rows are checked where they are, and stay there.

With few of them the whole of ``fit`` runs on one worker; with many the bandwidth is learned by map and reduce
(``cluster.learning``). What comes back is what was learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from regard.bandwidth import CRITERIA, Width, learned, resolve
from regard.bandwidth.losses import AbsoluteError, LogLoss, SquaredError
from regard.bandwidth.units import powers_of_two, unscaled
from regard.cluster.answers import ClusterRows
from regard.cluster.learning import divided, learn_heads_on_cluster, learnable, objective_of
from regard.cluster.pooling import as_array
from regard.cluster.rows import Block, Rows, examined, rows_of, together
from regard.core.arrays import Array, is_chunked
from regard.engines.tasks import cancelling, compute, tasks_of
from regard.model.smoother import Run

# Up to so many rows one worker learns from all of them, as one machine does: one w, and several heads; and so many
# bytes, for a worker's memory is for chunks.
SMALL, SMALL_FOR_HEADS, SMALL_IN_BYTES = 1_000_000, 100_000, 1 << 28


def fit_on_cluster(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    ridge: float | None,
    watched: Callable[[Any], AbstractContextManager[Any]],
) -> Width | None:
    """``fit`` of a regressor or classifier whose rows are of dask; returns its bandwidth, if it has one to itself.

    ``ridge`` None is learned; ``watched`` gives the progress function of a model.
    """
    model._check_parameters()
    _check_clustered(model)
    if y is None:
        raise ValueError(f"This {type(model).__name__} estimator requires y to be passed, but the target y is None")
    rows = rows_of("X", X, y, sample_weight, groups, called=("y", "sample_weight", "groups"))
    if model._LABELS:
        rows, model.classes_ = _numbered(rows)
    if groups is not None:
        found = compute(rows.each("groups", _groups))
        names = np.unique(np.concatenate([each for each in found if len(each)] or [np.zeros(0)]))
        rows = rows.mapped("group", _group, names)
    (rows,) = examined(rows)
    if not rows.size:
        raise ValueError(f"X must have at least one row, got shape (0, {rows.width})")
    if not any(fact.counted for fact in rows.facts):
        raise ValueError("sample_weight is zero for every row: nobody is left to attend to")
    _forget(model)
    _name_features(model, X, rows)
    width = None
    if model._BANDWIDTH:
        with cancelling():
            width = _learn(model, rows, ridge, watched)
    model._remember(*_arrays(rows, model._LABELS))
    model._make_rows = partial(ClusterRows, blocks=rows)
    return width


def _check_clustered(model: Any) -> None:
    name = type(model).__name__
    if "embed" in model.get_params(deep=False):
        raise TypeError(f"X is of dask, and {name} learns its score in memory; use X.compute() and y.compute()")
    bandwidth, kernel = getattr(model, "bandwidth", None), getattr(model, "kernel", None)
    if isinstance(bandwidth, str) and bandwidth == "adaptive":
        raise ValueError("bandwidth='adaptive' needs every row at hand; on a cluster use 'loo' or a number")
    if kernel is not None and not isinstance(kernel, str):
        raise ValueError(f"kernels of columns are for tables in memory; on a cluster {name} takes one kernel")
    if model.missing == "ignore":
        raise ValueError("missing='ignore' is for tables in memory; on a cluster fill or drop the gaps first")
    if getattr(model, "calibrate", False):
        raise ValueError("calibrate=True looks at left-out probabilities in memory; on a cluster leave it out")


def _forget(model: Any) -> None:
    """What an earlier ``fit`` learned."""
    for name in [name for name in vars(model) if name.endswith("_") and name != "classes_" and name[0] != "_"]:
        del model.__dict__[name]


def _name_features(model: Any, X: Any, rows: Rows) -> None:
    model.n_features_in_ = rows.width
    names = list(getattr(X, "columns", ()))
    if names and all(isinstance(name, str) for name in names):
        model.feature_names_in_ = np.array(names, object)


def _arrays(rows: Rows, labels: bool) -> tuple[Any, Any, Any]:
    """The rows as lazy arrays: keys, values and weights."""

    def array(at: int, shape: tuple[int, ...], dtype: Any) -> Any:
        return as_array(rows.each("field", _field, at), rows.lengths, shape, dtype)

    value = array(1, () if labels or rows.single else (rows.columns,), np.int64 if labels else rows.dtype)
    weight = array(2, (), np.int64 if rows.repeats else np.float64) if rows.weighted else None
    return array(0, (rows.width,), rows.dtype), value, weight


def _field(block: Block, at: int) -> Array:
    return np.asarray(block[at])


def _numbered(rows: Rows) -> tuple[Rows, Array]:
    """Rows whose y are numbers of classes, and the classes."""
    present = [each for each in compute(rows.each("classes", _classes)) if len(each)]
    if not present:
        raise ValueError("X and y must have at least one row with a weight")
    classes = np.unique(np.concatenate(present))
    return rows.mapped("number", _number, classes), classes


def _classes(block: Block) -> Array:
    assert block.value is not None
    if block.value.ndim > 1 or block.value.dtype.kind not in "OUSTiub":
        raise ValueError(f"y must hold labels, text or whole numbers, got dtype {block.value.dtype}")
    return np.unique(block.value if block.weight is None else block.value[block.weight > 0])


def _number(block: Block, classes: Array) -> Block:
    assert block.value is not None
    return block._replace(value=np.minimum(np.searchsorted(classes, block.value), len(classes) - 1))


def _groups(block: Block) -> Array:
    assert block.labels is not None
    return np.unique(block.labels)


def _group(block: Block, names: Array) -> Block:
    assert block.labels is not None
    return block._replace(labels=np.searchsorted(names, block.labels))


# ---- what is learned


def _learn(
    model: Any, rows: Rows, ridge: float | None, watched: Callable[[Any], AbstractContextManager[Any]]
) -> Width | None:
    """Learn what was not given; returns the bandwidth of a model that has one to itself and did not remember it."""
    heads, bandwidth = "bandwidth" not in model.get_params(deep=False), getattr(model, "bandwidth", "loo")
    if not isinstance(bandwidth, str):
        if rows.labelled:
            raise ValueError("groups are for learning: they need bandwidth='loo'")
        return resolve(bandwidth, np.empty((0, rows.width)))
    counted = sum(fact.counted for fact in rows.facts)
    limit = SMALL_FOR_HEADS if heads else SMALL if bandwidth in CRITERIA else np.inf
    if counted <= limit and sum(fact.nbytes for fact in rows.facts) <= SMALL_IN_BYTES:
        (found,) = compute([tasks_of("fit", _fit_whole)((0,), clone(model), list(rows.blocks), rows.labelled)])
        vars(model).update(found)
        return None
    if bandwidth != "loo":
        raise ValueError(
            f"bandwidth={bandwidth!r} is learned on a cluster up to {SMALL:,} rows of {SMALL_IN_BYTES >> 20} MB, and X "
            f"has {counted:,} rows; use 'loo'"
        )
    options: dict[str, Any] = {
        "degree": model._DEGREE,
        "classes": len(model.classes_) if model._LABELS else 0,
        "engine": Run(model.engine, model.tol, model.device).options["engine"],
    }
    with watched(model) as progress:
        if not heads:
            return _learn_width(model, rows, ridge, progress, options)
        found = learn_heads_on_cluster(rows, seed=model._seed(), progress=progress, **options)
    model.heads_, model.scaling_, model.search_, model.loo_score_ = (
        found.heads,
        found.scaling,
        found.search,
        found.score,
    )
    return None


def _fit_whole(model: Any, blocks: Sequence[Block], grouped: bool) -> dict[str, Any]:
    """What an estimator learns from all rows, on one worker."""
    key, value, weight, labels = together(blocks)
    model.fit(key, value, sample_weight=weight, groups=labels if grouped else None)
    rows = ("key_", "value_", "sample_weight_", "classes_", "n_features_in_")
    return {name: found for name, found in vars(model).items() if name.endswith("_") and name not in rows}


def _learn_width(model: Any, rows: Rows, ridge: float | None, progress: Any, options: dict[str, Any]) -> Width:
    """A bandwidth, by map and reduce."""
    if model.optimizer == "sgd":
        raise ValueError(f"optimizer='sgd' is the notes' recipe, on a cluster for at most {SMALL:,} rows; use 'lbfgs'")
    power = powers_of_two(rows.ends("key"), common=model.metric == "scalar")
    options |= {"kernel": model.kernel, "loss": getattr(model, "loss", "squared")}
    objective = objective_of(learnable(rows), partial(divided, power=power), **options)
    width = learned(objective, metric=model.metric, ridge=ridge, seed=model._seed(), progress=progress)
    search, loss = width.search, objective.loss
    assert search is not None
    value = search.value / loss.unit
    if isinstance(loss, AbsoluteError):
        squared = SquaredError(loss.columns, loss.centre, loss.scale)
        value = replace(objective, loss=squared)(search.w, search.ridge).value
    model.loo_score_ = -value if isinstance(loss, LogLoss) else 1.0 - value
    answers = _in_place(search.answer, rows)
    model.loo_predictions_ = answers[:, 0] if rows.single and not options["classes"] else answers
    width = unscaled(width._replace(search=search._replace(answer=answers)), power)
    model.search_ = width.search
    return width


def _in_place(answer: Any, rows: Rows) -> Any:
    """Lazy answers of rows that have a weight, with NaN for the others between them."""
    if not rows.weighted:
        return answer
    task, parts = tasks_of("answer", _spread_out), np.asarray(answer.to_delayed()).ravel()
    made = [task((at,), part, block) for at, (part, block) in enumerate(zip(parts, rows.blocks, strict=True))]
    return as_array(made, rows.lengths, (answer.shape[1],), np.dtype(np.float64))


def _spread_out(answer: Array, block: Block) -> Array:
    assert block.weight is not None
    out = np.full((len(block.key), answer.shape[1]), np.nan)
    out[block.weight > 0] = answer
    return out


def brought_here(model: Any) -> Any:
    """The same model with its rows in this machine's memory; left-out answers that are not computed stay NaN."""
    here = clone(model)
    vars(here).update({name: value for name, value in vars(model).items() if name not in ("_make_rows", "_made")})
    names = [name for name in ("key_", "value_", "sample_weight_") if getattr(model, name) is not None]
    vars(here).update(zip(names, compute([getattr(model, name) for name in names]), strict=True))
    answers: Any = vars(model).get("loo_predictions_")
    if is_chunked(answers):
        here.loo_predictions_ = np.full(answers.shape, np.nan)
    if is_chunked(getattr(vars(model).get("search_"), "answer", None)):
        here.search_ = model.search_._replace(answer=np.full(model.search_.answer.shape, np.nan))
    return here

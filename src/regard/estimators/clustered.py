"""Estimators whose training rows lie on a cluster: ``fit`` of dask arrays and dataframes.

Rows are checked where they are, and stay there. With few of them the whole of ``fit`` runs on one worker; with many the
bandwidth is learned by map and reduce (``bandwidth.chunked``). What comes back is what was learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from regard.bandwidth import CRITERIA, resolve, width_of
from regard.bandwidth.chunked_heads import learn_heads_chunks
from regard.bandwidth.chunked_rows import objective_of
from regard.bandwidth.chunked_search import learn_chunks
from regard.bandwidth.losses import SquaredError
from regard.bandwidth.units import unscaled
from regard.cluster.pooling import as_array
from regard.cluster.rows import Block, Rows, examined, rows_of, together
from regard.core.arrays import is_chunked
from regard.engines.tasks import cancelling, compute, tasks_of
from regard.estimators.callbacks import watched
from regard.estimators.parameters import kernel_name
from regard.estimators.width import remember_width, ridge_to_learn
from regard.model.smoother import Run

Array = NDArray[Any]

# Up to so many rows one worker learns from all of them, as one machine does: one w, and several heads; and so many
# bytes, for a worker's memory is for chunks.
SMALL, SMALL_FOR_HEADS, SMALL_IN_BYTES = 1_000_000, 100_000, 1 << 28


def anywhere(fit: Callable[..., Any]) -> Callable[..., Any]:
    """``fit`` that takes arrays and dataframes of dask as well: rows are learned from where they are."""

    @wraps(fit)
    def fitted(self: Any, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Any:
        if any(is_chunked(one) for one in (X, y, sample_weight, groups)):
            return fit_on_cluster(self, X, y, sample_weight, groups)
        options = {} if groups is None else {"groups": groups}
        return fit(self, X, y, sample_weight, **options)

    return fitted


def fit_on_cluster(model: Any, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Any:
    """``fit`` of a regressor or classifier whose rows are of dask; nothing but what is learned comes here."""
    model._check_parameters()
    _check_clustered(model)
    labelled = model._LABELS
    if y is None:
        raise ValueError(f"This {type(model).__name__} estimator requires y to be passed, but the target y is None")
    rows = rows_of("X", X, y, sample_weight, groups, called=("y", "sample_weight", "groups"))
    if labelled:
        rows, model.classes_ = _numbered(rows)
    if groups is not None:
        rows = _grouped(rows)
    (rows,) = examined(rows)
    counted = sum(fact.counted for fact in rows.facts)
    if not rows.size:
        raise ValueError(f"X must have at least one row, got shape (0, {rows.width})")
    if not counted:
        raise ValueError("sample_weight is zero for every row: nobody is left to attend to")
    _name_features(model, X, rows)
    _forget(model)
    if model._BANDWIDTH:
        with cancelling():
            _learn(model, rows, counted, groups is not None, len(model.classes_) if labelled else 0)
    _remember(model, rows)
    model._smoother  # noqa: B018
    return model


def _check_clustered(model: Any) -> None:
    name = type(model).__name__
    if "embed" in model.get_params(deep=False):
        raise TypeError(f"X is of dask, and {name} learns its score in memory; use X.compute() and y.compute()")
    bandwidth, kernel = getattr(model, "bandwidth", None), getattr(model, "kernel", None)
    if isinstance(bandwidth, str) and bandwidth == "adaptive":
        raise ValueError("bandwidth='adaptive' needs every row at hand; on a cluster use 'loo' or a number")
    if kernel is not None and not isinstance(kernel, str):
        raise ValueError(f"kernels of columns are for tables in memory; on a cluster {name} takes one kernel")
    if getattr(model, "missing", "refuse") == "ignore":
        raise ValueError("missing='ignore' is for tables in memory; on a cluster fill or drop the gaps first")
    if getattr(model, "calibrate", False):
        raise ValueError("calibrate=True looks at left-out probabilities in memory; on a cluster leave it out")


def _name_features(model: Any, X: Any, rows: Rows) -> None:
    model.__dict__.pop("feature_names_in_", None)
    model.n_features_in_ = rows.width
    names = list(getattr(X, "columns", ()))
    if names and all(isinstance(name, str) for name in names):
        model.feature_names_in_ = np.array(names, object)


def _forget(model: Any) -> None:
    """What an earlier ``fit`` learned."""
    kept = ("classes_", "n_features_in_", "feature_names_in_")
    for name in [name for name in vars(model) if name.endswith("_") and name not in kept and name[0] != "_"]:
        del model.__dict__[name]


def _remember(model: Any, rows: Rows) -> None:
    model._remember(*_arrays(rows, model))
    model._rows = rows


def _arrays(rows: Rows, model: Any) -> tuple[Any, Any, Any]:
    """The rows as lazy arrays: keys, values and weights."""
    field = tasks_of("field", _field)

    def array(at: int, shape: tuple[int, ...], dtype: Any) -> Any:
        parts = [field((at, number), block, at) for number, block in enumerate(rows.blocks)]
        return as_array(parts, rows.lengths, shape, dtype)

    labels = model._LABELS
    value = array(1, () if labels or rows.single else (rows.columns,), np.int64 if labels else rows.dtype)
    weight = array(2, (), np.int64 if rows.repeats else np.float64) if rows.weighted else None
    return array(0, (rows.width,), rows.dtype), value, weight


def _field(block: Block, at: int) -> Array:
    return np.asarray(block[at])


def _numbered(rows: Rows) -> tuple[Rows, Array]:
    """Rows whose y are numbers of classes, and the classes."""
    found = compute([tasks_of("classes", _classes)((at,), block) for at, block in enumerate(rows.blocks)])
    present = [each for each in found if len(each)]
    if not present:
        raise ValueError("X and y must have at least one row with a weight")
    classes = np.unique(np.concatenate(present))
    return _mapped(rows, "number", _number, classes), classes


def _grouped(rows: Rows) -> Rows:
    """Rows whose labels are numbers of groups."""
    found = compute([tasks_of("groups", _groups)((at,), block) for at, block in enumerate(rows.blocks)])
    names = np.unique(np.concatenate([each for each in found if len(each)] or [np.zeros(0)]))
    return _mapped(rows, "group", _group, names)


def _mapped(rows: Rows, name: str, function: Callable[..., Block], *arguments: Any) -> Rows:
    task = tasks_of(name, function)
    return replace(rows, blocks=tuple(task((at,), block, *arguments) for at, block in enumerate(rows.blocks)))


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


def _learn(model: Any, rows: Rows, counted: int, grouped: bool, classes: int) -> None:
    heads, bandwidth = "bandwidth" not in model.get_params(deep=False), getattr(model, "bandwidth", "loo")
    if not isinstance(bandwidth, str):
        if grouped:
            raise ValueError("groups are for learning: they need bandwidth='loo'")
        remember_width(model, resolve(bandwidth, np.empty((0, rows.width)), kernel=kernel_name(model.kernel)))
        return
    limit = SMALL_FOR_HEADS if heads else SMALL if bandwidth in CRITERIA else np.inf
    if counted <= limit and sum(fact.nbytes for fact in rows.facts) <= SMALL_IN_BYTES:
        (learned,) = compute([tasks_of("fit", fit_whole)((0,), clone(model), list(rows.blocks), grouped)])
        vars(model).update(learned)
        return
    if bandwidth != "loo":
        raise ValueError(
            f"bandwidth={bandwidth!r} is learned on a cluster up to {SMALL:,} rows of {SMALL_IN_BYTES >> 20} MB, and X "
            f"has {counted:,} rows; use 'loo'"
        )
    options: dict[str, Any] = {"degree": model._DEGREE, "classes": classes, "repeats": rows.repeats, "grouped": grouped}
    with watched(model) as progress:
        if heads:
            engine = Run(model.engine, model.tol, model.device).options["engine"]
            found = learn_heads_chunks(rows, seed=model._seed(), engine=engine, progress=progress, **options)
            model.heads_, model.scaling_, model.search_, model.loo_score_ = found
        else:
            _learn_width(model, rows, options, progress)


def _learn_width(model: Any, rows: Rows, options: dict[str, Any], progress: Any) -> None:
    """A bandwidth, by map and reduce."""
    if model.optimizer == "sgd":
        raise ValueError(f"optimizer='sgd' is the notes' recipe, on a cluster for at most {SMALL:,} rows; use 'lbfgs'")
    loss, engine = getattr(model, "loss", "squared"), Run(model.engine, model.tol, model.device).options["engine"]
    objective, power = objective_of(
        rows, kernel=kernel_name(model.kernel), engine=engine, loss=loss, common=model.metric == "scalar", **options
    )
    search = learn_chunks(objective, model.metric, ridge=ridge_to_learn(model), seed=model._seed(), progress=progress)
    if isinstance(objective.loss, SquaredError):
        plain = SquaredError(objective.loss.columns, objective.loss.centre, objective.loss.scale)
        value = search.value / objective.loss.unit
        if loss != "squared":
            value = replace(objective, loss=plain)(search.w, search.ridge).value
        model.loo_score_ = 1.0 - value
    else:
        model.loo_score_ = -search.value
    answers = _spread(search.answer, rows)
    model.loo_predictions_ = answers[:, 0] if rows.single and not options["classes"] else answers
    model.search_ = search._replace(answer=answers)
    width = unscaled(width_of(model.search_), power)
    assert width.search is not None
    model.search_ = width.search
    remember_width(model, width)


def _spread(answer: Any, rows: Rows) -> Any:
    """Lazy answers of rows that have a weight, with NaN for the others between them."""
    if not rows.weighted:
        return answer
    parts = np.asarray(answer.to_delayed()).ravel()
    task = tasks_of("answer", _in_place)
    made = [task((at,), part, block) for at, (part, block) in enumerate(zip(parts, rows.blocks, strict=True))]
    return as_array(made, rows.lengths, (answer.shape[1],), np.dtype(np.float64))


def _in_place(answer: Array, block: Block) -> Array:
    assert block.weight is not None
    out = np.full((len(block.key), answer.shape[1]), np.nan)
    out[block.weight > 0] = answer
    return out


def fit_whole(model: Any, blocks: Sequence[Block], grouped: bool) -> dict[str, Any]:
    """What an estimator learns from all rows, on one worker."""
    key, value, weight, labels = together(blocks)
    model.fit(key, value, sample_weight=weight, groups=labels if grouped else None)
    rows = ("key_", "value_", "sample_weight_", "classes_", "n_features_in_")
    return {name: found for name, found in vars(model).items() if name.endswith("_") and name not in rows}


def brought_here(model: Any) -> Any:
    """The same model with its rows in this machine's memory; left-out answers that are not computed stay NaN."""
    here = clone(model)
    vars(here).update({name: value for name, value in vars(model).items() if name not in ("_rows", "_smoother")})
    names = [name for name in ("key_", "value_", "sample_weight_") if getattr(model, name) is not None]
    vars(here).update(zip(names, compute([getattr(model, name) for name in names]), strict=True))
    answers: Any = vars(model).get("loo_predictions_")
    if is_chunked(answers):
        here.loo_predictions_ = np.full(answers.shape, np.nan)
    if is_chunked(getattr(vars(model).get("search_"), "answer", None)):
        here.search_ = model.search_._replace(answer=np.full(model.search_.answer.shape, np.nan))
    return here

"""Predictions where the rows are: of training rows on a cluster, and of lazy queries.

Answers are as queries are: a dask array for X of dask, numbers for numbers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from regard.bandwidth.losses import as_probabilities
from regard.cluster.pooling import as_array
from regard.cluster.rows import Block, Rows, examined, rows_of
from regard.cluster.states import Look, fitted, out_of_reach, pairs_in_reach, states
from regard.core.arrays import Array
from regard.engines.tasks import compute, tasks_of
from regard.model.smoother import IDENTITY, Answer, Head, Smoother, TrainingRows
from regard.pooling.folds import Fold


@dataclass(frozen=True, eq=False)
class ClusterRows(TrainingRows):
    """Training rows on a cluster, and what they answer; y that is labels is numbers of classes there."""

    blocks: Rows = field(kw_only=True)

    def answer(self, smoother: Smoother, query: Array) -> Answer:
        """As ``smoother.answer`` of rows in memory; computed where the rows are."""
        (queries,) = examined(rows_of("X", query))
        found = compute(self.answers(smoother, queries))
        return Answer(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def answers(self, smoother: Smoother, queries: Rows) -> list[Any]:
        """One delayed Answer for each block of queries."""
        keys, heads, looks = self.blocks, smoother.heads, self._looks(smoother)
        found = [states(queries, keys, look, pairs_in_reach(queries, keys, look)) for look in looks]
        classes = self.classes
        task, single = tasks_of("mix", answered), keys.single and classes is None
        prior = None
        if smoother.empty == "prior" and classes is not None:
            prior = tasks_of("prior", _prior)((0,), keys.each("frequency", _frequency, len(classes)))
        return [
            task((at,), block, heads, looks, [states[at] for states in found], smoother.empty, prior, single)
            for at, block in enumerate(queries.blocks)
        ]

    def _looks(self, smoother: Smoother) -> list[Look]:
        """What every head asks of the blocks of training rows."""
        first, classes = smoother.heads[0], self.classes
        common: dict[str, Any] = {
            **smoother.run.options,
            "degree": 2 * first.degree,
            "classes": 0 if classes is None else len(classes),
        }
        if first.degree:
            centre, ends = self.blocks.mean, self.blocks.ends("value")
            largest = np.maximum(np.abs(ends.high - centre), np.abs(ends.low - centre))
            common |= {"centre": centre, "scale": np.where(largest > 0.0, largest, 1.0)}
        if len(smoother.heads) == 1 and first.transform is IDENTITY:
            return [Look(first.score, nearest=smoother.empty == "nearest", **common)]
        return [Look(head.score, rescale=head.transform.keys, **common) for head in smoother.heads]


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
    classes = vars(model).get("classes_")
    shape, dtype = tuple(model.value_.shape[1:]), queries.dtype
    if method == "predict_proba":
        shape = (len(model.classes_),)
    elif classes is not None:
        shape, dtype = (), classes.dtype
    smoother = model._asked
    if isinstance(smoother.rows, ClusterRows):
        task = tasks_of("answer", _as_method)
        found = enumerate(smoother.rows.answers(smoother, queries))
        parts = [task((at,), one, model.empty, method, classes) for at, one in found]
    else:
        # A model in memory is asked block by block; of a block without rows there is nothing to ask.
        task, here, none = (
            tasks_of("predict", _asked),
            tasks_of("model", _itself)((0,), model),
            tasks_of("none", np.empty),
        )
        parts = [
            task((at,), here, block, method) if queries.lengths[at] else none((at,), (0, *shape), dtype)
            for at, block in enumerate(queries.blocks)
        ]
    lazy: Array = as_array(parts, queries.lengths, shape, dtype)
    return lazy


def _itself(model: Any) -> Any:
    return model


def _asked(model: Any, query: Block, method: str) -> Array:
    """One block, on the worker that answers it."""
    # Names were compared when the block was only a promise.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return np.asarray(getattr(model, method)(query.key))


def _as_method(found: Answer, empty: str, method: str, classes: Array | None) -> Array:
    labels = None if method == "predict_proba" else classes
    count = int(found.empty.sum())
    if count and (empty == "raise" or (empty == "nan" and labels is not None)):
        raise ValueError(
            f"{count} of {len(found.empty)} rows of a chunk of X have no training row within the bandwidth; widen "
            f"bandwidth, or choose another empty= than {empty!r}"
        )
    if method == "predict_proba":
        return as_probabilities(found.output)
    return found.output if labels is None else np.asarray(labels[found.output.argmax(axis=1)])


def _frequency(block: Block, classes: int) -> Array:
    return np.bincount(block.value, block.weight, minlength=classes)  # type: ignore[arg-type]


def _prior(counts: list[Array]) -> Array:
    """The frequencies of the classes, from those of every block."""
    total = np.sum(counts, axis=0)
    return np.asarray(total / total.sum())


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
        alone = alone | out_of_reach(look, fold)
        total = total + head.mix * _output(look, head.ridge, fold, query.key.shape[1])
    if alone.any() and empty in ("nan", "prior"):
        total[alone] = np.nan if prior is None else prior
    dtype = query.key.dtype if query.key.dtype.kind == "f" else np.dtype(np.float64)
    with np.errstate(over="ignore"):
        output = np.asarray(total).astype(dtype)
    return Answer(output[:, 0] if single else output, alone)


def _output(look: Look, ridge: float, fold: Fold, width: int) -> Array:
    """Outputs (Q, P) of one attention over so many features."""
    if not look.degree:
        return fold.finished().output
    found = fitted(look, fold, ridge, width)
    assert look.centre is not None
    return np.where(found.partial.mass[:, None] > 0.0, look.centre + look.scale * found.output, 0.0)

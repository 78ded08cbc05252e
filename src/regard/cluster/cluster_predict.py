"""Predictions of models whose training rows are on a cluster, and of dask arrays of queries.

The result is a dask array if X is a dask collection, and a numpy array otherwise.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from regard.bandwidth.losses import as_probabilities
from regard.bandwidth.tempering import Tempering
from regard.cluster.block_states import BlockPooling, fit_block, out_of_reach, pairs_in_reach, query_states
from regard.cluster.blocked_rows import BlockedRows, RowBlock, blocked_rows, with_summaries
from regard.cluster.chunked_pooling import lazy_array
from regard.core.arrays import Array
from regard.engines.tasks import compute, task_for_each, tasks_of
from regard.model.smoother import IDENTITY, Answer, Head, Smoother, TrainingRows
from regard.pooling.mergeable_state import MergeableState


@dataclass(frozen=True, eq=False)
class ClusterRows(TrainingRows):
    """Training rows on a cluster; labels are stored as class numbers there."""

    blocks: BlockedRows = field(kw_only=True)

    def answer(self, smoother: Smoother, query: Array) -> Answer:
        """As ``smoother.answer`` of rows in memory, computed where the rows are."""
        (queries,) = with_summaries(blocked_rows("X", query))
        found = compute(self.answers(smoother, queries))
        return Answer(*(np.concatenate(part) for part in zip(*found, strict=True)))

    def answers(self, smoother: Smoother, queries: BlockedRows) -> list[Any]:
        """One delayed Answer for each block of queries."""
        keys, heads, classes = self.blocks, smoother.heads, self.classes
        poolings = self._poolings(smoother)
        states = [query_states(queries, keys, each, pairs_in_reach(queries, keys, each)) for each in poolings]
        prior = None
        if smoother.empty == "prior" and classes is not None:
            prior = tasks_of("prior", _normalised)(keys.tasks("frequency", _frequency, len(classes)))
        options = smoother.empty, prior, keys.single and classes is None
        each_block = zip(queries.blocks, zip(*states, strict=True), strict=True)
        return task_for_each(
            "mix", _answer, ((block, heads, poolings, list(each), *options) for block, each in each_block)
        )

    def _poolings(self, smoother: Smoother) -> list[BlockPooling]:
        """How the blocks are pooled for every head."""
        first, classes = smoother.heads[0], self.classes
        common: dict[str, Any] = {
            **smoother.run.options,
            "degree": 2 * first.degree,
            "classes": 0 if classes is None else len(classes),
        }
        if first.degree:
            centre, (low, high) = self.blocks.mean, self.blocks.overall_bounds("value")
            largest = np.maximum(np.abs(high - centre), np.abs(low - centre))
            common |= {"centre": centre, "scale": np.where(largest > 0.0, largest, 1.0)}
        if len(smoother.heads) == 1 and first.transform is IDENTITY:
            return [BlockPooling(first.score, nearest=smoother.empty == "nearest", **common)]
        return [BlockPooling(head.score, transform=head.transform.keys, **common) for head in smoother.heads]


def lazy_answers(model: Any, X: Any, method: str) -> Array:
    """The dask array of ``model.predict`` or ``predict_proba`` for X, a dask collection."""
    check_is_fitted(model)
    names = list(getattr(X, "columns", ()))
    known = list(vars(model).get("feature_names_in_", ()))
    if names and known and names != known:
        raise ValueError(f"X must have the columns of fit in the same order, {known}, got {names}")
    queries = blocked_rows("X", X)
    if queries.width != model.n_features_in_:
        raise ValueError(
            f"X has {queries.width} features, but {type(model).__name__} is expecting {model.n_features_in_} "
            "features as input"
        )
    (queries,) = with_summaries(queries)
    classes = vars(model).get("classes_")
    shape, dtype = tuple(model.value_.shape[1:]), queries.dtype
    if method == "predict_proba":
        shape = (len(model.classes_),)
    elif classes is not None:
        shape, dtype = (), classes.dtype
    smoother = model._configured_smoother
    if isinstance(smoother.rows, ClusterRows):
        answers = smoother.rows.answers(smoother, queries)
        parts = task_for_each(
            "answer", _as_method, ((one, model.empty, method, classes, smoother.tempering) for one in answers)
        )
    else:
        # A model in memory travels once and predicts block by block; empty blocks are not passed to it.
        shared, no_rows = tasks_of("model", _same)(model), np.empty((0, *shape), dtype)
        parts = queries.tasks("predict", _predicted, shared, method, no_rows)
    lazy: Array = lazy_array(parts, queries.lengths, shape, dtype)
    return lazy


def _same(model: Any) -> Any:
    return model


def _predicted(query: RowBlock, model: Any, method: str, no_rows: Array) -> Array:
    """The predictions of one block, on the worker that computes them."""
    if not len(query.key):
        return no_rows
    # Column names were compared before the blocks became plain arrays.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return np.asarray(getattr(model, method)(query.key))


def _as_method(found: Answer, empty: str, method: str, classes: Array | None, tempering: Tempering | None) -> Array:
    labels = None if method == "predict_proba" else classes
    count = int(found.empty.sum())
    if count and (empty == "raise" or (empty == "nan" and labels is not None)):
        raise ValueError(
            f"{count} of {len(found.empty)} rows of a chunk of X have no training row within the bandwidth; widen "
            f"bandwidth, or choose another empty= than {empty!r}"
        )
    if tempering is not None:
        found = found._replace(output=tempering(found.output))
    if method == "predict_proba":
        return as_probabilities(found.output)
    return found.output if labels is None else np.asarray(labels[found.output.argmax(axis=1)])


def _frequency(block: RowBlock, classes: int) -> Array:
    return np.bincount(block.value, block.weight, minlength=classes)  # type: ignore[arg-type]


def _normalised(counts: list[Array]) -> Array:
    """Relative frequencies of the classes, from the counts of every block."""
    total = np.sum(counts, axis=0)
    return np.asarray(total / total.sum())


def _answer(
    query: RowBlock,
    heads: tuple[Head, ...],
    poolings: list[BlockPooling],
    states: list[MergeableState],
    empty: str,
    prior: Array | None,
    single: bool,
) -> Answer:
    """Answers to a block of queries from its states of all heads."""
    total: Any = 0.0
    no_key = np.zeros(len(query.key), bool)
    for head, pooling, state in zip(heads, poolings, states, strict=True):
        no_key = no_key | out_of_reach(pooling, state)
        total = total + head.mix * _output(pooling, head.ridge, state, query.key.shape[1])
    if no_key.any() and empty in ("nan", "prior"):
        total[no_key] = np.nan if prior is None else prior
    dtype = query.key.dtype if query.key.dtype.kind == "f" else np.dtype(np.float64)
    with np.errstate(over="ignore"):
        output = np.asarray(total).astype(dtype)
    return Answer(output[:, 0] if single else output, no_key)


def _output(pooling: BlockPooling, ridge: float, state: MergeableState, width: int) -> Array:
    """Outputs (Q, P) of one head over ``width`` features."""
    if not pooling.degree:
        return state.finished().output
    found = fit_block(pooling, state, ridge, width)
    assert pooling.centre is not None
    return np.where(found.partial.mass[:, None] > 0.0, pooling.centre + pooling.scale * found.output, 0.0)

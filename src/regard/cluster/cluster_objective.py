"""The leave-one-out criterion of rows on a cluster, with its gradient, by map and reduce over blocks.

    state     every pair of blocks that matters: the state of the queries over the keys, themselves left out
    merge     states of one block of queries, in a tree
    evaluate  local fits, their loss, and its adjoint
    gradient  every pair again, for the gradient of w
    sum       value and gradient over all blocks

Only w goes out, and only the value and the gradient come back; answers stay where their rows are. The criterion and
its search are those of ``regard.bandwidth``; a subsample of rows is searched in a single task.

Heads are learned from a subsample on one worker, which finds the useful scalings, metrics and directions. Bandwidths
shrink as rows grow, so each head starts narrower and takes its last steps with some thousand rows evaluated against
all others. The mix is learned from the left-out answers of those rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, reduce
from operator import add
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regard.bandwidth.distinct import distinct
from regard.bandwidth.head_search import FINAL_ITERATIONS, FINAL_ROWS, GAIN_MANY_ROWS, descend_head, learn_heads
from regard.bandwidth.learned_heads import Heads, HeadSearchLog, LearnedHead, Progress, mix_heads
from regard.bandwidth.losses import AbsoluteError, LogLoss, SquaredError, corner_of
from regard.bandwidth.objective import Evaluation, Objective
from regard.bandwidth.parametrization import Parametrization
from regard.bandwidth.subsampling import SEARCH_TOL, SUBSAMPLE_ROWS, draw_rows, rescaled
from regard.cluster.block_states import (
    BlockPooling,
    block_problem,
    fit_block,
    merge_tree,
    pairs_in_reach,
    query_states,
    sketches,
)
from regard.cluster.blocked_rows import BlockedRows, RowBlock, positive_rows, weights_of, with_summaries
from regard.cluster.chunked_pooling import lazy_array
from regard.core.arrays import Array
from regard.core.problem import Adjoint, Problem, matrix
from regard.core.scores import RADIAL
from regard.core.state import Partial
from regard.engines.costs import estimate
from regard.engines.tasks import compute, persisted, task_for_each, tasks_of
from regard.pooling.local_pooling import LocalPooling, score_gradients, shaped_like_w
from regard.pooling.mergeable_state import MergeableState
from regard.pooling.runner import small_matrices

# ---- rows to learn from


def learnable(rows: BlockedRows) -> BlockedRows:
    """Summarised rows without those of weight zero, labelled by what is left out together: the row, or its group.

    Importances are relative to their mean; of repetitions one is left out.
    """
    unit = None
    if rows.weighted and not rows.repeats:
        unit = float(np.sum([summary.total_weight for summary in rows.summaries])) / rows.weighted_rows
    each = ((block, unit, start) for block, start in zip(rows.blocks, rows.offsets.tolist(), strict=False))
    blocks = tuple(task_for_each("rows", _learnable, each))
    return replace(rows, blocks=blocks, summaries=(), labelled=True, repeats=rows.repeats and not rows.labelled)


def _learnable(block: RowBlock, unit: float | None, start: int) -> RowBlock:
    positive = np.arange(len(block.key))[positive_rows(block)]
    weight = None if block.weight is None else block.weight[positive]
    if weight is not None and unit is not None:
        weight = weight.astype(np.float64) / unit
    assert block.value is not None
    labels = start + positive if block.labels is None else block.labels[positive]
    return RowBlock(block.key[positive].astype(np.float64), block.value[positive], weight, labels)


def on_cluster(rows: BlockedRows) -> BlockedRows:
    """The same with blocks that stay in the workers' memory, summarised."""
    return with_summaries(replace(rows, blocks=tuple(persisted(rows.blocks))))[0]


def divide_keys(key: Array, power: Array) -> Array:
    """Keys divided by 2 to the powers (d,)."""
    return np.ldexp(key, -power)


# ---- the criterion


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterObjective(Objective):
    """An ``Objective`` of rows in blocks: its own arrays are empty, and every worker makes one of its block."""

    queries: BlockedRows  # the rows evaluated, as ``learnable`` makes them
    keys: BlockedRows
    deviation: Array  # (d,)  of the features

    in_memory: ClassVar[bool] = False

    @property
    def feature_scale(self) -> Array:
        return self.deviation

    @property
    def size(self) -> float:
        return sum(summary.total_weight for summary in self.keys.summaries)

    def evaluated_at(self, rows: Array) -> ClusterObjective:
        """The same as a mean over some of the rows, which are put together in one block."""
        some = on_cluster(replace(self.queries, blocks=(self.queries.take(rows),)))
        return replace(self, queries=some, rows=np.arange(len(rows)))

    def search_each(
        self,
        search: Callable[..., Any],
        subsamples: Sequence[tuple[Array, Array | None]],
        progress: Any = None,  # noqa: ARG002
    ) -> list[Any]:
        """The search of every subsample of rows, each in one task."""
        each = ((self.without_rows, self.queries.take(rows), search, some) for rows, some in subsamples)
        return compute(task_for_each("subsample", _search_block, each))

    def answered(self, w: ArrayLike, ridge: float, rows: Array) -> tuple[Evaluation, Array]:
        """The objective as a mean over ``rows``, and lazy answers to all rows."""
        return self.evaluated_at(rows)(w, ridge), self._answers(self._evaluated(w, ridge, gradient=False)[-1])

    def seconds(self, w: ArrayLike) -> float:
        """Estimated time of one evaluation on one core, without its gradient.

        What is learned must not depend on how many workers are alive.
        """
        pooling = _pooling_at(self, w)
        pairs = sketches(self.queries, self.keys, pooling, pairs_in_reach(self.queries, self.keys, pooling))
        return sum(estimate(sketch, self.engine) for sketch in pairs)

    def _at(self, w: ArrayLike, ridge: float, gradient: bool) -> Evaluation:
        pooling, near, evaluated = self._evaluated(w, ridge, gradient)
        block_gradient, total = tasks_of("gradient", _block_gradient), tasks_of("total", _total)
        plus, parts = tasks_of("add", add), []
        for block, found, pairs in zip(self.queries.blocks, evaluated, near & gradient, strict=True):
            keys = [self.keys.blocks[j] for j in np.flatnonzero(pairs)]
            slopes = [block_gradient(pooling, block, key, found) for key in keys]
            parts.append(total(found, merge_tree(slopes, plus) if slopes else None))
        whole: Evaluation = compute([merge_tree(parts, tasks_of("sum", _sum))])[0]
        return whole._replace(answer=self._answers(evaluated))

    def _evaluated(self, w: ArrayLike, ridge: float, gradient: bool) -> tuple[BlockPooling, Array, list[Any]]:
        """How blocks are pooled, which pairs matter, and a delayed BlockEvaluation for each block of queries."""
        pooling, queries = _pooling_at(self, w), self.queries
        near, total = pairs_in_reach(queries, self.keys, pooling), sum(each.total_weight for each in queries.summaries)
        states = query_states(queries, self.keys, pooling, near)
        common = self.without_rows, pooling, ridge, total, gradient
        each = ((*common, *pair) for pair in zip(queries.blocks, states, strict=True))
        return pooling, near, task_for_each("evaluate", _evaluate_block, each)

    def _answers(self, evaluated: Sequence[Any]) -> Any:
        """Lazy answers of the rows evaluated."""
        parts = [one.answer for one in evaluated]
        return lazy_array(parts, self.queries.lengths, (self.loss.columns.shape[1],), np.dtype(np.float64))

    @property
    def without_rows(self) -> Objective:
        """What is sent to the workers."""
        return Objective(**{each.name: getattr(self, each.name) for each in fields(Objective)})


def cluster_objective(
    rows: BlockedRows,
    transform: Callable[[Array], Array],
    *,
    kernel: str,
    degree: int,
    classes: int = 0,
    engine: str = "auto",
    loss: str = "squared",
) -> ClusterObjective:
    """The leave-one-out criterion of ``learnable`` rows, whose keys ``transform`` maps column by column.

    Values are numbers, or class numbers if ``classes`` is positive. *Cost*: three passes over the blocks; they stay on
    the cluster.
    """
    rows = on_cluster(
        replace(rows.map_blocks("transform", _transform, transform, classes), columns=classes or rows.columns)
    )
    low, high = rows.overall_bounds("key")
    varies, width = high > low, rows.width
    span = np.where(varies, high - low, 1.0)
    whole = reduce(ColumnVariance.merge, compute(rows.tasks("variance", _variance, low, span)))
    deviation = np.sqrt(whole.squares / whole.total)
    block_loss: SquaredError | LogLoss
    if classes:
        block_loss = LogLoss(np.zeros((0, classes)), whole.mean[width:], whole.total)
    else:
        least, most = rows.overall_bounds("value")
        moves = least < most
        centre, scale = np.where(moves, whole.mean[width:], least), np.where(moves, deviation[width:], 1.0)
        block_loss = SquaredError(np.zeros((0, len(scale))), centre, scale)
        if loss == "absolute":
            (corner,) = compute([tasks_of("corner", _corner)(block_loss, list(rows.blocks))])
            block_loss = AbsoluteError(block_loss.columns, centre, scale, corner)
    none = np.zeros(0)
    return ClusterObjective(
        key=np.zeros((0, width)),
        loss=block_loss,
        weight=None,
        counts=none,
        repeated=none if rows.repeats else None,
        labels=none,
        rows=range(rows.size),  # type: ignore[arg-type]
        kernel=kernel,
        degree=degree,
        criterion="loo",
        engine=engine,
        queries=rows,
        keys=rows,
        deviation=np.where(varies, np.maximum(deviation[:width], 1e-9) * span, 0.0),
    )


class ColumnVariance(NamedTuple):
    """Total weight, means and sums of squared deviations of columns (C,)."""

    total: float
    mean: Array
    squares: Array

    def merge(self, other: ColumnVariance) -> ColumnVariance:
        """Those of both sets of rows together."""
        total = self.total + other.total
        if not total:
            return self
        gap, part = other.mean - self.mean, other.total / total
        squares = self.squares + other.squares + gap**2 * self.total * part
        return ColumnVariance(total, self.mean + gap * part, squares)


def _transform(block: RowBlock, transform: Callable[[Array], Array], classes: int) -> RowBlock:
    """Transformed keys, and values as columns (n, P), one per class."""
    assert block.value is not None
    columns = np.eye(classes)[block.value] if classes else matrix("y", block.value).astype(np.float64)
    return block._replace(key=transform(block.key), value=columns)


def _variance(block: RowBlock, low: Array, span: Array) -> ColumnVariance:
    """Of the features, scaled to lie between 0 and 1, and of the values."""
    assert block.value is not None
    counts, table = weights_of(block), np.concatenate([(block.key - low) / span, block.value], axis=1)
    if not len(table):
        return ColumnVariance(0.0, np.zeros(table.shape[1]), np.zeros(table.shape[1]))
    total = float(counts.sum())
    mean = counts / total @ table
    return ColumnVariance(total, mean, counts @ (table - mean) ** 2)


def _corner(loss: SquaredError, blocks: Sequence[RowBlock]) -> Array:
    """Where absolute errors are rounded off, from all values on one worker."""
    values: Any = [block.value for block in blocks]
    return corner_of(loss.from_units_of_y(np.concatenate(values)))


# ---- on the workers


def _pooling_at(criterion: Objective, w: ArrayLike) -> BlockPooling:
    """How blocks are pooled for the criterion at w."""
    score, loss = RADIAL[criterion.kernel](w), criterion.loss
    pooling = BlockPooling(score, criterion.engine, criterion.tol, degree=2 * criterion.degree, nearest=True)
    return pooling if isinstance(loss, LogLoss) else replace(pooling, centre=loss.centre, scale=loss.scale)


def _of_block(criterion: Objective, block: RowBlock) -> Objective:
    """The criterion of the rows of one block, in memory."""
    assert block.value is not None
    assert block.labels is not None
    counts, columns = weights_of(block), criterion.loss.from_units_of_y(block.value)
    return replace(
        criterion,
        key=block.key,
        loss=replace(criterion.loss, columns=columns),
        weight=block.weight,
        counts=counts,
        repeated=None if criterion.repeated is None else counts - 1.0,
        labels=block.labels,
        rows=np.arange(len(counts)),
    )


class BlockEvaluation(NamedTuple):
    """What one block of queries adds to an evaluation."""

    found: Evaluation  # without answers; its gradient is that at fixed weights
    answer: Array  # (n, P)  in the units of y
    backward: tuple[Partial, Array, Adjoint] | None = None  # for the gradient through the weights; Array: settled (n,)


def _evaluate_block(
    criterion: Objective,
    pooling: BlockPooling,
    ridge: float,
    total: float,
    gradient: bool,
    block: RowBlock,
    state: MergeableState,
) -> BlockEvaluation:
    """Left-out answers of a block, its part of the loss, and the adjoint; ``total`` is the weight of all blocks."""
    one, w = _of_block(criterion, block), pooling.score.w  # type: ignore[attr-defined]
    if not len(one.rows):
        return BlockEvaluation(Evaluation(0.0, np.zeros(w.shape), 0.0, np.zeros(0), 0), one.loss.columns)
    own = None if one.repeated is None else one.own(one.repeated)
    partial, fit, answer, settled, empty = fit_block(pooling, state, ridge, one.key.shape[1], own)
    loss, part = one.loss(answer, one.rows, one.counts), float(one.counts.sum()) / total
    found = Evaluation(part * loss.value, None, 0.0, np.zeros(0), int(empty.sum()))
    answer = one.loss.in_units_of_y(answer)
    if not gradient:
        return BlockEvaluation(found, answer)
    # Only its widths are used.
    problem = Problem(one.key[:0], one.key[:0], one.loss.columns[:0], pooling.score)
    back = LocalPooling(problem, ridge, pooling.engine, partial, fit, settled).adjoint(part * loss.gradient)
    found = found._replace(w=shaped_like_w(back.w, w), log_ridge=back.log_ridge)
    return BlockEvaluation(found, answer, (partial, settled, back.adjoint))


def _block_gradient(pooling: BlockPooling, query: RowBlock, key: RowBlock, evaluated: BlockEvaluation) -> Array:
    """What one block of keys adds to the gradient of w."""
    assert evaluated.backward is not None
    partial, settled, adjoint = evaluated.backward
    problem, engine = block_problem(pooling, query, key)
    # Weights of a block are relative to a power of two of their own.
    partial = partial._replace(peak=partial.peak - problem.weight_shift)
    return np.asarray(score_gradients(problem, engine, partial, settled, adjoint, frozenset({"w"})).w)


def _total(evaluated: BlockEvaluation, slope: Array | None) -> Evaluation:
    """All that a block adds to an evaluation, without answers: small enough to be sent anywhere."""
    found = evaluated.found
    return found if slope is None else found._replace(w=found.w + slope)


def _sum(a: Evaluation, b: Evaluation) -> Evaluation:
    w = None if a.w is None or b.w is None else a.w + b.w
    return Evaluation(a.value + b.value, w, a.log_ridge + b.log_ridge, a.answer, a.empty + b.empty)


def _search_block(criterion: Objective, block: RowBlock, search: Callable[..., Any], some: Array | None) -> Any:
    """The search of the rows of a block as if there were no others, on one worker; answers do not leave it."""
    with small_matrices():
        found = search(_of_block(criterion, block).among(np.arange(len(block.key))), some)
    return found._replace(answer=found.answer[:0])


# ---- heads


def learn_heads_on_cluster(
    rows: BlockedRows,
    *,
    degree: int,
    classes: int,
    seed: int = 0,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Heads:
    """Learn heads from summarised rows; answers and score are of the rows evaluated last.

    *Cost*: that of ``learn_heads`` for 20,000 rows on one worker, and for each head some 15 evaluations of 8,000 rows
    against all.
    """
    grouped, rows = rows.labelled, on_cluster(learnable(rows))
    n, rng = rows.size, np.random.default_rng(seed)
    options = {"degree": degree, "classes": classes or None, "engine": engine, "seed": seed}
    (first,) = compute(
        task_for_each("heads", _heads, [(rows.take(draw_rows(n, rng, SUBSAMPLE_ROWS)), grouped, options)])
    )
    last = draw_rows(n, rng, FINAL_ROWS)
    log = HeadSearchLog(progress, planned=float(len(first.heads) * FINAL_ITERATIONS * len(last)))
    growth = n / min(SUBSAMPLE_ROWS, n)
    if classes:
        # The mix and the tempering are those of rows that no search has seen: heads only get narrower.
        scaled = tuple(
            head._replace(w=rescaled(head.w, growth) if _is_searched(head.w) else head.w) for head in first.heads
        )
        learned: Heads = first._replace(heads=scaled)
        return learned
    heads, answers = [], []
    for head in first.heads:
        transform = partial(first.scaling, t=head.share)
        objective = cluster_objective(rows, transform, kernel="gaussian", degree=degree, classes=classes, engine=engine)
        some = replace(objective, tol=SEARCH_TOL).evaluated_at(last)
        heads.append(_refined(some, head, growth, log))
        answer, block = compute([some(heads[-1].w, heads[-1].ridge).answer, some.queries.blocks[0]])
        answers.append(some.loss.from_units_of_y(answer))
    path = [*first.search.path, *log.path]
    groups = [(head,) for head in heads]
    return mix_heads(
        _of_block(some.without_rows, block), groups, answers, first.scaling, path, first.search.interrupted
    )


def _refined(some: ClusterObjective, head: LearnedHead, growth: float, log: HeadSearchLog) -> LearnedHead:
    """A head of a subsample, learned on from there with ``growth`` times as many rows."""
    w = rescaled(head.w, growth)
    space = Parametrization.of("full" if w.ndim == 2 else "feature", some.feature_scale)
    space = space.without(np.asarray(~w.reshape(len(w), -1).any(axis=1)))
    if not space.size:
        return head._replace(w=w)
    with small_matrices():
        end = descend_head(
            some,
            space,
            space.parameters(w),
            max(head.ridge, 1e-6),
            FINAL_ITERATIONS,
            log,
            GAIN_MANY_ROWS,
        )
    return head._replace(w=end.w, ridge=end.ridge if some.degree else head.ridge)


def _is_searched(w: Array) -> bool:
    """Whether w has the form that searches give it: one w per feature, or diag(w)(I + N) of the features used."""
    if w.ndim < 2:
        return True
    used = w[np.abs(w).max(axis=1, initial=0.0) > 0.0]
    return used.shape[0] == used.shape[1] and bool((np.diagonal(used) > 0.0).all())


def _heads(block: RowBlock, grouped: bool, options: dict[str, Any]) -> Heads:
    """The heads of a subsample, on the worker that learns them; answers do not leave it."""
    assert block.value is not None
    groups = block.labels if grouped else None
    with small_matrices():
        # In the order of one machine, which folds follow.
        rows = distinct(block.key, block.value, block.weight, groups)
        found = learn_heads(rows.key, rows.value, sample_weight=rows.weight, groups=rows.groups, **options)
    return found._replace(answer=found.answer[:0])

"""Learning from rows on a cluster: the leave-one-out criterion, with its gradient, by map and reduce over blocks.

    look    every pair of blocks that matters: the state of the queries over the keys, themselves left out
    merge   states of one block of queries, in a tree
    judge   local fits, their loss, and the adjoint of it
    pull    every pair again, for the gradient of w
    sum     all blocks' shares of the value and the gradient

Only w goes out and only the value and the gradient come back; answers stay where their rows are. What the criterion is
and how it is searched is ``regard.bandwidth``'s; a subsample of rows is searched there in one task.

Heads are learned from a subsample on one worker, which knows which scalings, metrics and directions serve. Its
bandwidths are those of fewer rows: they start narrower, as more rows ask for, and every head takes its last steps
evaluating some thousand rows against all others. The mix is learned from the left-out answers of those rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, reduce
from operator import add
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regard.bandwidth.heads import (
    ENOUGH,
    LAST_STEPS,
    MOST,
    ROUGH,
    Heads,
    HeadTrail,
    LearnedHead,
    Progress,
    learn_heads,
    mixed,
    walk_head,
)
from regard.bandwidth.losses import AbsoluteError, LogLoss, SquaredError, corner_of
from regard.bandwidth.many import BAG, batch, sharpened
from regard.bandwidth.objective import Evaluation, Objective
from regard.bandwidth.shapes import Shape
from regard.cluster.pooling import as_array
from regard.cluster.rows import Block, Rows, examined
from regard.cluster.states import Look, fitted, pairs_in_reach, problem_of, sketches, states, tree
from regard.core.arrays import Array
from regard.core.problem import Adjoint, Problem, matrix
from regard.core.scores import RADIAL
from regard.core.state import Partial
from regard.engines.costs import estimate
from regard.engines.tasks import compute, cores, persisted, tasks_of
from regard.pooling.folds import Fold
from regard.pooling.local import Local, like_w, pull_scores
from regard.pooling.runner import small_matrices

# ---- rows that can be learned from


def learnable(rows: Rows) -> Rows:
    """Examined rows without those of no weight, labelled by what leaves together: their own number or their group's.

    Importances are relative to their mean; ``repeats`` says that weights are repetitions, of which one leaves.
    """
    weighs = rows.weighted and not rows.repeats
    counted = sum(fact.counted for fact in rows.facts)
    unit = float(np.sum([fact.total for fact in rows.facts])) / counted if weighs else None
    task, starts = tasks_of("rows", _learnable), np.concatenate([[0], np.cumsum(rows.lengths)]).tolist()
    blocks = tuple(task((at,), block, unit, starts[at]) for at, block in enumerate(rows.blocks))
    return replace(rows, blocks=blocks, facts=(), labelled=True, repeats=rows.repeats and not rows.labelled)


def _learnable(block: Block, unit: float | None, start: int) -> Block:
    seen = np.arange(len(block.key)) if block.weight is None else np.flatnonzero(block.weight > 0)
    weight = None if block.weight is None else block.weight[seen]
    if weight is not None and unit is not None:
        weight = weight.astype(np.float64) / unit
    assert block.value is not None
    labels = start + seen if block.labels is None else block.labels[seen]
    return Block(block.key[seen].astype(np.float64), block.value[seen], weight, labels)


def on_cluster(rows: Rows) -> Rows:
    """The same with blocks that stay in the workers' memory, examined."""
    return examined(replace(rows, blocks=tuple(persisted(rows.blocks))))[0]


def divided(key: Array, power: Array) -> Array:
    """Keys by powers of two (d,)."""
    return np.ldexp(key, -power)


# ---- the criterion


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterObjective(Objective):
    """An ``Objective`` of rows in blocks: it has none itself, every block makes one where it lies (``of_block``)."""

    queries: Rows  # those evaluated, as ``learnable`` makes them
    keys: Rows
    deviation: Array  # (d,)  of the features

    in_memory: ClassVar[bool] = False

    @property
    def spread(self) -> Array:
        return self.deviation

    @property
    def size(self) -> float:
        return sum(fact.total for fact in self.keys.facts)

    def looking_at(self, rows: Array) -> ClusterObjective:
        """The same as a mean over some of the rows, which are put together in one block."""
        some = on_cluster(replace(self.queries, blocks=(self.queries.taken(rows),)))
        return replace(self, queries=some, rows=np.arange(len(rows)))

    def each_among(
        self,
        search: Callable[..., Any],
        subsamples: Sequence[tuple[Array, Array | None]],
        progress: Any = None,  # noqa: ARG002
    ) -> list[Any]:
        """Each of them in one task."""
        task, rowless = tasks_of("bag", _searched), self.rowless
        each = enumerate(subsamples)
        return compute([task((at,), rowless, self.queries.taken(rows), search, some) for at, (rows, some) in each])

    def answered(self, w: ArrayLike, ridge: float, rows: Array) -> tuple[Evaluation, Array]:
        """The objective as a mean over ``rows``, and lazy answers to all rows."""
        return self.looking_at(rows)(w, ridge), self._answers(self._judged(w, ridge, gradient=False)[-1])

    def seconds(self, w: ArrayLike) -> float:
        """What the planner expects one evaluation to take with all cores busy, without its gradient."""
        look = look_of(self, w)
        pairs = sketches(self.queries, self.keys, look, pairs_in_reach(self.queries, self.keys, look))
        return sum(estimate(sketch, self.engine) for sketch in pairs) / cores()

    def _at(self, w: ArrayLike, ridge: float, gradient: bool) -> Evaluation:
        look, near, judges = self._judged(w, ridge, gradient)
        pull, plus, share = tasks_of("pull", pulled), tasks_of("add", add), tasks_of("share", shared)
        shares = []
        for i, (block, found) in enumerate(zip(self.queries.blocks, judges, strict=True)):
            keys = np.flatnonzero(near[i]) if gradient else ()
            slopes = [pull((i, int(j)), look, block, self.keys.blocks[j], found) for j in keys]
            shares.append(share((i,), found, tree(slopes, plus, i) if slopes else None))
        whole: Evaluation = compute([tree(shares, tasks_of("sum", summed), 0)])[0]
        return whole._replace(answer=self._answers(judges))

    def _judged(self, w: ArrayLike, ridge: float, gradient: bool) -> tuple[Look, Array, list[Any]]:
        """How the blocks are pooled, which pairs of them matter, and a delayed Judged for each that is evaluated."""
        look, rowless = look_of(self, w), self.rowless
        near, total = pairs_in_reach(self.queries, self.keys, look), sum(fact.total for fact in self.queries.facts)
        found = states(self.queries, self.keys, look, near)
        judge, pairs = tasks_of("judge", judged), enumerate(zip(self.queries.blocks, found, strict=True))
        return look, near, [judge((i,), rowless, look, ridge, total, gradient, *pair) for i, pair in pairs]

    def _answers(self, judges: Sequence[Any]) -> Any:
        """Computed when somebody asks."""
        task = tasks_of("answer", _answer)
        parts = [task((i,), one) for i, one in enumerate(judges)]
        return as_array(parts, self.queries.lengths, (self.loss.columns.shape[1],), np.dtype(np.float64))

    @property
    def rowless(self) -> Objective:
        """What the workers are told."""
        return Objective(**{each.name: getattr(self, each.name) for each in fields(Objective)})


def objective_of(
    rows: Rows,
    place: Callable[[Array], Array],
    *,
    kernel: str,
    degree: int,
    classes: int = 0,
    engine: str = "auto",
    loss: str = "squared",
) -> ClusterObjective:
    """The leave-one-out criterion of ``learnable`` rows, whose keys are where ``place`` puts them, column by column.

    Values are numbers, or numbers of ``classes``. *Cost*: three passes over the blocks; they stay on the cluster.
    """
    rows = on_cluster(replace(rows.mapped("place", _placed, place, classes), columns=classes or rows.columns))
    low, high = rows.ends("key")
    varies, width = high > low, rows.width
    span = np.where(varies, high - low, 1.0)
    whole = reduce(Summary.with_, compute(rows.each("summary", _summary, low, span)))
    deviation = np.sqrt(whole.squares / whole.total)
    judge: SquaredError | LogLoss
    if classes:
        judge = LogLoss(np.zeros((0, classes)), whole.mean[width:], whole.total)
    else:
        least, most = rows.ends("value")
        moves = least < most
        centre, scale = np.where(moves, whole.mean[width:], least), np.where(moves, deviation[width:], 1.0)
        judge = SquaredError(np.zeros((0, len(scale))), centre, scale)
        if loss == "absolute":
            (corner,) = compute([tasks_of("corner", _corner)((0,), judge, list(rows.blocks))])
            judge = AbsoluteError(judge.columns, centre, scale, corner)
    none = np.zeros(0)
    return ClusterObjective(
        key=np.zeros((0, width)),
        loss=judge,
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


class Summary(NamedTuple):
    """What rows count together, mean and summed squares of columns (C,); two of them make one."""

    total: float
    mean: Array
    squares: Array

    def with_(self, other: Summary) -> Summary:
        total = self.total + other.total
        if not total:
            return self
        gap, share = other.mean - self.mean, other.total / total
        squares = self.squares + other.squares + gap**2 * self.total * share
        return Summary(total, self.mean + gap * share, squares)


def _placed(block: Block, place: Callable[[Array], Array], classes: int) -> Block:
    """Keys in their place, and values as columns (n, P), one per class."""
    assert block.value is not None
    columns = np.eye(classes)[block.value] if classes else matrix("y", block.value).astype(np.float64)
    return block._replace(key=place(block.key), value=columns)


def _summary(block: Block, low: Array, span: Array) -> Summary:
    """Of the features, between 0 and 1, and of the values."""
    assert block.value is not None
    counts, table = counts_of(block), np.concatenate([(block.key - low) / span, block.value], axis=1)
    if not len(table):
        return Summary(0.0, np.zeros(table.shape[1]), np.zeros(table.shape[1]))
    total = float(counts.sum())
    mean = counts / total @ table
    return Summary(total, mean, counts @ (table - mean) ** 2)


def _corner(loss: SquaredError, blocks: Sequence[Block]) -> Array:
    """Where absolute errors are rounded off, from all values on one worker."""
    values: Any = [block.value for block in blocks]
    return corner_of(loss.from_units_of_y(np.concatenate(values)))


# ---- on the workers


def counts_of(block: Block) -> Array:
    """How much each row counts, (n,)."""
    return np.ones(len(block.key)) if block.weight is None else block.weight.astype(np.float64)


def look_of(criterion: Objective, w: ArrayLike) -> Look:
    """How blocks are pooled for the criterion at w."""
    score, loss = RADIAL[criterion.kernel](w), criterion.loss
    look = Look(score, criterion.engine, criterion.tol, degree=2 * criterion.degree, nearest=True)
    return look if isinstance(loss, LogLoss) else replace(look, centre=loss.centre, scale=loss.scale)


def of_block(criterion: Objective, block: Block) -> Objective:
    """The criterion of the rows of one block, in memory."""
    assert block.value is not None
    assert block.labels is not None
    counts, columns = counts_of(block), criterion.loss.from_units_of_y(block.value)
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


class Judged(NamedTuple):
    """A block's share of an evaluation, its gradient as far as weights held fixed give it, and what is missing."""

    found: Evaluation
    partial: Partial | None = None
    settled: Array | None = None  # (n,)
    adjoint: Adjoint | None = None


def judged(
    criterion: Objective, look: Look, ridge: float, total: float, gradient: bool, block: Block, state: Fold
) -> Judged:
    """Left-out answers of a block, their share of the loss, and its adjoint; all blocks count ``total`` together."""
    one, w = of_block(criterion, block), look.score.w  # type: ignore[attr-defined]
    if not len(one.rows):
        return Judged(Evaluation(0.0, np.zeros(w.shape), 0.0, one.loss.columns, 0))
    own = None if one.repeated is None else one.own(one.repeated)
    partial, fit, answer, settled, empty = fitted(look, state, ridge, one.key.shape[1], own)
    loss, share = one.loss(answer, one.rows, one.counts), float(one.counts.sum()) / total
    found = Evaluation(share * loss.value, None, 0.0, one.loss.in_units_of_y(answer), int(empty.sum()))
    if not gradient:
        return Judged(found)
    # Of the problem only widths are asked for.
    problem = Problem(one.key[:0], one.key[:0], one.loss.columns[:0], look.score)
    back = Local(problem, ridge, look.engine, partial, fit, settled).adjoint(share * loss.gradient)
    return Judged(found._replace(w=like_w(back.w, w), log_ridge=back.log_ridge), partial, settled, back.adjoint)


def pulled(look: Look, query: Block, key: Block, judged: Judged) -> Array:
    """What one block of keys adds to the gradient of w."""
    _, partial, settled, adjoint = judged
    assert partial is not None
    assert settled is not None
    assert adjoint is not None
    problem, engine = problem_of(look, query, key)
    # Weights of a block are relative to a power of two of their own.
    partial = partial._replace(peak=partial.peak - problem.weight_shift)
    return np.asarray(pull_scores(problem, engine, partial, settled, adjoint, frozenset({"w"})).w)


def shared(judged: Judged, slope: Array | None) -> Evaluation:
    """A block's whole share of an evaluation, without the answers: small enough to be sent anywhere."""
    found = judged.found._replace(answer=np.zeros(0))
    return found if slope is None else found._replace(w=found.w + slope)


def summed(a: Evaluation, b: Evaluation) -> Evaluation:
    """Two shares as one."""
    w = None if a.w is None or b.w is None else a.w + b.w
    return Evaluation(a.value + b.value, w, a.log_ridge + b.log_ridge, a.answer, a.empty + b.empty)


def _answer(judged: Judged) -> Array:
    return judged.found.answer


def _searched(criterion: Objective, block: Block, search: Callable[..., Any], some: Array | None) -> Any:
    """The search of the rows of a block as if there were no others, on the worker that does it; no answers leave it."""
    with small_matrices():
        found = search(of_block(criterion, block).among(np.arange(len(block.key))), some)
    return found._replace(answer=found.answer[:0])


# ---- heads


def learn_heads_on_cluster(
    rows: Rows, *, degree: int, classes: int, seed: int = 0, engine: str = "auto", progress: Progress | None = None
) -> Heads:
    """Learn heads from examined rows; answers and score are of the rows evaluated last.

    *Cost*: that of ``learn_heads`` for 20,000 rows on one worker, and for each head some 15 evaluations of 8,000 rows
    against all.
    """
    grouped, rows = rows.labelled, on_cluster(learnable(rows))
    n, rng = rows.size, np.random.default_rng(seed)
    options = {"degree": degree, "classes": classes or None, "engine": engine, "seed": seed}
    (first,) = compute([tasks_of("bag", _heads)((0,), rows.taken(batch(n, rng, BAG)), grouped, options)])
    last = batch(n, rng, MOST)
    trail = HeadTrail(progress, planned=float(len(first.heads) * LAST_STEPS * len(last)))
    heads, answers = [], []
    for head in first.heads:
        place = partial(first.scaling, t=head.share)
        objective = objective_of(rows, place, kernel="gaussian", degree=degree, classes=classes, engine=engine)
        some = replace(objective, tol=ROUGH).looking_at(last)
        heads.append(_moved(some, head, n / min(BAG, n), trail))
        answer, block = compute([some(heads[-1].w, heads[-1].ridge).answer, some.queries.blocks[0]])
        answers.append(some.loss.from_units_of_y(answer))
    path = [*first.search.path, *trail.path]
    return mixed(of_block(some.rowless, block), heads, answers, first.scaling, path, first.search.interrupted)


def _moved(some: ClusterObjective, head: LearnedHead, growth: float, trail: HeadTrail) -> LearnedHead:
    """A head of a subsample at its place among ``growth`` times as many rows."""
    w = sharpened(head.w, growth)
    shape = Shape.of("full" if w.ndim == 2 else "feature", some.spread)
    shape = shape.without(np.asarray(~w.reshape(len(w), -1).any(axis=1)))
    if not shape.size:
        return head._replace(w=w)
    with small_matrices():
        end = walk_head(some, shape, shape.parameters(w), max(head.ridge, 1e-6), LAST_STEPS, trail, ENOUGH)
    return head._replace(w=end.w, ridge=end.ridge if some.degree else head.ridge)


def _heads(block: Block, grouped: bool, options: dict[str, Any]) -> Heads:
    """The heads of a subsample, on the worker that learns them; its answers stay there."""
    assert block.value is not None
    groups = block.labels if grouped else None
    with small_matrices():
        found = learn_heads(block.key, block.value, sample_weight=block.weight, groups=groups, **options)
    return found._replace(answer=found.answer[:0])

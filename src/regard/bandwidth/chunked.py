"""The leave-one-out criterion of rows on a cluster, with its gradient, by map and reduce over pairs of blocks.

    look    every pair of blocks that matters: the state of the queries over the keys, themselves left out
    merge   states of one block of queries, in a tree
    judge   local fits, their loss, and the adjoint of it
    pull    every pair again, for the gradient of w
    add     all blocks' shares of the value and the gradient

Only w goes out and only the value and the gradient come back; answers stay where their rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.bandwidth.criterion import Evaluation
from regard.bandwidth.losses import LogLoss, SquaredError
from regard.bandwidth.objective import staying
from regard.cluster.pooling import as_array
from regard.cluster.rows import Block, Facts, Rows, facts_of, picked
from regard.cluster.states import Look, joined, pairs_in_reach, sketch_of, tree
from regard.core.lines import local_fit
from regard.core.problem import Adjoint, Problem, build
from regard.core.scores import RADIAL, Radial
from regard.core.state import Partial
from regard.engines.costs import estimate
from regard.engines.tasks import compute, engine_here, persisted, tasks_of
from regard.pooling.folds import Fold, fold, nothing
from regard.pooling.local import Local, like_w, pull_scores

Array = NDArray[Any]


class Ask(NamedTuple):
    """What the workers are told of one evaluation."""

    score: Radial
    ridge: float
    degree: int
    loss: SquaredError | LogLoss  # without rows: each block has its own columns
    total: float  # what the rows looked at count together
    engine: str
    tol: float
    gradient: bool


class Part(NamedTuple):
    """A block of rows, ready to be learned from; rows without weight are gone."""

    key: Array  # (n, d) float64
    columns: Array  # (n, P) in the units of the loss
    weight: Array | None
    counts: Array  # (n,)
    labels: Array  # (n,)  row numbers, or numbers of groups
    repeats: bool  # weights are repetitions, and one of them leaves

    def take(self, rows: Array) -> Part:
        weight = None if self.weight is None else self.weight[rows]
        return Part(self.key[rows], self.columns[rows], weight, self.counts[rows], self.labels[rows], self.repeats)


class Judged(NamedTuple):
    """A block's share of the value, and what its gradient still needs."""

    value: float
    answer: Array  # (n, P) in the units of y
    empty: int
    w: Array | None  # (d, r)  what reaches w with the weights held fixed
    log_ridge: float
    partial: Partial | None
    settled: Array | None  # (n,)
    adjoint: Adjoint | None


class Share(NamedTuple):
    """Some blocks' part of an evaluation."""

    value: float
    empty: int
    w: Array | None
    log_ridge: float


@dataclass(frozen=True, eq=False)
class ChunkedObjective:
    """A ``Criterion`` of rows on a cluster. ``parts`` are delayed ``Part``s, best kept there by ``persist``."""

    parts: tuple[Any, ...]
    facts: tuple[Facts, ...]  # of the parts
    loss: SquaredError | LogLoss
    kernel: str
    degree: int
    engine: str
    looked: tuple[Any, ...]  # delayed Parts of the rows looked at
    seen: tuple[Facts, ...]  # their facts
    total: float  # what they count together
    spread: Array
    size: float
    tol: float = 0.0
    criterion: str = "loo"

    @property
    def rows(self) -> range:
        """Numbers of the rows looked at, counted without those of no weight."""
        return range(sum(fact.rows for fact in self.seen))

    @property
    def width(self) -> int:
        return len(self.spread)

    def in_units_of_y(self, value: float) -> float:
        return value * self.loss.unit

    def looking_at(self, rows: Array) -> ChunkedObjective:
        """The same as a mean over some of the rows, which are put together in one block."""
        part = persisted([self.taken(rows)])[0]
        facts, total = compute([tasks_of("facts", _facts)((0,), part), tasks_of("count", _count)((0,), part)])
        return replace(self, looked=(part,), seen=(facts,), total=total)

    def taken(self, rows: Array) -> Any:
        """A delayed Part of some of the rows looked at, by their numbers in order."""
        cut = tasks_of("take", _taken)
        parts = [cut((at,), self.looked[at], here) for at, here in picked([fact.rows for fact in self.seen], rows)]
        return tasks_of("gather", _together)((0,), parts)

    def __call__(self, w: ArrayLike, ridge: float = 0.0, *, gradient: bool = False) -> Evaluation:
        """The criterion at w (scalar, (d,) or (d, r)) and λ, with its gradient if asked for."""
        score = RADIAL[self.kernel](w)
        near = self._near(score)
        ask, judges = self._judges(score, ridge, near, gradient)
        pull, add, total = tasks_of("pull", pulled), tasks_of("add", added), tasks_of("share", share)
        shares = []
        for i, (part, found) in enumerate(zip(self.looked, judges, strict=True)):
            keys = np.flatnonzero(near[i]) if gradient else ()
            slopes = [pull((i, int(j)), ask, part, self.parts[j], found) for j in keys]
            shares.append(total((i,), ask, found, tree(slopes, add, i) if slopes else None))
        (whole,) = compute([tree(shares, tasks_of("sum", summed), 0)])
        return Evaluation(whole.value, whole.w, whole.log_ridge, self._answers(judges), whole.empty)

    def answers(self, w: ArrayLike, ridge: float = 0.0) -> Any:
        """Left-out answers (Q, P) in the units of y, lazy."""
        score = RADIAL[self.kernel](w)
        return self._answers(self._judges(score, ridge, self._near(score), gradient=False)[1])

    def seconds(self, w: ArrayLike) -> float:
        """What the planner expects one look to cost on one core, without its gradient."""
        score = RADIAL[self.kernel](w)
        near, columns = self._near(score), self.loss.columns.shape[1]
        return sum(
            estimate(sketch_of(self.seen[i], self.facts[j], score, columns, 2 * self.degree, self.tol), self.engine)
            for i, j in zip(*np.nonzero(near), strict=True)
        )

    def _judges(self, score: Radial, ridge: float, near: Array, gradient: bool) -> tuple[Ask, list[Any]]:
        """One delayed Judged for each block looked at."""
        ask = Ask(score, ridge, self.degree, self.loss, self.total, self.engine, self.tol, gradient)
        looks, merge, judge = tasks_of("look", look), tasks_of("merge", joined), tasks_of("judge", judged)
        found = []
        for i, part in enumerate(self.looked):
            states = [looks((i, int(j)), ask, part, self.parts[j]) for j in np.flatnonzero(near[i])]
            found.append(judge((i,), ask, part, tree(states, merge, i) if states else None))
        return ask, found

    def _answers(self, judges: Sequence[Any]) -> Any:
        """Computed when somebody asks."""
        answer = tasks_of("answer", _answer)
        parts = [answer((i,), one) for i, one in enumerate(judges)]
        return as_array(parts, [fact.rows for fact in self.seen], (self.loss.columns.shape[1],), np.dtype(np.float64))

    def _near(self, score: Radial) -> Array:
        """Pairs of blocks that matter; every row is left out of one of them."""
        options = {"width": self.width, "columns": 1, "single": True, "dtype": np.dtype(np.float64), "labelled": True}
        queries, keys = (Rows("X", (), facts=facts, **options) for facts in (self.seen, self.facts))  # type: ignore[arg-type]
        return pairs_in_reach(queries, keys, Look(score, nearest=True, degree=2 * self.degree))


def look(ask: Ask, query: Part, key: Part) -> Fold:
    """The state of a block of queries over a block of keys, each query's own row left out."""
    problem = replace(_problem(ask, query, key), degree=2 * ask.degree)
    return fold(problem, engine_here(ask.engine, len(problem.query) * len(problem.key)), nearest=True)


def judged(ask: Ask, query: Part, state: Fold | None) -> Judged:
    """Left-out answers of a block, their share of the loss, and its adjoint."""
    columns, width = query.columns.shape[1], query.key.shape[1]
    if not len(query.key):
        nothing_moves = np.zeros((width, ask.score.w.shape[-1] if ask.score.w.ndim == 2 else width))
        return Judged(0.0, np.zeros((0, columns)), 0, nothing_moves, 0.0, None, None, None)
    state = state or nothing(len(query.key), columns, width, degree=2 * ask.degree)
    partial, limit = state.moments(_own(ask, query))
    fit = local_fit(partial, columns, width, ask.degree, ask.score.w, ask.ridge)
    attended = partial.mass > 0.0
    nearest = partial.moments[:, :columns] / np.where(attended, partial.mass, 1.0)[:, None]
    answer = np.where(limit[:, None], nearest, fit.output)
    counts = query.counts
    part = float(counts.sum()) / ask.total
    loss = replace(ask.loss, columns=query.columns)
    found, told = loss(answer, np.arange(len(counts)), counts), loss.in_units_of_y(answer)
    # A kernel that ends nowhere reaches somebody, however far.
    empty = int((limit | ~attended).sum()) if ask.score.kernel.compact else 0
    if not ask.gradient:
        return Judged(part * found.value, told, empty, None, 0.0, None, None, None)
    # Of the problem only widths are asked for.
    problem = Problem(query.key[:0], query.key[:0], query.columns[:0], ask.score)
    local = Local(problem, ask.ridge, ask.engine, partial, fit, limit | ~attended)
    back = local.adjoint(part * found.gradient)
    return Judged(part * found.value, told, empty, back.w, back.log_ridge, partial, local.settled, back.adjoint)


def pulled(ask: Ask, query: Part, key: Part, found: Judged) -> Array:
    """What one block of keys adds to the gradient of w."""
    partial, settled, adjoint = found[-3:]
    assert partial is not None
    assert settled is not None
    assert adjoint is not None
    problem = replace(_problem(ask, query, key), degree=2 * ask.degree)
    # Weights of a block are relative to a power of two of their own.
    partial = partial._replace(peak=partial.peak - problem.weight_shift)
    engine = engine_here(ask.engine, len(problem.query) * len(problem.key))
    return np.asarray(pull_scores(problem, engine, partial, settled, adjoint, frozenset({"w"})).w)


def added(a: Array, b: Array) -> Array:
    return np.asarray(a + b)


def share(ask: Ask, found: Judged, slope: Array | None) -> Share:
    """A block's part of the evaluation, small enough to be sent anywhere; its gradient is shaped as w."""
    if not ask.gradient or found.w is None:
        return Share(found.value, found.empty, None, 0.0)
    grad = like_w(found.w, ask.score.w)
    return Share(found.value, found.empty, grad if slope is None else grad + slope, found.log_ridge)


def summed(a: Share, b: Share) -> Share:
    w = None if a.w is None or b.w is None else np.asarray(a.w + b.w)
    return Share(a.value + b.value, a.empty + b.empty, w, a.log_ridge + b.log_ridge)


def _problem(ask: Ask, query: Part, key: Part) -> Problem:
    exclude = (query.labels, key.labels)
    return build(query.key, key.key, key.columns, ask.score, sample_weight=key.weight, exclude=exclude, tol=ask.tol)


def _own(ask: Ask, query: Part) -> Partial | None:
    """The copies of a row that stay when one leaves."""
    if not query.repeats or query.weight is None:
        return None
    return staying(query.weight.astype(np.float64) - 1.0, query.columns, query.key.shape[1], ask.degree)


def _answer(found: Judged) -> Array:
    return found.answer


def _facts(part: Part) -> Facts:
    return facts_of(Block(part.key, part.columns, part.weight, part.labels))


def _count(part: Part) -> float:
    return float(part.counts.sum())


def _taken(part: Part, rows: Array) -> Part:
    return part.take(rows)


def _together(parts: Sequence[Part]) -> Part:
    """Several parts as one."""
    columns = list(zip(*parts, strict=True))[:-1]
    joint: list[Any] = [None if each[0] is None else np.concatenate(each) for each in columns]
    return Part._make([*joint, parts[0].repeats])

"""Every row's own bandwidth: as far as its k-th neighbour, with k learned by leave-one-out.

A fixed bandwidth is too narrow where rows are sparse and too wide where they are dense. Here

    score(q, x_i) = log K(‖w∘(q − x_i)‖ / h(q)),  h(q) = distance under w from q to its k-th nearest row, over ``END``

rounded to eight widths per doubling. Kernels that end do so at the k-th neighbour; a Gaussian gives it a hundredth of
the weight. Queries of one width are an ordinary problem with w/h for w, so every engine, kernel and gradient serves as
it is; between the rounding's borders the answer is as smooth as with a fixed bandwidth.

Where k rows share the query's place, the nearest that does not stands for the k-th.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from regard.bandwidth.objective import Evaluation, Objective
from regard.bandwidth.search import Progress, learn
from regard.bandwidth.shapes import spreads
from regard.core.arrays import Array

# Widths per doubling.
STEPS = 8
# Bandwidths to the k-th neighbour, 1 if not listed.
END = {"gaussian": 3.0, "laplace": 4.6}
# Factor between the k of the first scan, and rows looked at by the search where there are more.
LADDER = 1.3
MOST_ROWS = 4000
# Neighbours held at once while looking for the k-th outside a group.
HELD = 1 << 22


class NeighbourSearch(NamedTuple):
    """What was found, and what happened on the way."""

    neighbours: int  # k
    w: Array  # (), (d,) or (d, r) of a row of middling width, in the units of X
    value: float  # the criterion, in the units of y
    answer: Array  # (n, P)  every row as the others answer it
    evaluations: int
    path: Array  # (evaluations,)  the criterion at every evaluation
    tried: Array  # (evaluations,)  the k it was at
    edge: bool  # k is the smallest or the largest there is
    empty: int  # rows with nobody in reach
    interrupted: bool

    def __str__(self) -> str:
        notes = [f"criterion {self.value:.6g} at k = {self.neighbours} after {self.evaluations} evaluations"]
        if self.edge:
            notes.append("k is as small or as large as it can be")
        if self.empty:
            notes.append(f"{self.empty} rows had nobody in reach and took the nearest other row")
        if self.interrupted:
            notes.append("interrupted: the best so far")
        return "; ".join(notes)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Keys under w, and how far a query has to look for its k-th neighbour."""

    points: Array  # (n, c) keys under w, repetitions repeated
    labels: Array | None  # (n,) where equal labels do not see each other
    tree: Any
    end: float

    @classmethod
    def of(
        cls, key: Array, w: Array, kernel: str, counts: Array | None = None, labels: Array | None = None
    ) -> Neighbourhood:
        """``counts`` (n,) integers are repetitions."""
        points = _under(w, key)
        if counts is not None:
            points = np.repeat(points, counts, axis=0)
        return cls(points, labels, cKDTree(points), END.get(kernel, 1.0))

    def widths(self, query: Array, w: Array, k: int, own: Array | None = None) -> Array:
        """Whole numbers (Q,): a query's bandwidth is 2^(width/STEPS) under w.

        ``own`` (Q,) are labels of queries that do not see keys with the same; without labels of the keys, a query is
        one of the keys and does not see itself.
        """
        at = _under(w, query)
        reach = self._kth(at, k, own)
        far = k
        while (reach == 0.0).any() and far < len(self.points):
            far = min(2 * far, len(self.points))
            same = reach == 0.0
            reach[same] = self._kth(at[same], far, None if own is None else own[same])
        reach[reach == 0.0] = 1.0  # everybody is here: any width will do
        return np.asarray(np.rint(STEPS * np.log2(reach / self.end)).astype(np.int64))

    def _kth(self, at: Array, k: int, own: Array | None) -> Array:
        count = len(self.points)
        if own is None or self.labels is None:
            return np.asarray(self.tree.query(at, k=[min(k + (own is not None), count)])[0][:, 0])
        largest = int(np.unique(self.labels, return_counts=True)[1].max())
        wanted = min(k + largest, count)
        reach = np.empty(len(at))
        for rows in np.array_split(np.arange(len(at)), max(1, len(at) * wanted // HELD)):
            distance, near = self.tree.query(at[rows], k=np.arange(1, wanted + 1))
            others = self.labels[near] != own[rows, None]
            # The k-th that counts, or the last one where there are fewer.
            number = np.minimum(k, others.sum(axis=1))
            reach[rows] = distance[np.arange(len(rows)), (others.cumsum(axis=1) >= number[:, None]).argmax(axis=1)]
        return reach


def groups_of(widths: Array) -> Iterator[tuple[float, Array]]:
    """(bandwidth under w, numbers of the queries) of every width that occurs."""
    order = np.argsort(widths, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(widths[order])) + 1):
        if rows.size:
            yield 2.0 ** (widths[rows[0]] / STEPS), rows


def neighbourhood(objective: Objective, w: Array) -> Neighbourhood:
    """Of the rows of an objective."""
    # Every row its own label: then the k-th other is the (k + 1)-th of all, copies included.
    alone = len(np.unique(objective.labels)) == len(objective.labels)
    counts = None if objective.repeated is None else objective.counts.astype(np.int64)
    return Neighbourhood.of(objective.key, w, objective.kernel, counts, None if alone else objective.labels)


def evaluated(
    objective: Objective, hood: Neighbourhood, w: Array, ridge: float, k: int, rows: Array
) -> tuple[Evaluation, Array]:
    """The objective over ``rows`` where each reaches as far as its k-th neighbour, and the rows' widths."""
    counts, widths = objective.counts, hood.widths(objective.key[rows], w, k, objective.labels[rows])
    answer = np.empty((len(rows), objective.loss.columns.shape[1]))
    value, empty = 0.0, 0
    for reach, those in groups_of(widths):
        part = objective.looking_at(rows[those])(w / reach, ridge)
        answer[those] = part.answer
        value += part.value * float(counts[rows[those]].sum())
        empty += part.empty
    return Evaluation(value / float(counts[rows].sum()), None, 0.0, answer, empty), widths


def learn_neighbours(
    objective: Objective,
    metric: str = "feature",
    ridge: float = 0.0,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> NeighbourSearch:
    """The k of least leave-one-out error. With several features their scales are those of a fixed bandwidth.

    *Cost*: some 40 passes of O(min(n, 4,000)·n·d) and one of O(n²·d); with several features a search before.
    """
    w = _scales(objective, metric, ridge, progress)
    hood = neighbourhood(objective, w)
    n = len(objective.rows)
    rows = np.arange(n) if n <= MOST_ROWS else np.sort(np.random.default_rng(seed).choice(n, MOST_ROWS, replace=False))
    most = max(1, len(hood.points) - 1)
    found: dict[int, float] = {}
    interrupted = False

    def value(k: int) -> float:
        if k not in found:
            found[k] = evaluated(objective, hood, w, ridge, k, rows)[0].value
            if progress is not None:
                progress(len(found), objective.in_units_of_y(found[k]))
        return found[k]

    try:
        steps = np.arange(int(np.log(most) / np.log(LADDER)) + 1)
        ladder = sorted({*np.rint(LADDER**steps).astype(int).clip(1, most).tolist(), most})
        _refine(value, ladder, min(range(len(ladder)), key=lambda i: value(ladder[i])))
    except KeyboardInterrupt:
        if not found:
            raise
        interrupted = True
    k = min(found, key=lambda k: (found[k], k))
    final, widths = evaluated(objective, hood, w, ridge, k, np.arange(n))
    return NeighbourSearch(
        neighbours=k,
        w=w / 2.0 ** (int(np.median(widths)) / STEPS),
        value=objective.in_units_of_y(final.value),
        answer=final.answer,
        evaluations=len(found),
        path=np.array([objective.in_units_of_y(value) for value in found.values()]),
        tried=np.array(list(found)),
        edge=k in (1, most) and most > 1,
        empty=final.empty,
        interrupted=interrupted,
    )


def _scales(objective: Objective, metric: str, ridge: float, progress: Progress | None) -> Array:
    """The w of a fixed bandwidth where there are several features, else one over the feature's spread."""
    spread = spreads(objective.key, objective.counts)
    if (spread > 0.0).sum() > 1:
        return learn(objective, metric, ridge=ridge, progress=progress).w
    w = np.where(spread > 0.0, 1.0 / np.where(spread > 0.0, spread, 1.0), 0.0)
    return np.asarray(w.max()) if metric == "scalar" else w


def _refine(value: Callable[[int], float], ladder: list[int], at: int) -> None:
    """Between the neighbours of the best k, ``ladder[at]``, by halves of the wider side."""
    low, best, high = ladder[max(at - 1, 0)], ladder[at], ladder[min(at + 1, len(ladder) - 1)]
    while max(best - low, high - best) > 1:
        k = (low + best) // 2 if best - low >= high - best else (best + high + 1) // 2
        if value(k) < value(best):
            low, best, high = (low, k, best) if k < best else (best, k, high)
        else:
            low, high = (k, high) if k < best else (low, k)


def _under(w: Array, rows: Array) -> Array:
    """Rows in units of their bandwidth."""
    rows = rows.astype(np.float64)
    return np.asarray(rows @ w if np.ndim(w) == 2 else rows * w)

"""A bandwidth for every query: the distance to its k-th neighbour, with k learned by leave-one-out.

A fixed bandwidth is too narrow where rows are sparse and too wide where they are dense. Here

    score(q, x_i) = log K(‖w∘(q − x_i)‖ / h(q)),  h(q) = distance under w from q to its k-th nearest row, divided by
                                                         ``KTH_NEIGHBOUR_BANDWIDTHS`` of the kernel

rounded to eight widths per doubling. Compact kernels end at the k-th neighbour; a Gaussian gives it a hundredth of the
weight. Queries of one width are an ordinary problem with w/h in place of w, so every engine, kernel and gradient works
unchanged; between two roundings the answer is as smooth as with a fixed bandwidth.

If k rows equal the query, the nearest row that does not takes the place of the k-th.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from regard.bandwidth.objective import Evaluation, Objective
from regard.bandwidth.parametrization import feature_scales
from regard.bandwidth.search import Progress, learn
from regard.core.arrays import Array

# Number of widths per doubling of the bandwidth.
WIDTHS_PER_DOUBLING = 8
# Distance to the k-th neighbour in bandwidths; 1 for kernels not listed.
KTH_NEIGHBOUR_BANDWIDTHS = {"gaussian": 3.0, "laplace": 4.6}
# Ratio between two k of the first scan.
NEIGHBOUR_RATIO = 1.3
# Rows evaluated by the search if there are more.
MAX_EVALUATED_ROWS = 4000
# Neighbours held in memory while searching for the k-th outside a group.
NEIGHBOURS_IN_MEMORY = 1 << 22


class NeighbourSearch(NamedTuple):
    """The result of a search for k, and its history."""

    neighbours: int  # k
    w: Array  # (), (d,) or (d, r) of a row of median width, in the units of X
    value: float  # the criterion, in the units of y
    answer: Array  # (n, P)  leave-one-out predictions
    evaluations: int
    path: Array  # (evaluations,)  the criterion at every evaluation
    tried: Array  # (evaluations,)  the k of every evaluation
    edge: bool  # k is the smallest or the largest possible
    empty: int  # rows without another row in reach
    interrupted: bool

    def __str__(self) -> str:
        notes = [f"criterion {self.value:.6g} at k = {self.neighbours} after {self.evaluations} evaluations"]
        if self.edge:
            notes.append("k is the smallest or the largest possible")
        if self.empty:
            notes.append(f"{self.empty} rows had no other row in reach and used the nearest one")
        if self.interrupted:
            notes.append("interrupted: this is the best so far")
        return "; ".join(notes)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Keys scaled by w, and distances from queries to their k-th neighbour."""

    points: Array  # (n, c) keys scaled by w, with repetitions
    labels: Array | None  # (n,) rows with equal labels are not neighbours
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
        return cls(points, labels, cKDTree(points), KTH_NEIGHBOUR_BANDWIDTHS.get(kernel, 1.0))

    def widths(self, query: Array, w: Array, k: int, own: Array | None = None) -> Array:
        """Integers (Q,): the bandwidth of a query is 2^(width/WIDTHS_PER_DOUBLING) under w.

        ``own`` (Q,) are labels of the queries: keys with the same label are no neighbours. If the keys have no labels,
        each query is one of the keys and not its own neighbour.
        """
        at = _under(w, query)
        reach = self._kth(at, k, own)
        far = k
        while (reach == 0.0).any() and far < len(self.points):
            far = min(2 * far, len(self.points))
            same = reach == 0.0
            reach[same] = self._kth(at[same], far, None if own is None else own[same])
        reach[reach == 0.0] = 1.0  # all keys equal the query: any width gives the same answer
        return np.asarray(np.rint(WIDTHS_PER_DOUBLING * np.log2(reach / self.end)).astype(np.int64))

    def _kth(self, at: Array, k: int, own: Array | None) -> Array:
        count = len(self.points)
        if own is None or self.labels is None:
            return np.asarray(self.tree.query(at, k=[min(k + (own is not None), count)])[0][:, 0])
        largest = int(np.unique(self.labels, return_counts=True)[1].max())
        wanted = min(k + largest, count)
        reach = np.empty(len(at))
        for rows in np.array_split(np.arange(len(at)), max(1, len(at) * wanted // NEIGHBOURS_IN_MEMORY)):
            distance, near = self.tree.query(at[rows], k=np.arange(1, wanted + 1))
            others = self.labels[near] != own[rows, None]
            # The k-th with another label, or the last one if there are fewer.
            number = np.minimum(k, others.sum(axis=1))
            reach[rows] = distance[np.arange(len(rows)), (others.cumsum(axis=1) >= number[:, None]).argmax(axis=1)]
        return reach


def by_width(widths: Array) -> Iterator[tuple[float, Array]]:
    """Every bandwidth under w that occurs, with the indices of its queries."""
    order = np.argsort(widths, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(widths[order])) + 1):
        if rows.size:
            yield 2.0 ** (widths[rows[0]] / WIDTHS_PER_DOUBLING), rows


def neighbourhood_of(objective: Objective, w: Array) -> Neighbourhood:
    """The neighbourhood of the rows of an objective."""
    # If every row has its own label, the k-th other row is the (k + 1)-th of all, copies included.
    alone = len(np.unique(objective.labels)) == len(objective.labels)
    counts = None if objective.repeated is None else objective.counts.astype(np.int64)
    return Neighbourhood.of(objective.key, w, objective.kernel, counts, None if alone else objective.labels)


def evaluate_adaptive(
    objective: Objective, hood: Neighbourhood, w: Array, ridge: float, k: int, rows: Array
) -> tuple[Evaluation, Array]:
    """The objective over ``rows`` with the k-th neighbour as bandwidth, and the widths of the rows."""
    counts, widths = objective.counts, hood.widths(objective.key[rows], w, k, objective.labels[rows])
    answer = np.empty((len(rows), objective.loss.columns.shape[1]))
    value, empty = 0.0, 0
    for reach, those in by_width(widths):
        part = objective.evaluated_at(rows[those])(w / reach, ridge)
        answer[those] = part.answer
        value += part.value * float(counts[rows[those]].sum())
        empty += part.empty
    return Evaluation(value / float(counts[rows].sum()), None, 0.0, answer, empty), widths


def learn_neighbours(
    objective: Objective,
    metric: str = "feature",
    ridge: float = 0.0,
    *,
    neighbours: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> NeighbourSearch:
    """The k with the smallest leave-one-out error; several features have the scales of a fixed bandwidth.

    ``neighbours``: k itself, or a fraction of the rows, in (0, 1); None learns it.

    *Cost*: some 40 passes of O(min(n, 4,000)·n·d) and one of O(n²·d), that one only if k is given; with several
    features a search before.
    """
    w = _scales(objective, metric, ridge, progress)
    hood = neighbourhood_of(objective, w)
    n = len(objective.rows)
    rows = (
        np.arange(n)
        if n <= MAX_EVALUATED_ROWS
        else np.sort(np.random.default_rng(seed).choice(n, MAX_EVALUATED_ROWS, replace=False))
    )
    most = max(1, len(hood.points) - 1)
    found: dict[int, float] = {}
    interrupted = False

    def value(k: int) -> float:
        if k not in found:
            found[k] = evaluate_adaptive(objective, hood, w, ridge, k, rows)[0].value
            if progress is not None:
                progress(len(found), objective.in_units_of_y(found[k]))
        return found[k]

    try:
        if neighbours is None:
            steps = np.arange(int(np.log(most) / np.log(NEIGHBOUR_RATIO)) + 1)
            ladder = sorted({*np.rint(NEIGHBOUR_RATIO**steps).astype(int).clip(1, most).tolist(), most})
            _refine(value, ladder, min(range(len(ladder)), key=lambda i: value(ladder[i])))
        else:
            value(_neighbour_count(neighbours, len(hood.points)))
    except KeyboardInterrupt:
        if not found:
            raise
        interrupted = True
    k = min(found, key=lambda k: (found[k], k))
    final, widths = evaluate_adaptive(objective, hood, w, ridge, k, np.arange(n))
    return NeighbourSearch(
        neighbours=k,
        w=w / 2.0 ** (int(np.median(widths)) / WIDTHS_PER_DOUBLING),
        value=objective.in_units_of_y(final.value),
        answer=final.answer,
        evaluations=len(found),
        path=np.array([objective.in_units_of_y(value) for value in found.values()]),
        tried=np.array(list(found)),
        edge=k in (1, most) and most > 1,
        empty=final.empty,
        interrupted=interrupted,
    )


def _neighbour_count(neighbours: float, points: int) -> int:
    """k as a whole number; raises ValueError if there are fewer other rows."""
    most = max(1, points - 1)
    k = max(1, round(neighbours * points)) if isinstance(neighbours, float) else int(neighbours)
    if not isinstance(neighbours, float) and k > most:
        raise ValueError(f"neighbours must be at most the {most} other rows, got {neighbours}")
    return min(k, most)


def _scales(objective: Objective, metric: str, ridge: float, progress: Progress | None) -> Array:
    """The w of a fixed bandwidth where there are several features, else one over the feature's spread."""
    spread = feature_scales(objective.key, objective.counts)
    if (spread > 0.0).sum() > 1:
        return learn(objective, metric, ridge=ridge, progress=progress).w
    w = np.where(spread > 0.0, 1.0 / np.where(spread > 0.0, spread, 1.0), 0.0)
    return np.asarray(w.max()) if metric == "scalar" else w


def _refine(value: Callable[[int], float], ladder: list[int], at: int) -> None:
    """Bisect the intervals next to the best k, ``ladder[at]``, the wider one first."""
    low, best, high = ladder[max(at - 1, 0)], ladder[at], ladder[min(at + 1, len(ladder) - 1)]
    while max(best - low, high - best) > 1:
        k = (low + best) // 2 if best - low >= high - best else (best + high + 1) // 2
        if value(k) < value(best):
            low, best, high = (low, k, best) if k < best else (best, k, high)
        else:
            low, high = (k, high) if k < best else (low, k)


def _under(w: Array, rows: Array) -> Array:
    """Rows scaled by w."""
    rows = rows.astype(np.float64)
    return np.asarray(rows @ w if np.ndim(w) == 2 else rows * w)

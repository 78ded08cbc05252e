"""Learning of heads for class probabilities, each judged by rows that its search has not seen.

A class probability is only as good as the evidence against it: the w that separates the classes of the training rows
best is often so by chance. So every kind of head is searched again without each fold of the rows, from the start; the
probabilities of a fold come from the search without it. They choose the mix.

Kinds of heads: one w for all columns, one per column, a full matrix where there are rows enough for it, the class
frequencies (w = 0), and discriminants: the columns projected onto the coefficients of a logistic regression, whose log
odds are distances there. Wide attention in this projection is a logistic regression, narrow attention calibrates one.

With many rows the heads are searched among some of them, and judged at others with all rows as keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize as minimise_smooth

from regard.bandwidth.descent import max_scaled_w
from regard.bandwidth.gauss_newton import Curved, minimise
from regard.bandwidth.learned_heads import Heads, HeadSearchLog, LearnedHead, Progress, mix_heads
from regard.bandwidth.left_out_classes import LeftOutClasses
from regard.bandwidth.line_heads import MIN_GROUPS_CROSS_FITTED, supports_full
from regard.bandwidth.losses import LogLoss
from regard.bandwidth.objective import Objective
from regard.bandwidth.parametrization import Parametrization, feature_scales
from regard.bandwidth.scaling import Scaling
from regard.core.arrays import Array

# Penalty on log(1 + (w·scale)²) of every w in the log-likelihood: the density of w is that of Cauchy, which leaves
# features out unless the rows ask for them.
W_PENALTY = 1.0
# Penalty on the squared entries of N in W = diag(w)(I + N).
ROTATION_PENALTY = 10.0
# Distances at which descents start, in bandwidths between typical rows.
START_DISTANCES = (2.0, 5.0)
# Evaluations of a descent to the minimum, …
DESCENT_EVALUATIONS = 30
# … and without a fold.
FOLD_EVALUATIONS = 12
# A descent ends when a step improves the log-loss by less.
GAIN = 1e-5
GAIN_FOLD = 1e-3
# Typical number of evaluations of a descent, by which the time left is estimated.
TYPICAL_EVALUATIONS = 10
# Bandwidths of discriminants, in inverse units of their log odds.
DISCRIMINANT_WIDTHS = (0.1, 0.2, 0.35, 0.6, 1.0, 1.7)
# Factors on the w of all heads that are tried, each with a temperature of its own: where classes are many and rows few,
# wide attention, sharpened, decides better than attention of the width that is the best probability by itself.
FACTORS_OF_W = (1.0, 0.7, 0.5, 0.35)
# Iterations of a logistic regression, and the gradient per row at which it ends.
LOGISTIC_ITERATIONS = 200
LOGISTIC_GRADIENT = 1e-5
# Rows up to which all are evaluated, and cross-fitted.
MAX_ROWS_CROSS_FITTED = 2500
# With more rows: rows searched, …
SEARCHED_ROWS = 2000
# … rows judged, by so many pairs but not fewer than the least, and the part of all rows that they are at most, …
JUDGED_PAIRS = 3e7
MIN_ROWS_JUDGED = 1000
MAX_PART_JUDGED = 0.3
# … keys with which they are judged, keys with which a search goes on, and rows of the logistic regressions.
JUDGING_KEYS = 100_000
SEARCH_KEYS = 20_000
LOGISTIC_ROWS = 50_000
# Rows evaluated with these keys, and evaluations.
KEYS_ROWS = 1000
KEYS_EVALUATIONS = 5
# w·scale above which a column counts as one dimension.
MIN_USED_W = 0.05
# Folds with few rows, and with many; rows up to which they are few.
FOLDS_FEW_ROWS = 10
FOLDS_MANY_ROWS = 5
ROWS_OF_MANY_FOLDS = 300


class ClassHeadKind(NamedTuple):
    """What is learned: the share t of the standard score in the scaling, the metric, and the penalty of logits."""

    share: float
    metric: str  # "scalar", "feature", "full", "discriminant", or "none": the class frequencies
    penalty: float = 0.0


KINDS = (
    ClassHeadKind(0.5, "scalar"),
    ClassHeadKind(1.0, "scalar"),
    ClassHeadKind(0.5, "feature"),
    ClassHeadKind(0.0, "feature"),
    ClassHeadKind(0.5, "full"),
    ClassHeadKind(1.0, "discriminant", 0.1),
    ClassHeadKind(1.0, "discriminant", 1.0),
    ClassHeadKind(1.0, "discriminant", 10.0),
    ClassHeadKind(0.0, "discriminant", 1.0),
    ClassHeadKind(1.0, "none"),
)


# The metric whose search a descent starts from.
SIMPLER = {"full": "feature", "feature": "scalar"}


@dataclass(frozen=True, eq=False)
class ClassCriterion:
    """Left-out log-loss of one kind of head plus the penalty on its parameters, and the quadratic that approximates it.

    The probability of a row's own class is smoothed as by ``LogLoss``. The quadratic is that of Fisher's information
    for the row's own class against all others.
    """

    classes: LeftOutClasses
    counts: Array  # (n,)
    frequency: Array  # (n,)  of the class of each row
    space: Parametrization  # of scaled and standardised columns, all active
    max_w: float

    def among(self, rows: Array) -> ClassCriterion:
        """The criterion of some of the rows, as if there were no others."""
        parts = self.classes.among(rows), self.counts[rows], self.frequency[rows]
        return ClassCriterion(*parts, self.space, self.max_w)

    def matrix(self, x: Array) -> Array:
        """W (d, r)."""
        w = self.space.w(x)
        return w if w.ndim == 2 else np.diag(np.broadcast_to(w, self.space.count))

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the parameters."""
        low, high = np.array(self.space.bounds(self.max_w)).T
        return low, high

    def __call__(
        self, x: Array, rows: Array | None = None, *, single: bool = True, derivatives: bool = True
    ) -> tuple[float, Curved]:
        """The log-loss of ``rows`` (all if None), and the criterion."""
        diagonal = self.space.metric != "full"
        found = self.classes(self.matrix(x), rows, diagonal=diagonal, single=single, derivatives=derivatives)
        chosen = slice(None) if rows is None else rows
        counts, frequency = self.counts[chosen], self.frequency[chosen]
        total = float(self.counts.sum())
        share, known = counts / counts.sum(), total / (total + 1.0)
        p = 1.0 / (1.0 + np.exp(-found.log_odds))
        smooth = known * p + (1.0 - known) * frequency
        loss = float(-(share @ np.log(smooth)))
        penalty, slope, bent = self._penalty(x)
        penalised = loss + penalty / total
        if found.by_metric is None:
            return loss, Curved.flat(penalised, len(x))
        rate = known * p * (1.0 - p) / smooth
        bend = rate**2 * smooth / np.maximum(1.0 - smooth, np.finfo(np.float64).tiny)
        jacobian = self._jacobian(x, found.by_metric)
        gradient = -(share * rate) @ jacobian
        curvature = (jacobian * (share * bend)[:, None]).T @ jacobian
        gradient += slope / total
        curvature[np.diag_indices(len(x))] += bent / total
        return loss, Curved(penalised, gradient, curvature)

    def _penalty(self, x: Array) -> tuple[float, Array, Array]:
        """The penalty on parameters, with its first and second derivatives, (k,) each; the latter are not negative."""
        count = min(self.space.size, self.space.count)
        square = np.exp(2.0 * x[:count])
        slope, bend = 2.0 * ROTATION_PENALTY * x, np.full(len(x), 2.0 * ROTATION_PENALTY)
        slope[:count] = 2.0 * W_PENALTY * square / (1.0 + square)
        bend[:count] = 4.0 * W_PENALTY * square / (1.0 + square) ** 2
        return W_PENALTY * float(np.log1p(square).sum()) + ROTATION_PENALTY * float((x[count:] ** 2).sum()), slope, bend

    def _jacobian(self, x: Array, by_metric: Array) -> Array:
        """Derivatives (Q, k) of log odds by the parameters, from those by the metric."""
        if self.space.metric == "scalar":
            return np.asarray(by_metric.sum(axis=1, keepdims=True))
        if self.space.metric == "feature":
            return by_metric
        # W = diag(w)(I + N): a change of log w_a changes row a by itself, one of N_ab the entry by w_a.
        count = self.space.count
        away = ~np.eye(count, dtype=bool)
        return np.concatenate(
            [(by_metric * self.matrix(x)).sum(axis=2), (by_metric * np.exp(x[:count])[:, None])[:, away]], axis=1
        )


class _FittedKind(NamedTuple):
    """A kind of head with what was learned."""

    kind: ClassHeadKind
    W: Array  # (d, r)
    scale: Array  # (d,)  standard deviations of the scaled columns
    answers: Array  # (F, n, C)  left-out probabilities, with each of the factors on W

    def head(self, factor: float) -> LearnedHead:
        """The head in the units of the scaled columns; a diagonal W is one w per column."""
        inner, scale = factor * self.W, self.scale
        if self.kind.metric in ("scalar", "feature"):
            inner = np.diagonal(inner)
        elif self.kind.metric == "none":
            inner = inner[:, 0]
        w = np.zeros((len(scale), *inner.shape[1:]))
        w[scale > 0.0] = (inner.T / scale[scale > 0.0]).T
        return LearnedHead(0.0, np.full(len(scale), self.kind.share), w, 0.0)


class _ClassSearch:
    """The searches of all heads of one objective with few rows."""

    def __init__(self, objective: Objective, scaling: Scaling, fold: Array | None, log: HeadSearchLog) -> None:
        self.objective, self.scaling, self.fold, self.log = objective, scaling, fold, log
        self.places: dict[float, tuple[Array, LeftOutClasses]] = {}
        self.found: dict[ClassHeadKind, tuple[Array, list[Array]]] = {}

    @property
    def splits(self) -> Iterator[tuple[Array, Array]]:
        """Rows inside and outside of every fold."""
        assert self.fold is not None
        for number in range(int(self.fold.max()) + 1):
            yield np.flatnonzero(self.fold == number), np.flatnonzero(self.fold != number)

    def placed(self, share: float) -> tuple[Array, LeftOutClasses]:
        """Standard deviations (d,) of the scaled columns, and the rows at their standardised positions."""
        if share not in self.places:
            self.places[share] = placed_rows(self.objective, self.scaling, share)
        return self.places[share]

    def fit(self, kind: ClassHeadKind) -> Iterator[_FittedKind]:
        """What is learned of a kind of head, first judged without the row alone, then without its fold."""
        scale, classes = self.placed(kind.share)
        if kind.metric == "none":
            W = np.zeros((classes.position.shape[1], 1))
            yield _FittedKind(kind, W, scale, answers_of(classes, W))
        elif kind.metric == "discriminant":
            yield self._discriminant(kind, classes, scale)
        else:
            criterion = self.criterion(kind, classes)
            x = self.minimum(kind, criterion)
            W = criterion.matrix(x)
            yield _FittedKind(kind, W, scale, answers_of(classes, W))
            if self.fold is not None:
                answers, ends = np.empty((len(FACTORS_OF_W), *classes.columns.shape)), []
                for number, (inside, outside) in enumerate(self.splits):
                    ends.append(self._without_fold(kind, criterion.among(outside), number))
                    answers[:, inside] = answers_of(classes, criterion.matrix(ends[-1]), inside, outside)
                self.found[kind] = x, ends
                yield _FittedKind(kind, W, scale, answers)

    def criterion(self, kind: ClassHeadKind, classes: LeftOutClasses) -> ClassCriterion:
        """The criterion of a kind of head, over all rows."""
        objective = self.objective
        assert isinstance(objective.loss, LogLoss)
        space = Parametrization.of(kind.metric, np.ones(classes.position.shape[1]))
        frequency = objective.loss.frequency[classes.label]
        return ClassCriterion(classes, objective.counts, frequency, space, max_scaled_w(objective))

    # ---- attention with a w that is searched

    def minimum(self, kind: ClassHeadKind, criterion: ClassCriterion) -> Array:
        """The best parameters with all rows."""
        starts = self._starts(kind, criterion, None)
        ends = [self.descend(criterion, x, DESCENT_EVALUATIONS, GAIN) for x in starts]
        x = min(ends, key=lambda end: end[1])[0]
        self.found[kind] = x, []
        return x

    def _without_fold(self, kind: ClassHeadKind, criterion: ClassCriterion, number: int) -> Array:
        """The best parameters without a fold, from a start that has not seen it either."""
        x = self._starts(kind, criterion, number)[-1]
        return self.descend(criterion, x, FOLD_EVALUATIONS, GAIN_FOLD)[0]

    def _starts(self, kind: ClassHeadKind, criterion: ClassCriterion, number: int | None) -> list[Array]:
        """Where descents start: at the end of a simpler kind of head, with the same rows, or at a common w."""
        space, simpler = criterion.space, kind._replace(metric=SIMPLER.get(kind.metric, ""))
        near = []
        if simpler in self.found:
            best, ends = self.found[simpler]
            near = [best if number is None else ends[number]]
        if kind.metric == "full" and near:
            return [np.concatenate([near[0], np.zeros(space.size - space.count)])]
        common = [space.uniform(distance / np.sqrt(space.count)) for distance in START_DISTANCES]
        return common + [np.full(space.count, x[0]) for x in near if kind.metric == "feature"]

    def descend(
        self, criterion: ClassCriterion, x: Array, evaluations: int, gain: float, rows: Array | None = None
    ) -> tuple[Array, float]:
        """A minimum near x, in so many evaluations at most."""
        pairs, done = float(len(criterion.counts) * len(criterion.counts if rows is None else rows)), 0.0
        planned = pairs * TYPICAL_EVALUATIONS

        def at(x: Array, derivatives: bool) -> Curved:
            nonlocal done
            loss, curved = criterion(x, rows, derivatives=derivatives)
            done = min(done + pairs, planned)
            self.log.add(loss, done)
            return curved

        found = minimise(at, x, *criterion.bounds, evaluations=evaluations, gain=gain)
        self.log.before += planned
        return found

    # ---- discriminants

    def _discriminant(self, kind: ClassHeadKind, classes: LeftOutClasses, scale: Array) -> _FittedKind:
        """Attention in the projection onto logits, of the width with the best left-out probabilities."""
        counts = self.objective.counts
        start = logistic_regression(classes.position, classes.columns, counts, kind.penalty)
        projection, splits, projections = discriminants(start), [], []
        for inside, outside in [] if self.fold is None else self.splits:
            parts = classes.position[outside], classes.columns[outside], counts[outside]
            splits.append((inside, outside))
            projections.append(discriminants(logistic_regression(*parts, kind.penalty, start)))

        def answer(width: float) -> Array:
            if not splits:
                return classes.answer(width * projection)
            out = np.empty(classes.columns.shape)
            for (inside, outside), without in zip(splits, projections, strict=True):
                out[inside] = classes.answer(width * without, inside, outside)
            return out

        loss, rows = self.objective.loss, np.arange(len(counts))
        found = {width: answer(width) for width in DISCRIMINANT_WIDTHS}
        best = min(found, key=lambda width: loss(found[width], rows, counts).value)
        answers = [found[best], *(answer(factor * best) for factor in FACTORS_OF_W[1:])]
        return _FittedKind(kind, best * projection, scale, np.stack(answers))


class _LargeClassSearch:
    """The searches of all heads of an objective with many rows.

    Rare classes are over-represented among the rows that are searched and judged, and weighted accordingly.
    """

    def __init__(self, objective: Objective, scaling: Scaling, seed: int, log: HeadSearchLog) -> None:
        self.objective, self.scaling, self.log = objective, scaling, log
        self.random = np.random.default_rng(seed)
        size, self.label = len(objective.key), objective.loss.columns.argmax(axis=1)
        count = int(min(MAX_PART_JUDGED * size, max(JUDGED_PAIRS / size, MIN_ROWS_JUDGED)))
        # The rows drawn first are a sample of all rows, those drawn for their class are judged for the mix only.
        self.sample = np.sort(self.random.permutation(size)[:count])
        others = np.setdiff1d(np.arange(size), self.sample)
        rare, _ = self._drawn(others, 0, MAX_PART_JUDGED)
        drawn = np.bincount(self.label[self.sample], minlength=objective.loss.columns.shape[1])
        rare = rare[drawn[self.label[rare]] < count / (2.0 * len(drawn))]
        self.judged = np.union1d(self.sample, rare)
        rest = np.setdiff1d(others, rare)
        self.searched, counts = self._drawn(rest, SEARCHED_ROWS)
        self.counts = counts * len(counts) / counts.sum()
        self.fitted, self.fitted_counts = self._drawn(rest, LOGISTIC_ROWS)
        keys, self.mass = self._drawn(np.setdiff1d(np.arange(size), self.searched), SEARCH_KEYS - len(self.searched))
        self.keys = np.concatenate([self.searched, keys])
        self.mass = np.concatenate([objective.counts[self.searched], self.mass])
        self.judging, self.judging_mass = self._drawn(np.arange(size), JUDGING_KEYS)
        rows = self.searched
        some = replace(objective.among(rows), weight=self.counts, counts=self.counts, repeated=None)
        self.search = _ClassSearch(some, scaling, None, log)
        self.places: dict[float, tuple[Array, LeftOutClasses]] = {}

    def _drawn(self, rows: Array, count: int, part: float = 1.0) -> tuple[Array, Array]:
        """About ``count`` rows of those given, and how much each of them stands for.

        Every class has its part of them, and half of an equal part at least, but at most this part of its rows.
        """
        counts, label = self.objective.counts, self.label[rows]
        found, weight = [], []
        classes = np.unique(label)
        for one in classes:
            mine = rows[label == one]
            equal = max(count, MIN_ROWS_JUDGED) / (2.0 * len(classes))
            quota = int(max(min(part * len(mine), equal), count * len(mine) / len(rows), 1.0))
            chosen = np.sort(self.random.permutation(mine)[:quota])
            found.append(chosen)
            weight.append(counts[chosen] * counts[mine].sum() / counts[chosen].sum())
        return np.concatenate(found), np.concatenate(weight)

    def placed(self, share: float) -> tuple[Array, LeftOutClasses]:
        """Standard deviations (d,) of the scaled columns, and all rows at their standardised positions."""
        if share not in self.places:
            self.places[share] = placed_rows(self.objective, self.scaling, share)
        return self.places[share]

    def fit(self, kind: ClassHeadKind) -> _FittedKind:
        """What is learned of a kind of head, with probabilities of the rows judged."""
        scale, classes = self.placed(kind.share)
        if kind.metric == "none":
            matrices = [np.zeros((classes.position.shape[1], 1))]
        elif kind.metric == "discriminant":
            rows = self.fitted
            parts = classes.position[rows], classes.columns[rows], self.fitted_counts
            projection = discriminants(logistic_regression(*parts, kind.penalty))
            matrices = [width * projection for width in DISCRIMINANT_WIDTHS]
        else:
            matrices = [self._minimum(kind, scale, classes)]
        answers = [self._judged(classes, W) for W in matrices]
        objective = self.judging_objective
        losses = [objective.loss(one, objective.rows, objective.counts[objective.rows]).value for one in answers]
        best = int(np.argmin(losses))
        wide = [self._judged(classes, factor * matrices[best]) for factor in FACTORS_OF_W[1:]]
        return _FittedKind(kind, matrices[best], scale, np.stack([answers[best], *wide]))

    @property
    def judging_objective(self) -> Objective:
        """The objective at the rows judged, which count as much as the rows of their classes."""
        rows, counts, label = self.judged, self.objective.counts.copy(), self.label[self.judged]
        judged = np.bincount(label, counts[rows], self.objective.loss.columns.shape[1])
        counts[rows] *= np.bincount(self.label, counts)[label] / judged[label]
        return replace(self.objective, rows=rows, counts=counts)

    def _judged(self, classes: LeftOutClasses, W: Array) -> Array:
        """Left-out probabilities of the rows judged."""
        if len(self.judging) == len(classes.position):
            return classes.answer(W, self.judged, single=True)
        rows = np.concatenate([self.judged, np.setdiff1d(self.judging, self.judged)])
        mass = np.zeros(len(classes.position))
        mass[self.judging] = self.judging_mass
        some = classes.among(rows)
        # A row judged that is no key has a mass that changes nothing.
        least = np.finfo(np.float64).tiny
        mass = np.maximum(mass[rows] / mass.max(), least)
        return replace(some, weight=mass, staying=None).answer(W, np.arange(len(self.judged)), single=True)

    def _minimum(self, kind: ClassHeadKind, scale: Array, classes: LeftOutClasses) -> Array:
        """W of the search among some rows, continued with more keys, for all rows.

        Bandwidths decrease like n^(−1/(d + 4)).
        """
        searched = self.search.objective
        self.search.places[kind.share] = scale, LeftOutClasses.of(searched, classes.position[self.searched])
        criterion = self.search.criterion(kind, self.search.places[kind.share][1])
        x = self.search.minimum(kind, criterion).copy()
        count, size = min(criterion.space.size, criterion.space.count), len(classes.position)
        used = max(1, int((np.exp(x[:count]) > MIN_USED_W).sum())) if kind.metric != "scalar" else criterion.space.count
        x[:count] += np.log(len(self.keys) / len(self.searched)) / (used + 4.0)
        more = classes.among(self.keys)
        if len(self.keys) < size:
            more = replace(more, weight=self.mass / self.mass.max(), staying=None)
        rows = np.sort(self.random.permutation(len(self.searched))[:KEYS_ROWS])
        counts = np.concatenate([self.counts, np.ones(len(self.keys) - len(self.counts))])
        criterion = replace(self.search.criterion(kind, more), counts=counts)
        x = self.search.descend(criterion, x, KEYS_EVALUATIONS, GAIN_FOLD, rows)[0]
        x[:count] += np.log(size / len(self.keys)) / (used + 4.0)
        return criterion.matrix(x)


def placed_rows(objective: Objective, scaling: Scaling, share: float) -> tuple[Array, LeftOutClasses]:
    """Standard deviations (d,) of the scaled columns, and the rows at their standardised positions."""
    position = scaling(objective.key, np.full(objective.key.shape[1], share))
    scale = feature_scales(position, objective.counts)
    return scale, LeftOutClasses.of(objective, position[:, scale > 0.0] / scale[scale > 0.0])


def answers_of(classes: LeftOutClasses, W: Array, rows: Array | None = None, keys: Array | None = None) -> Array:
    """Left-out probabilities (F, Q, C) of rows with each of the factors on W."""
    return np.stack([classes.answer(factor * W, rows, keys) for factor in FACTORS_OF_W])


def random_folds(objective: Objective, seed: int) -> Array | None:
    """The fold (n,) of every row, rows that are left out together in one; None if there are too few."""
    labels = np.unique(objective.labels, return_inverse=True)[1]
    count = int(labels.max()) + 1
    if count < MIN_GROUPS_CROSS_FITTED:
        return None
    folds = FOLDS_FEW_ROWS if count < ROWS_OF_MANY_FOLDS else FOLDS_MANY_ROWS
    return np.asarray((np.random.default_rng(seed).permutation(count) % folds)[labels])


def logistic_regression(
    position: Array, columns: Array, counts: Array, penalty: float, start: Array | None = None
) -> Array:
    """Coefficients (d + 1, C) of logits, the last row those of 1: least Σ counts·loss + ½·penalty·Σ coefficient².

    The coefficients of 1 have no penalty. ``start`` is where the descent starts.
    """
    table = np.column_stack([position, np.ones(len(position))])
    shape, total = (table.shape[1], columns.shape[1]), counts.sum()

    def at(x: Array) -> tuple[float, Array]:
        B = x.reshape(shape)
        logit = table @ B
        logit -= logit.max(axis=1, keepdims=True)
        p = np.exp(logit)
        mass = p.sum(axis=1, keepdims=True)
        loss = float(counts @ (np.log(mass[:, 0]) - (logit * columns).sum(axis=1)))
        slope = table.T @ ((p / mass - columns) * counts[:, None])
        slope[:-1] += penalty * B[:-1]
        return (loss + 0.5 * penalty * float((B[:-1] ** 2).sum())) / total, slope.ravel() / total

    x = np.zeros(shape).ravel() if start is None else start.ravel()
    options = {"maxiter": LOGISTIC_ITERATIONS, "gtol": LOGISTIC_GRADIENT, "maxcor": 20}
    return np.asarray(minimise_smooth(at, x, jac=True, method="L-BFGS-B", options=options).x.reshape(shape))


def discriminants(coefficients: Array) -> Array:
    """A projection (d, r) whose distances are those of the logits, less what they have in common; r ≤ d, r < C.

    >>> discriminants(np.array([[1.0, -1.0], [2.0, -2.0], [9.0, 9.0]])).round(3).tolist()
    [[-1.414], [-2.828]]
    """
    slopes = coefficients[:-1]
    slopes = slopes - slopes.mean(axis=1, keepdims=True)
    left, size, _ = np.linalg.svd(slopes, full_matrices=False)
    rank = min(len(size), coefficients.shape[1] - 1)
    return np.asarray(left[:, :rank] * size[:rank])


def learn_class_heads(objective: Objective, scaling: Scaling, seed: int, progress: Progress | None) -> Heads:
    """Heads of class attention, and their mix.

    *Cost*: some hundred evaluations of O(n²·d) up to 2,500 rows, d² for matrices; beyond, of O(2,000²·d), some five per
    head of O(1,000·min(n, 20,000)·d), and answers of O(1,000·min(n, 100,000)·d) at least.
    """
    log, found, interrupted = HeadSearchLog(progress), dict[ClassHeadKind, _FittedKind](), False
    kinds, sample = _kinds(objective), None
    try:
        if len(objective.key) <= MAX_ROWS_CROSS_FITTED:
            search = _ClassSearch(objective, scaling, random_folds(objective, seed), log)
            log.planned = _planned_pairs(search, kinds)
            for kind in kinds:
                for fitted in search.fit(kind):
                    found[kind] = fitted
        else:
            large = _LargeClassSearch(objective, scaling, seed, log)
            log.planned = _planned_pairs(large.search, kinds)
            objective, sample = large.judging_objective, large.sample
            for kind in kinds:
                found[kind] = large.fit(kind)
    except KeyboardInterrupt:
        if not found:
            raise
        interrupted = True
    mixtures = []
    for number, factor in enumerate(FACTORS_OF_W):
        heads = [(fitted.head(factor),) for fitted in found.values()]
        answers = [fitted.answers[number] for fitted in found.values()]
        mixtures.append(mix_heads(objective, heads, answers, scaling, log.path, interrupted))
    mixed = min(mixtures, key=lambda mixture: mixture.search.value)
    if sample is not None:
        mixed.answer[np.setdiff1d(np.arange(len(mixed.answer)), sample)] = np.nan
    return mixed


def _kinds(objective: Objective) -> Sequence[ClassHeadKind]:
    """The kinds of heads for an objective."""
    width = int((feature_scales(objective.key, objective.counts) > 0.0).sum())
    classes = objective.loss.columns.shape[1]
    if not width or classes < 2:
        return KINDS[-1:]
    return [kind for kind in KINDS if kind.metric != "full" or supports_full(objective, width)]


def _planned_pairs(search: _ClassSearch, kinds: Sequence[ClassHeadKind]) -> float:
    """Pairs evaluated by all descents, if each takes its typical number of evaluations."""
    size = float(len(search.objective.key))
    folds = 0 if search.fold is None else int(search.fold.max()) + 1
    inside = size**2 * TYPICAL_EVALUATIONS
    without = folds * (size * (1.0 - 1.0 / folds)) ** 2 * TYPICAL_EVALUATIONS if folds else 0.0
    starts = {"scalar": 2, "feature": 3, "full": 1}
    return max(sum((starts[kind.metric] * inside + without) for kind in kinds if kind.metric in starts), 1.0)

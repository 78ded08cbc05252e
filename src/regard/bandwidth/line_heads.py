"""Learning of heads that are local lines: Gauss–Newton steps on left-out residuals, and cross-fitting with few rows.

No single scaling of the columns and no single metric is best on all data, so one head is learned for each. With few
rows there are two simple heads as well, local means and one global ridge line.

The residuals of a search are too small: what was searched has seen the row that is left out. With few rows the
search is therefore repeated without a fold of the rows at a time. The left-out answers of a fold come from the search
that did not see it, the mix is chosen by these answers, and the heads of all folds are used, with all rows as keys.

With many rows the search starts on a subsample of rows. A few steps with all rows as keys follow, in which the
residuals of a subsample are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from regard.bandwidth.descent import RIDGE_BOUNDS, max_scaled_w
from regard.bandwidth.gauss_newton import Curved, minimise
from regard.bandwidth.learned_heads import Heads, HeadSearchLog, LearnedHead, Progress, mix_heads
from regard.bandwidth.left_out_lines import LeftOutLines
from regard.bandwidth.objective import Objective
from regard.bandwidth.parametrization import MIN_SCALED_W, Parametrization, feature_scales
from regard.bandwidth.scaling import Scaling
from regard.core.arrays import Array

# Penalty on the squared entries of N in W = diag(w)(I + N), over the number of rows evaluated.
ROTATION_PENALTY = 30.0
# Penalties on the squares of log(w·scale) above 0, and of log λ below that of FREE_RIDGE, over the number of rows
# evaluated: with few rows, sharp heads and lines without a ridge are often best by chance, and extrapolate badly.
SHARPNESS_PENALTY = 0.2
RIDGE_PENALTY = 0.2
FREE_RIDGE = 0.1
# Added to squared errors relative to the variance, so that their logarithm is finite.
ERROR_FLOOR = 1e-16
# Rows, repetitions counted, needed for each entry of a full matrix; with fewer there is one w per feature instead
# (docs/decisions/0020).
ROWS_PER_PARAMETER = 4.0
# (w·scale, λ) at which descents start, …
START_POINTS = ((1.0, 0.1), (2.0, 0.003))
# … and one more with more than ROWS_OF_OWN_STARTS rows: with fewer, a sharp minimum is often one by chance.
SHARP_START_POINT = (3.0, 0.001)
# Evaluations of a descent: from each start, …
START_EVALUATIONS = 10
# … to the minimum, …
DESCENT_EVALUATIONS = 40
# … without a fold, …
FOLD_EVALUATIONS = 5
# … and with all rows as keys, if there are many: of a part of the rows, and of all that are evaluated.
ROUGH_ALL_KEYS_EVALUATIONS = 4
ALL_KEYS_EVALUATIONS = 4
# Smallest λ of lines: with less, they extrapolate badly where keys do not span every direction.
MIN_RIDGE_OF_LINES = 1e-5
# Largest λ of lines with few rows: local means are a head of their own, and descents would end there.
MAX_RIDGE_OF_LINES = 0.3
# Typical number of evaluations of a descent to the minimum, by which the time left is estimated.
TYPICAL_EVALUATIONS = 16
# A descent ends when a step improves the logarithm of the criterion by less: with few rows, …
GAIN_FEW_ROWS = 1e-6
# … from a start and in single precision, without a fold or on a subsample, and with all rows as keys.
GAIN_START = 1e-5
GAIN_FOLD = 1e-3
GAIN_ALL_KEYS = 1e-4
# w·scale below which descents take steps in w² rather than in log w.
LEVEL_W = 0.3
# w·scale below which a feature is ignored, and the one with which it is tried again.
IGNORED_W = 0.2
RETURN_W = 2.0
# Rows up to which every scaling has its own starts, with all rows evaluated; with more they share the best end of the
# first one, and so many rows are evaluated.
ROWS_OF_OWN_STARTS = 500
START_ROWS = 400
# Rows up to which all are evaluated, and cross-fitted.
MAX_ROWS_CROSS_FITTED = 2000
# Folds with few rows, and with many; rows up to which they are few.
FOLDS_FEW_ROWS = 10
FOLDS_MANY_ROWS = 5
ROWS_OF_MANY_FOLDS = 1000
# Rows below which the search without a fold does not start at the end of the search with all rows, but halfway to it,
# and its evaluations.
ROWS_OF_FRESH_FOLDS = 150
FRESH_FOLD_EVALUATIONS = 12
# Groups that are left out together, or rows, needed for cross-fitting.
MIN_GROUPS_CROSS_FITTED = 10
# Keys of the first search if there are many rows, and rows it evaluates.
SUBSAMPLE_KEYS = 2500
SUBSAMPLE_ROWS = 1250
# Weight in the mix on the subsample from which a head is searched further.
MIN_USEFUL_WEIGHT = 0.1
# Rows evaluated with all rows as keys: at most and at least, and the number of pairs in between.
MAX_ROWS_ALL_KEYS = 4000
MIN_ROWS_ALL_KEYS = 1000
PAIRS_ALL_KEYS = 1e8
# One of so many of them is evaluated for the first steps.
ROUGH_PART_ALL_KEYS = 4
# Left-out answers at the end: of all rows up to so many, and with more rows of a sample of so many pairs.
MAX_ROWS_ANSWERED = 20_000
ANSWERED_PAIRS = 1e9
MIN_ROWS_ANSWERED = 4000
# Share of its attention mass that a row may lose in a search, and in those answers if there are many rows.
SEARCH_TOL = 1e-6
ANSWER_TOL = 1e-9
# By which the time left is estimated: kinds of heads that are usually searched further with all rows as keys, and the
# cost of a pair of an answer relative to one of an evaluation.
TYPICAL_USEFUL_KINDS = 3
ANSWER_COST = 0.5
# w·scale of a line that is the same everywhere, and bounds of its λ, in units of w².
GLOBAL_W = MIN_SCALED_W
GLOBAL_RIDGE_BOUNDS = (1e-6, 1e3)


class HeadKind(NamedTuple):
    """What is learned: the share t of the standard score in the scaling, the metric, and a λ that is not learned."""

    share: float
    metric: str  # "feature", "full", or "global": one line for all rows
    ridge: float | None = None


LINES = HeadKind(0.5, "feature"), HeadKind(0.0, "feature"), HeadKind(1.0, "full"), HeadKind(0.5, "full")
SIMPLE = HeadKind(0.5, "feature", RIDGE_BOUNDS[1]), HeadKind(1.0, "global")


@dataclass(frozen=True, eq=False)
class HeadCriterion:
    """log mean squared left-out error of one kind of head, with the quadratic that approximates it."""

    lines: LeftOutLines
    counts: Array  # (n,)
    space: Parametrization  # of scaled and standardised columns, all active
    kind: HeadKind
    max_w: float
    max_ridge: float

    def among(self, rows: Array) -> HeadCriterion:
        """The criterion of some of the rows, as if there were no others."""
        return replace(self, lines=self.lines.among(rows), counts=self.counts[rows])

    def ordered(self, x: Array) -> HeadCriterion:
        """The criterion with its rows in an order of space near x, in which far tiles of keys are skipped."""
        lines, place = self.lines.ordered(self.w_and_ridge(x)[0])
        counts = np.empty_like(self.counts)
        counts[place] = self.counts
        return replace(self, lines=lines, counts=counts)

    @property
    def logs_of_w(self) -> slice:
        """The parameters that are logarithms of w·scale."""
        return slice(0, 0 if self.kind.metric == "global" else self.space.count)

    @property
    def learns_ridge(self) -> bool:
        return self.kind.ridge is None

    def w_and_ridge(self, x: Array) -> tuple[Array, float]:
        """W (r, r) of the standardised columns, and λ."""
        parameters = (
            x[: self.space.size] if self.kind.metric != "global" else np.full(self.space.size, np.log(GLOBAL_W))
        )
        w = self.space.w(parameters)
        ridge = float(np.exp(x[-1])) if self.kind.ridge is None else self.kind.ridge
        return w if w.ndim == 2 else np.diag(w), ridge

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper bounds of the parameters."""
        pairs = [] if self.kind.metric == "global" else self.space.bounds(self.max_w)
        if self.learns_ridge:
            scale = GLOBAL_W**2 if self.kind.metric == "global" else 1.0
            bounds = GLOBAL_RIDGE_BOUNDS if self.kind.metric == "global" else (MIN_RIDGE_OF_LINES, self.max_ridge)
            pairs = [*pairs, (float(np.log(scale * bounds[0])), float(np.log(scale * bounds[1])))]
        low, high = np.array(pairs).T
        return low, high

    def halfway(self, x: Array) -> Array:
        """The point between x and a common w of 1 with a free ridge: a search from x itself would inherit its rows."""
        x = x.copy()
        if self.kind.metric != "global":
            x[: self.space.size] *= 0.5
            if self.learns_ridge:
                x[-1] = 0.5 * (x[-1] + np.log(FREE_RIDGE))
        return x

    def answer(self, x: Array, rows: Array | None = None) -> Array:
        """Left-out answers (Q, P) in the units of the loss."""
        w, ridge = self.w_and_ridge(x)
        lines, place = self.lines.ordered(w)
        at = place if rows is None else place[rows]
        order, answer = np.argsort(at), np.empty((len(at), self.lines.columns.shape[1]))
        answer[order] = lines(w, ridge, at[order]).answer
        return answer

    def __call__(self, x: Array, rows: Array | None, single: bool, derivatives: bool = True) -> tuple[float, Curved]:
        """The mean squared error of ``rows`` (all if None), and the criterion."""
        metric = None if not derivatives else "full" if self.kind.metric == "full" else "feature"
        found = self.lines(*self.w_and_ridge(x), rows, metric=metric, single=single)
        chosen = slice(None) if rows is None else rows
        error, counts = found.answer - self.lines.columns[chosen], self.counts[chosen]
        share = counts / counts.sum() / error.shape[1]
        value = float((share[:, None] * error**2).sum())
        level = value + ERROR_FLOOR
        penalty, slope, bend = self._penalty(x)
        rows_evaluated = len(error)
        penalised = float(np.log(level)) + penalty / rows_evaluated
        if not derivatives:
            return value, Curved.flat(penalised, len(x))
        gradient, curvature = np.zeros(len(x)), np.zeros((len(x), len(x)))
        for p in range(error.shape[1]):
            jacobian = self._jacobian(x, found.by_metric[:, p], found.by_log_ridge[:, p])  # type: ignore[index]
            weighted = jacobian * share[:, None]
            gradient += 2.0 / level * (error[:, p] @ weighted)
            curvature += 2.0 / level * (jacobian.T @ weighted)
        gradient += slope / rows_evaluated
        curvature[np.diag_indices(len(x))] += bend / rows_evaluated
        return value, Curved(penalised, gradient, curvature)

    def _penalty(self, x: Array) -> tuple[float, Array, Array]:
        """The penalty on parameters, with its first and second derivatives, (k,) each."""
        count, rates, away = self.space.count, np.zeros(len(x)), x.copy()
        if self.kind.metric != "global":
            rates[:count], away[:count] = SHARPNESS_PENALTY, np.maximum(x[:count], 0.0)
            rates[count : self.space.size] = ROTATION_PENALTY
            if self.learns_ridge:
                rates[-1], away[-1] = RIDGE_PENALTY, min(x[-1] - np.log(FREE_RIDGE), 0.0)
        return float(rates @ away**2), 2.0 * rates * away, 2.0 * rates * (away != 0.0)

    def _jacobian(self, x: Array, by_metric: Array, by_ridge: Array) -> Array:
        """Derivatives (Q, k) of answers by the parameters, from those by E in W(I + E) and by log λ."""
        parts = []
        if self.kind.metric == "full":
            # W = diag(w)(I + N): a change of log w_a is E = (I + N)⁻¹e_a e_aᵀ(I + N), one of N_ab is (I + N)⁻¹e_a e_bᵀ.
            count = self.space.count
            away = ~np.eye(count, dtype=bool)
            turn = np.eye(count)
            turn[away] = x[count : self.space.size]
            turned = np.linalg.inv(turn).T @ by_metric
            parts = [(turned * turn).sum(axis=2), turned[:, away]]
        elif self.kind.metric == "feature":
            parts = [by_metric]
        return np.concatenate([*parts, by_ridge[:, None]] if self.learns_ridge else parts, axis=1)


class _Search:
    """The searches of all heads of one objective."""

    def __init__(self, objective: Objective, scaling: Scaling, seed: int, log: HeadSearchLog) -> None:
        self.objective, self.scaling, self.log = objective, scaling, log
        self.random = np.random.default_rng(seed)
        self.size = len(objective.key)
        self.few = self.size <= MAX_ROWS_CROSS_FITTED
        self.keys = np.sort(self.random.permutation(self.size)[:SUBSAMPLE_KEYS])
        self.spaces: dict[float, tuple[Parametrization, LeftOutLines]] = {}
        # Left-out answers of the subsample, with many rows.
        self.answers: dict[HeadKind, Array] = {}

    def criterion(self, kind: HeadKind) -> HeadCriterion:
        """The criterion of a kind of head, over all rows."""
        objective = self.objective
        if kind.share not in self.spaces:
            position = self.scaling(objective.key, np.full(objective.key.shape[1], kind.share))
            space = Parametrization.of("feature", feature_scales(position, objective.counts))
            standard = position[:, space.active] / space.scale[space.active]
            self.spaces[kind.share] = space, LeftOutLines.of(objective, standard, 0.0 if self.few else ANSWER_TOL)
        _, lines = self.spaces[kind.share]
        width = lines.position.shape[1]
        metric = "full" if kind.metric == "full" else "feature"
        space = Parametrization.of(metric, np.ones(width))
        return HeadCriterion(
            lines,
            objective.counts,
            space,
            kind,
            max_scaled_w(objective),
            MAX_RIDGE_OF_LINES if self.few else RIDGE_BOUNDS[1],
        )

    def head(self, kind: HeadKind, x: Array) -> LearnedHead:
        """A head in the units of the scaled columns."""
        space, _ = self.spaces[kind.share]
        w, ridge = self.criterion(kind).w_and_ridge(x)
        inner = w if kind.metric == "full" else np.diagonal(w)
        out = np.zeros((len(space.scale), *inner.shape[1:]))
        out[space.active] = (inner.T / space.scale[space.active]).T
        return LearnedHead(0.0, np.full(len(space.scale), kind.share), out, ridge)

    def descend(
        self, criterion: HeadCriterion, x: Array, rows: Array | None, evaluations: int, gain: float, single: bool = True
    ) -> tuple[Array, float]:
        """A minimum near x, in so many evaluations at most."""
        count = len(criterion.counts) if rows is None else len(rows)
        pairs, done = float(count) * len(criterion.counts), 0.0
        planned = pairs * min(evaluations, TYPICAL_EVALUATIONS)
        logs = criterion.logs_of_w

        def at(u: Array, derivatives: bool) -> Curved:
            nonlocal done
            x, slope = _from_levels(u, logs)
            value, curved = criterion(x, rows, single and self.size > ROWS_OF_OWN_STARTS, derivatives)
            done = min(done + pairs, planned)
            self.log.add(self.objective.in_units_of_y(value), done)
            return Curved(curved.value, slope * curved.gradient, slope[:, None] * curved.curvature * slope)

        low, high = (_to_levels(bound, logs) for bound in criterion.bounds)
        u, value = minimise(at, _to_levels(x, logs), low, high, evaluations=evaluations, gain=gain)
        self.log.before += planned
        return _from_levels(u, logs)[0], value

    def ends(self, kinds: tuple[HeadKind, ...]) -> Iterator[tuple[HeadKind, HeadCriterion, Array]]:
        """Each kind of head with its criterion over all rows and the best parameters.

        With many rows these come from a subsample, and are those expected with all rows as keys.
        """
        size = self.size if self.few else len(self.keys)
        rows = None if self.few else _every(size, SUBSAMPLE_ROWS)
        rough = _every(size, START_ROWS) if size > ROWS_OF_OWN_STARTS else None
        best: dict[HeadKind, Array] = {}
        for kind in kinds:
            criterion = self.criterion(kind)
            some = criterion if self.few else criterion.among(self.keys)
            gain = GAIN_START if self.few else GAIN_FOLD
            x = self._start(some, best, rough)
            if not best:
                x = self._with_features_back(some, x, rough)
            elif rough is not None:
                x, _ = self.descend(some, x, rough, DESCENT_EVALUATIONS, GAIN_FOLD)
            if best or rough is not None:
                x, _ = self.descend(some, x, rows, DESCENT_EVALUATIONS, gain)
            if self.few:
                x, _ = self.descend(some, x, rows, FOLD_EVALUATIONS, GAIN_FEW_ROWS, single=False)
            else:
                self.answers[kind] = some.answer(x, rows)
            best[kind] = x
            yield kind, criterion, x if self.few else self._with_more_keys(criterion, x)

    def _start(self, criterion: HeadCriterion, best: dict[HeadKind, Array], rows: Array | None) -> Array:
        """Parameters where a descent starts: the best end of short ones, or of another kind of head."""
        kind, space = criterion.kind, criterion.space
        if kind.metric == "global":
            return np.array([np.log(GLOBAL_W**2 * 1e-2)])
        if kind.metric == "full":
            simpler = kind._replace(metric="feature")
            if simpler in best:
                near = best[simpler]
            else:
                simple = self.criterion(simpler)
                simple = simple if self.few else simple.among(self.keys)
                near, _ = self.descend(simple, self._start(simple, best, rows), rows, START_EVALUATIONS, GAIN_FOLD)
            return np.concatenate([near[:-1], np.zeros(space.size - space.count), near[-1:]])
        if best:
            near = next(iter(best.values()))
            near = near if criterion.learns_ridge else near[:-1]
            if kind.ridge is not None or self.size > ROWS_OF_OWN_STARTS:
                return near
        points = _start_points(self.size)
        starts = [np.append(space.uniform(level), np.log(ridge)) for level, ridge in points]
        most = START_EVALUATIONS if best else DESCENT_EVALUATIONS
        gain = GAIN_START if rows is None else GAIN_FOLD
        ends = [self.descend(criterion, x, rows, most, gain) for x in starts]
        if best:
            ends.append(self.descend(criterion, near, rows, START_EVALUATIONS, GAIN_FOLD))
        return min(ends, key=lambda end: end[1])[0]

    def _with_features_back(self, criterion: HeadCriterion, x: Array, rows: Array | None) -> Array:
        """Give each feature that a descent ignores a second chance: at w ≈ 0 the criterion has no slope."""
        gain = GAIN_FEW_ROWS if rows is None else GAIN_FOLD
        best, least = self.descend(criterion, x, rows, DESCENT_EVALUATIONS, gain)
        for feature in np.flatnonzero(np.exp(best[: criterion.space.count]) < IGNORED_W):
            trial = best.copy()
            trial[feature] = np.log(RETURN_W)
            end, value = self.descend(criterion, trial, rows, FOLD_EVALUATIONS, GAIN_FOLD)
            if value < least - GAIN_FOLD:
                best, least = self.descend(criterion, end, rows, DESCENT_EVALUATIONS, gain)
        return best

    def _with_more_keys(self, criterion: HeadCriterion, x: Array) -> Array:
        """The end of a subsample as expected with all rows as keys: bandwidths decrease like n^(−1/(d + 4))."""
        x = x.copy()
        if criterion.kind.metric != "global":
            used = max(1, int((np.exp(x[: criterion.space.count]) > 10.0 * MIN_SCALED_W).sum()))
            x[: criterion.space.count] += np.log(self.size / len(self.keys)) / (used + 4.0)
        return x

    def useful(self) -> list[HeadKind]:
        """The kinds of heads that have a part in the mix on the subsample; the others are not searched any further."""
        rows = self.keys[_every(len(self.keys), SUBSAMPLE_ROWS)]
        stacked = np.stack(list(self.answers.values()))
        weights = self.objective.loss.take(rows).mix(stacked, self.objective.counts[rows])
        return [kind for kind, weight in zip(self.answers, weights, strict=True) if weight >= MIN_USEFUL_WEIGHT]

    def with_all_keys(self, criterion: HeadCriterion, x: Array) -> Array:
        """Go on from there with all rows as keys."""
        criterion = replace(criterion, lines=replace(criterion.lines, tol=SEARCH_TOL)).ordered(x)
        count = _evaluated_rows(self.size, MAX_ROWS_ALL_KEYS, PAIRS_ALL_KEYS, MIN_ROWS_ALL_KEYS)
        rows = np.sort(self.random.permutation(self.size)[:count])
        x, _ = self.descend(criterion, x, rows[::ROUGH_PART_ALL_KEYS], ROUGH_ALL_KEYS_EVALUATIONS, GAIN_FOLD)
        return self.descend(criterion, x, rows, ALL_KEYS_EVALUATIONS, GAIN_ALL_KEYS)[0]

    def folds(self) -> Array | None:
        """The fold (n,) of every row, rows that are left out together in one; None if there are too few."""
        labels = np.unique(self.objective.labels, return_inverse=True)[1]
        count = int(labels.max()) + 1
        if not self.few or count < MIN_GROUPS_CROSS_FITTED:
            return None
        folds = FOLDS_FEW_ROWS if self.size < ROWS_OF_MANY_FOLDS else FOLDS_MANY_ROWS
        return np.asarray((self.random.permutation(count) % folds)[labels])

    def cross_fitted(
        self, kind: HeadKind, criterion: HeadCriterion, x: Array, fold: Array
    ) -> tuple[tuple[LearnedHead, ...], Array]:
        """The heads of all folds, and the answers of every row by the head that did not see it."""
        answer, heads = np.empty(criterion.lines.columns.shape), []
        tiny = self.size < ROWS_OF_FRESH_FOLDS
        x, most = (criterion.halfway(x), FRESH_FOLD_EVALUATIONS) if tiny else (x, FOLD_EVALUATIONS)
        for number in range(int(fold.max()) + 1):
            inside, outside = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
            end, _ = self.descend(criterion.among(outside), x, None, most, GAIN_FOLD)
            answer[inside] = criterion.answer(end, inside)
            heads.append(self.head(kind, end))
        return tuple(heads), answer


def _to_levels(x: Array, logs: slice) -> Array:
    """Parameters of a descent: ½·log(w² + LEVEL_W²) in place of log w.

    Answers depend on w². A descent in log w creeps where a feature is ignored, this one gets there in a step or two.
    """
    u = x.copy()
    u[logs] = 0.5 * np.log(np.exp(2.0 * x[logs]) + LEVEL_W**2)
    return u


def _from_levels(u: Array, logs: slice) -> tuple[Array, Array]:
    """log w again, and its derivative by the parameter of a descent."""
    x, slope = u.copy(), np.ones(len(u))
    square = np.maximum(np.exp(2.0 * u[logs]) - LEVEL_W**2, MIN_SCALED_W**2)
    x[logs], slope[logs] = 0.5 * np.log(square), 1.0 + LEVEL_W**2 / square
    return x, slope


def learn_line_heads(objective: Objective, scaling: Scaling, seed: int, progress: Progress | None) -> Heads:
    """Heads that are local lines, and their mix.

    *Cost*: some hundred evaluations of O(n²·d²) up to 2,000 rows; beyond, of O(4,000·2,000·d²) on a subsample and some
    ten per head of O(1,000·n·d²) to O(4,000·n·d²).
    """
    log = HeadSearchLog(progress)
    search = _Search(objective, scaling, seed, log)
    fold = search.folds()
    # Simple heads take the place of lines only where rows that no search has seen say so.
    kinds = _kinds(objective, fold is not None)
    if not search.criterion(kinds[0]).space.size:
        return _constant(objective, scaling)
    log.planned = _planned_pairs(search.size, kinds, fold)
    found: list[tuple[HeadKind, HeadCriterion, Array]] = []
    fitted: list[tuple[tuple[LearnedHead, ...], Array]] = []
    interrupted = False
    try:
        # One at a time: after Ctrl-C those that ended count.
        for end in search.ends(kinds):
            found += [end]
        if fold is not None:
            fitted = [search.cross_fitted(*end, fold) for end in found]
        elif not search.few:
            useful = search.useful()
            found = [end for end in found if end[0] in useful]
            log.planned = log.before + len(found) * _planned_pairs_all_keys(search.size)
            for number, (kind, criterion, x) in enumerate(found):
                found[number] = kind, criterion, search.with_all_keys(criterion, x)
    except KeyboardInterrupt:
        if not found:
            raise
        interrupted, fitted = True, []
    size = search.size
    if not fitted:
        rows = np.sort(search.random.permutation(size)[: _answered_rows(size)])
        fitted = [((search.head(kind, x),), criterion.answer(x, rows)) for kind, criterion, x in found]
        objective = replace(objective, rows=rows)
    heads, answers = zip(*fitted, strict=True)
    return mix_heads(objective, heads, answers, scaling, log.path, interrupted)


def _kinds(objective: Objective, simple: bool) -> tuple[HeadKind, ...]:
    """The kinds of heads for an objective; without enough rows for a full matrix there is one w per feature."""
    scale = feature_scales(objective.key, objective.counts)
    kinds: tuple[HeadKind, ...] = LINES + SIMPLE if simple else LINES
    if not supports_full(objective, int((scale > 0.0).sum())):
        kinds = tuple(kind._replace(metric="feature") if kind.metric == "full" else kind for kind in kinds)
    return tuple(dict.fromkeys(kinds))


def supports_full(objective: Objective, width: int) -> bool:
    """Whether there are enough rows for a full matrix of so many features."""
    return width > 1 and ROWS_PER_PARAMETER * width**2 <= objective.size


def _constant(objective: Objective, scaling: Scaling) -> Heads:
    """The one head of features that do not vary: a mean."""
    width = objective.key.shape[1]
    head = LearnedHead(0.0, np.ones(width), np.zeros(width), RIDGE_BOUNDS[1])
    answer = objective.loss.from_units_of_y(objective(head.w, head.ridge).answer)
    return mix_heads(objective, [(head,)], [answer], scaling, [], False)


def _start_points(size: int) -> tuple[tuple[float, float], ...]:
    """(w·scale, λ) at which descents start with so many rows."""
    return START_POINTS if size <= ROWS_OF_OWN_STARTS else (*START_POINTS, SHARP_START_POINT)


def _every(size: int, count: int) -> Array:
    """Some ``count`` rows of ``size``, evenly spread."""
    return np.arange(0, size, max(1, size // count))


def _evaluated_rows(size: int, most: int, pairs: float, least: int) -> int:
    """Number of rows evaluated against ``size`` keys: ``most``, or as many as there are pairs for."""
    return int(min(size, most, max(pairs / size, least)))


def _answered_rows(size: int) -> int:
    """Number of rows that have left-out answers at the end."""
    return (
        size
        if size <= MAX_ROWS_ANSWERED
        else _evaluated_rows(size, MAX_ROWS_ANSWERED, ANSWERED_PAIRS, MIN_ROWS_ANSWERED)
    )


def _planned_pairs(size: int, kinds: tuple[HeadKind, ...], fold: Array | None) -> float:
    """Pairs evaluated by all descents, if each takes its typical number of evaluations."""
    keys, rows = (size, size) if size <= MAX_ROWS_CROSS_FITTED else (min(size, SUBSAMPLE_KEYS), SUBSAMPLE_ROWS)
    scalings = 1 if size > ROWS_OF_OWN_STARTS else len({kind.share for kind in kinds if kind.metric == "feature"})
    starts = scalings * len(_start_points(size)) * START_EVALUATIONS
    pairs = float(starts + len(kinds) * TYPICAL_EVALUATIONS) * keys * rows
    if size <= MAX_ROWS_CROSS_FITTED:
        pairs += len(kinds) * FOLD_EVALUATIONS * float(size) ** 2
    else:
        pairs += min(len(kinds), TYPICAL_USEFUL_KINDS) * _planned_pairs_all_keys(size)
    if fold is not None:
        folds = int(fold.max()) + 1
        pairs += len(kinds) * folds * FOLD_EVALUATIONS * float(size * (1.0 - 1.0 / folds)) ** 2
    return pairs


def _planned_pairs_all_keys(size: int) -> float:
    """Pairs of the search of a head with all rows as keys, and of its answers."""
    rows = _evaluated_rows(size, MAX_ROWS_ALL_KEYS, PAIRS_ALL_KEYS, MIN_ROWS_ALL_KEYS)
    evaluations = ROUGH_ALL_KEYS_EVALUATIONS / ROUGH_PART_ALL_KEYS + ALL_KEYS_EVALUATIONS
    return size * (evaluations * rows + ANSWER_COST * _answered_rows(size))

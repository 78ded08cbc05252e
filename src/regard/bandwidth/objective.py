"""The objective: the leave-one-out error, or another criterion, as a function of w, with its gradient.

    loo(w) = mean_i loss(y_i, f_{−i}(x_i))

The row itself is left out by identity, before the peak is taken; other rows with the same x stay. Two more criteria
use the fit f with the row in it and penalise its degrees of freedom, tr H = Σ_i ∂f_i/∂y_i:

    gcv(w)  = mean (y − f)² / (1 − tr H/n)²,  infinite beyond tr H = n/2
    aicc(w) = log mean (y − f)² + (1 + tr H/n)/(1 − (tr H + 2)/n)

Weights of integer dtype are repetitions: one of a row's k copies is left out, k − 1 stay, and n = Σk. Weights of
floating dtype are importances: the whole row is left out. With groups, the whole group is left out.

An ``Objective`` has its rows in memory. If they lie in blocks on a cluster, each block is an ``Objective`` there;
a subclass (``regard.cluster.cluster_objective``) says how blocks are mapped and how what they give is merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regard.bandwidth.losses import AbsoluteError, LogLoss, Loss, SquaredError
from regard.bandwidth.parametrization import feature_scales
from regard.bandwidth.rules import checked_groups, checked_kernel, counts_of, counts_repetitions
from regard.core.arrays import Array
from regard.core.bounds import checked_range
from regard.core.local_fits import check_spans
from regard.core.problem import Adjoint, Problem, build, checked_weight, matrix, moment_count, relative_weights
from regard.core.scores import RADIAL, Gaussian, Nearest, Radial
from regard.core.state import Partial
from regard.data.columns import Coding
from regard.engines.costs import estimate
from regard.engines.cpu.prepared import Prepared
from regard.pooling.functions import pool
from regard.pooling.local_pooling import LocalPooling, fit_local
from regard.pooling.planner import engine_of_limits
from regard.pooling.runner import prepare

CRITERIA = ("loo", "gcv", "aicc")
# Condition number of a matrix w up to which single precision is enough.
MAX_CONDITION = 1e4
# Largest coordinate of a projected row for which it is enough.
MAX_PROJECTION = 1e6


class Evaluation(NamedTuple):
    """The criterion at one w and λ."""

    value: float  # with y scaled to unit variance, see ``Objective.in_units_of_y``
    w: Array | None  # its gradient, in the shape of w; None if not asked for
    log_ridge: float  # its derivative by log λ
    answer: Array  # (Q, P)  left-out answers in the units of y, for the rows evaluated; of dask where the rows are
    empty: int  # rows with empty in reach, answered by the nearest other row


@dataclass(frozen=True, eq=False)
class Objective:
    """Data, loss and criterion; call it with w to get an Evaluation. Make it by ``Objective.of``.

    Parameters
    ----------
    key : array (n, d)
        Rows in float64, without those of weight zero.
    loss : SquaredError, AbsoluteError or LogLoss
        Values or classes of the rows, and their loss.
    weight : array (n,) or None
        Sample weights.
    counts : array (n,)
        How much each row counts in the mean.
    repeated : array (n,) or None
        Copies of a row beyond the first, where weights are repetitions.
    labels : array (n,)
        Rows with equal labels may not attend to each other.
    rows : array (Q,)
        Rows at which the criterion is evaluated.
    kernel : str
        Name in ``regard.scores.KERNELS``.
    degree : int
        0 for means, 1 for lines.
    criterion : str
        One of ``CRITERIA``.
    engine : str
        "auto", or the name of an engine.
    tol : float, default=0.0
        Fraction of its attention mass that a row may lose.
    rough : bool, default=False
        Compute lines in single precision, which is enough for a search.
    coding : Coding, default=None
        Of a mixed table: then w has one entry per part.
    sloped : array (d,) of bool, default=None
        Features that lines have slopes in; None means all.

    >>> objective = Objective.of([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
    >>> round(objective.in_units_of_y(objective(0.0).value), 12)
    1.5
    """

    key: Array  # (n, d) float64, rows of weight zero left out
    loss: SquaredError | LogLoss
    weight: Array | None  # (n,)
    counts: Array  # (n,)  how much each row counts in the mean
    repeated: Array | None  # (n,)  copies of a row beyond the first, where weights are repetitions
    labels: Array  # (n,)  rows with equal labels may not attend to each other
    rows: Array  # (Q,)  rows at which the criterion is evaluated
    kernel: str
    degree: int
    criterion: str
    engine: str
    tol: float = 0.0  # share of its attention mass that a row may lose
    rough: bool = False  # lines in single precision: enough for a search
    coding: Coding | None = None  # of a mixed table: then w has one entry per part
    sloped: Array | None = None  # (d,) boolean: features that lines have slopes in; None: all

    in_memory: ClassVar[bool] = True

    @classmethod
    def of(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        *,
        kernel: str = "gaussian",
        degree: int = 0,
        criterion: str = "loo",
        classes: int | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        engine: str = "auto",
        loss: str = "squared",
        coding: Coding | None = None,
        sloped: Array | None = None,
    ) -> Objective:
        """Check the data and make the objective.

        Parameters
        ----------
        X : array (n, d)
            Rows, finite.
        y : array (n,) or (n, P)
            Numbers; with ``classes``, (n,) numbers of classes.
        kernel : str, default="gaussian"
            Name in ``regard.scores.KERNELS``.
        degree : int, default=0
            0 for means, 1 for lines.
        criterion : {"loo", "gcv", "aicc"}, default="loo"
            See ``regard.bandwidth.objective``.
        classes : int, default=None
            Number of classes; the loss is then the log-loss.
        sample_weight : array (n,), default=None
            Integers are repetitions, floats importances.
        groups : array (n,), default=None
            Rows of one group may not attend to each other.
        engine : str, default="auto"
            "auto", or the name of an engine.
        loss : {"squared", "absolute"}, default="squared"
            Loss of numbers.
        coding : Coding, default=None
            Of a mixed table.
        sloped : array (d,) of bool, default=None
            Features that lines have slopes in; None means all.

        Returns
        -------
        Objective

        Raises
        ------
        ValueError
            If the data do not fit together, are not finite, or leave no row to predict from others.
        """
        if criterion not in CRITERIA:
            raise ValueError(f"criterion must be one of {', '.join(map(repr, CRITERIA))}, got {criterion!r}")
        key, target = matrix("X", X).astype(np.float64), np.asarray(y)
        if target.shape[:1] != key.shape[:1]:
            raise ValueError(f"X has {len(key)} rows but y has {len(target)}")
        if not (np.isfinite(key).all() and (classes is not None or np.isfinite(target).all())):
            raise ValueError("X and y must be finite")
        checked_range("X", key)
        checked_kernel(kernel)
        _check_degree(degree, key)
        if classes is not None:
            _check_classes(target, classes)
        weight = checked_weight(sample_weight, len(key))
        labels = np.arange(len(key))
        if groups is not None:
            labels = np.unique(checked_groups(groups, len(key)), return_inverse=True)[1]
        if weight is not None:
            used = weight > 0
            key, target, labels, weight = key[used], target[used], labels[used], weight[used]
        counts = np.ones(len(key)) if weight is None else counts_of(weight)
        repeated = None if groups is not None or weight is None or not counts_repetitions(weight) else counts - 1.0
        rows = np.arange(len(key))
        _require_others(labels, repeated, criterion)
        judge: SquaredError | LogLoss
        if classes is None:
            kind = AbsoluteError if loss == "absolute" else SquaredError
            judge = kind.of(target.astype(np.float64), counts)
        else:
            judge = LogLoss.of(target, classes, counts)
        facts = (key, judge, weight, counts, repeated, labels, rows, kernel, degree, criterion, engine)
        return cls(*facts, coding=coding, sloped=sloped)

    def evaluated_at(self, rows: Array) -> Objective:
        """The same objective as a mean over some of the rows; all rows stay keys.

        Parameters
        ----------
        rows : array of int
            Positions among the rows that are evaluated now.

        Returns
        -------
        Objective
        """
        return replace(self, rows=self.rows[rows])

    def among(self, rows: Array) -> Objective:
        """The objective of some of the rows, as if there were no others.

        Parameters
        ----------
        rows : array of int
            Positions of the rows to keep.

        Returns
        -------
        Objective
        """
        return replace(
            self,
            key=self.key[rows],
            loss=self.loss.take(rows),
            weight=None if self.weight is None else self.weight[rows],
            counts=self.counts[rows],
            repeated=None if self.repeated is None else self.repeated[rows],
            labels=self.labels[rows],
            rows=np.arange(len(rows)),
        )

    def search_each(
        self, search: Callable[..., Any], subsamples: Sequence[tuple[Array, Array | None]], progress: Any = None
    ) -> list[Any]:
        """What a search finds for each subsample of rows, as if there were no others.

        Parameters
        ----------
        search : callable (objective, evaluated, progress=…)
            Called once per subsample.
        subsamples : sequence of (rows, evaluated)
            Positions of a subsample's rows, and which of them the search evaluates (None: all).
        progress : callable, default=None
            Passed on.

        Returns
        -------
        list
            What ``search`` returned.
        """
        return [search(self.among(rows), evaluated, progress=progress) for rows, evaluated in subsamples]

    def answered(self, w: ArrayLike, ridge: float, rows: Array) -> tuple[Evaluation, Array]:
        """The objective as a mean over ``rows``, and answers to all rows (n, P): NaN for those not evaluated.

        Parameters
        ----------
        w : array (), (d,) or (d, r)
            1/bandwidth.
        ridge : float
            λ of local lines.
        rows : array of int
            Positions of the rows to evaluate.

        Returns
        -------
        tuple of an Evaluation and an array (n, P)
        """
        found = self.evaluated_at(rows)(w, ridge)
        answer = np.full((len(self.rows), found.answer.shape[1]), np.nan)
        answer[rows] = found.answer
        return found, answer

    def in_units_of_y(self, value: float) -> float:
        """A value of this objective, for which y has unit variance, as the criterion of the given y.

        Parameters
        ----------
        value : float
            Value of an evaluation.

        Returns
        -------
        float
        """
        with np.errstate(divide="ignore"):
            return value + float(np.log(self.loss.unit)) if self.criterion == "aicc" else value * self.loss.unit

    def score(self, answer: Array) -> float:
        """The score of leave-one-out predictions (n, P) in the units of y: R², or minus the log-loss.

        Rows whose prediction is NaN do not count.

        Parameters
        ----------
        answer : array (n, P)
            Predictions in the units of y, or class probabilities.

        Returns
        -------
        float
        """
        known = ~np.isnan(answer).any(axis=1)
        rows = self.rows[known]
        found = self.loss.from_units_of_y(answer[known])
        if isinstance(self.loss, LogLoss):
            return -self.loss(found, rows, self.counts[rows]).value
        return 1.0 - SquaredError.__call__(self.loss, found, rows, self.counts[rows]).value

    @property
    def feature_scale(self) -> Array:
        """Standard deviation of what each w multiplies: of every feature, or of every part of a mixed table."""
        each = feature_scales(self.key, self.counts)
        return each if self.coding is None else np.sqrt(self.coding.sum_per_part(each**2))

    @property
    def size(self) -> float:
        """n, repetitions counted."""
        return float(self.counts.sum())

    @property
    def _moment_degree(self) -> int:
        """Degree of the moments that a fit needs: means those of degree 0, lines those of degree 2."""
        return 2 * self.degree

    def seconds(self, w: ArrayLike) -> float:
        """The planner's estimate of the seconds for one evaluation without its gradient.

        Parameters
        ----------
        w : array (), (d,) or (d, r)
            1/bandwidth.

        Returns
        -------
        float
        """
        sketch = self._problem(RADIAL[self.kernel](self._of_features(w))).sketch()
        return estimate(replace(sketch, degree=self._moment_degree), self.engine)

    def __call__(self, w: ArrayLike, ridge: float = 0.0, *, gradient: bool = False) -> Evaluation:
        """The objective at w (scalar, (d,) or (d, r)) and λ, with its gradient if asked for."""
        if self.coding is None:
            return self._at(w, ridge, gradient)
        found = self._at(self._of_features(w), ridge, gradient)
        if found.w is None:
            return found
        slope = self.coding.sum_per_part(found.w)
        return found._replace(w=slope if np.ndim(w) else np.asarray(slope.sum()))

    def _of_features(self, w: ArrayLike) -> ArrayLike:
        return w if self.coding is None else self.coding.per_feature(np.asarray(w))

    def _at(self, w: ArrayLike, ridge: float, gradient: bool) -> Evaluation:
        """Evaluate at a w of the features."""
        prepared, scales = self._prepared, np.asarray(w, np.float64)
        if prepared is not None and not prepared.holds(scales):
            prepared = None
        if prepared is not None and not self.degree:
            return self._means(prepared, scales, gradient)
        # On a GPU single precision is not faster here.
        if self.rough and self.engine != "fused" and (space := self._projected(scales)) is not None:
            return self._from_projected(*space, scales, ridge, gradient)
        return self._pooled(w, ridge, gradient, prepared)

    def _projected(self, w: Array) -> tuple[Objective, Array, Array] | None:
        """The objective over projected keys, z = (x − x̄)·W, with W (r, r) and the features it uses.

        Its lines at W = I are the same. None if W is not square, is ill-conditioned, or projects too far.
        """
        scales = np.broadcast_to(w, self.key.shape[1]) if w.ndim < 2 else np.abs(w).max(axis=1, initial=0.0)
        taken = np.asarray(scales != 0.0)
        W = w[taken] if w.ndim == 2 else np.diag(scales[taken])
        if W.shape[0] != W.shape[1] or not W.size or np.linalg.cond(W) > MAX_CONDITION:
            return None
        z = (self.key - self.key.mean(axis=0))[:, taken] @ W
        if not np.abs(z).max() <= MAX_PROJECTION:
            return None
        return replace(self, key=z.astype(np.float32)), W, taken

    def _from_projected(
        self, there: Objective, W: Array, taken: Array, w: Array, ridge: float, gradient: bool
    ) -> Evaluation:
        """The evaluation in the projected space: z(I + E) = x·W(I + E), so a gradient by E at 0 is one by W⁻¹·dW."""
        found = there._pooled(np.eye(len(W)), ridge, gradient)
        if found.w is None:
            return found
        by_w = np.linalg.solve(W.T, found.w)
        slope = np.zeros(w.shape)
        if w.ndim == 2:
            slope[taken] = by_w
        elif w.ndim == 1:
            slope[taken] = np.diagonal(by_w)
        else:
            slope = np.asarray(np.trace(by_w))
        return found._replace(w=slope)

    @cached_property
    def _prepared(self) -> Prepared | None:
        """What does not depend on w, computed once; None if the engines compute everything at every w."""
        if self.kernel != "gaussian" or self.tol:
            return None
        if not self.degree and (self.criterion != "loo" or isinstance(self.loss, AbsoluteError)):
            return None
        staying = None if self.repeated is None or self.degree else self._staying
        return prepare(self._base_problem, self.engine, self.loss.columns[self.rows, 0], staying)

    @cached_property
    def _base_problem(self) -> Problem:
        return replace(self._problem(Gaussian()), degree=self._moment_degree)

    def _means(self, prepared: Prepared, w: Array, gradient: bool) -> Evaluation:
        """Means relative to each row's own value; rows with too little mass are evaluated again by the engines."""
        partial, poor = prepared.moments(w, slopes=gradient)
        assert poor is not None
        # An infinite mass leaves those rows neither an error nor a gradient here.
        mass = np.where(poor, np.inf, partial.mass)
        error = partial.moments[:, 0] / mass
        counts = self.counts[self.rows]
        answer = self.loss.columns[self.rows] + error[:, None]
        share = counts / counts.sum()
        value, slope, empty = float(share @ error**2), None, 0
        if gradient:
            by_error = (2.0 * share * error)[:, None]
            adjoint = Adjoint(np.ones(by_error.shape), by_error, by_error * error[:, None])
            slope = prepared.pullback(w, partial._replace(mass=mass), adjoint)
        answer = self.loss.in_units_of_y(answer)
        if poor.any():
            rest = self.evaluated_at(np.flatnonzero(poor))._pooled(w, 0.0, gradient)
            part = float(counts[poor].sum() / counts.sum())
            value, empty = value + part * rest.value, rest.empty
            slope = None if slope is None or rest.w is None else slope + part * rest.w
            answer[poor] = rest.answer
        return Evaluation(value, slope, 0.0, answer, empty)

    def _pooled(self, w: ArrayLike, ridge: float, gradient: bool, prepared: Prepared | None = None) -> Evaluation:
        """The evaluation by moments and pullback of an engine, or of a prepared problem."""
        score = RADIAL[self.kernel](w)
        local = self._fit(score, ridge, prepared)
        answer = local.fit.output
        empty = local.partial.mass <= 0.0
        if empty.any():
            answer = answer.copy()
            answer[empty] = self._nearest(score, empty)
        loss = self.loss(answer, self.rows, self.counts[self.rows])
        value, grad_output, leverage = loss.value, loss.gradient, None
        if self.criterion != "loo":
            value, grad_output, leverage = self._penalised(local, loss)
        grad_w, grad_ridge = None, 0.0
        if gradient:
            grad_w, _, grad_ridge = local.gradients(grad_output, frozenset({"w"}), leverage)
        return Evaluation(value, grad_w, grad_ridge, self.loss.in_units_of_y(answer), int(empty.sum()))

    def _problem(self, score: Radial) -> Problem:
        exclude = (self.labels[self.rows], self.labels) if self.criterion == "loo" else None
        query = self.key[self.rows]
        # The spectral engine is never exact: if it is named, its default tolerance is that of ``pool``.
        tol = self.tol if self.tol or self.engine != "spectral" else None
        options: dict[str, Any] = {"sample_weight": self.weight, "exclude": exclude, "tol": tol}
        problem = build(query, self.key, self.loss.columns.astype(self.key.dtype), score, **options)
        return replace(problem, rough=self.key.dtype == np.float32)

    def _fit(self, score: Radial, ridge: float, prepared: Prepared | None) -> LocalPooling:
        own = None
        if self.repeated is not None and self.criterion == "loo" and self.repeated[self.rows].any():
            own = self.own(self._staying)
        if prepared is not None:
            # A prepared problem is validated already.
            return fit_local(replace(self._base_problem, score=score), self.degree, ridge, prepared, own, self.sloped)
        engine = self.engine if score.w.any() else engine_of_limits(self.engine)
        return fit_local(self._problem(score), self.degree, ridge, engine, own, self.sloped)

    def own(self, mass: Array) -> Partial:
        """The state of the copies of every row that stay when one is left out, of this mass (Q,): at δ = 0.

        Parameters
        ----------
        mass : array (Q,)
            Mass of the copies of each evaluated row that stay.

        Returns
        -------
        Partial
        """
        columns = self.loss.columns[self.rows]
        moments = np.zeros((len(mass), moment_count(columns.shape[1], self.key.shape[1], self._moment_degree)))
        moments[:, : columns.shape[1]] = mass[:, None] * columns
        return Partial(np.where(mass > 0.0, 0.0, -np.inf), mass, moments)

    @property
    def _staying(self) -> Array:
        """Mass (Q,) of the copies of a row that stay when one is left out."""
        assert self.weight is not None
        assert self.repeated is not None
        unit = np.exp(-relative_weights(self.weight.astype(np.float64))[2])
        return np.asarray(self.repeated[self.rows] * unit)

    def _nearest(self, score: Radial, empty: Array) -> Array:
        rows = self.rows[empty]
        exclude = (self.labels[rows], self.labels)
        limit = Nearest(score.w) if score.w.any() else score
        pooled = pool(
            self.key[rows],
            self.key,
            self.loss.columns,
            limit,
            sample_weight=self.weight,
            exclude=exclude,
            engine=engine_of_limits(self.engine),
        )
        return pooled.output

    def _penalised(self, local: LocalPooling, loss: Loss) -> tuple[float, Array, Array]:
        """The criterion, its gradient by the answers, and by left₀/mass·exp(−peak)."""
        n, counts = self.size, self.counts[self.rows]
        # If only some of the rows are evaluated, their counts are scaled up to n.
        counts = counts * (n / counts.sum())
        mass = local.partial.mass  # above 0: every row attends to itself
        own = np.ones(len(mass))
        if self.weight is not None:
            relative, _, shift = relative_weights(self.weight.astype(np.float64))
            # Each repetition is a row of its own.
            own = np.full(len(mass), np.exp(-shift)) if counts_repetitions(self.weight) else relative[self.rows]
        leverage = own * np.exp(-local.partial.peak) / mass * local.fit.left[:, 0]
        freedom = float(counts @ leverage)
        if self.criterion == "gcv":
            room = 1.0 - freedom / n
            # Rows that attend only to themselves have no error; beyond n/2 the criterion would favour them.
            if room < 0.5:
                return np.inf, loss.gradient, np.zeros(len(mass))
            return loss.value / room**2, loss.gradient / room**2, 2.0 * loss.value / room**3 * (counts / n) * own
        room = 1.0 - (freedom + 2.0) / n
        if room <= 0.0 or loss.value <= 0.0:
            return (np.inf if room <= 0.0 else -np.inf), loss.gradient, np.zeros(len(mass))
        value = np.log(loss.value) + (1.0 + freedom / n) / room
        by_freedom = (1.0 / room + (1.0 + freedom / n) / room**2) / n
        return float(value), loss.gradient / loss.value, by_freedom * counts * own


def _check_degree(degree: int, key: Array) -> None:
    if degree not in (0, 1):
        raise ValueError(f"degree must be 0 (means) or 1 (lines), got {degree!r}")
    if degree:
        check_spans(key)


def _check_classes(labels: Array, classes: int) -> None:
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise ValueError(f"with classes, y must be (n,) integers, got dtype {labels.dtype} and shape {labels.shape}")
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise ValueError(
            f"with classes={classes}, y must lie in 0 … {classes - 1}, got {labels.min()} to {labels.max()}"
        )


def _require_others(labels: Array, repeated: Array | None, criterion: str) -> None:
    """Raise ValueError if no row has another row to be predicted from."""
    if criterion != "loo":
        return
    alone = len(labels) == 0 or (labels == labels[0]).all()
    if alone and not (repeated is not None and repeated.any()):
        rows = f"{len(labels)} row" + "s" * (len(labels) != 1)
        what = "one group" if len(labels) > 1 else f"{rows} (n_samples={len(labels)})"
        raise ValueError(f"learning a bandwidth needs rows to leave out and others to predict them from, got {what}")

"""What the kernel estimators share: parameters, a bandwidth given or learned, local means and lines, their effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from regard.bandwidth import CRITERIA, Objective, Search, Width, learned, resolve
from regard.bandwidth.adaptive import Neighbourhood, NeighbourSearch, groups_of, learn_neighbours
from regard.bandwidth.distinct import distinct, spread_out
from regard.bandwidth.rules import checked_kernel, counts_repetitions
from regard.bandwidth.shapes import spreads
from regard.bandwidth.units import powers_of_two, shrunk, unscaled
from regard.data.columns import NUMBER, Coding
from regard.estimators.base import Array, KeyPooling
from regard.estimators.callbacks import watched
from regard.estimators.effects import WithEffects
from regard.estimators.gappy import has_gaps, whole_rows
from regard.estimators.inputs import query_array
from regard.estimators.judged import data_to_diagnose, most_relevant, rows_with_gaps
from regard.estimators.mixed import by_column, check_learnable, column_effects, given_width
from regard.estimators.parameters import check_kernel_parameters
from regard.gaps import GappyFit, pool_with_gaps, weights_with_gaps
from regard.inference import Diagnosis, Look, LossPath, diagnose, loss_path
from regard.inference.effects import leaning
from regard.local import Local, pool_local
from regard.runner import small_matrices
from regard.scores import RADIAL, Radial


class KernelPooling(WithEffects, KeyPooling):
    """Parameters and widths that the regressors and the classifiers share."""

    bandwidth_: Any  # float or (d,); not there where w_ is a matrix
    w_: Any  # float, (d,) or (d, r)
    ridge_: float
    neighbours_: int  # where every row has a bandwidth of its own
    search_: Search | NeighbourSearch
    loo_predictions_: Array
    loo_score_: float
    coding_: Coding  # where X is more than numbers

    _DEGREE = 0
    _EMPTY: tuple[str, ...] = ("nearest", "nan", "raise")

    def __init__(
        self,
        kernel: Any = "gaussian",
        bandwidth: Any = "loo",
        metric: str = "feature",
        optimizer: str = "lbfgs",
        empty: str = "nearest",
        engine: str = "auto",
        tol: float | None = None,
        random_state: Any = None,
        device: str = "cpu",
        missing: str = "refuse",
        loss: str = "squared",
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.metric = metric
        self.optimizer = optimizer
        self.empty = empty
        self.engine = engine
        self.tol = tol
        self.random_state = random_state
        self.device = device
        self.missing = missing
        self.loss = loss

    @property
    def attention_score_(self) -> Radial:
        """The score between a row of X and a training row: ``kernel`` at ``w_``; of a mixed table, of its features."""
        check_is_fitted(self)
        return RADIAL[self._kernel](self.w_)

    @property
    def _kernel(self) -> str:
        """The kernel of the features: a product of kernels of columns is Gaussian."""
        return NUMBER if isinstance(self.kernel, Mapping | list | tuple) else checked_kernel(self.kernel)

    @property
    def feature_relevance_(self) -> Array:
        """How much each column decides about nearness, (d,), adding up to 1: its share of Σ (w·spread)².

        0 for a column that was smoothed out or does not vary; all 0 where attention ignores every one.
        """
        return by_column(self, self._relevance())

    def _relevance(self) -> Array:
        """The same of features, which a column of a mixed table has several of."""
        check_is_fitted(self)
        d = self.key_.shape[1]
        key, counts = whole_rows(self)
        w = np.asarray(self.w_)
        size = np.linalg.norm(w, axis=1) if w.ndim == 2 else np.broadcast_to(w, d)
        reach = (size * spreads(key, counts)) ** 2
        return np.asarray(reach / reach.sum() if reach.any() else reach)

    def marginal_effects(self, X: Any) -> Array:
        """∂predict/∂x at every row of X: (Q, d), or (Q, P, d) where y has P columns.

        The derivative of the very function that ``predict`` computes, weights and all, in the units of y over X.

        *Empty rows*: 0, as the nearest training row's y does not move; NaN with ``empty="nan"``. *Cost*: as
        ``predict``, three times for every column of y.

        >>> from regard import LocalLinearRegressor
        >>> model = LocalLinearRegressor(bandwidth=1.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
        >>> model.marginal_effects([[0.5]]).round(12).tolist()
        [[2.0]]
        """
        check_is_fitted(self)
        query = query_array(self, X)
        effects, nobody = self._by_width(query, KernelPooling._effects)
        self._report(nobody)
        effects = column_effects(self, query, effects, lambda at: self._pooled(at, self._columns())[0])
        single = self.value_.ndim == 1 and effects.shape[1] == 1
        return np.asarray((effects[:, 0] if single else effects), query.dtype)

    def _effects(self, query: Array) -> tuple[Array, Array]:
        """∂output/∂x (Q, P, d), and which queries had nobody in reach."""
        value = self._columns()
        _, scale, local = self._local(query, value)
        effects = np.empty((len(query), value.shape[1], query.shape[1]))
        for p in range(value.shape[1]):
            along = np.zeros((len(query), value.shape[1]))
            along[:, p] = 1.0
            grad = local.gradients(along, frozenset({"query"})).query
            assert grad is not None
            effects[:, p] = grad * scale[p]
        nobody = local.partial.mass <= 0.0
        effects[nobody] = np.nan if self.empty == "nan" else 0.0
        return effects, nobody

    def effective_weights(self, X: Any) -> Array:
        """What each training row's y counts in each prediction, (Q, K): predict(X) = effective_weights(X) @ y.

        ``attend`` says how near a row is, this how much it moves the answer. The two agree for weighted averages; for
        local lines these may be negative, and still add up to 1.

        *Empty rows*: as ``attend``. *Cost*: O(Q·K·d) time and O(Q·K) memory.
        """
        check_is_fitted(self)
        query = query_array(self, X)
        weights, nobody = self._by_width(query, KernelPooling._effective)
        self._report(nobody)
        return weights

    def _effective(self, query: Array) -> tuple[Array, Array]:
        """Effective weights (Q, K), and which queries had nobody in reach."""
        weights, nobody = self._weights(query)
        if self._DEGREE:
            left = self._local(query, self._columns())[2].fit.left
            weights = np.where(nobody[:, None], weights, leaning(weights, left, self.key_, query))
        return weights, nobody

    def _pooled(self, query: Array, value: Array) -> tuple[Array, Array]:
        if not hasattr(self, "neighbours_"):
            return super()._pooled(query, value)
        return self._by_width(query, lambda model, query: model._pooled(query, value))

    def _weights(self, query: Array) -> tuple[Array, Array]:
        if has_gaps(self, query):
            options: dict[str, Any] = {"sample_weight": self.sample_weight_, "engine": self.engine}
            weights = weights_with_gaps(query, self.key_, self.attention_score_, self._part_of, **options)
            return weights.astype(query.dtype), np.asarray(~weights.any(axis=1))
        if not hasattr(self, "neighbours_"):
            return super()._weights(query)
        return self._by_width(query, lambda model, query: model._weights(query))

    def _by_width(self, query: Array, answer: Callable[[Any, Array], tuple[Array, Array]]) -> tuple[Array, Array]:
        """What ``answer`` says of queries (Q, …) and of nobody being in reach (Q,), each at its own bandwidth."""
        if not hasattr(self, "neighbours_"):
            return answer(self, query)
        if not len(query):
            return answer(self._fixed(1.0), query)
        weight = self.sample_weight_
        counts = weight.astype(np.int64) if weight is not None and counts_repetitions(weight) else None
        key = self.key_ if weight is None or counts is not None else self.key_[weight > 0]
        w = np.asarray(self.w_)
        widths = Neighbourhood.of(key, w, self._kernel, counts).widths(query, w, self.neighbours_)
        out: Array | None = None
        nobody = np.zeros(len(query), bool)
        for reach, rows in groups_of(widths):
            part, nobody[rows] = answer(self._fixed(reach), query[rows])
            out = np.empty((len(query), *part.shape[1:]), part.dtype) if out is None else out
            out[rows] = part
        assert out is not None
        return out, nobody

    def _fixed(self, reach: float) -> KernelPooling:
        """The same with one bandwidth for all rows, ``reach`` times as wide."""
        model = copy(self)
        model.__dict__.pop("neighbours_", None)
        model.w_ = self.w_ / reach
        return model

    def diagnose(self) -> Diagnosis:
        """Is attention too thin (like a needle), too thick (like a river) or about right, and what to do about it.

        Left-out rows are the judge: their error with this w, and with the best multiple of it. Printing the result
        tells it in words. Groups given to ``fit`` are not known any more: every row is left out on its own. Rows with
        gaps are not judged; ``rows_with_gaps`` says how many.

        *Cost*: O(min(K, 2,000)·K·d) for each of some 10 passes, d² at degree 1.

        >>> from regard import NadarayaWatsonRegressor
        >>> x = np.linspace(0.0, 6.0, 40)[:, None]
        >>> NadarayaWatsonRegressor(bandwidth=5.0).fit(x, np.sin(x[:, 0])).diagnose().verdict
        'too thick'
        """
        look = self._look("diagnose")
        feature, name = most_relevant(self)
        return diagnose([look], look.objective.key[:, feature], name, rows_with_gaps=rows_with_gaps(self))

    def loss_path(self, multiples: Any) -> LossPath:
        """Training and left-out loss with ``w_`` times each of ``multiples`` (M,): what another width would have cost.

        Losses are those of ``diagnose``, of rows without gaps. *Cost*: 2·M passes of O(min(K, 2,000)·K·d), d² at degree
        1.
        """
        return loss_path([self._look("loss_path")], multiples)

    def _look(self, method: str) -> Look:
        """This attention, for a method that judges it."""
        check_is_fitted(self)
        if hasattr(self, "neighbours_"):
            raise ValueError(f"{method} judges one bandwidth, and bandwidth='adaptive' has one for every row")
        objective = data_to_diagnose(self, kernel=self._kernel, degree=self._DEGREE)
        return Look(1.0, objective, np.asarray(self.w_), self._ridge)

    def _columns(self) -> Array:
        """Values as float64 columns (K, P)."""
        value = self.value_.astype(np.float64)
        return value[:, None] if value.ndim == 1 else value

    def _local(self, query: Array, value: Array) -> tuple[Array, Array, Local | GappyFit]:
        """Outputs at the queries, what the fits are to be multiplied by for the units of value, and the fits."""
        options: dict[str, Any] = {
            "degree": self._DEGREE,
            "ridge": self._ridge,
            "sample_weight": self.sample_weight_,
            "engine": self._engine,
            "tol": self.tol,
            "leaning": self._leaning,
        }
        if has_gaps(self, query):
            return pool_with_gaps(query, self.key_, value, self.attention_score_, self._part_of, **options)
        return pool_local(query, self.key_, value, self.attention_score_, **options)

    def _averages(self, query: Array, value: Array) -> tuple[Array, Array]:
        if not has_gaps(self, query):
            return super()._averages(query, value)
        output, _, local = self._local(query, value[:, None] if value.ndim == 1 else value)
        output = output.astype(query.dtype)
        return (output[:, 0] if value.ndim == 1 else output), local.partial.mass <= 0.0

    @property
    def _part_of(self) -> Array:
        """Which column of the table each feature (D,) belongs to: those of one are missing together."""
        if hasattr(self, "coding_"):
            return np.asarray(self.coding_.part_of)
        return np.asarray(getattr(self, "_feature_parts", np.arange(self.key_.shape[1])))

    @property
    def _leaning(self) -> Array | None:
        """Features that lines have slopes in: those that are numbers. None: all."""
        return np.asarray(self.coding_.numbers) if hasattr(self, "coding_") else None

    @property
    def _ridge(self) -> float:
        return 0.0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_kernel_parameters(self)

    def _learn(
        self, key: Array, value: Array, sample_weight: Array | None, groups: Any, *, classes: int | None = None
    ) -> None:
        """Keys, values and the bandwidth: as given, by a rule, or learned."""
        for name in ("bandwidth_", "neighbours_", "search_", "loo_predictions_", "loo_score_"):
            self.__dict__.pop(name, None)  # what an earlier fit learned
        if isinstance(self.bandwidth, str) and (len(key) if sample_weight is None else (sample_weight > 0).sum()) == 1:
            # There is nothing to learn: every query gets this row's y.
            count = len(self.coding_.parts) if hasattr(self, "coding_") else key.shape[1]
            width = Width(np.full(count, np.inf), np.zeros(count))
        elif isinstance(self.bandwidth, str) and self.bandwidth in (*CRITERIA, "adaptive"):
            width = self._learned(key, value, sample_weight, groups, classes)
        else:
            if groups is not None:
                raise ValueError("groups are for learning: they need bandwidth='loo'")
            target = None if classes is not None else value
            if hasattr(self, "coding_"):
                width = given_width(self.coding_, self.bandwidth)
            else:
                width = resolve(self.bandwidth, key, target, kernel=self._kernel, sample_weight=sample_weight)
        self._remember(key, value, sample_weight)
        self._remember_width(width)

    def _remember_width(self, width: Width) -> None:
        """Both views of the width. Of a mixed table w is one number to a part until here, then one to a feature."""
        self.w_ = width.w
        if hasattr(self, "coding_"):
            self.w_, self.bandwidth_ = self.coding_.spread(width.w), self.coding_.bandwidth_of(width.w)
        elif width.bandwidth is not None:
            self.bandwidth_ = width.bandwidth

    def _learned(
        self, key: Array, value: Array, sample_weight: Array | None, groups: Any, classes: int | None
    ) -> Width:
        if groups is not None and self.bandwidth not in ("loo", "adaptive"):
            raise ValueError(f"groups leave rows out, which bandwidth={self.bandwidth!r} does not do; use 'loo'")
        key, value, sample_weight, groups, place = distinct(key, value, sample_weight, groups)
        options: dict[str, Any] = {
            "kernel": self._kernel,
            "degree": self._DEGREE,
            "classes": classes,
            "sample_weight": sample_weight,
            "groups": groups,
            "engine": self._engine,
            "loss": self.loss,
        }
        # By powers of two, so that no feature is too large or too small to be squared, and nothing is rounded. The
        # notes' steps are in the units of X.
        power = powers_of_two(key, common=self.metric == "scalar") * (self.optimizer != "sgd")
        if hasattr(self, "coding_"):
            check_learnable(self)
            options |= {"coding": self.coding_, "leaning": self._leaning}
            power = np.where(self.coding_.numbers, power, 0)
        scaled = np.ldexp(key.astype(np.float64), -power)
        criterion = "loo" if self.bandwidth == "adaptive" else self.bandwidth
        objective = Objective.of(scaled, value, criterion=criterion, **options)
        start = None
        if self.optimizer == "sgd":
            shape = () if self.metric == "scalar" else (key.shape[1],)
            start = np.asarray(check_random_state(self.random_state).random_sample(shape))
        if self.bandwidth == "adaptive":
            return self._adapted(objective, power, place, value.ndim == 1 and classes is None)
        with small_matrices(), watched(self) as progress:
            width = learned(
                objective,
                metric=self.metric,
                optimizer=self.optimizer,
                ridge=self._ridge_to_learn(),
                start=start,
                seed=self._seed(),
                progress=progress,
            )
        assert width.search is not None
        left_out = objective if self.bandwidth == "loo" else Objective.of(scaled, value, **options)
        found = width.search if left_out is objective else left_out(width.w, width.ridge)
        answers = spread_out(found.answer, place)
        self.loo_predictions_ = answers[:, 0] if value.ndim == 1 and classes is None else answers
        self.loo_score_ = left_out.score(found.answer)
        width = unscaled(width, power if not hasattr(self, "coding_") else power[self.coding_.firsts])
        assert width.search is not None
        self.search_ = width.search
        return width

    def _adapted(self, objective: Objective, power: Array, place: Array, single: bool) -> Width:
        with small_matrices(), watched(self) as progress:
            ridge = self._ridge_to_learn() or 0.0
            found = learn_neighbours(objective, self.metric, ridge, seed=self._seed(), progress=progress)
        self.neighbours_ = found.neighbours
        self.search_ = found._replace(w=shrunk(found.w, power))
        answers = spread_out(found.answer, place)
        self.loo_predictions_ = answers[:, 0] if single else answers
        self.loo_score_ = objective.score(found.answer)
        w = self.search_.w
        with np.errstate(divide="ignore"):
            bandwidth = None if w.ndim == 2 else 1.0 / w
        return Width(bandwidth if w.ndim else float(1.0 / w) if w else np.inf, w if w.ndim else float(w))

    def _ridge_to_learn(self) -> float | None:
        return 0.0

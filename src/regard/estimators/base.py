"""The shared implementation: remember keys and values, pool them, and say what happens where nobody is in reach."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from regard.arrays import is_chunked
from regard.bandwidth.rules import checked_weight
from regard.estimators.attend import Attention, attend_top, checked_top
from regard.estimators.clustered import anywhere
from regard.estimators.explaining import Explaining
from regard.estimators.forgetting import Forgetting
from regard.estimators.inputs import checked_device, query_array, training_arrays
from regard.estimators.lazily import answers_from_cluster, lazy_answers
from regard.estimators.mapped import check_file
from regard.estimators.shelved import nearby
from regard.planner import ENGINES, engine_of_limits
from regard.pooling import attention_weights, pool
from regard.scores import Gaussian, Nearest, Radial

Array = NDArray[Any]


class KeyPooling(Explaining, Forgetting, BaseEstimator):  # type: ignore[misc]
    """Keys, values and weights of the training rows, and attention over them."""

    key_: Array  # (K, d)
    value_: Array  # (K,) or (K, P) numbers; (K,) class numbers in a classifier
    sample_weight_: Array | None  # (K,) in the dtype given: integers are repetitions, floats importances
    w_: Any

    # What an estimator without the parameter does.
    empty: Any = "raise"
    engine: Any = "auto"
    device: Any = "cpu"
    tol: Any = None
    random_state: Any = None

    def __sklearn_is_fitted__(self) -> bool:
        """Asked by every public method, before it reads an array."""
        check_file(self)
        return hasattr(self, "key_")

    def __getstate__(self) -> Any:
        check_file(self)
        return super().__getstate__()

    @property
    def attention_score_(self) -> Radial:
        """The score of ``regard.scores`` between a row of X and a training row."""
        raise NotImplementedError

    def attend(self, X: Any, top: int | None = None) -> Array | Attention:
        """Which training rows each row of X looks at.

        weight[q, k] = softmax_k(score(X[q], training row k) + log sample_weight[k])

        Parameters
        ----------
        X : (Q, d) array or dataframe
        top : None for all weights, or how many of the most attended training rows to show.

        Returns
        -------
        (Q, K) weights, not negative, rows summing to 1; or, with ``top``, ``Attention(index, weight, mass)``:
        the rows shown, best first (ties by smaller number), their weights out of all, and the sum of those shown.
        Row numbers are those of ``fit``'s X; rows of zero weight are never attended to.

        *Empty rows*: as ``empty`` says; with "nan" their weights are 0. *Cost*: O(Q·K·d) time; memory O(Q·K), or
        with ``top`` O(Q·top) and a tile of about 64 MB.

        >>> from regard import NearestKeyRegressor
        >>> NearestKeyRegressor().fit([[0.0], [1.0], [2.0]], [5.0, 6.0, 7.0]).attend([[1.5]]).tolist()
        [[0.0, 0.5, 0.5]]
        """
        check_is_fitted(self)
        query = query_array(self, X)
        nobody = np.zeros(len(query), bool)
        if top is None:
            weights, nobody[:] = self._weights(query)
            self._report(nobody)
            return weights

        def weights_of(rows: slice) -> Array:
            weights, nobody[rows] = self._weights(query[rows])
            return weights

        shown = attend_top(weights_of, len(query), len(self.key_), checked_top(top, len(self.key_)))
        self._report(nobody)
        return Attention(shown.index, shown.weight.astype(query.dtype), shown.mass.astype(query.dtype))

    def _query(self, X: Any) -> Array:
        """X of a fitted estimator, checked."""
        check_is_fitted(self)
        return query_array(self, X)

    def _check_parameters(self) -> None:
        if self.engine not in ("auto", *ENGINES):
            raise ValueError(f"engine must be one of {', '.join(['auto', *ENGINES])}, got {self.engine!r}")
        checked_device(self.device)
        if self.device != "cpu" and self.engine not in ("auto", "fused"):
            raise ValueError(f"device={self.device!r} is for engine 'auto' or 'fused', got engine={self.engine!r}")
        if self.tol is not None and not (isinstance(self.tol, Real) and 0.0 <= float(self.tol) < 1.0):
            raise ValueError(f"tol must be None or a number in [0, 1), got {self.tol!r}")

    @property
    def _engine(self) -> str:
        """The engine that answers, unless weights are asked for: those are formed on the CPU."""
        return "fused" if self.engine == "auto" and self.device != "cpu" else str(self.engine)

    def _seed(self) -> int:
        """Of the rows looked at where rows are many: always the same unless ``random_state`` says otherwise."""
        return 0 if self.random_state is None else int(check_random_state(self.random_state).randint(2**31))

    def _remember(self, key: Array, value: Array, sample_weight: Array | None) -> None:
        self.key_, self.value_, self.sample_weight_ = key, value, sample_weight
        for name in (
            "residuals_",
            "standardised_residuals_",
            "spread_",
            "calibration_",
            "left_out_probabilities_",
            "arrival_",
            "classes_given_",
            "_shelves",
            "_rows",
        ):
            self.__dict__.pop(name, None)  # they are of the rows before

    def _answers(self, query: Array) -> tuple[Array, Array]:
        """What ``predict`` goes by: answers from y, and which queries had nobody in reach.

        A mapped model is asked for the shelves that these queries need.
        """
        if hasattr(self, "_rows"):
            return answers_from_cluster(self, query)
        model = nearby(self, query)
        output, nobody = model._pooled(query, model._told_rows())
        if model is not self and self.empty == "prior" and nobody.any():
            # The class frequencies are those of all rows.
            output[nobody] = self._pooled(query[nobody], self._told_rows())[0]
        return output, nobody

    def _told_rows(self) -> Array:
        """What the training rows say, (K,) or (K, P): y, or a column for every class."""
        return self.value_

    def _pooled(self, query: Array, value: Array) -> tuple[Array, Array]:
        """Answers from ``value``, one row per query, and which queries had nobody in reach."""
        options: dict[str, Any] = {"sample_weight": self.sample_weight_, "engine": self._engine, "tol": self.tol}
        output, nobody = self._averages(query, value)
        if nobody.any():
            instead = self._instead()
            if instead is None:
                output[nobody] = np.nan
            else:
                options["engine"] = engine_of_limits(self._engine)
                output[nobody] = pool(query[nobody], self.key_, value, instead, **options).output
        return output, nobody

    def _averages(self, query: Array, value: Array) -> tuple[Array, Array]:
        """Weighted averages of ``value``, 0 where nobody is in reach, and where that is."""
        options: dict[str, Any] = {"sample_weight": self.sample_weight_, "engine": self._engine, "tol": self.tol}
        output, logsumexp = pool(query, self.key_, value, self.attention_score_, **options)
        return output, np.isneginf(logsumexp)

    def _weights(self, query: Array) -> tuple[Array, Array]:
        """Weights (Q, K), and which queries had nobody in reach."""
        options: dict[str, Any] = {"sample_weight": self.sample_weight_, "engine": self.engine}
        weights = attention_weights(query, self.key_, self.attention_score_, **options)
        nobody = np.asarray(~weights.any(axis=1))
        if nobody.any() and (instead := self._instead()) is not None:
            options["engine"] = engine_of_limits(self.engine)
            weights[nobody] = attention_weights(query[nobody], self.key_, instead, **options)
        return weights, nobody

    def _instead(self) -> Radial | None:
        """The score for rows with nobody in reach: a second pooling, never a special case of the first."""
        if self.empty == "nearest":
            return Nearest(self.w_)
        return Gaussian(0.0) if self.empty == "prior" else None

    def _report(self, nobody: Array) -> None:
        """Warn or raise about empty rows; called by public methods only, so that the warning points at their caller."""
        count = int(nobody.sum())
        if not count or self.empty == "nan":
            return
        found = (
            f"{count} of {len(nobody)} rows of X (the first is row {int(nobody.argmax())}) "
            "have no training row within the bandwidth"
        )
        if self.empty == "raise":
            raise ValueError(f"{found}; widen bandwidth, or choose another empty= than 'raise'")
        answer = "the nearest training row" if self.empty == "nearest" else "the class frequencies"
        warnings.warn(f"{found}; they are answered by {answer} (empty={self.empty!r})", UserWarning, stacklevel=3)


class KeyPoolingRegressor(RegressorMixin, KeyPooling):  # type: ignore[misc]
    """``fit`` and ``predict`` of every regressor."""

    @anywhere
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Remember the training rows.

        Parameters
        ----------
        X : (K, d) array or dataframe, y : (K,) or (K, P) numbers
        sample_weight : (K,), not negative. Integers count repetitions, floats are importances; 0 deletes the row.

        Returns
        -------
        self. *Cost*: O(K·d), a copy of the data.
        """
        self._check_parameters()
        key, value = training_arrays(self, X, y, labels=False)
        self._remember(key, value, checked_weight(sample_weight, len(key)))
        return self

    def predict(self, X: Any) -> Array:
        """Σ weight · y for every row of X.

        Parameters
        ----------
        X : (Q, d) array or dataframe

        Returns
        -------
        (Q,) or (Q, P), as y was, in the dtype of X (at least float32).

        *Empty rows*: as ``empty`` says, where the estimator has it. *Cost*: O(Q·K·d) time, O(Q + K) memory and a tile.
        """
        if is_chunked(X):
            return lazy_answers(self, X, "predict")
        check_is_fitted(self)
        output, nobody = self._answers(query_array(self, X))
        self._report(nobody)
        return output

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

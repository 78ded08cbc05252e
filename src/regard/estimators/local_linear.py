"""Local lines: a weighted least-squares line at every query instead of a weighted mean."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from regard.bandwidth import Width
from regard.estimators.appending import AppendingRegressor
from regard.estimators.base import Array
from regard.estimators.kernel_pooling import KernelPooling
from regard.estimators.learning import LearningRegressor
from regard.estimators.uncertain import UncertainRegressor
from regard.lines import check_spans


class LocalLinearRegressor(UncertainRegressor, LearningRegressor, AppendingRegressor, KernelPooling):
    """The height of a line fitted to the training rows around x, near ones counting most.

    predict(x) = a of the least Σ_k α_k (y_k − a − b·(x_k − x))² + λ‖b/w‖², α = softmax of the score, w = 1/bandwidth

    At the edges of the data, and wherever rows lie to one side, a weighted mean is drawn towards them; a line is not.

    Parameters
    ----------
    ridge : λ ≥ 0, or "loo" to learn it with the bandwidth. 0 is the plain local line, which follows the rows in reach
        wherever they point; a large λ is the weighted mean of ``NadarayaWatsonRegressor``.
    kernel, bandwidth, metric, optimizer, empty, engine, tol, random_state, device : as in ``NadarayaWatsonRegressor``.

    Attributes
    ----------
    ridge_ : λ.
    bandwidth_, w_, feature_relevance_, search_, loo_predictions_, loo_score_, key_, value_, sample_weight_,
        n_features_in_, feature_names_in_ : as in ``NadarayaWatsonRegressor``.

    *Empty rows*: as ``empty`` says. Where the rows in reach do not span every direction, the line is the one of least
    norm. *Far rows*: a line that would reach beyond 10⁴ times the spread of the rows in reach (10⁷ with a ridge) is
    flat, their weighted mean; until there rounding moves slopes by a part in 10⁸ or less. Features may span 10⁻¹⁵⁰ to
    10¹⁵⁰. *Cost*: ``predict`` takes O(Q·K·d²) time, O((Q·d + K)·d) memory and a tile.

    >>> model = LocalLinearRegressor(bandwidth=1.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> model.predict([[0.5], [3.0]]).round(12).tolist()
    [2.0, 7.0]
    """

    _DEGREE = 1

    def __init__(
        self,
        kernel: Any = "gaussian",
        bandwidth: Any = "loo",
        ridge: Any = 0.0,
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
        super().__init__(kernel, bandwidth, metric, optimizer, empty, engine, tol, random_state, device, missing, loss)
        self.ridge = ridge

    def slopes(self, X: Any) -> Array:
        """Slopes b of the lines at every row of X: (Q, d), or (Q, P, d) where y has P columns.

        What R calls the gradient of a local-linear fit. ``marginal_effects`` is the derivative of the predictions, in
        which the weights move too. *Empty rows*: 0, or NaN with ``empty="nan"``. *Cost*: as ``predict``.
        """
        query = self._query(X)
        slope, nobody = self._by_width(query, LocalLinearRegressor._slopes)
        self._report(nobody)
        return np.asarray(slope[:, 0] if self.value_.ndim == 1 else slope, query.dtype)

    def _slopes(self, query: Array) -> tuple[Array, Array]:
        """Slopes (Q, P, d), and which queries had nobody in reach."""
        _, scale, local = self._local(query, self._columns())
        slope = local.fit.slope * scale[:, None]
        nobody = local.partial.mass <= 0.0
        slope[nobody] = np.nan if self.empty == "nan" else 0.0
        return slope, nobody

    def _averages(self, query: Array, value: Array) -> tuple[Array, Array]:
        columns = value[:, None] if value.ndim == 1 else value
        output, _, local = self._local(query, columns)
        with np.errstate(over="ignore"):
            output = output.astype(query.dtype)
        return (output[:, 0] if value.ndim == 1 else output), local.partial.mass <= 0.0

    @property
    def _ridge(self) -> float:
        return self.ridge_

    def _ridge_to_learn(self) -> float | None:
        return checked_ridge(self.ridge)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if checked_ridge(self.ridge) is None and not (isinstance(self.bandwidth, str) and self.bandwidth == "loo"):
            raise ValueError(f"ridge='loo' is learned with bandwidth='loo', got bandwidth={self.bandwidth!r}")
        if self.optimizer == "sgd":
            raise ValueError("optimizer 'sgd' is the notes' recipe, which is for NadarayaWatsonRegressor")

    def _learn(
        self, key: Array, value: Array, sample_weight: Array | None, groups: Any, *, classes: int | None = None
    ) -> None:
        check_spans(key if sample_weight is None else key[sample_weight > 0])
        super()._learn(key, value, sample_weight, groups, classes=classes)

    def _remember_width(self, width: Width) -> None:
        super()._remember_width(width)
        given = checked_ridge(self.ridge)
        self.ridge_ = width.ridge if given is None else given


def checked_ridge(ridge: Any) -> float | None:
    """A ridge λ ≥ 0, or None for "loo"."""
    if isinstance(ridge, str) and ridge == "loo":
        return None
    if isinstance(ridge, bool) or not isinstance(ridge, Real) or not 0.0 <= float(ridge) < np.inf:
        raise ValueError(f"ridge must be a finite number, not negative, or 'loo', got {ridge!r}")
    return float(ridge)

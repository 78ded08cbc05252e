"""Whether training rows are of dask: then ``fit`` learns where they are, by ``regard.cluster``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from regard.cluster.fitting import fit_on_cluster
from regard.core.arrays import is_chunked
from regard.estimators.callbacks import watched
from regard.estimators.width import remember_width, ridge_to_learn


def anywhere(fit: Callable[..., Any]) -> Callable[..., Any]:
    """``fit`` that takes arrays and dataframes of dask as well: rows are learned from where they are."""

    @wraps(fit)
    def fitted(self: Any, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Any:
        if not any(is_chunked(one) for one in (X, y, sample_weight, groups)):
            options = {} if groups is None else {"groups": groups}
            return fit(self, X, y, sample_weight, **options)
        width = fit_on_cluster(self, X, y, sample_weight, groups, ridge_to_learn(self), watched)
        if width is not None:
            remember_width(self, width)
        self._smoother  # noqa: B018
        return self

    return fitted

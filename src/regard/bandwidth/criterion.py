"""What a search asks of a criterion, wherever its rows are."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, NamedTuple, Protocol

from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


class Evaluation(NamedTuple):
    """The criterion at one w and λ."""

    value: float  # with y scaled to unit variance, see ``Criterion.in_units_of_y``
    w: Array | None  # its gradient, shaped as w; None where not asked for
    log_ridge: float  # its derivative by log λ
    answer: Array  # (Q, P)  left-out answers in the units of y, for the rows looked at; of dask where the rows are
    empty: int  # rows with nobody in reach, answered by the nearest other row


class Criterion(Protocol):
    """A function of w and λ that is to be made small: ``Objective``, and ``ChunkedObjective`` on a cluster."""

    @property
    def kernel(self) -> str: ...
    @property
    def degree(self) -> int: ...
    @property
    def criterion(self) -> str: ...
    @property
    def rows(self) -> Sized:
        """The rows looked at."""
        ...

    @property
    def spread(self) -> Array:
        """Typical size of what each w multiplies."""
        ...

    @property
    def size(self) -> float:
        """How many rows there are, repetitions counted."""
        ...

    def __call__(self, w: ArrayLike, ridge: float = 0.0, *, gradient: bool = False) -> Evaluation: ...

    def looking_at(self, rows: Array) -> Criterion:
        """The same as a mean over some of the rows only; all rows stay keys."""
        ...

    def in_units_of_y(self, value: float) -> float: ...

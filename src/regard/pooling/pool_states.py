"""Attention over some of the keys as a value of its own: computed anywhere, stored, sent, and merged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from regard.core.arrays import Array, is_tensor
from regard.core.problem import build, matrix
from regard.core.scores import Score
from regard.pooling.functions import Pooled, as_pooled
from regard.pooling.mergeable_state import MergeableState, state_of


@dataclass(frozen=True, eq=False)
class PoolState:
    """The attention of some queries over the keys so far, made by ``pool_state``.

    ``merged`` joins it with that over other keys, ``pooled`` finishes it. Merging is associative and commutative to
    rounding, so any tree over any split of the keys gives the same answer. It can be pickled.

    Parameters
    ----------
    query : array (Q, d)
        The queries.
    score : Score
        Between these and the keys.
    columns : tuple of int
        Shape of one value.
    state : MergeableState
        Peaks, masses and sums of the values, of every query.

    *Memory*: O(Q·P), whatever the number of keys.

    >>> import pickle
    >>> from regard.scores import Gaussian
    >>> state = pool_state([0.0], [-1.0, 1.0], [2.0, 4.0], Gaussian())
    >>> pickle.loads(pickle.dumps(state)).keys
    2
    """

    query: Array  # (Q, d)
    score: Score
    columns: tuple[int, ...]  # shape of one value
    state: MergeableState

    @property
    def keys(self) -> int:
        """Number of keys that some query may attend to, those of weight 0 not counted."""
        return self.state.keys

    def merged(self, *others: PoolState) -> PoolState:
        """The state over the keys of all of them.

        Parameters
        ----------
        *others : PoolState
            Of the same queries and score, with values of the same shape.

        Returns
        -------
        PoolState

        Raises
        ------
        ValueError
            Unless queries, score and values match.
        """
        for other in others:
            if not np.array_equal(self.query, other.query):
                raise ValueError("states can be merged if they are of the same queries, got others")
            if not _same_score(self.score, other.score):
                raise ValueError(
                    f"states can be merged if they are of one score, got {self.score!r} and {other.score!r}"
                )
            if self.columns != other.columns:
                raise ValueError(
                    f"states can be merged if values have one shape, got {self.columns} and {other.columns}"
                )
        return replace(self, state=reduce(MergeableState.joined, (other.state for other in others), self.state))

    def pooled(self) -> Pooled:
        """What ``pool`` returns for all these keys.

        Returns
        -------
        Pooled
            ``output`` and ``logsumexp``.

        *Empty rows*: output 0 and logsumexp −inf.
        """
        return as_pooled(self.state.finished(), self.query, single=self.columns == ())


def pool_state(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    score: Score,
    *,
    mask: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    exclude: tuple[ArrayLike, ArrayLike] | None = None,
    engine: str = "auto",
    tol: float | None = None,
) -> PoolState:
    """The state of attention over these keys, to be merged with that over others.

    pool_state(q, k, v, s).merged(pool_state(q, k', v', s)).pooled() is pool(q, [k; k'], [v; v'], s)

    Parameters
    ----------
    query, key, value, score, mask, sample_weight, exclude, engine, tol : as in ``pool``
        Arrays; masks, weights and labels are those of these keys. K may be 0, and all weights may be 0. A state loses
        no more than ``tol`` of its own attention mass, so a merged one does not.

    Returns
    -------
    PoolState

    *Cost*: as ``pool``.

    >>> from regard.scores import Gaussian
    >>> left, right = (pool_state([0.0], [k], [v], Gaussian()) for k, v in ((-1.0, 2.0), (1.0, 4.0)))
    >>> left.merged(right).pooled().output.tolist()
    [3.0]
    """
    for name, given in (("query", query), ("key", key), ("value", value)):
        if is_tensor(given):
            raise TypeError(f"{name} must be an array, got a tensor; regard.pool takes tensors")
    queries, keys, columns = matrix("query", query), matrix("key", key), matrix("value", value)
    options: dict[str, Any] = {"mask": mask, "sample_weight": sample_weight, "exclude": exclude, "tol": tol}
    if sample_weight is not None and np.size(sample_weight) == len(keys) and not np.asarray(sample_weight).any():
        # Nothing is left of these keys, and others may still be merged.
        keys, columns, options = keys[:0], columns[:0], {"tol": tol}
    state = state_of(build(queries, keys, columns, score, **options), engine)
    return PoolState(queries.copy(), score, np.shape(value)[1:], state)


def _same_score(score: Score, other: Score) -> bool:
    mine, theirs = vars(score), vars(other)
    return type(score) is type(other) and all(np.array_equal(mine[name], theirs[name]) for name in mine)

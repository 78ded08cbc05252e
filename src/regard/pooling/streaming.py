"""Keys or queries larger than memory: pool them batch by batch.

    pool_batches(query, batches, score)        keys come in batches; one answer for all of them
    pool_queries(batches, key, value, score)   queries come in batches; an answer for each
    batches_of(key, value)                     batches of arrays that lie in a file (np.memmap) or anywhere else

Batches come from any iterator: ``batches_of``, a generator of yours, or a file by ``regard.data.read_batches``:

    batches = ((table.matrix(["x1", "x2"]), table.numbers("y")) for table in read_batches("keys.parquet"))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regard.core.arrays import Array, is_tensor
from regard.core.problem import build, matrix
from regard.core.scores import Score
from regard.pooling.functions import Pooled, as_pooled, pool
from regard.pooling.mergeable_state import MergeableState, state_of

# Default rows of a batch: enough that work outweighs the overhead, few enough for any machine.
ROWS = 1 << 16


class Batch(NamedTuple):
    """Some of the keys; a plain tuple of its first two, three or four parts works as well.

    Attributes
    ----------
    key : array (k, d)
        Keys.
    value : array (k,) or (k, P)
        Their values.
    sample_weight : array (k,), default=None
        Their weights; 1 each if None.
    labels : array (k,) of int, default=None
        What ``exclude`` of ``pool_batches`` compares.

    >>> Batch([[1.0]], [2.0]).labels is None
    True
    """

    key: Any  # (k, d)
    value: Any  # (k,) or (k, P)
    sample_weight: Any = None  # (k,)
    labels: Any = None  # (k,) integers: what ``exclude`` compares


def pool_batches(
    query: ArrayLike,
    batches: Iterable[Batch | tuple[Any, ...]],
    score: Score,
    *,
    exclude: ArrayLike | None = None,
    engine: str = "auto",
    tol: float | None = None,
) -> Pooled:
    """The result of ``pool`` over the keys of all batches, with one batch in memory at a time.

    output[q] = Σ_k softmax_k(score(query[q], key[k]) + log sample_weight[k]) value[k], k over all batches

    Parameters
    ----------
    query : array (Q, d)
        All queries, in memory.
    batches : iterable of Batch or tuple
        (key, value), (key, value, sample_weight) or (key, value, sample_weight, labels): arrays as in ``pool``, of any
        number of rows, also 0. Iterated over once. Without sample weights a key counts 1.
    score : Score
        A score of ``regard.scores``, such as ``Gaussian(w=1.0)``.
    exclude : array (Q,) of int, default=None
        Labels; a query and a key with equal labels may not attend, and batches bring the keys'.
    engine : str, default="auto"
        As in ``pool``.
    tol : float, default=None
        As in ``pool``. A batch loses no more than ``tol`` of its own attention mass, so the whole does not.

    Returns
    -------
    Pooled
        ``output`` and ``logsumexp``, in the query's dtype. Neither the cut into batches nor their order changes it
        beyond rounding and ``tol``.

    Raises
    ------
    TypeError, ValueError
        What ``pool`` raises, with the number of the batch, counted from 1; what ``batches`` raises passes on.

    *Empty rows* (no key may be attended to in any batch): output 0 and logsumexp −inf. *Cost*: O(Q·K·d) time; memory
    O(Q), a batch and a tile.

    >>> from regard.scores import Gaussian
    >>> pool_batches([0.0], [([-1.0], [2.0]), ([1.0], [4.0])], Gaussian()).output.tolist()
    [3.0]
    """
    queries, number, keys = _array("query", query), 0, 0
    whole: MergeableState | None = None
    shape: tuple[int, ...] | None = None
    for batch in batches:
        number += 1  # noqa: SIM113  (enumerate would hold on to the batch before)
        try:
            given = _batch(batch, exclude)
            columns = np.shape(given.value)[1:]
            if shape not in (None, columns):
                raise ValueError(f"value has {_columns(columns)}, those of the batches before {_columns(shape)}")
            pair = None if exclude is None else (exclude, given.labels)
            values = _array("value", given.value)
            problem = build(queries, given.key, values, score, sample_weight=given.sample_weight, exclude=pair, tol=tol)
        except (TypeError, ValueError) as reason:
            raise type(reason)(f"batch {number}: {reason}") from None
        keys, shape = keys + len(batch[0]), columns
        state = state_of(problem, engine)
        whole = state if whole is None else whole.joined(state)
        # The next batch is made while these names still hold this one.
        del batch, given, values, problem
    if whole is None:
        raise ValueError("batches must yield at least one (key, value) pair, got none")
    if keys and not whole.keys:
        raise ValueError("all sample weights are zero")
    return as_pooled(whole.finished(), queries, single=shape == ())


def pool_queries(
    batches: Iterable[Any],
    key: ArrayLike,
    value: ArrayLike,
    score: Score,
    *,
    sample_weight: ArrayLike | None = None,
    exclude: ArrayLike | None = None,
    engine: str = "auto",
    tol: float | None = None,
) -> Iterator[Pooled]:
    """The results of ``pool`` for batches of queries, one after the other.

    Parameters
    ----------
    batches : iterable
        Arrays (q, d) of queries; with ``exclude``, pairs (query, labels) instead.
    key : array (K, d)
        All keys, in memory.
    value : array (K,) or (K, P)
        Their values.
    score : Score
        A score of ``regard.scores``, such as ``Gaussian(w=1.0)``.
    sample_weight : array (K,), default=None
        As in ``pool``.
    exclude : array (K,) of int, default=None
        Labels; a query and a key with equal labels may not attend, and batches bring the queries'.
    engine : str, default="auto"
        As in ``pool``.
    tol : float, default=None
        As in ``pool``.

    Yields
    ------
    Pooled
        ``output`` and ``logsumexp`` of each batch, computed when asked for.

    Raises
    ------
    TypeError, ValueError
        As ``pool_batches``.

    *Cost*: as ``pool`` of each batch; memory O(K), a batch and a tile.

    >>> from regard.scores import Gaussian
    >>> answers = pool_queries(([q] for q in (0.0, 9.0)), [-1.0, 1.0], [2.0, 4.0], Gaussian(w=3.0))
    >>> [answer.output.tolist() for answer in answers]
    [[3.0], [4.0]]
    """
    number = 0
    for batch in batches:
        number += 1  # noqa: SIM113  (enumerate would hold on to the batch before)
        try:
            query, pair = (batch, None) if exclude is None else _labelled(batch, exclude)
            answer = pool(
                _array("query", query),
                key,
                value,
                score,
                sample_weight=sample_weight,
                exclude=pair,
                engine=engine,
                tol=tol,
            )
        except (TypeError, ValueError) as reason:
            raise type(reason)(f"batch {number}: {reason}") from None
        del batch, query
        yield answer


def batches_of(
    key: ArrayLike,
    value: ArrayLike,
    sample_weight: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    rows: int = ROWS,
) -> Iterator[Batch]:
    """Arrays in batches of at most ``rows`` keys, as ``pool_batches`` takes them; nothing is copied.

    Parameters
    ----------
    key : array (K, d)
        Keys. ``np.memmap`` arrays stay in their file until a batch is used.
    value : array (K,) or (K, P)
        Their values.
    sample_weight : array (K,), default=None
        Their weights.
    labels : array (K,) of int, default=None
        What ``exclude`` of ``pool_batches`` compares.
    rows : int, default=65536
        Largest number of keys in a batch.

    Yields
    ------
    Batch

    >>> [len(batch.key) for batch in batches_of([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], rows=2)]
    [2, 1]
    """
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
        raise ValueError(f"rows must be a whole number of at least 1, got {rows!r}")
    parts = [None if part is None else np.asanyarray(part) for part in (key, value, sample_weight, labels)]
    lengths = [len(part) for part in parts if part is not None]
    if len(set(lengths)) > 1:
        raise ValueError(f"key, value, sample_weight and labels must have one length, got {lengths}")
    cuts = range(0, max(lengths[0], 1), int(rows))
    return (Batch(*(None if part is None else part[start : start + rows] for part in parts)) for start in cuts)


def _array(name: str, given: Any) -> Array:
    if is_tensor(given):
        raise TypeError(f"{name} must be an array, got a tensor; regard.pool takes tensors")
    return matrix(name, given)


def _labelled(batch: Any, exclude: ArrayLike) -> tuple[Any, tuple[Any, ArrayLike]]:
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise TypeError(f"with exclude= a batch must be a pair (query, labels), got {type(batch).__name__}")
    return batch[0], (batch[1], exclude)


def _batch(given: Any, exclude: ArrayLike | None) -> Batch:
    """The parts of a batch, keys and values as arrays of numbers; a batch whose weights are all zero has no keys."""
    if not isinstance(given, tuple | list) or not 2 <= len(given) <= 4:
        what = f"{len(given)} parts" if isinstance(given, tuple | list) else type(given).__name__
        raise TypeError(f"a batch must be (key, value[, sample_weight[, labels]]), got {what}")
    key, value, weight, labels = Batch(*given)
    if (labels is None) != (exclude is None):
        raise ValueError(
            "exclude has the queries' labels, but the keys have none: pass (key, value, sample_weight, labels)"
            if labels is None
            else "the keys have labels, but there is no exclude= with those of the queries"
        )
    batch = Batch(_array("key", key), np.asanyarray(value), weight, labels)
    if weight is not None and 0 < len(batch.key) == np.size(weight) and not np.asarray(weight).any():
        labels = None if labels is None else np.asarray(labels)[:0]
        return Batch(batch.key[:0], batch.value[:0], None, labels)
    return batch


def _columns(shape: tuple[int, ...] | None) -> str:
    return f"shape (rows, {', '.join(map(str, shape))})" if shape else "shape (rows,)"

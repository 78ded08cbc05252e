"""``explain``: the training rows behind each prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.bandwidth.rules import counts_repetitions
from regard.estimators.attend import best
from regard.estimators.classes import onehot
from regard.inference.effects import TILE_CELLS
from regard.inference.explanation import Explanation
from regard.inference.nearness import Seen, Sight, is_far, seen, usual_distance
from regard.scores import Nearest, Radial

Array = NDArray[Any]

# Training rows whose distance to another is looked at: so many, fewer where these are differences, but not fewer than.
SAMPLE, SAMPLE_CELLS, FEWEST = 200, 1 << 22, 8


class Explaining:
    """``explain`` of every estimator."""

    key_: Array
    value_: Array
    sample_weight_: Array | None
    _query: Callable[[Any], Array]
    _report: Callable[[Array], None]

    def explain(self, X: Any, top: int = 5) -> Explanation:
        """Which training rows each prediction comes from, what they count, and what made them near.

        prediction = effective_weights @ y, all of it computed exactly (tol = 0), whatever ``engine`` and ``tol`` say;
        ``predict`` is off from it by its tolerance at most, and by its rounding: 1e-12 unless a line is drawn hundreds
        of deviations beyond the rows it was fitted to.

        Parameters
        ----------
        X : (Q, d) array or dataframe
        top : of how many training rows to tell at most, the most attended first.

        Returns
        -------
        Explanation: iterate over it for one ``Explained`` per row of X, print it for words, ``to_frame()`` for a table,
        ``regard.plot.ExplanationDisplay`` for a picture. ``effective_weights`` has all (Q, K) of them. ``far`` says of
        each query whether nobody is in reach, or all training rows are farther than 3 bandwidths (4.6 for the Laplace
        kernel, 1 for those that end there) and farther than twice what nine of ten training rows have to another one.
        Nearest keys have no bandwidth, and a learned score over an embedding no distance: they are never ``far``.
        In a classifier ``prediction`` has the share of attention of each class, before ``calibrate`` changes it.

        *Empty rows*: as ``empty`` says. *Cost*: O(Q·K·d) time, d² for local lines, and a tile of memory.

        >>> from regard import NadarayaWatsonRegressor
        >>> told = NadarayaWatsonRegressor(bandwidth=1.0).fit([[0.0], [1.0], [9.0]], [1.0, 2.0, 3.0]).explain([[0.1]])
        >>> told[0].row.tolist(), told[0].effective.round(2).tolist()
        ([0, 1, 2], [0.6, 0.4, 0.0])
        """
        query = self._query(X).astype(np.float64)
        if isinstance(top, bool) or not isinstance(top, int | np.integer) or top < 1:
            raise ValueError(f"top must be a whole number of at least 1, got {top!r}")
        model = exact(self)
        nobody = np.zeros(len(query), bool)
        names, fold = told_columns(self)
        values = values_of(self)
        parts: list[tuple[Array, Array, Array, Seen]] = []
        tile = max(1, TILE_CELLS // self.key_.size)
        for start in range(0, len(query), tile):
            rows = slice(start, start + tile)
            sights, nobody[rows] = _sights(model, query[rows])
            weights = np.asarray(sum(sight.share * sight.weight for sight in sights))
            index = best(weights, min(int(top), len(self.key_)))
            effective = effective_of(model, query[rows])
            told = seen(sights, index, copies_of(self), _counted(self), fold)
            parts.append((index, np.take_along_axis(effective, index, 1), effective @ values, told))
        index, effective, prediction = (np.concatenate([part[j] for part in parts]) for j in range(3))
        found = Seen(*(np.concatenate([part[3][j] for part in parts]) for j in range(len(Seen._fields))))
        self._report(nobody)
        if getattr(self, "empty", None) == "nan":
            prediction[nobody] = np.nan
        return Explanation(
            answer=_answers(self, prediction),
            prediction=prediction,
            index=index,
            row=getattr(self, "row_ids_", np.arange(len(self.key_)))[index],
            value=_labels(self)[index],
            effective=effective,
            seen=found,
            far=nobody | is_far(sights, found.distance, _usual(model)),
            names=names,
            rows=len(self.key_),
            unit="units of X" if isinstance(sights[0].score, Nearest) else "bandwidths",
            weights_of=partial(_all_effective, model, query, tile),
        )


def exact(model: Any) -> Any:
    """The model as it is now, answering exactly."""
    model = copy(model)
    model.engine, model.tol, model.device = "auto", 0.0, "cpu"
    return model


def attentions(model: Any, query: Array) -> Iterator[tuple[float, Any, Array]]:
    """Share, estimator and queries of every attention that a model is made of."""
    scaled = getattr(model, "_scaled", None)
    if scaled is None:
        yield 1.0, model, query
    else:
        yield from scaled(query)


def _sights(model: Any, query: Array) -> tuple[list[Sight], Array]:
    """Every attention as the queries see it, and which queries had nobody in reach."""
    sights, nobody = [], np.zeros(len(query), bool)
    for share, one, at in attentions(model, query):
        weight, alone = one._weights(at)
        score, key = one.attention_score_, one.key_
        if hasattr(one, "embedding_"):
            at, key = one._placed(at), one.embedding_
        told = isinstance(score, Radial) and getattr(one, "embed", None) is None
        w = np.zeros(len(at)) if not told else by_width(one, at, _widths)
        stretch = np.ones(len(at))
        if hasattr(one, "neighbours_"):
            stretch = np.linalg.norm(one.w_) / np.linalg.norm(w.reshape(len(w), -1), axis=1)
        sights.append(Sight(share, score if told else None, w, stretch, at, key.astype(np.float64), weight))
        nobody |= alone
    return sights, nobody


def _usual(model: Any) -> float:
    """How far nine of ten training rows are from another one, in bandwidths; from a few of them where rows are many."""
    counted = np.flatnonzero(_counted(model))
    count = min(len(counted), SAMPLE, max(FEWEST, SAMPLE_CELLS // model.key_.size))
    rows = counted[np.linspace(0, len(counted) - 1, count).astype(int)]
    sights = _sights(model, model.key_[rows].astype(np.float64))[0]
    if any(sight.score is None or isinstance(sight.score, Nearest) for sight in sights):
        return 0.0
    return usual_distance(sights, rows, _counted(model))


def effective_of(model: Any, query: Array) -> Array:
    """Effective weights (Q, K)."""
    total: Any = 0.0
    for share, one, at in attentions(model, query):
        total = total + share * by_width(
            one, at, lambda fixed, asked: getattr(fixed, "_effective", fixed._weights)(asked)
        )
    return np.asarray(total)


def _all_effective(model: Any, query: Array, tile: int) -> Array:
    out = np.empty((len(query), len(model.key_)))
    for start in range(0, len(query), tile):
        out[start : start + tile] = effective_of(model, query[start : start + tile])
    return out


def by_width(model: Any, query: Array, answer: Callable[[Any, Array], tuple[Array, Array]]) -> Array:
    """An answer of every query at its own bandwidth, where the model has several."""
    each = getattr(model, "_by_width", None)
    return np.asarray((answer(model, query) if each is None else each(query, answer))[0])


def _widths(model: Any, query: Array) -> tuple[Array, Array]:
    w = np.asarray(model.attention_score_.w)
    return np.array(np.broadcast_to(w, (len(query), *w.shape))), np.zeros(len(query), bool)


def values_of(model: Any) -> Array:
    """What is averaged, as float64 columns (K, P): y, or a column for every class."""
    if hasattr(model, "classes_"):
        return onehot(model.value_, len(model.classes_))
    value = np.asarray(model.value_, np.float64)
    return value[:, None] if value.ndim == 1 else value


def _labels(model: Any) -> Array:
    """y as it was given."""
    return np.asarray(model.classes_[model.value_] if hasattr(model, "classes_") else model.value_)


def _answers(model: Any, prediction: Array) -> Array:
    """What ``predict`` says: numbers, or the most probable class."""
    if not hasattr(model, "classes_"):
        return prediction[:, 0] if model.value_.ndim == 1 else prediction
    nothing = np.isnan(prediction).any(axis=1)
    answer = np.asarray(model.classes_[np.nan_to_num(model._calibrated(prediction)).argmax(axis=1)])
    if nothing.any():
        answer = answer.astype(object)
        answer[nothing] = None
    return answer


def _counted(model: Any) -> Array:
    """Training rows that have a weight (K,)."""
    return np.ones(len(model.key_), bool) if model.sample_weight_ is None else np.asarray(model.sample_weight_ > 0)


def copies_of(model: Any) -> Array:
    """How many rows each training row stands for (K,)."""
    weight = model.sample_weight_
    if weight is None or not counts_repetitions(weight):
        return np.ones(len(model.key_))
    return np.maximum(np.asarray(weight, np.float64), 1.0)


def told_columns(model: Any) -> tuple[tuple[str, ...], Array]:
    """Names of the columns of X (C,), and which features of the score are of which, (d, C) of 0 and 1."""
    coding = getattr(model, "coding_", None)
    if coding is None:
        return column_names(model), np.eye(model.key_.shape[1])
    # Two columns that are one place on the Earth have one distance.
    return tuple(" and ".join(part.names) for part in coding.parts), np.eye(len(coding.parts))[coding.part_of]


def column_names(model: Any) -> tuple[str, ...]:
    given = getattr(model, "feature_names_in_", None)
    if given is not None:
        return tuple(map(str, given))
    return tuple(f"feature {j}" for j in range(model.n_features_in_))

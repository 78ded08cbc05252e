"""A fitted smoother as plain data: heads of attention over training rows, and how they answer.

    answer(q) = Σ_h mix_h · f_h(q),   f_h a local mean or line of the rows' values under head h's attention

``fit`` of every estimator ends in a ``Smoother``, and everything after ``fit`` is a function of one: predictions here,
effects, residuals, intervals, explanations and diagnosis in the other modules of this room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from regard.bandwidth.adaptive import Neighbourhood, by_width
from regard.bandwidth.losses import LogLoss
from regard.bandwidth.objective import Objective
from regard.bandwidth.rules import counts_repetitions
from regard.bandwidth.scaling import Scaling
from regard.bandwidth.tempering import Tempering
from regard.core.arrays import Array
from regard.core.forks import limit_torch
from regard.core.scores import Gaussian, Nearest, Radial, Score
from regard.data.columns import Coding
from regard.pooling.functions import attention_weights, pool
from regard.pooling.local_pooling import LocalOutput, LocalPooling, local_output, pool_local
from regard.pooling.missing_entries import FitWithMissing, pool_with_missing, weights_with_missing
from regard.pooling.planner import engine_of_limits

# Standardised features are clipped to ± this many standard deviations.
MAX_STANDARD_SCORE = 1e100


# ---- coordinates of a head


class Transform:
    """Rows of features (n, d) to a head's coordinates (n, r); this one is the identity."""

    @property
    def by_column(self) -> bool:
        """Whether every column is mapped by a non-decreasing function of its own, so that boxes stay boxes."""
        return True

    def keys(self, rows: Array) -> Array:
        """Coordinates of keys."""
        return rows

    def queries(self, rows: Array) -> Array:
        """Coordinates of queries."""
        return self.keys(rows)

    def slope(self, rows: Array) -> Array:
        """dz/dx of every column, (n, d); raises ValueError if columns are not mapped one by one."""
        return np.ones(rows.shape)


IDENTITY = Transform()


@dataclass(frozen=True, eq=False)
class ScaledColumns(Transform):
    """Columns scaled to a weighted average of their standard scores (share 1) and normal scores (share 0)."""

    scaling: Scaling
    share: Array  # (d,)  weight of the standard scores

    def keys(self, rows: Array) -> Array:
        return self.scaling(rows, self.share)

    def slope(self, rows: Array) -> Array:
        return self.scaling.slope(rows, self.share)


@dataclass(frozen=True, eq=False)
class Embedded(Transform):
    """Standardised features, or their embedding by a network; ``turn`` is the matrix of a bilinear score."""

    mean: Array  # (d,)
    scale: Array  # (d,)  inf for an ignored feature
    embed: Any  # None, "mlp" or a torch module
    parameters: Mapping[str, Array]  # of the network
    turn: Array | None  # (r, r)  applied to queries

    @property
    def by_column(self) -> bool:
        return self.embed is None and self.turn is None

    def keys(self, rows: Array) -> Array:
        inputs = standardised(rows, self.mean, self.scale)
        if self.embed is None:
            return inputs
        network = torch_part("network")
        return np.asarray(network.embedded(network.embedding(self.embed, self.parameters), inputs))

    def queries(self, rows: Array) -> Array:
        return self.turned(self.keys(rows))

    def turned(self, keys: Array) -> Array:
        """Coordinates of queries, given the coordinates of the same rows as keys."""
        return keys if self.turn is None else keys @ self.turn.astype(np.float64)

    def slope(self, rows: Array) -> Array:
        if not self.by_column:
            raise ValueError("marginal effects are not available for models with an embedding or a bilinear score")
        return np.broadcast_to(1.0 / self.scale, rows.shape)


def standardised(rows: Array, mean: Array, scale: Array) -> Array:
    """(rows − mean)/scale in float64; a scale of inf gives 0."""
    with np.errstate(over="ignore"):
        return np.clip((rows.astype(np.float64) - mean) / scale, -MAX_STANDARD_SCORE, MAX_STANDARD_SCORE)


def torch_part(name: str) -> Any:
    """A module of ``regard.nn``, which needs torch; in a forked process torch is limited to one thread."""
    try:
        part = import_module(f"regard.nn.{name}")
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ModuleNotFoundError(
            "AttentionRegressor needs torch, which is not installed; pip install 'regard[nn]' brings it", name="torch"
        ) from missing
    limit_torch()
    return part


# ---- heads over training rows


class Head(NamedTuple):
    """One attention of a fitted model."""

    mix: float  # its weight in the mixture; 1 for a model of one head
    score: Score  # in the head's own coordinates
    transform: Transform = IDENTITY  # rows of features → those coordinates
    degree: int = 0  # 0: local means, 1: local lines
    ridge: float = 0.0
    neighbours: int | None = None  # adaptive: the bandwidth is the distance to this many training rows
    sloped: Array | None = None  # (d,) boolean: features in which lines have slopes; None: all

    @property
    def w(self) -> Array:
        """w of a radial score."""
        assert isinstance(self.score, Radial)
        return np.asarray(self.score.w)

    @property
    def kernel(self) -> str:
        """Name of the kernel of a radial score."""
        assert isinstance(self.score, Radial)
        return self.score.kernel.name

    def at(self, w: Array, ridge: float | None = None) -> Head:
        """The same head with another w and, if given, another ridge."""
        assert isinstance(self.score, Radial)
        return self._replace(score=type(self.score)(w), ridge=self.ridge if ridge is None else ridge)

    @property
    def ignores_queries(self) -> bool:
        """Whether every query gets the same weights."""
        return isinstance(self.score, Gaussian) and not self.w.ndim and not self.w


class RunOptions(NamedTuple):
    """The parameters of an estimator that say how to compute."""

    engine: str = "auto"
    tol: float | None = None
    device: str = "cpu"

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments for pooling. The weights themselves are always computed on the CPU, by ``engine``."""
        fused = self.engine == "auto" and self.device != "cpu"
        return {"engine": "fused" if fused else self.engine, "tol": self.tol}


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Keys, values and weights, and what is known about their columns.

    The arrays are in memory; subclasses for rows in a file or on a cluster override ``answer``.
    """

    key: Array  # (K, d)
    value: Array  # (K,) or (K, P) numbers; (K,) class indices if there are classes
    sample_weight: Array | None  # (K,) in the dtype given: integers are repetitions, floats importances
    classes: Array | None = None  # labels by class index
    coding: Coding | None = None  # of a mixed table
    gaps: bool = False  # whether entries may be missing (NaN)
    names: tuple[str, ...] = ()  # of the columns of X
    ids: Array | None = None  # (K,) row ids in order of arrival; None: 0, 1, …
    _placed: dict[Transform, Array] = field(default_factory=dict)

    def placed(self, transform: Transform) -> Array:
        """The keys in a head's coordinates, computed once."""
        if transform not in self._placed:
            self._placed[transform] = transform.keys(self.key)
        return self._placed[transform]

    def answer(self, smoother: Smoother, query: Array) -> Answer:
        """Predictions of a smoother over these rows at queries (Q, d)."""
        return smoother.answer(query, self.pooled)

    def take(self, index: Array) -> TrainingRows:
        """Some of the rows, with their ids."""
        weight = None if self.sample_weight is None else self.sample_weight[index]
        ids = (np.arange(len(self.key)) if self.ids is None else self.ids)[index]
        placed = {transform: key[index] for transform, key in self._placed.items()}
        return replace(self.over(self.key[index], self.value[index], weight), ids=ids, _placed=placed)

    def over(self, key: Array, value: Array, sample_weight: Array | None) -> TrainingRows:
        """The same columns over other rows."""
        return replace(self, key=key, value=value, sample_weight=sample_weight, ids=None, _placed={})

    @property
    def columns(self) -> Array:
        """Values as float64 columns (K, P): y, or one column per class."""
        if self.classes is not None:
            return onehot(self.value, len(self.classes))
        value = self.value.astype(np.float64)
        return value[:, None] if value.ndim == 1 else value

    @property
    def pooled(self) -> Array:
        """The values that predictions pool: y itself, or one column per class."""
        return self.value if self.classes is None else self.columns.astype(self.key.dtype)

    @property
    def labels(self) -> Array:
        """y as it was given."""
        return self.value if self.classes is None else np.asarray(self.classes[self.value])

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features (d,)."""
        return self.names if self.coding is None else tuple(self.coding.features)

    @property
    def fold(self) -> tuple[tuple[str, ...], Array]:
        """Names of the parts of X that have a distance, (C,), and the 0-1 matrix (d, C) of features to parts."""
        if self.coding is None:
            return self.names, np.eye(self.key.shape[1])
        # Latitude and longitude are two columns with one distance.
        parts = tuple(" and ".join(part.names) for part in self.coding.parts)
        return parts, np.eye(len(parts))[self.coding.part_of]

    @property
    def single(self) -> bool:
        """Whether y is a single column of numbers."""
        return self.value.ndim == 1 and self.classes is None

    @property
    def counted(self) -> Array:
        """Rows of positive weight, (K,) booleans."""
        return np.ones(len(self.key), bool) if self.sample_weight is None else np.asarray(self.sample_weight > 0)

    @property
    def copies(self) -> Array:
        """Repetitions of each row, (K,)."""
        if self.sample_weight is None or not counts_repetitions(self.sample_weight):
            return np.ones(len(self.key))
        return np.maximum(np.asarray(self.sample_weight, np.float64), 1.0)

    @property
    def part_of(self) -> Array:
        """Index of the column of X that each feature (d,) encodes; features of one column are missing together."""
        return np.arange(self.key.shape[1]) if self.coding is None else np.asarray(self.coding.part_of)

    def have_gaps(self, query: Array) -> bool:
        """Whether an entry of a query or of a training row is missing."""
        return self.gaps and bool(np.isnan(query).any() or np.isnan(self.key).any())

    @property
    def whole(self) -> TrainingRows:
        """The rows without missing entries."""
        return self.take(np.asarray(~np.isnan(self.key).any(axis=1))) if self.gaps else self


class Answer(NamedTuple):
    """Output at queries."""

    output: Array  # (Q, …)
    empty: Array  # (Q,) boolean: no training row within the bandwidth


@dataclass(frozen=True, eq=False)
class Smoother:
    """What ``fit`` of every estimator produces."""

    heads: tuple[Head, ...]
    rows: TrainingRows
    empty: str = "raise"  # output of empty rows: "nearest", "prior", or otherwise NaN
    run: RunOptions = field(default_factory=RunOptions)
    tempering: Tempering | None = None  # of class probabilities

    # ---- answers

    def answer(self, query: Array, value: Array | None = None) -> Answer:
        """Σ mix · local mean or line of ``value``, by default the rows' own and tempered; in the dtype of the query.

        *Empty rows*: according to ``empty``. *Cost*: one ``pool`` per head.
        """
        if value is None:
            found = self.rows.answer(self, query)
            return found._replace(output=self.tempered(found.output))
        return self.mixed(query, lambda one, head, at: one._pooled(head, at, value))

    def weights(self, query: Array) -> Answer:
        """Attention (Q, K): non-negative, rows sum to 1."""
        return self.mixed(query, Smoother.head_weights)

    def effective_weights(self, query: Array) -> Answer:
        """Coefficients of the training values in each output, (Q, K); rows sum to 1, negative entries at degree 1."""
        found = self.mixed(query, Smoother._effective)
        if self.tempering is None:
            return found
        return found._replace(output=self.tempering.weights(found.output, self.rows.value, self.rows.sample_weight))

    def tempered(self, output: Array) -> Array:
        """Class probabilities (Q, C) from the attention that each class holds; other outputs as they are."""
        return output if self.tempering is None else self.tempering(output)

    def exactly(self) -> Smoother:
        """The same, computed exactly (tol = 0) on the CPU."""
        return replace(self, run=RunOptions(tol=0.0))

    def with_rows(self, index: Array) -> Smoother:
        """The same heads over some of the rows."""
        return replace(self, rows=self.rows.take(index))

    # ---- heads, one by one

    def each(self, query: Array) -> list[tuple[Head, Array, Array]]:
        """Every head with queries and keys in its coordinates."""
        return [(head, head.transform.queries(query), self.rows.placed(head.transform)) for head in self.heads]

    def mixed(
        self, query: Array, of_head: Callable[[Smoother, Head, Array], Answer], *, derivative: bool = False
    ) -> Answer:
        """Σ mix · ``of_head`` at transformed queries, in the query's dtype.

        ``derivative``: ``of_head`` gives derivatives (Q, …, d) with respect to the head's coordinates, and the result
        is with respect to the features.
        """

        def part(one: Smoother, head: Head, at: Array) -> Answer:
            output, empty = of_head(one, head, head.transform.queries(at))
            return Answer(output * head.transform.slope(at)[:, None, :] if derivative else output, empty)

        if len(self.heads) == 1:
            output, empty = self.by_width(query, lambda one, at: part(one, one.heads[0], at))
            return Answer(output if output.dtype == query.dtype else output.astype(query.dtype), empty)
        # Relative to the first head: weights of a mix add up to 1 but for rounding, which large outputs would show.
        first, *others = self.heads
        base = np.asarray(part(self, first, query).output)
        total = np.zeros_like(base)
        for head in others:
            total += head.mix * (part(self, head, query).output - base)
        return Answer(np.asarray(base + total, query.dtype), np.zeros(len(query), bool))

    def by_width(self, query: Array, answer: Callable[[Smoother, Array], Answer]) -> Answer:
        """``answer`` at queries, each with its own bandwidth if the bandwidth is adaptive."""
        (head, *others), rows = self.heads, self.rows
        if others or head.neighbours is None:
            return answer(self, query)
        if not len(query):
            return answer(self._widened(1.0), query)
        weight = rows.sample_weight
        counts = weight.astype(np.int64) if weight is not None and counts_repetitions(weight) else None
        key = rows.key if weight is None or counts is not None else rows.key[weight > 0]
        widths = Neighbourhood.of(key, head.w, head.kernel, counts).widths(query, head.w, head.neighbours)
        out: Array | None = None
        empty = np.zeros(len(query), bool)
        for reach, some in by_width(widths):
            part, empty[some] = answer(self._widened(reach), query[some])
            out = np.empty((len(query), *part.shape[1:]), part.dtype) if out is None else out
            out[some] = part
        assert out is not None
        return Answer(out, empty)

    def _widened(self, reach: float) -> Smoother:
        """A fixed bandwidth for all queries, ``reach`` times that of the head."""
        (head,) = self.heads
        return replace(self, heads=(head.at(head.w / reach)._replace(neighbours=None),))

    def _pooled(self, head: Head, query: Array, value: Array) -> Answer:
        """Local means, or intercepts of local lines, of a head; empty rows are pooled a second time."""
        rows, key = self.rows, self.rows.placed(head.transform)
        value = value if head.transform is IDENTITY else value.astype(np.float64)
        options: dict[str, Any] = {"sample_weight": rows.sample_weight, **self.run.options}
        if head.degree or rows.have_gaps(query):
            output, empty = self._local_output(head, query, value[:, None] if value.ndim == 1 else value)
            with np.errstate(over="ignore"):
                output = output.astype(query.dtype)
            output = output[:, 0] if value.ndim == 1 else output
        elif head.ignores_queries and len(query) > 1:
            # All queries have the same output.
            output, empty = self._pooled(head, query[:1], value)
            return Answer(np.repeat(output, len(query), axis=0), np.repeat(empty, len(query)))
        else:
            output, logsumexp = pool(query, key, value, head.score, **options)
            empty = np.isneginf(logsumexp)
        if empty.any():
            score = self._score_of_empty_rows(head)
            options["engine"] = engine_of_limits(options["engine"])
            output[empty] = np.nan if score is None else pool(query[empty], key, value, score, **options).output
        return Answer(output, empty)

    def head_weights(self, head: Head, query: Array) -> Answer:
        """Attention (Q, K) of one head at transformed queries."""
        rows, key = self.rows, self.rows.placed(head.transform)
        options: dict[str, Any] = {"sample_weight": rows.sample_weight, "engine": self.run.engine}
        if rows.have_gaps(query):
            assert isinstance(head.score, Radial)
            weights = weights_with_missing(query, key, head.score, rows.part_of, **options).astype(query.dtype)
            return Answer(weights, np.asarray(~weights.any(axis=1)))
        weights = attention_weights(query, key, head.score, **options)
        empty = np.asarray(~weights.any(axis=1))
        if empty.any() and (score := self._score_of_empty_rows(head)) is not None:
            options["engine"] = engine_of_limits(self.run.engine)
            weights[empty] = attention_weights(query[empty], key, score, **options)
        return Answer(weights, empty)

    def _effective(self, head: Head, query: Array) -> Answer:
        weights, empty = self.head_weights(head, query)
        if head.degree:
            left = self.local(head, query, self.rows.columns)[2].fit.left
            effective = line_weights(weights, left, self.rows.placed(head.transform), query)
            weights = np.where(empty[:, None], weights, effective)
        return Answer(weights, empty)

    def _local_output(self, head: Head, query: Array, value: Array) -> LocalOutput:
        """Output of a head at transformed queries, and the empty rows."""
        if self.rows.have_gaps(query):
            output, _, local = self.local(head, query, value)
            return LocalOutput(output, local.partial.mass <= 0.0)
        assert isinstance(head.score, Radial)
        options = self._fit_options(head)
        return local_output(query, self.rows.placed(head.transform), value, head.score, **options)

    def _fit_options(self, head: Head) -> dict[str, Any]:
        options: dict[str, Any] = {"degree": head.degree, "ridge": head.ridge, "sloped": head.sloped}
        return options | {"sample_weight": self.rows.sample_weight, **self.run.options}

    def local(self, head: Head, query: Array, value: Array) -> tuple[Array, Array, LocalPooling | FitWithMissing]:
        """Output of a head at transformed queries, the scale (P,) of the fits to value (K, P), the fits in float64."""
        rows, key = self.rows, self.rows.placed(head.transform)
        options = self._fit_options(head)
        assert isinstance(head.score, Radial)
        if rows.have_gaps(query):
            return pool_with_missing(query, key, value, head.score, rows.part_of, **options)
        return pool_local(query, key, value, head.score, **options)

    def _score_of_empty_rows(self, head: Head) -> Radial | None:
        """The score with which empty rows are pooled; None if their output is NaN."""
        if self.empty == "nearest":
            return Nearest(head.w)
        return Gaussian(0.0) if self.empty == "prior" else None

    # ---- leave-one-out

    def objectives(self) -> list[HeadObjective]:
        """The leave-one-out objective of every head over the complete rows; raises ValueError if there are too few."""
        rows = self.rows.whole
        counted = int(rows.counted.sum())
        if counted < 2 and not (rows.copies > 1.0).any():
            complete = " without missing entries" if len(rows.key) < len(self.rows.key) else ""
            raise ValueError(f"leave-one-out needs at least 2 training rows{complete}, but this model has {counted}")
        first = self.heads[0]
        if not isinstance(first.score, Radial):
            raise ValueError("a learned score over an embedding has no bandwidth to evaluate")
        objective = Objective.of(
            rows.key,
            rows.value,
            kernel=first.score.kernel.name,
            degree=first.degree,
            classes=None if rows.classes is None else len(rows.classes),
            sample_weight=rows.sample_weight,
            engine=self.run.engine,
            sloped=first.sloped,
        )
        if isinstance(objective.loss, LogLoss):
            objective = replace(objective, loss=replace(objective.loss, tempering=self.tempering))
        return [HeadObjective(head, replace(objective, key=head.transform.keys(objective.key))) for head in self.heads]


class HeadObjective(NamedTuple):
    """A head, and its leave-one-out objective."""

    head: Head
    objective: Objective


def line_weights(weights: Array, left: Array, key: Array, query: Array) -> Array:
    """Effective weights (Q, K) of local lines, α_i·(left·(1, δ_i)), from weights (Q, K) and left (Q, 1 + d).

    *Cost*: O(Q·K·d) time, a tile of differences.
    """
    out = weights.copy()
    for rows in np.array_split(np.arange(len(query)), max(1, weights.size * query.shape[1] >> 22)):
        # A line has no slope along a missing entry.
        delta = np.nan_to_num(key[None].astype(np.float64) - query[rows][:, None], nan=0.0)
        # left·(1, δ) is 1 at the mean of δ: centred there, no two large numbers cancel. The second pass removes what
        # rounding leaves of the mean.
        for _ in range(2):
            delta -= np.einsum("qk,qka->qa", weights[rows], delta)[:, None]
        out[rows] *= 1.0 + np.einsum("qa,qka->qk", left[rows, 1:], delta)
    return out


def tiles(count: int, cells: int, tile_cells: int) -> Iterator[slice]:
    """Slices of ``count`` queries with ``cells`` numbers each, so that a slice has about ``tile_cells`` numbers."""
    step = max(1, tile_cells // max(cells, 1))
    return (slice(start, start + step) for start in range(0, count, step))


def onehot(index: Array, classes: int) -> Array:
    """One column per class (K, classes), 1 for the class of a row and 0 otherwise."""
    columns = np.zeros((len(index), classes))
    columns[np.arange(len(index)), index] = 1.0
    return columns

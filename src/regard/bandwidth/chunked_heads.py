"""Heads of rows on a cluster: learned from a bag of rows on one worker, then walked to their places among all rows.

A bag knows which scalings, metrics and directions serve; its bandwidths are those of fewer rows. So they start
narrower, as more rows ask for, and every head takes its last steps looking at some thousand rows against all others, by
map and reduce. The mix is learned from the left-out answers of those rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.bandwidth.chunked import ChunkedObjective, Part
from regard.bandwidth.chunked_rows import objective_of
from regard.bandwidth.heads import (
    ENOUGH,
    LAST_STEPS,
    MOST,
    ROUGH,
    Heads,
    HeadSearch,
    HeadTrail,
    LearnedHead,
    Progress,
    learn_heads,
    walk_head,
)
from regard.bandwidth.losses import LogLoss
from regard.bandwidth.many import BAG
from regard.bandwidth.scaling import Scaling
from regard.bandwidth.shapes import Shape
from regard.cluster.rows import Block, Rows, picked, together
from regard.core.bounds import Bounds
from regard.engines.tasks import compute, tasks_of
from regard.pooling.runner import small_matrices

Array = NDArray[Any]


class Found(NamedTuple):
    """What ``learn_heads_chunks`` found."""

    heads: tuple[LearnedHead, ...]
    scaling: Scaling
    search: HeadSearch
    score: float  # of the rows looked at: R², or minus the log-loss


def learn_heads_chunks(
    rows: Rows,
    *,
    degree: int,
    classes: int,
    repeats: bool,
    grouped: bool,
    seed: int = 0,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Found:
    """Learn heads from examined rows; *cost*: that of ``learn_heads`` for 20,000 rows on one worker, and for each head
    some 15 looks at 8,000 rows against all.
    """
    counts = np.array([fact.counted for fact in rows.facts])
    n, rng = int(counts.sum()), np.random.default_rng(seed)
    bag = _bag(rows, counts, np.sort(rng.choice(n, min(BAG, n), replace=False)))
    options = {"degree": degree, "classes": classes or None, "engine": engine, "seed": seed}
    (first,) = compute([tasks_of("bag", heads_of)((0,), bag, grouped, options)])
    looked = np.sort(rng.choice(n, min(MOST, n), replace=False))
    trail = HeadTrail(progress, planned=float(len(first.heads) * LAST_STEPS * len(looked)))
    heads, answers = [], []
    loss: Any = None
    part: Part | None = None
    for head in first.heads:
        here = _rescaled(rows, partial(first.scaling, t=head.share))
        objective, power = objective_of(
            here, kernel="gaussian", degree=degree, classes=classes, repeats=repeats, grouped=grouped, engine=engine
        )
        some = replace(objective, tol=ROUGH).looking_at(looked)
        moved = _walked(some, head, power, n / min(BAG, n), trail)
        (answer, part) = compute([some(moved.w, moved.ridge).answer, some.looked[0]])
        loss = some.loss
        answers.append(loss.from_units_of_y(answer))
        heads.append(moved._replace(w=np.ldexp(moved.w, -(power if moved.w.ndim == 1 else power[:, None]))))
    assert part is not None
    loss = replace(loss, columns=part.columns)
    weights = loss.mix(np.stack(answers), part.counts)
    mixed = loss(np.tensordot(weights, np.stack(answers), 1), np.arange(len(looked)), part.counts).value
    kept = tuple(head._replace(weight=float(c)) for head, c in zip(heads, weights, strict=True) if c > 0.0)
    path = np.concatenate([first.search.path, trail.path])
    search = HeadSearch(mixed * loss.unit, len(path), path, first.search.interrupted)
    return Found(kept, first.scaling, search, -mixed if isinstance(loss, LogLoss) else 1.0 - mixed)


def _walked(some: ChunkedObjective, head: LearnedHead, power: Array, growth: float, trail: HeadTrail) -> LearnedHead:
    """The head at its place among all rows, in units of powers of two."""
    w = np.ldexp(head.w, power if head.w.ndim == 1 else power[:, None])
    rank = max(1, int(np.linalg.matrix_rank(w)) if w.ndim == 2 else int(np.count_nonzero(w)))
    w = w * growth ** (1.0 / (rank + 4))
    shape = Shape.of("full" if w.ndim == 2 else "feature", some.spread)
    ignored = w == 0.0 if w.ndim == 1 else ~w.any(axis=1)
    shape = shape.without(ignored)
    if not shape.size:
        return head._replace(w=w)
    with small_matrices():
        place = walk_head(some, shape, shape.parameters(w), max(head.ridge, 1e-6), LAST_STEPS, trail, ENOUGH)
    return head._replace(w=shape.w(place.parameters), ridge=place.ridge if some.degree else head.ridge)


def _rescaled(rows: Rows, scaling: Any) -> Rows:
    """The same rows with scaled columns; a monotone map takes corners to corners."""
    task = tasks_of("scale", _scaled_block)
    blocks = tuple(task((at,), block, scaling) for at, block in enumerate(rows.blocks))
    facts = tuple(
        fact._replace(key=Bounds(*(scaling(end[None])[0] for end in fact.key))) if fact.counted else fact
        for fact in rows.facts
    )
    return replace(rows, blocks=blocks, facts=facts)


def _scaled_block(block: Block, scaling: Any) -> Block:
    return block._replace(key=scaling(block.key))


def _bag(rows: Rows, counts: Array, wanted: Array) -> Any:
    """A delayed Block of some of the rows that have a weight, by their numbers in order."""
    cut = tasks_of("take", _taken)
    parts = [cut((at,), rows.blocks[at], here) for at, here in picked(counts.tolist(), wanted)]
    return tasks_of("gather", together)((0,), parts)


def _taken(block: Block, wanted: Array) -> Block:
    seen = np.arange(len(block.key)) if block.weight is None else np.flatnonzero(block.weight > 0)
    return Block(*(None if part is None else part[seen[wanted]] for part in block))  # type: ignore[arg-type]


def heads_of(block: Block, grouped: bool, options: dict[str, Any]) -> Heads:
    """The heads of a bag, on the worker that learns them; its answers stay there."""
    assert block.value is not None
    groups = block.labels if grouped else None
    with small_matrices():
        found = learn_heads(
            block.key.astype(np.float64), block.value, sample_weight=block.weight, groups=groups, **options
        )
    return found._replace(answer=found.answer[:0])

"""Which blocks a query needs: from bounding boxes alone, and never one too few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regard.core.block_bounds import NEGLIGIBLE_MASS, BlockBounds, blocks_in_reach, distance_bounds, nearest_block
from regard.core.bounds import Bounds
from regard.scores import RADIAL, DotProduct, Nearest
from support.engines import KERNEL_PATHS, sparse
from support.oracle import distance, scores
from support.soak import FULL

SEEDS = range(20 if FULL else 2)
SOFT = ("gaussian", "laplace")
ENDING = tuple(name for name in RADIAL if name not in SOFT)


class Rows:
    """Keys in clumps, sorted along a line and cut into blocks of uneven lengths, one of them empty."""

    def __init__(self, seed: int, width: int, offset: float = 0.0, weights: str = "none") -> None:
        rng = np.random.default_rng(seed)
        clumps = 10.0 * rng.normal(size=(6, width)) + offset
        key = clumps[rng.integers(6, size=160)] + rng.normal(size=(160, width))
        key[rng.random(160) < 0.2] = key[0]  # the same place many times
        self.key = key[np.argsort(key[:, 0], kind="stable")]
        cuts = np.sort(rng.integers(0, 160, 12))
        cuts = np.r_[0, cuts, cuts[-1], 160]  # twice the same: an empty block between
        self.block = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
        self.weight = {
            "none": np.ones(160),
            "counts": rng.integers(0, 4, 160).astype(float),
            "importances": np.exp(20.0 * rng.normal(size=160)),
        }[weights]
        self.query = np.concatenate(
            [
                self.key[rng.integers(160, size=10)] + rng.normal(size=(10, width)),
                self.key[rng.integers(160, size=3)],
                self.key[:2] + 1e6 * rng.normal(size=(2, width)),
            ]
        )

    @property
    def blocks(self) -> BlockBounds:
        parts = [
            (self.key[at], np.log(self.weight[at]))
            for at in ((self.block == number) & (self.weight > 0) for number in range(self.block[-1] + 1))
        ]
        nothing = np.zeros(self.key.shape[1])
        return BlockBounds(
            np.array([len(key) for key, _ in parts]),
            np.array([key.min(axis=0) if len(key) else nothing for key, _ in parts]),
            np.array([key.max(axis=0) if len(key) else nothing for key, _ in parts]),
            np.array([log.min(initial=np.inf) if len(log) else 0.0 for _, log in parts]),
            np.array([log.max(initial=-np.inf) if len(log) else 0.0 for _, log in parts]),
        )

    def lost(self, score: Any, seen: Any, barred: Any = None) -> Any:
        """The fraction (Q,) of each query's attention on blocks that are not selected, in extended precision."""
        heights = scores(score, self.query, self.key) + np.log(np.where(self.weight > 0, self.weight, 1.0))
        heights[:, self.weight == 0] = -np.inf
        if barred is not None:
            heights[barred] = -np.inf
        top = heights.max(axis=1, keepdims=True)
        mass = np.exp(heights - np.where(np.isfinite(top), top, 0.0))
        total = mass.sum(axis=1)
        return (mass * ~seen[:, self.block]).sum(axis=1) / np.where(total > 0, total, 1)

    def nearest_is_seen(self, w: Any, seen: Any) -> Any:
        u = distance(Nearest(w), self.query, self.key, np.longdouble)
        u[:, self.weight == 0] = np.inf
        nearest = u == u.min(axis=1, keepdims=True)
        return (seen[:, self.block] | ~nearest).all(axis=1)


def metrics(width: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    some = rng.uniform(0.2, 3.0, width)
    some[0] = 0.0  # a feature that does not count
    return {"scalar": 0.7, "feature": some, "matrix": rng.normal(size=(width, width))}


@sparse(
    "kernel",
    [*RADIAL, "nearest"],
    [*KERNEL_PATHS, "nearest"],
    ("weights", ["none", "counts", "importances"]),
    ("offset", [0.0, 1e6]),
    ("metric", ["scalar", "feature", "matrix"]),
)
def test_what_is_not_seen_does_not_show(kernel, metric, offset, weights):
    for seed in SEEDS:
        width = (2, 5)[seed % 2]
        rows = Rows(seed, width, offset, weights)
        score = (Nearest if kernel == "nearest" else RADIAL[kernel])(metrics(width, seed)[metric])
        at = Bounds(rows.query, rows.query)
        known = score.distance2(rows.query, rows.key[rows.weight > 0]).min(axis=1)
        for more in ({}, {"known": known}):
            for share in (NEGLIGIBLE_MASS, 1e-6) if kernel in SOFT else (NEGLIGIBLE_MASS,):
                seen = blocks_in_reach(at, rows.blocks, score, share=share, nearest=True, **more)
                assert not seen[:, rows.blocks.keys == 0].any()
                assert (rows.lost(score, seen) <= (share if kernel in SOFT else 0.0)).all()
                assert rows.nearest_is_seen(score.w, seen).all()


@pytest.mark.parametrize("kernel", [*RADIAL, "nearest"])
def test_most_blocks_are_far_from_a_query(kernel):
    rows = Rows(0, 2)
    score = (Nearest if kernel == "nearest" else RADIAL[kernel])(50.0)
    seen = blocks_in_reach(Bounds(rows.query, rows.query), rows.blocks, score, nearest=True)
    assert seen.mean() < 0.7
    known = score.distance2(rows.query, rows.key).min(axis=1)
    closer = blocks_in_reach(Bounds(rows.query, rows.query), rows.blocks, score, nearest=True, known=known)
    assert (closer <= seen).all()
    assert closer.mean() < min(0.4, 0.8 * seen.mean())


@pytest.mark.parametrize("kernel", [*RADIAL, "nearest"])
@pytest.mark.parametrize("metric", ["scalar", "matrix"])
def test_a_box_of_queries_selects_what_any_of_them_needs(kernel, metric):
    for seed in SEEDS:
        rows = Rows(seed, 3)
        score = (Nearest if kernel == "nearest" else RADIAL[kernel])(metrics(3, seed)[metric])
        low, high = rows.query[:10].min(axis=0), rows.query[:10].max(axis=0)
        rows.query = np.random.default_rng(seed).uniform(low, high, (40, 3))
        seen = np.repeat(
            blocks_in_reach(Bounds(low[None], high[None]), rows.blocks, score, share=1e-9, nearest=True), 40, 0
        )
        assert (rows.lost(score, seen) <= (1e-9 if kernel in SOFT else 0.0)).all()
        assert rows.nearest_is_seen(score.w, seen).all()


@pytest.mark.parametrize("kernel", SOFT)
@pytest.mark.parametrize("out", [1, 5])
def test_the_nearest_keys_may_be_barred(kernel, out):
    for seed in SEEDS:
        rows = Rows(seed, 2)
        score = RADIAL[kernel](5.0)
        order = np.argsort(distance(score, rows.query, rows.key, np.longdouble), axis=1)[:, :out]
        barred = np.zeros((len(rows.query), len(rows.key)), bool)
        np.put_along_axis(barred, order, True, axis=1)
        seen = blocks_in_reach(Bounds(rows.query, rows.query), rows.blocks, score, share=1e-9, excluded=out)
        assert (rows.lost(score, seen, barred) <= 1e-9).all()
        plain = blocks_in_reach(Bounds(rows.query, rows.query), rows.blocks, score, share=1e-9)
        assert (plain <= seen).all()


def test_where_nothing_is_sure_everything_is_seen():
    rows = Rows(0, 2)
    at, stands = Bounds(rows.query, rows.query), rows.blocks.keys > 0
    for score in (RADIAL["gaussian"](50.0), RADIAL["laplace"](50.0), Nearest(1.0)):
        assert (blocks_in_reach(at, rows.blocks, score, excluded=None) == stands).all()
    assert (blocks_in_reach(at, rows.blocks, DotProduct(5.0)) == stands).all()
    assert (blocks_in_reach(at, rows.blocks, RADIAL["gaussian"](0.0)) == stands).all()


def test_compact_kernels_need_no_key_beyond_their_support():
    rows = Rows(0, 2)
    at = Bounds(rows.query, rows.query)
    for kernel in ENDING:
        assert not blocks_in_reach(at, rows.blocks, RADIAL[kernel](1e9))[-2:].any()  # 1e6 away: no block
        assert blocks_in_reach(at, rows.blocks, RADIAL[kernel](1e9), nearest=True)[-2:].any(axis=1).all()


def test_spans_hold_every_pair():
    for seed in SEEDS:
        rows = Rows(seed, 3, 1e6)
        for w in metrics(3, seed).values():
            score = RADIAL["gaussian"](w)
            span = distance_bounds(Bounds(rows.query, rows.query), rows.blocks, score.w)
            u2 = distance(score, rows.query, rows.key, np.longdouble) ** 2
            assert (span.least[:, rows.block] <= u2).all()
            assert (span.most[:, rows.block] >= u2).all()


def test_single_precision_reaches_a_little_further():
    edge = np.nextafter(np.float32(1.0), np.float32(2.0))
    blocks = BlockBounds(np.array([1]), np.array([[edge]]), np.array([[edge]]), np.zeros(1), np.zeros(1))
    at = Bounds(np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32))
    assert blocks_in_reach(at, blocks, RADIAL["boxcar"](1.0)).all()
    wide = blocks._replace(low=blocks.low.astype(np.float64), high=blocks.high.astype(np.float64))
    assert not blocks_in_reach(at, wide, RADIAL["boxcar"](1.0)).any()


def test_the_nearest_block_has_keys_and_is_the_smallest_of_several():
    low = np.array([[0.0], [-9.0], [-1.0], [5.0]])
    blocks = BlockBounds(np.array([0, 3, 3, 3]), low, np.array([[0.0], [9.0], [1.0], [6.0]]), np.zeros(4), np.zeros(4))
    assert nearest_block(np.array([[0.0], [5.5], [-50.0], [1e300]]), blocks, np.array(1.0)).tolist()[:3] == [2, 3, 1]

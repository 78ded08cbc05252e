"""The accuracy line, against 60 digits.

|error| ≤ 4·u·Σα|v|·((d + 6)·|s| + n + 6), with u the unit roundoff, n the number of keys and |s| the largest score
gap among the keys that are kept (those within 40 of the largest); always inside the hull of the values; the nearest
key's value when every other key is more than 40 below it.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from regard.pooling import planner
from regard.pooling.functions import attention_weights, pool
from regard.scores import KERNELS, RADIAL, Gaussian, Laplace, Nearest
from support import oracle
from support.engines import EXACT, every_dtype, every_engine

UNIT = {np.float32: 2.0**-24, np.float64: 2.0**-53}
KEPT = 40
N = 24  # keys
FEWEST_FUSED = 33  # queries, so that the fused program has its turn; a few of them are checked

every_width = pytest.mark.parametrize("d", [1, 2, 3, 5, 8])

#        offset  w      spread of the queries, in units of the keys'
PLACES = [
    (0.0, 1e-300, 1.0),
    (0.0, 1e-3, 1.0),
    (0.0, 0.3, 1.0),
    (0.0, 1.0, 1.0),
    (0.0, 1.0, 6.0),
    (0.0, 3.0, 30.0),
    (0.0, 1.0, 1e3),
    (0.0, 1e-4, 1e7),
    (0.0, 17.0, 6.0),
    (0.0, 1e3, 1.0),
    (0.0, 1e8, 1.0),
    (0.0, 1e30, 1.0),
    (0.0, 1e100, 1.0),
    (1e3, 1.7, 1.0),
    (-1e6, 0.3, 1.0),
    (1e6, 1.0, 6.0),
    (1e6, 10.0, 1.0),
    (1e6, 1e100, 1.0),
]


def place(offset, spread, d, dtype):
    """Queries, keys and values around an offset; the inputs are what the rounding of the offset leaves."""
    rng = np.random.default_rng([d, int(abs(offset)), int(spread)])
    key = (rng.normal(size=(N, d)) + offset).astype(dtype)
    query = (spread * rng.normal(size=(FEWEST_FUSED, d)) + offset).astype(dtype)
    return query, key, (rng.normal(size=N) + 1.0).astype(dtype)


def error_of(got, exact: oracle.Exact) -> mpmath.mpf:
    return abs(mpmath.mpf(float(got)) - exact.output)


def bound_of(exact: oracle.Exact, d: int, dtype) -> mpmath.mpf:
    kept = max(gap for gap in exact.gaps if gap <= KEPT)
    return 4 * UNIT[dtype] * exact.scale * ((d + 6) * kept + len(exact.gaps) + 6)


@every_dtype
@every_width
@pytest.mark.parametrize(("offset", "w", "spread"), PLACES)
def test_the_accuracy_line(offset, w, spread, d, dtype):
    query, key, value = place(offset, spread, d, dtype)
    answers = {engine: pool(query, key, value, Gaussian(w), engine=engine).output for engine in EXACT}
    for i in (0, 15, 32):
        exact = oracle.exact(Gaussian(w), query[i], key, value)
        gaps = sorted(exact.gaps)
        for engine, output in answers.items():
            assert error_of(output[i], exact) <= bound_of(exact, d, dtype), engine
            if gaps[1] > KEPT:
                nearest = value[exact.gaps.index(0)]
                assert abs(float(output[i]) - float(nearest)) <= bound_of(exact, d, dtype), engine


@every_dtype
@pytest.mark.parametrize(
    "w", [np.array([0.3, 2.0, 1e-300]), np.array([1e3, 1.0, 0.0]), np.array([[0.5, 1.0], [1.0, -2.0], [0.0, 0.7]])]
)
def test_the_accuracy_line_for_other_w(w, dtype):
    query, key, value = place(0.0, 1.0, 3, dtype)
    for engine in EXACT:
        output = pool(query, key, value, Gaussian(w), engine=engine).output
        for i in (0, 15, 32):
            exact = oracle.exact(Gaussian(w), query[i], key, value)
            # A matrix mixes the features of a difference: their sum is one more rounding each.
            assert error_of(output[i], exact) <= bound_of(exact, 3 * w.ndim, dtype), engine


@every_engine
@every_dtype
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_by_their_own_conditioning(name, dtype, engine):
    """An ulp of u moves K by |u·K'(u)/K| ulps: near the edge of a compact kernel that is more than one."""
    query, key, value = place(0.0, 1.0, 2, dtype)
    for w in (0.2, 0.9, np.array([0.3, 0.6])):
        score = RADIAL[name](w)
        output, logsumexp = pool(query, key, value, score, engine=engine)
        for i in (0, 15, 32):
            u2 = np.array([float(oracle.exact_distance2(score.w, query[i], k)) for k in key])
            if name == "boxcar" and (np.abs(u2 - 1.0) < 100 * UNIT[dtype]).any():
                continue
            if KERNELS[name].compact and (u2 >= 1.0).all():
                assert output[i] == 0.0
                assert np.isneginf(logsumexp[i])
                continue
            exact = oracle.exact(score, query[i], key, value)
            weights = np.array([float(mpmath.exp(-gap)) for gap in exact.gaps])
            weights /= weights.sum()
            K = KERNELS[name].value(u2)
            condition = np.abs(2.0 * u2 * KERNELS[name].rate(u2)) / np.where(K > 0.0, K, 1.0)
            moved = (weights * condition * (np.abs(value) + float(exact.scale))).sum()
            bound = 4 * UNIT[dtype] * ((2 + 6) * moved + (N + 6) * exact.scale)
            assert error_of(output[i], exact) <= bound
            size = 1 + abs(exact.logsumexp)
            assert abs(mpmath.mpf(float(logsumexp[i])) - exact.logsumexp) <= 4 * UNIT[dtype] * (
                (2 + 6) * (weights * condition).sum() + (N + 6) * size
            )


@every_dtype
def test_long_sums_lose_nothing(dtype, monkeypatch):
    """A million equal weights in one shard: the fused program keeps what its additions round away."""
    monkeypatch.setattr(planner, "JOBS_WANTED", 1)
    bits = 46 if dtype == np.float64 else 17  # 128 such values add up exactly
    value = np.random.default_rng(0).integers(0, 1 << bits, 1_000_000).astype(dtype) / (1 << bits)
    x = np.zeros(1_000_000, dtype)
    output = pool(x[:FEWEST_FUSED], x, value.astype(dtype), Gaussian(), engine="tiled").output
    assert abs(float(output[0]) - math.fsum(value) / len(value)) <= UNIT[dtype]


# ---- far away

FAR = [1e2, 1e4, 1e6, 1e10, 1e15, 1e18, 1e25, 1e35]
FARTHER = [1e60, 1e100, 1e140, 1e150]


def far_cases():
    for dtype, distances in ((np.float32, FAR), (np.float64, FAR + FARTHER)):
        for distance in distances:
            yield pytest.param(distance, dtype, id=f"{dtype.__name__}-{distance:g}")


FAR_SCORES = [Gaussian(1.0), Gaussian(1e-3), Gaussian(1e8), Gaussian([1.0, 0.5]), Laplace(1.0), Laplace(1e10)]


@every_engine
@pytest.mark.parametrize(("distance", "dtype"), [*far_cases()])
def test_far_queries_are_inside_the_hull_and_see_the_nearest_key(distance, dtype, engine):
    """Wherever one key is nearest by float64 distances, and by more than 40 in the scores, it is the answer."""
    for score in FAR_SCORES:
        seen = nearest_seen(distance, dtype, score, engine)
        # From 1e4 bandwidths on there is always something to see.
        assert seen or distance * float(np.max(score.w)) < 1e4, score


def nearest_seen(distance, dtype, score, engine):
    """Far queries checked to answer with their nearest key: how many there were."""
    rng = np.random.default_rng(int(np.log10(distance)))
    value = rng.normal(size=8).astype(dtype)
    seen = 0
    for size in (1.0, 1e-2 * distance):  # of the cloud of keys
        key = (size * rng.normal(size=(8, 2))).astype(dtype)
        query = (distance * rng.choice([-1.0, 1.0], size=(34, 2)) * rng.uniform(0.5, 1.0, (34, 2))).astype(dtype)
        output, logsumexp = pool(query, key, value, score, engine=engine)
        assert (output >= value.min()).all()
        assert (output <= value.max()).all()
        assert np.isfinite(logsumexp).all()
        assert np.allclose(attention_weights(query, key, score, engine=engine).sum(axis=1), 1.0, rtol=1e-6)
        scaled = (query.astype(float)[:, None] - key.astype(float)[None]) * score.w
        largest = np.abs(scaled).max()
        u = np.sort(np.sqrt(((scaled / largest) ** 2).sum(-1)), axis=1)
        order = np.argsort(((scaled / largest) ** 2).sum(-1), axis=1)
        unique = u[:, 1] - u[:, 0] > 16 * np.finfo(float).eps * u[:, 0]
        for i in np.flatnonzero(unique)[:3]:
            near, next_ = (oracle.exact_distance2(np.asarray(score.w), query[i], key[j]) for j in order[i, :2])
            gap = (next_ - near) / 2 if isinstance(score, Gaussian) else mpmath.sqrt(next_) - mpmath.sqrt(near)
            if gap > KEPT:
                seen += 1
                assert abs(output[i] - value[order[i, 0]]) <= 4 * UNIT[dtype] * abs(value[order[i, 0]]) * (8 + 6)
    return seen


@every_engine
@every_dtype
@pytest.mark.parametrize("score", [Gaussian, Laplace])
@pytest.mark.parametrize("distance", [1e1, 1e2, 1e3, 1e5, 1e7])
@pytest.mark.parametrize("crowd", [3, N])
def test_the_accuracy_line_far_away(distance, crowd, score, dtype, engine):
    """Far from the data and softly shared: scores of −10¹⁴ that differ by a few."""
    rng = np.random.default_rng(1)
    for d in (1, 2, 5, 8):
        reach = 1.0 / distance if score is Gaussian else 1.0
        key = (reach * rng.normal(size=(crowd, d))).astype(dtype)
        query = (distance * rng.normal(size=(FEWEST_FUSED, d))).astype(dtype)
        value = rng.normal(size=crowd).astype(dtype)
        for w in (1.0, rng.uniform(0.5, 1.5, d), rng.normal(size=(d, 2))):
            output, logsumexp = pool(query, key, value, score(w), engine=engine)
            weights = attention_weights(query, key, score(w), engine=engine)
            for i in (0, 32):
                exact = oracle.exact(score(w), query[i], key, value)
                bound = bound_of(exact, d * max(np.ndim(w), 1), dtype)
                assert error_of(output[i], exact) <= bound
                # The weights as given are rounded once more each.
                assert abs(weights[i].astype(float) @ value.astype(float) - exact.output) <= 2 * bound
                assert abs(mpmath.mpf(float(logsumexp[i])) - exact.logsumexp) <= (
                    UNIT[dtype] * (4 * (d + 6) * abs(exact.logsumexp) + N)
                )


# ---- any numbers at all

WILD = st.one_of(
    st.floats(-1e150, 1e150, allow_subnormal=True),
    st.floats(-10.0, 10.0),
    st.sampled_from([0.0, 1.0, -1.0, 1e-300, 5e-324, 1e150, -1e150]),
)


@every_engine
@given(
    query=hnp.arrays(float, (2, 2), elements=WILD),
    key=hnp.arrays(float, (4, 2), elements=WILD),
    value=hnp.arrays(float, 4, elements=st.floats(-1e300, 1e300)),
    w=st.one_of(st.floats(1e-300, 1e100), st.floats(0.0, 10.0)),
    name=st.sampled_from([*KERNELS, "nearest"]),
)
def test_always_inside_the_hull(engine, query, key, value, w, name):
    assume(name != "nearest" or w > 0.0)
    score = Nearest(w) if name == "nearest" else RADIAL[name](w)
    output, logsumexp = pool(query, key, value, score, engine=engine)
    seen = logsumexp > -np.inf
    assert not np.isnan(logsumexp).any()
    assert (output[seen] >= value.min()).all()
    assert (output[seen] <= value.max()).all()
    assert not output[~seen].any()
    if name == "nearest" or not KERNELS[name].compact:
        assert seen.all()

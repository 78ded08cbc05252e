"""The laws of the associative state."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from regard.core.state import Partial, decay, empty, finish, lift, merge, merge_all

both = pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
# Scores include −inf, exact ties, and gaps beyond every exponential.
SCORE = st.one_of(
    st.sampled_from([-np.inf, 0.0, 1.0, -1e300, 1e300, -745.0, 710.0]),
    st.floats(-50.0, 50.0).map(lambda x: round(x * 8) / 8),
)
Q, P = 3, 2


@st.composite
def tiles(draw, count):
    """Scores and columns of some tiles of keys over the same queries."""
    sizes = [draw(st.integers(0, 4)) for _ in range(count)]
    return [
        (
            draw(hnp.arrays(float, (Q, n), elements=SCORE)),
            draw(hnp.arrays(float, (n, P), elements=st.floats(-9.0, 9.0))),
        )
        for n in sizes
    ]


def same(a: Partial, b: Partial) -> bool:
    """Equal to rounding; moments relative to the mass they are divided by."""
    assert a.hard == b.hard
    scale = np.maximum(a.mass, 1.0)
    return bool(
        np.array_equal(a.peak, b.peak)
        and (np.abs(a.mass - b.mass) <= 1e-14 * scale).all()
        and (np.abs(a.moments - b.moments) <= 1e-13 * scale[:, None]).all()
    )


def identical(a: Partial, b: Partial) -> bool:
    return a.hard == b.hard and all(np.array_equal(x, y) for x, y in zip(a[:3], b[:3], strict=True))


@both
@given(parts=tiles(3))
def test_merge_is_associative(hard, parts):
    a, b, c = (lift(*part, hard=hard) for part in parts)
    assert same(merge(merge(a, b), c), merge(a, merge(b, c)))


@both
@given(parts=tiles(2))
def test_merge_is_commutative_to_the_last_bit(hard, parts):
    a, b = (lift(*part, hard=hard) for part in parts)
    assert identical(merge(a, b), merge(b, a))


@both
@given(parts=tiles(1))
def test_empty_is_the_identity(hard, parts):
    (part,) = parts
    a = lift(*part, hard=hard)
    nothing = empty(Q, P, hard=hard)
    assert identical(merge(a, nothing), a)
    assert identical(merge(nothing, a), a)


@both
@given(parts=tiles(1), data=st.data())
def test_any_split_in_any_order_is_the_whole(hard, parts, data):
    ((scores, columns),) = parts
    n = len(columns)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=3)))
    pieces = [lift(scores[:, i:j], columns[i:j], hard=hard) for i, j in pairwise([0, *cuts, n])]
    whole = lift(scores, columns, hard=hard)
    for order in permutations(pieces):
        assert same(merge_all(order), whole)


@both
def test_two_empties_give_an_empty_and_no_nan(hard):
    nothing = empty(Q, P, hard=hard)
    assert identical(merge(nothing, nothing), nothing)
    assert identical(lift(np.empty((Q, 0)), np.empty((0, P)), hard=hard), nothing)
    assert identical(lift(np.full((Q, 4), -np.inf), np.ones((4, P)), hard=hard), nothing)
    output, logsumexp = finish(merge_all([nothing] * 3))
    assert not output.any()
    assert np.isneginf(logsumexp).all()


def test_empty_takes_any_shape_of_queries():
    state = empty((2, 5), 3)
    assert state.peak.shape == state.mass.shape == (2, 5)
    assert state.moments.shape == (2, 5, 3)
    batch = np.random.default_rng(0).normal(size=(2, 5, 7))
    assert identical(merge(state, lift(batch, np.ones((7, 3)))), lift(batch, np.ones((7, 3))))


@given(parts=tiles(1))
def test_finish_is_the_softmax_average(parts):
    ((scores, columns),) = parts
    output, logsumexp = finish(lift(scores, columns))
    for q in range(Q):
        seen = scores[q] > -np.inf
        if not seen.any():
            assert not output[q].any()
            assert np.isneginf(logsumexp[q])
            continue
        with np.errstate(under="ignore"):
            weight = np.exp(scores[q][seen] - scores[q].max())
        assert np.allclose(output[q], weight @ columns[seen] / weight.sum(), rtol=1e-13, atol=1e-13)
        assert np.isclose(logsumexp[q], scores[q].max() + np.log(weight.sum()), rtol=1e-15, atol=1e-15)


@given(parts=tiles(1))
def test_a_hard_state_averages_its_ties(parts):
    ((scores, columns),) = parts
    output, logsumexp = finish(lift(scores, columns, hard=True))
    for q in range(Q):
        ties = (scores[q] == scores[q].max(initial=-np.inf)) & (scores[q] > -np.inf)
        assert np.isclose(np.exp(logsumexp[q]), ties.sum())
        if ties.any():
            assert np.allclose(output[q], columns[ties].mean(axis=0), rtol=1e-13, atol=1e-13)


@given(parts=tiles(1))
def test_constant_columns_come_back(parts):
    ((scores, columns),) = parts
    output, logsumexp = finish(lift(scores, np.full_like(columns, 2.5)))
    assert np.allclose(output[logsumexp > -np.inf], 2.5, rtol=1e-15)


def test_a_higher_peak_silences_a_far_lower_one():
    low, high = lift(np.array([[-1e300]]), np.array([[7.0]])), lift(np.array([[1e300]]), np.array([[3.0]]))
    assert finish(merge(low, high)).output.tolist() == [[3.0]]


def test_hard_and_soft_do_not_mix():
    with pytest.raises(ValueError, match="hard"):
        merge(empty(1, 1), empty(1, 1, hard=True))


def test_decay_table():
    gaps = np.array([0.0, -1.0, -800.0, -np.inf, np.nan])
    assert decay(gaps, hard=False).tolist() == [1.0, np.exp(-1.0), 0.0, 0.0, 0.0]
    assert decay(gaps, hard=True).tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]

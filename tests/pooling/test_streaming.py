"""Batch by batch is the whole: keys, queries and tables larger than memory."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import Batch, batches_of, pool, pool_batches, pool_queries
from regard.pooling import mergeable_state
from regard.pooling.functions import Pooled
from regard.scores import RADIAL, Additive, DotProduct, Gaussian, Laplace, Nearest, Score
from support.engines import KERNEL_PATHS, every_dtype, sparse
from support.generators import dyadic, make_inputs
from support.streams import close

RNG = np.random.default_rng(7)
SCORES: dict[str, Score] = {
    **{name: score(0.75) for name, score in RADIAL.items()},
    "matrix": Gaussian([[0.5, 0.25], [0.0, 1.0], [-0.5, 0.5]]),
    "flat": Gaussian(0.0),
    "nearest": Nearest([0.5, 1.25, 0.75]),
    "dot": DotProduct(1.5),
    "additive": Additive(RNG.normal(size=(4, 3)), RNG.normal(size=(4, 3)), RNG.normal(size=4)),
}
OPTIONS = ("plain", "weights", "tiny weights", "exclude")
every_score = pytest.mark.parametrize("score", SCORES)


def streamed(query, key, value, score, cuts, *, sample_weight=None, exclude=None, order=None, **options):
    """``pool_batches`` over the pieces between cuts."""
    labels = None if exclude is None else exclude[1]
    pieces = [
        tuple(None if part is None else part[i:j] for part in (key, value, sample_weight, labels))
        for i, j in pairwise([0, *sorted(cuts), len(key)])
    ]
    pieces = pieces if order is None else [pieces[i] for i in order]
    return pool_batches(query, iter(pieces), score, exclude=None if exclude is None else exclude[0], **options)


# ---- any cut is the whole


@every_dtype
@sparse("score", SCORES, [*KERNEL_PATHS, "matrix", "flat", "nearest", "dot", "additive"], ("option", OPTIONS))
def test_any_cut_is_the_whole(score, option, dtype):
    query, key, value, options = make_inputs(option, 23, 90, 2, dtype=dtype)
    whole = pool(query, key, value, SCORES[score], tol=0.0, **options)
    for cuts in ([], [30, 60], [0, 0, 1, 45, 45, 89, 90], range(90)):
        close(streamed(query, key, value, SCORES[score], cuts, tol=0.0, **options), whole, dtype)


@settings(max_examples=60)
@given(data=st.data())
def test_random_cuts_in_random_order(data):
    score = SCORES[data.draw(st.sampled_from(sorted(SCORES)))]
    option = data.draw(st.sampled_from(OPTIONS))
    query, key, value, options = make_inputs(option, 9, 40, 1, seed=data.draw(st.integers(0, 99)))
    query = query * data.draw(st.sampled_from([1.0, 64.0, 4096.0]) if isinstance(score, Gaussian) else st.just(1.0))
    cuts = data.draw(st.lists(st.integers(0, 40), max_size=6))
    order = data.draw(st.permutations(range(len(cuts) + 1)))
    close(
        streamed(query, key, value, score, cuts, order=order, tol=0.0, **options),
        pool(query, key, value, score, tol=0.0, **options),
        rounding=256,
    )


@pytest.mark.parametrize("engine", ["reference", "tiled", "pruned"])
@pytest.mark.parametrize("score", ["gaussian", "laplace", "epanechnikov", "nearest"])
def test_every_engine(score, engine):
    query, key, value, options = make_inputs("weights", 300, 2400, 1)
    whole = pool(query, key, value, SCORES[score], engine=engine, tol=0.0, **options)
    found = streamed(query, key, value, SCORES[score], [700, 1900], engine=engine, tol=0.0, **options)
    close(found, whole, rounding=256)


@pytest.mark.parametrize("tol", [1e-3, 1e-6, None])
def test_what_each_batch_loses_the_whole_loses(tol):
    """No batch loses more than tol of its own mass: nor does the sum."""
    query, key = RNG.uniform(0, 5, (600, 1)), RNG.uniform(0, 5, (6000, 1))
    value = np.where(RNG.random(6000) < 0.01, 1.0, -1.0)
    exact = pool(query, key, value, Gaussian(30.0), tol=0.0)
    found = pool_batches(query, batches_of(key, value, rows=2500), Gaussian(30.0), engine="pruned", tol=tol)
    assert np.abs(found.output - exact.output).max() <= 2.0 * (tol or 1e-9)


def test_one_axis_means_one_feature_and_integers_are_numbers():
    found = pool_batches([0, 3], [([0, 1], [5, 6]), ([3], [9])], Nearest())
    assert found.output.tolist() == [5.0, 9.0]
    assert found.output.dtype == np.float64
    two = pool_batches([[0.0]], [Batch([[1.0]], [[1.0, 2.0]]), ([[2.0]], [[3.0, 4.0]])], Gaussian(0.0))
    assert two.output.tolist() == [[2.0, 3.0]]


@every_score
def test_no_queries_and_no_keys(score):
    none = pool_batches(np.empty((0, 3)), [(np.ones((4, 3)), np.ones((4, 2)))] * 2, SCORES[score])
    assert (none.output.shape, none.logsumexp.shape) == ((0, 2), (0,))
    alone = pool_batches(np.ones((2, 3)), [(np.empty((0, 3)), np.empty(0))] * 2, SCORES[score])
    assert alone.output.tolist() == [0.0, 0.0]
    assert np.isneginf(alone.logsumexp).all()


# ---- what merging alone does not know


@pytest.mark.parametrize("score", [Gaussian(1.0), Laplace(1.0), Gaussian([[1.0, 0.5], [0.0, 1.0]])], ids=str)
@pytest.mark.parametrize("far", [30.0, 1e3, 1e5, 1e7, 1e10])
def test_far_queries_compare_batches_in_twice_the_precision(score, far):
    """Keys whose scores are 1e6 and more below 0, and a fraction apart."""
    query = np.array([[far, 0.0], [far, far / 2], [0.0, -far]])
    # Gaps of about one in the score need keys 1/far apart.
    step = 1.0 if isinstance(score, Laplace) else 1.0 / far
    key = np.round(RNG.normal(size=(60, 2)) * 64) / 64 * step
    value, weight = RNG.normal(size=60), RNG.random(60) + 0.1
    whole = pool(query, key, value, score, sample_weight=weight, tol=0.0)
    assert 0 < np.abs(whole.output[:, None] - value).min() < 1.0  # several keys share
    for cuts in ([20, 40], range(60)):
        found = streamed(query, key, value, score, cuts, sample_weight=weight, tol=0.0)
        np.testing.assert_allclose(found.output, whole.output, rtol=0, atol=1e-12)


def test_plain_merging_would_not_do():
    """The check above detects the rounding it is about."""
    query, key, value = np.array([[1e7]]), np.array([[0.0], [1e-7]]), np.array([0.0, 1.0])
    rounded = -0.5 * (query - key.T) ** 2
    weight = np.exp(rounded - rounded.max())
    truth = pool(query, key, value, Gaussian(), tol=0.0).output
    assert abs((weight @ value / weight.sum() - truth)[0]) > 1e-3
    assert abs(streamed(query, key, value, Gaussian(), [1], tol=0.0).output - truth)[0] < 1e-12


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
@pytest.mark.parametrize("score", [Gaussian, Laplace])
def test_the_softmax_limit_is_the_nearest_key_of_all_batches(score, order):
    far = 1e160 if score is Gaussian else 1e290
    key = np.array([0.0, 0.25, 1.0, 1.0, 0.5, 0.75]) * far / 64
    value = np.array([1.0, 2.0, 3.0, 5.0, 7.0, 11.0])
    query = np.array([far, -far, 0.25 * far / 64])
    weight = np.array([1.0, 1.0, 1.0, 3.0, 1.0, 1.0])
    w = 1.0 if score is Gaussian else 1e20
    whole = pool(query, key, value, score(w), sample_weight=weight)
    assert whole.output.tolist() == [4.5, 1.0, 2.0]
    for cuts in ([2, 4], [3, 4]):
        found = streamed(query, key, value, score(w), cuts, sample_weight=weight, order=order)
        assert found.output.tolist() == whole.output.tolist()
        assert found.logsumexp.tolist() == whole.logsumexp.tolist()


def test_one_batch_at_the_limit_and_one_in_reach():
    far = 1e200
    for batches in ([([far], [1.0]), ([0.5], [2.0])], [([0.5], [2.0]), ([far], [1.0])]):
        found = pool_batches([0.0, far], batches, Gaussian())
        assert found.output.tolist() == [2.0, 1.0]
        assert found.logsumexp[0] == -0.125


@pytest.mark.parametrize("name", [name for name, score in RADIAL.items() if score.kernel.compact])
def test_compact_kernels_with_empty_rows_in_some_batches(name):
    key = np.arange(12.0)
    value, query = key**2, np.array([0.0, 5.25, 11.5, 40.0])
    score = RADIAL[name](1.0)
    whole = pool(query, key, value, score)
    close(streamed(query, key, value, score, range(12)), whole)
    assert np.isneginf(whole.logsumexp).tolist() == [False, False, False, True]
    empty = pool_batches([40.0], batches_of(key, value, rows=5), score)
    assert empty.output.tolist() == [0.0]
    assert empty.logsumexp.tolist() == [-np.inf]


@pytest.mark.parametrize("score", [Gaussian(0.5), Nearest(1.0), RADIAL["boxcar"](0.5)])
def test_weights_of_any_size_in_any_batch(score):
    key, value = np.array([0.0, 0.0, 0.5, 1.0]), np.array([1.0, 2.0, 4.0, 8.0])
    batches = [(key[:1], value[:1], [1e-290]), (key[1:2], value[1:2], [3e-290]), (key[2:], value[2:], [1e290, 1e290])]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        found = pool_batches([0.0], [batches[i] for i in order], score)
        expected = 1.75 if isinstance(score, Nearest) else pool([0.0], key[2:], value[2:], score).output[0]
        assert found.output[0] == pytest.approx(expected, rel=1e-14)
    if isinstance(score, Nearest):
        assert found.logsumexp[0] == pytest.approx(np.log(4e-290), rel=1e-15)


def test_a_batch_without_any_weight_is_no_keys():
    batches = [([0.0], [1.0], [2.0]), ([np.nan], [np.nan], [0.0]), ([1.0], [3.0])]
    assert pool_batches([0.5], batches, Gaussian()).output[0] == pytest.approx(5 / 3)
    with pytest.raises(ValueError, match="all sample weights are zero"):
        pool_batches([0.5], [([0.0], [1.0], [0.0])] * 2, Gaussian())


@every_dtype
@pytest.mark.parametrize("score", [Gaussian(1.0), Nearest(1.0)])
def test_huge_values_do_not_overflow(score, dtype):
    largest = 1e307 if dtype == np.float64 else 3e38
    key, query = np.zeros((64, 1), dtype), np.zeros((3, 1), dtype)
    value = np.full((64, 2), largest, dtype)
    value[:, 1] = np.linspace(-1.0, 1.0, 64)
    for rows in (1, 7, 64):
        found = pool_batches(query, batches_of(key, value, rows=rows), score)
        assert found.output[:, 0].tolist() == [value[0, 0]] * 3
        assert np.abs(found.output[:, 1]).max() < 64 * np.finfo(dtype).eps
    late = pool_batches(query, [(key, np.ones((64, 1), dtype)), (key, value[:, :1])], score)
    assert late.output[0, 0] == pytest.approx(largest / 2, rel=1e-6)


def test_answers_stay_inside_the_hull():
    query, key = RNG.normal(size=(50, 2)), RNG.normal(size=(700, 2))
    value = np.full(700, 0.1)
    found = pool_batches(query, batches_of(key, value, rows=13), Gaussian())
    assert found.output.tolist() == [0.1] * 50


def test_log_mass_is_the_logarithm_of_the_mass():
    from regard.core.problem import build

    query, key = dyadic(RNG.normal(size=(9, 2))) + 4096.0, dyadic(RNG.normal(size=(40, 2)))
    problem = build(query, key, np.zeros((40, 1)), Gaussian(0.25))
    # Multiples of 1/64: the squares are whole numbers, and everything is exact.
    u2 = (((query[:, None] - key) * 64).astype(np.int64) ** 2).sum(-1)
    height = -u2.min(axis=1) / 64**2 / 32
    truth = np.log(np.exp((u2.min(axis=1)[:, None] - u2) / 64**2 / 32).sum(axis=1))
    np.testing.assert_allclose(mergeable_state.log_mass(problem, height), truth, rtol=1e-13, atol=1e-15)


# ---- what goes wrong


@pytest.mark.parametrize(
    ("third", "error", "words"),
    [
        (([[1.0, 2.0]], [1.0]), ValueError, "batch 3: query has 1 features and key has 2"),
        (([1.0, 2.0], [1.0]), ValueError, "batch 3: value has 1 rows but key has 2"),
        (([1.0], [[1.0, 2.0]]), ValueError, r"batch 3: value has shape \(rows, 2\), those of the batches before"),
        (([np.nan], [1.0]), ValueError, "batch 3: key row 0 is not finite"),
        ((["a"], [1.0]), TypeError, "batch 3: key must hold real numbers"),
        (([1.0], [1.0], [-1.0]), ValueError, "batch 3: sample_weight must be finite and not negative"),
        (([1.0], [1.0], None, [1]), ValueError, "batch 3: the keys have labels, but there is no exclude="),
        (([1.0],), TypeError, "batch 3: a batch must be .* got 1 parts"),
        (7.0, TypeError, "batch 3: a batch must be .* got float"),
    ],
)
def test_errors_name_the_batch(third, error, words):
    batches = [([0.0], [1.0]), ([0.5], [2.0]), third]
    with pytest.raises(error, match=words):
        pool_batches([0.0], batches, Gaussian())


def test_other_errors():
    with pytest.raises(ValueError, match="batches must yield at least one"):
        pool_batches([0.0], [], Gaussian())
    with pytest.raises(ValueError, match=r"batch 1: exclude has the queries' labels, but the keys have none"):
        pool_batches([0.0], [([0.0], [1.0])], Gaussian(), exclude=[1])
    with pytest.raises(ValueError, match="engine must be one of"):
        pool_batches([0.0], [([0.0], [1.0])], Gaussian(), engine="steam")
    with pytest.raises(ValueError, match="rows must be a whole number"):
        batches_of([0.0], [1.0], rows=0)
    with pytest.raises(ValueError, match=r"must have one length, got \[1, 2\]"):
        batches_of([0.0], [1.0, 2.0])
    with pytest.raises(TypeError, match="query must be an array, got a tensor"):
        pool_batches(SimpleNamespace(requires_grad=True), [([0.0], [1.0])], Gaussian())


def test_what_the_iterator_raises_passes_on():
    def broken():
        yield [0.0], [1.0]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match=r"^the disk is gone$"):
        pool_batches([0.0], broken(), Gaussian())
    answers = pool_queries(iter(["no"]), [0.0], [1.0], Gaussian())
    with pytest.raises(TypeError, match="batch 1: query must hold real numbers"):
        next(answers)


# ---- queries


@pytest.mark.parametrize("option", OPTIONS)
def test_queries_in_batches(option):
    query, key, value, options = make_inputs(option, 50, 70, 2)
    whole = pool(query, key, value, Gaussian(), **options)
    query_labels, key_labels = options.pop("exclude", (None, None))
    cuts = list(pairwise([0, 7, 7, 30, 50]))
    batches = (query[i:j] if query_labels is None else (query[i:j], query_labels[i:j]) for i, j in cuts)
    answers = list(pool_queries(batches, key, value, Gaussian(), exclude=key_labels, **options))
    assert [len(answer.output) for answer in answers] == [7, 0, 23, 20]
    close(Pooled(*(np.concatenate(part) for part in zip(*answers, strict=True))), whole)


def test_queries_are_answered_when_asked_for():
    asked = []

    def batches():
        for number in range(3):
            asked.append(number)
            yield [float(number)]

    answers = pool_queries(batches(), [0.0], [1.0], Gaussian())
    assert asked == []
    next(answers)
    assert asked == [0]
    with pytest.raises(TypeError, match=r"batch 1: with exclude= a batch must be a pair"):
        next(pool_queries(batches(), [0.0], [1.0], Gaussian(), exclude=[1]))

"""Batch by batch is the whole: keys, queries and tables larger than memory."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generators import dyadic, make_inputs
from regard import Batch, batches_of, folds, pool, pool_batches, pool_queries
from regard.data import Table, TableError, read_batches, read_table, write_batches, write_table
from regard.pooling import Pooled
from regard.scores import RADIAL, Additive, DotProduct, Gaussian, Laplace, Nearest, Score
from sweeps import every_dtype

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


def close(found: Pooled, whole: Pooled, dtype: Any = np.float64, rounding: float = 64) -> None:
    """Equal to rounding, values of order one; −inf in the same places."""
    eps = rounding * np.finfo(dtype).eps
    assert found.output.dtype == found.logsumexp.dtype == whole.output.dtype
    assert found.output.shape == whole.output.shape
    np.testing.assert_allclose(found.output, whole.output, rtol=eps, atol=eps)
    np.testing.assert_allclose(found.logsumexp, whole.logsumexp, rtol=eps, atol=eps)


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
@pytest.mark.parametrize("option", OPTIONS)
@every_score
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
    """The check above sees the rounding it is about."""
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
def test_compact_kernels_with_nobody_in_some_batches(name):
    key = np.arange(12.0)
    value, query = key**2, np.array([0.0, 5.25, 11.5, 40.0])
    score = RADIAL[name](1.0)
    whole = pool(query, key, value, score)
    close(streamed(query, key, value, score, range(12)), whole)
    assert np.isneginf(whole.logsumexp).tolist() == [False, False, False, True]
    nobody = pool_batches([40.0], batches_of(key, value, rows=5), score)
    assert nobody.output.tolist() == [0.0]
    assert nobody.logsumexp.tolist() == [-np.inf]


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
    with pytest.raises(ValueError, match="zero for every key"):
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
    from regard.problem import build

    query, key = dyadic(RNG.normal(size=(9, 2))) + 4096.0, dyadic(RNG.normal(size=(40, 2)))
    problem = build(query, key, np.zeros((40, 1)), Gaussian(0.25))
    # Multiples of 1/64: the squares are whole numbers, and everything is exact.
    u2 = (((query[:, None] - key) * 64).astype(np.int64) ** 2).sum(-1)
    height = -u2.min(axis=1) / 64**2 / 32
    truth = np.log(np.exp((u2.min(axis=1)[:, None] - u2) / 64**2 / 32).sum(axis=1))
    np.testing.assert_allclose(folds.log_mass(problem, height), truth, rtol=1e-13, atol=1e-15)


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
    with pytest.raises(ValueError, match="batches must hold at least one"):
        pool_batches([0.0], [], Gaussian())
    with pytest.raises(ValueError, match=r"batch 1: exclude has the queries' labels, but the keys have none"):
        pool_batches([0.0], [([0.0], [1.0])], Gaussian(), exclude=[1])
    with pytest.raises(ValueError, match="engine must be one of"):
        pool_batches([0.0], [([0.0], [1.0])], Gaussian(), engine="steam")
    with pytest.raises(ValueError, match="rows must be a whole number"):
        batches_of([0.0], [1.0], rows=0)
    with pytest.raises(ValueError, match=r"must have one length, got \[1, 2\]"):
        batches_of([0.0], [1.0, 2.0])
    with pytest.raises(TypeError, match="query is a tensor"):
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


# ---- queries, files, memory


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


def test_memmaps_are_read_only_and_stay_so(tmp_path):
    key, value = RNG.normal(size=(500, 2)), RNG.normal(size=500)
    for name, array in (("key", key), ("value", value)):
        np.save(tmp_path / name, array)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("key", "value")]
    query = RNG.normal(size=(40, 2))
    close(pool_batches(query, batches_of(*mapped, rows=120), Gaussian()), pool(query, key, value, Gaussian()))
    assert np.array_equal(np.load(tmp_path / "key.npy"), key)


@pytest.fixture
def table() -> Table:
    columns: dict[str, Any] = {"a": RNG.normal(size=100), "b": np.arange(100), "y": RNG.normal(size=100)}
    columns["name"] = np.array([f"n{i % 3}" for i in range(100)], object)
    return Table(tuple(columns), columns)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_tables_in_batches(ending, table, tmp_path):
    path = tmp_path / f"t{ending}"
    write_table(table, path)
    shares: list[float] = []
    found = list(read_batches(path, rows=30, progress=shares.append))
    assert [len(part) for part in found] == [30, 30, 30, 10]
    assert [part.first for part in found] == [0, 30, 60, 90]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    whole = read_table(path)
    for name in table.names:
        assert np.concatenate([part.columns[name] for part in found]).tolist() == whole.columns[name].tolist()
    write_batches(iter(found), tmp_path / f"again{ending}")
    again = read_table(tmp_path / f"again{ending}")
    assert [again.columns[name].tolist() for name in table.names] == [
        table.columns[name].tolist() for name in table.names
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"t{ending}", f"again{ending}"])


def test_pooling_a_parquet_file_of_several_row_groups(table, tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({name: table.columns[name] for name in ("a", "b", "y")}).write_parquet(
        tmp_path / "t.parquet", row_group_size=17
    )
    batches = ((part.matrix(["a", "b"]), part.numbers("y")) for part in read_batches(tmp_path / "t.parquet", rows=40))
    X, y = table.matrix(["a", "b"]), table.numbers("y")
    close(pool_batches(X, batches, Gaussian([1.0, 0.1])), pool(X, X, y, Gaussian([1.0, 0.1])))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_errors_count_rows_of_the_file(ending, tmp_path):
    path = tmp_path / f"t{ending}"
    column = np.arange(100.0)
    column[64] = np.nan
    write_table(Table(("x", "z"), {"x": column, "z": column}), path)
    parts = read_batches(path, rows=30)
    next(parts).matrix(["x"])
    next(parts).matrix(["x"])
    with pytest.raises(TableError, match="row 65, column 'x': is empty"):
        next(parts).matrix(["x"])


def test_tables_that_cannot_be_read_in_batches(tmp_path):
    (tmp_path / "ragged.csv").write_text("x,y\n1,2\n3,4\n5\n")
    parts = read_batches(tmp_path / "ragged.csv", rows=2)
    assert len(next(parts)) == 2
    with pytest.raises(TableError, match=r"row 3 .* has 1 cells"):
        next(parts)
    (tmp_path / "none.csv").write_text("x,y\n")
    with pytest.raises(TableError, match="a header but no rows"):
        next(read_batches(tmp_path / "none.csv"))
    with pytest.raises(TableError, match="no such file"):
        next(read_batches(tmp_path / "absent.csv"))
    with pytest.raises(ValueError, match="rows must be a whole number of at least 1, got 0"):
        read_batches(tmp_path / "none.csv", rows=0)
    (tmp_path / "long.csv").write_text("x\n" + "1234567890\n" * 100)
    with pytest.raises(TableError, match="more than 500 bytes"):
        list(read_batches(tmp_path / "long.csv", rows=100, max_bytes=500))
    assert len(list(read_batches(tmp_path / "long.csv", rows=20, max_bytes=500))) == 5


def test_a_failed_stream_leaves_no_file(table, tmp_path):
    def broken():
        yield table
        raise RuntimeError("enough")

    for ending in (".csv", ".parquet"):
        with pytest.raises(RuntimeError, match="enough"):
            write_batches(broken(), tmp_path / f"t{ending}")
    assert list(tmp_path.iterdir()) == []


def test_one_batch_is_alive_at_a_time():
    """What the loop holds when the next batch is asked for is nothing."""
    import weakref

    alive: list[weakref.ref[Any]] = []

    def batches(make):
        for _ in range(4):
            assert not any(ref() is not None for ref in alive)
            yield make()

    def arrays():
        key = RNG.normal(size=(50, 2))
        alive.append(weakref.ref(key))
        return key, np.ones(50)

    pool_batches(RNG.normal(size=(5, 2)), batches(arrays), Gaussian())
    alive.clear()
    assert len(list(pool_queries(batches(lambda: arrays()[0]), np.zeros((3, 2)), np.ones(3), Gaussian()))) == 4


MEMORY = """
import sys, tracemalloc
import numpy as np
from regard import pool_batches
from regard.data import read_batches
from regard.scores import Gaussian

def made(batches, rows=20_000):
    for number in range(batches):
        rng = np.random.default_rng(number)
        yield rng.random((rows, 2)), rng.random(rows)

def read(path):
    for table in read_batches(path, rows=3_000):
        yield table.matrix(["a", "b"]), table.numbers("y")

query = np.random.default_rng(1).random((5, 2))
source = (lambda n: made(n)) if sys.argv[1] == "made" else (lambda n: read(f"{sys.argv[1]}/{n}.csv"))
pool_batches(query, source(2), Gaussian(9.0))
peaks = []
for batches in (2, 12):
    tracemalloc.start()
    pool_batches(query, source(batches), Gaussian(9.0))
    peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
print(*peaks)
"""


def peaks(source: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", MEMORY, source], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [int(peak) for peak in done.stdout.split()]


def test_memory_does_not_grow_with_the_number_of_batches():
    few, many = peaks("made")
    assert many < few * 1.1


def test_memory_does_not_grow_with_the_file(tmp_path: Path):
    for batches in (2, 12):
        rows = "".join(f"{i / 7e4:.4f},{i % 97},{i % 5}\n" for i in range(batches * 3_000))
        (tmp_path / f"{batches}.csv").write_text("a,b,y\n" + rows)
    few, many = peaks(str(tmp_path))
    assert many < few * 1.1

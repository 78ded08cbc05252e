"""Small plain problems are answered at once: what the tiled engine gives, bit by bit, or not at all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from regard import explain_plan, pool
from regard.engines.cpu.program_inputs import packed
from regard.pooling.runner import run_at_once
from regard.programs.cpu.small_sums import pack_rows
from regard.scores import Gaussian, Laplace
from support.agreement import identical, same

SIZES = [(100, 100), (33, 300), (301, 97), (1500, 500), (32, 257)]
TAKEN = Gaussian(1.3)


def problem(queries: int = 100, keys: int = 100, d: int = 2, dtype: type = np.float64, seed: int = 0):
    rng = np.random.default_rng(seed)
    arrays = rng.uniform(0.0, 5.0, (queries, d)), rng.uniform(0.0, 5.0, (keys, d)), rng.normal(size=keys)
    return tuple(array.astype(dtype) for array in arrays)


def at_once(*given, tol=None):
    """The answer, which must have been given at once."""
    found = run_at_once(*given, tol)
    assert found is not None
    assert identical(pool(*given, tol=tol), found)
    return found


# ---- the same answers


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 2, 3, 9])
@pytest.mark.parametrize(("queries", "keys"), SIZES)
def test_bit_by_bit_what_the_tiled_engine_gives(queries, keys, d, dtype):
    query, key, value = problem(queries, keys, d, dtype)
    for w in (0.7 / d, np.linspace(0.5, 0.9, d) / d):
        output, logsumexp = at_once(query, key, value, Gaussian(w))
        usual = pool(query, key, value, Gaussian(w), engine="tiled")
        assert identical((output, logsumexp), usual)
        assert output.dtype == logsumexp.dtype == dtype
        assert same(pool(query, key, value, Gaussian(w), engine="reference"), usual, dtype)


@pytest.mark.parametrize("tol", [None, 0, 0.0, 1e-12, 0.5])
def test_exact_whatever_the_tolerance(tol):
    given = problem()
    assert identical(at_once(*given, TAKEN, tol=tol), pool(*given, TAKEN, engine="tiled"))


def test_layouts_of_the_arrays_do_not_matter():
    query, key, value = problem()
    expected = at_once(query, key, value, TAKEN)
    wide = np.zeros((100, 6))
    wide[:, 1:5:2] = query
    locked = key.copy()
    locked.setflags(write=False)
    for given in ((wide[:, 1:5:2], locked, value), (np.asfortranarray(query), key[::-1][::-1], value)):
        assert identical(at_once(*given, TAKEN), expected)
    column = at_once(query, key, value[:, None], TAKEN)
    assert column[0].shape == (100, 1)
    assert identical((column[0][:, 0], column[1]), expected)
    line = at_once(query[:, 0], key[:, 0], value, TAKEN)
    assert identical(line, at_once(query[:, :1], key[:, :1], value, TAKEN))


def test_nothing_is_written_to():
    given = problem()
    before = [array.copy() for array in given]
    at_once(*given, TAKEN)
    assert identical(given, before)


def test_threads_do_not_change_a_bit(monkeypatch):
    given = problem(2000, 700)  # two jobs
    answers = []
    for threads in ("1", "2"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
        answers.append(at_once(*given, TAKEN))
    assert identical(*answers)


def test_duplicated_rows_and_offsets():
    query, key, value = problem()
    twice = np.concatenate([key, key]), np.concatenate([value, value])
    output, logsumexp = at_once(query, key, value, TAKEN)
    doubled = at_once(query, *twice, TAKEN)
    assert np.allclose(doubled[0], output, rtol=1e-13)
    assert np.allclose(doubled[1], logsumexp + np.log(2.0), rtol=1e-13)
    # Whole numbers, so that the offset rounds nothing.
    query, key = np.round(query), np.round(key)
    assert identical(at_once(query + 2.0**40, key + 2.0**40, value, TAKEN), at_once(query, key, value, TAKEN))
    assert identical(at_once(query, query, np.full(100, 0.1), TAKEN)[:1], [np.full(100, 0.1)])


# ---- what it leaves to others


def changed(place: int, row: int, number: float):
    arrays = [array.copy() for array in problem()]
    arrays[place][row] = number
    return tuple(arrays)


LEFT = {
    "a far query": (*changed(0, 7, 1e3), TAKEN),
    "a query beyond every score": (*changed(0, 7, 1e200), TAKEN),
    "large coordinates": (*changed(1, 7, 1e155), TAKEN),
    "large values": (*changed(2, 7, 1e306), TAKEN),
    "integers": (*(np.round(array).astype(int) for array in problem()), TAKEN),
    "lists": (*(array.tolist() for array in problem()), TAKEN),
    "another dtype of the query": (problem(dtype=np.float32)[0], *problem()[1:], TAKEN),
    "another dtype of the key": (problem()[0], problem(dtype=np.float32)[1], problem()[2], TAKEN),
    "another dtype of the value": (*problem()[:2], problem(dtype=np.float32)[2], TAKEN),
    "half precision": (*problem(dtype=np.float16), TAKEN),
    "another order of bytes": (*(array.astype(">f8") for array in problem()), TAKEN),
    "a subclass": (problem()[0].view(np.memmap), *problem()[1:], TAKEN),
    "two columns": (*problem()[:2], np.zeros((100, 2)), TAKEN),
    "no features": (np.empty((100, 0)), np.empty((100, 0)), problem()[2], Gaussian(0.0)),
    "w = 0": (*problem(), Gaussian(0.0)),
    "a feature that does not count": (*problem(), Gaussian([1.0, 0.0])),
    "a large w": (*problem(), Gaussian(1e7)),
    "a matrix w": (*problem(), Gaussian(np.eye(2))),
    "another kernel": (*problem(), Laplace()),
    "few queries": (*problem(31, 1000), TAKEN),
    "many pairs": (*problem(1500, 1500), TAKEN),
    "shards of keys": (*problem(33, 40_000), TAKEN),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_out_of_the_ordinary_goes_the_usual_way(name):
    given = LEFT[name]
    assert run_at_once(*given, None) is None
    dtype = np.float16 if name == "half precision" else np.float32 if name.endswith("query") else np.float64
    assert same(pool(*given), pool(*given, engine="tiled"), dtype)


HUGE = float(np.finfo(np.float64).max)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 2e307, -HUGE])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_no_bad_number_slips_through(number, place):
    for row, w in product((0, 57, 99), (1.3, 1e-5)):
        given, words = changed(place, row, number), []
        for engine in ("auto", "tiled"):
            with pytest.raises(
                ValueError, match=f"{('query', 'key', 'value')[place]} (row {row} is not|holds)"
            ) as caught:
                pool(*given, Gaussian(w), engine=engine)
            words.append(str(caught.value))
        assert words[0] == words[1]


def test_the_largest_values_of_a_single_key():
    query, key, _ = problem(10_000, 1)
    output, _ = at_once(query, key, np.array([-1e307]), Gaussian(0.1))
    assert (output == -1e307).all()
    with pytest.raises(ValueError, match="value holds numbers beyond"):
        pool(query, key, np.array([-2e307]), Gaussian(0.1))


A, B, C = problem()
BAD = [
    ((A[:, :1], B, C, TAKEN), {}),
    ((A, B, C[:50], TAKEN), {}),
    ((A, B, C[:, None, None], TAKEN), {}),
    ((A[0, 0], B, C, TAKEN), {}),
    ((A.reshape(10, 10, 2), B, C, TAKEN), {}),
    ((A, B, C, Gaussian([1.0, 2.0, 3.0])), {}),
    ((A, B, C, "gaussian"), {}),
    ((A + 1j, B, C, TAKEN), {}),
    ((np.ma.masked_array(A), B, C, TAKEN), {}),
    *(((A, B, C, TAKEN), {"tol": tol}) for tol in (-1e-9, 1.0, 2, True, np.nan, "small", [0.0])),
]


@pytest.mark.parametrize(("given", "options"), BAD)
def test_the_same_words_for_what_is_wrong(given, options):
    errors = []
    for engine in ("auto", "tiled"):
        with pytest.raises((TypeError, ValueError)) as caught:
            pool(*given, engine=engine, **options)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


def test_the_options_are_heard():
    given, rows = problem(), np.arange(100)
    plain = pool(*given, TAKEN).output
    for options in (
        {"mask": np.eye(100, dtype=bool)},
        {"sample_weight": np.arange(1.0, 101.0)},
        {"exclude": (rows, rows)},
    ):
        assert np.abs(pool(*given, TAKEN, **options).output - plain).max() > 1e-3


# ---- the plan


@pytest.mark.parametrize("d", [1, 3])
def test_it_is_what_the_plan_says(d):
    for queries, keys in product((32, 90, 91, 300, 1000, 1290, 2000), (32, 90, 91, 1000, 1290)):
        given = problem(queries, keys, d)
        first = explain_plan(*given, Gaussian(0.3)).steps[0]
        planned = first.engine == "reference" or (first.engine == "tiled" and "done at once" in first.reason)
        assert (run_at_once(*given, Gaussian(0.3), None) is not None) == planned, (queries, keys)


# ---- the program


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rows", [1, 16, 35])
def test_rows_are_laid_out_and_checked(rows, dtype):
    query, key, value = problem(rows, rows, 3, dtype)
    lanes = 16 if dtype is np.float64 else 32
    queries, columns = np.empty((-(-rows // lanes), 3, lanes), dtype), np.empty((2, rows), dtype)
    size, low, high = pack_rows(query, -key, value[:, None], queries, columns)
    assert np.array_equal(queries, packed(query, lanes))
    assert np.array_equal(columns, [np.ones(rows), value])
    assert (size, low, high) == (max(query.max(), key.max()), value.min(), value.max())
    for array in (query, key, value):
        for number in (np.nan, np.inf, -np.inf):
            kept, array.flat[-1] = array.flat[-1], number
            assert np.isnan(pack_rows(query, key, value[:, None], queries, columns)).all()
            array.flat[-1] = kept


# ---- few pairs, without the compiled programs


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 50), (90, 91), (5, 1000)])
def test_few_pairs_are_the_reference(queries, keys, d):
    query, key, value = problem(queries, keys, d)
    for offset in (0.0, 1e6):
        for w in (0.7, np.linspace(0.5, 0.9, d), 0.0):
            given = query + offset, key + offset, value, Gaussian(w)
            for got, expected in zip(at_once(*given), pool(*given, engine="reference"), strict=True):
                assert np.allclose(got, expected, rtol=1e-13, atol=1e-13)


def test_few_pairs_in_single_precision_go_the_usual_way():
    given = problem(50, 50, dtype=np.float32)
    assert run_at_once(*given, TAKEN, None) is None
    assert same(pool(*given, TAKEN), pool(*given, TAKEN, engine="tiled"), np.float32)


def test_few_pairs_stay_inside_the_values_and_load_nothing():
    value = np.full(20, 0.1)
    assert (at_once(*problem(10, 20)[:2], value, TAKEN)[0] == 0.1).all()
    import subprocess
    import sys

    code = "import numpy as np, sys, regard; x = np.arange(9.0); regard.pool(x, x, x, regard.scores.Gaussian())"
    code += "; assert 'numba' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("where", "bad"), [(0, np.nan), (1, np.inf), (2, np.nan), (2, -np.inf), (2, 1e200), (0, 20.0), (0, 1e200)]
)
def test_few_pairs_that_need_more_precision_take_the_usual_way(where, bad):
    given = [array.copy() for array in problem(10, 20)]
    given[where][3] = bad
    assert run_at_once(*given, Gaussian(), None) is None

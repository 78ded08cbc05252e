"""``pool`` of dask arrays gives the numbers of one machine: every score, every option, any chunks."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import regard
from regard.scores import Epanechnikov, Gaussian, Laplace, Nearest
from support.cuts import CUTS, cut
from support.engines import EACH, PATHS, sparse
from support.generators import OPTIONS, make_inputs, score_table

D = 3
SCORES = score_table(D)
RNG = np.random.default_rng(0)


def close(got, truth, rtol=1e-12):
    got = got.compute() if hasattr(got, "compute") else got
    assert got.shape == truth.shape
    assert got.dtype == truth.dtype
    assert np.array_equal(np.isneginf(got), np.isneginf(truth))
    finite = np.isfinite(truth)
    scale = np.abs(truth[finite]).max(initial=1.0)
    assert np.abs(got[finite] - truth[finite]).max(initial=0.0) <= rtol * scale


def both(inputs, score, queries, keys, unknown=False, **more):
    """The answer of one machine, and that of chunks."""
    options = {"tol": 0.0, **inputs.options, **more}
    truth = regard.pool(*inputs[:3], score, **options)
    lazy = dict(options)
    if "sample_weight" in lazy:
        lazy["sample_weight"] = cut(lazy["sample_weight"], keys, unknown=unknown)
    if "exclude" in lazy:
        of_query, of_key = lazy["exclude"]
        lazy["exclude"] = cut(of_query, queries, unknown=unknown), cut(of_key, keys, unknown=unknown)
    query, key, value = inputs[:3]
    arrays = cut(query, queries, unknown=unknown), cut(key, keys, unknown=unknown), cut(value, keys, unknown=unknown)
    return truth, regard.pool(*arrays, score, **lazy)


@sparse("score", EACH, PATHS, ("option", OPTIONS))
def test_every_score_and_option(score, option):
    inputs = make_inputs(option, 23, 31, 2, d=D)
    truth, got = both(inputs, SCORES[score], "halves", "ragged")
    close(got.output, truth.output)
    close(got.logsumexp, truth.logsumexp)


@pytest.mark.parametrize("keys", CUTS)
@pytest.mark.parametrize("queries", CUTS)
@pytest.mark.parametrize("score", ["gaussian-feature", "epanechnikov-scalar", "nearest-scalar", "dot"])
def test_99_any_chunks(score, queries, keys):
    inputs = make_inputs("weights", 9, 17, 1, d=D)
    truth, got = both(inputs, SCORES[score], queries, keys)
    close(got.output, truth.output)
    close(got.logsumexp, truth.logsumexp)


@pytest.mark.parametrize("option", ["plain", "exclude", "weights"])
def test_100_chunks_of_unknown_length(option):
    inputs = make_inputs(option, 9, 17, 2, d=D)
    truth, got = both(inputs, SCORES["gaussian-scalar"], "ragged", "ragged", unknown=True)
    assert got.output.shape == (9, 2)
    close(got.output, truth.output)


def test_100_a_filtered_array_has_unknown_lengths():
    key = da.from_array(RNG.normal(size=(50, 2)), chunks=(10, 2))
    kept = key[key[:, 0] > 0.0]
    value = key[:, 1][key[:, 0] > 0.0]
    rows = kept.compute()
    close(
        regard.pool(rows[:5], kept, value, Gaussian(2.0)).output,
        regard.pool(rows[:5], rows, rows[:, 1], Gaussian(2.0)).output,
    )


def test_101_features_in_chunks_are_put_together():
    inputs = make_inputs("plain", 9, 17, 1, d=4)
    key = da.from_array(inputs.key, chunks=(5, 1))
    truth = regard.pool(*inputs[:3], Gaussian(1.0), tol=0.0)
    close(
        regard.pool(da.from_array(inputs.query, chunks=(4, 3)), key, inputs.value, Gaussian(1.0), tol=0.0).output,
        truth.output,
    )


def test_answers_are_as_queries_are():
    inputs = make_inputs("plain", 9, 17, 1, d=2)
    lazy = regard.pool(cut(inputs.query, "halves"), *inputs[1:3], Gaussian(1.0))
    assert isinstance(lazy.output, da.Array)
    assert lazy.output.chunks[0] == (4, 5)
    assert isinstance(lazy.logsumexp, da.Array)
    here = regard.pool(inputs.query, cut(inputs.key, "halves"), cut(inputs.value, "ragged"), Gaussian(1.0))
    assert isinstance(here.output, np.ndarray)
    close(lazy.output, here.output)


@pytest.mark.parametrize("kind", ["mask", "additive"])
def test_masks_of_dask(kind):
    inputs = make_inputs(kind, 9, 17, 1, d=2)
    mask = da.from_array(inputs.options["mask"], chunks=(3, 6))
    truth = regard.pool(*inputs[:3], Gaussian(1.0), tol=0.0, **inputs.options)
    got = regard.pool(
        cut(inputs.query, "halves"),
        cut(inputs.key, "ragged"),
        cut(inputs.value, "ragged"),
        Gaussian(1.0),
        tol=0.0,
        mask=mask,
    )
    close(got.output, truth.output)


def test_dataframes():
    frame = pd.DataFrame(RNG.normal(size=(40, 3)), columns=["a", "b", "y"])
    table = dd.from_pandas(frame, npartitions=3)
    truth = regard.pool(
        frame[["a", "b"]].to_numpy(), frame[["a", "b"]].to_numpy(), frame["y"].to_numpy(), Gaussian(2.0), tol=0.0
    )
    got = regard.pool(table[["a", "b"]], table[["a", "b"]], table["y"], Gaussian(2.0), tol=0.0)
    close(got.output, truth.output)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_dtypes(dtype):
    query, key = (np.round(RNG.normal(size=(n, 2)) * 4).astype(dtype) for n in (9, 20))
    value = RNG.normal(size=20).astype(np.float32)
    truth = regard.pool(query, key, value, Gaussian(0.5), tol=0.0)
    got = regard.pool(cut(query, "halves"), cut(key, "ragged"), cut(value, "ragged"), Gaussian(0.5), tol=0.0)
    close(got.output, truth.output, rtol=1e-6)


@pytest.mark.parametrize("score", [Gaussian(1e3), Laplace(1e3), Nearest(1.0), Gaussian(1e160)])
def test_far_queries_find_the_nearest_key_of_all_chunks(score):
    key = RNG.normal(size=(30, 2))
    query = np.concatenate([1e6 + RNG.normal(size=(5, 2)), 1e150 * RNG.normal(size=(5, 2)), key[:3]])
    value = RNG.normal(size=30)
    truth = regard.pool(query, key, value, score, tol=0.0)
    got = regard.pool(cut(query, "ragged"), cut(key, "ragged"), cut(value, "ragged"), score, tol=0.0)
    close(got.output, truth.output)


def test_102_two_empty_chunks_first_are_no_nan():
    key = da.from_array(np.zeros((3, 1)), chunks=((0, 0, 3), (1,)))
    got = regard.pool(da.zeros((2, 1), chunks=1), key, da.ones(3, chunks=((0, 0, 3),)), Gaussian())
    assert got.output.compute().tolist() == [1.0, 1.0]


def test_no_keys_at_all():
    got = regard.pool(np.zeros((2, 1)), da.zeros((0, 1)), da.zeros(0), Gaussian())
    assert got.output.tolist() == [0.0, 0.0]
    assert np.isneginf(got.logsumexp).all()


def test_results_repeat_to_the_last_bit():
    inputs = make_inputs("weights", 40, 90, 2, d=2)
    runs = [both(inputs, Gaussian(1.3), "ragged", "ragged")[1].output.compute() for _ in range(3)]
    assert all(np.array_equal(runs[0], run) for run in runs)


def test_pairs_of_chunks_that_cannot_matter_are_never_scheduled():
    x = np.arange(1000.0)
    lazy = da.from_array(x, chunks=100)
    near = regard.pool(lazy, lazy, lazy, Gaussian(1.0))
    looks = [key for key in dict(near.output.__dask_graph__()) if str(key).startswith("regard-state-")]
    assert 10 <= len(looks) <= 30
    compact = regard.pool(lazy, lazy, lazy, Epanechnikov(0.5))
    assert len([key for key in dict(compact.output.__dask_graph__()) if "regard-state-" in str(key)]) <= 30
    close(near.output, regard.pool(x, x, x, Gaussian(1.0), tol=0.0).output)


def test_the_plan_states_pairs_bytes_and_time():
    lazy = da.arange(1000, chunks=100, dtype=float)
    plan = regard.explain_plan(lazy, lazy, lazy, Gaussian(1.0))
    assert plan.blocks == (10, 10)
    assert 10 <= plan.pairs <= 30
    text = str(plan)
    assert "1,000 queries in 10 chunks × 1,000 keys in 10 chunks" in text
    assert f"{plan.pairs} of 100 pairs of chunks are pooled" in text
    assert "never scheduled" in text
    assert "bytes" in text


def test_names_of_tasks_can_be_read():
    from dask.utils import key_split

    lazy = da.arange(100, chunks=50, dtype=float)
    got = regard.pool(lazy, lazy, lazy, Gaussian(0.01))
    names = {key_split(key) for key in dict(got.output.__dask_graph__())}
    assert {"regard-block", "regard-state", "regard-merge", "regard-answer"} <= names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": np.full((20, 2), np.nan)}, "chunk [01]: key row 0 is not finite"),
        ({"value": np.full(20, np.inf)}, "chunk [01]: value row 0 is not finite"),
        ({"value": np.zeros(19)}, "key has 20 rows but value has 19"),
        ({"query": np.zeros((5, 3))}, "query has 3 features and key has 2"),
        ({"key": np.zeros((20, 2, 1))}, "key must have 1 or 2 axes"),
        ({"key": np.full((20, 2), "a")}, "key must hold real numbers"),
        ({"sample_weight": -np.ones(20)}, "sample_weight must be finite and not negative"),
        ({"sample_weight": np.zeros(20)}, "all sample weights are zero"),
        ({"score": "gaussian"}, "score must be a score"),
        ({"engine": "turbo"}, "engine must be one of"),
        ({"tol": 2.0}, "tol must be a number"),
        ({"exclude": (np.zeros(5), np.zeros(20))}, "exclude must hold integers"),
        ({"mask": np.ones((4, 20), bool)}, "mask must broadcast"),
    ],
)
def test_errors_name_the_argument(change, message):
    arguments = {
        "query": np.zeros((5, 2)),
        "key": np.zeros((20, 2)),
        "value": np.zeros(20),
        "score": Gaussian(),
        **change,
    }
    lazy = {
        name: da.from_array(part, chunks=10) if name in ("key", "value", "sample_weight") else part
        for name, part in arguments.items()
    }
    with pytest.raises((TypeError, ValueError), match=message):
        regard.pool(**lazy)


def test_100_chunks_that_do_not_match_and_have_no_lengths():
    key = cut(np.zeros((10, 1)), "halves", unknown=True)
    with pytest.raises(ValueError, match=r"key has 2 chunks but value has 7, .* compute_chunk_sizes"):
        regard.pool(np.zeros((1, 1)), key, cut(np.zeros(10), "ragged", unknown=True), Gaussian())


@pytest.mark.parametrize("engine", ["reference", "tiled", "pruned"])
def test_a_named_engine_computes_every_pair(engine):
    inputs = make_inputs("plain", 9, 30, 1, d=2)
    truth = regard.pool(*inputs[:3], Gaussian(1.0), tol=0.0)
    got = regard.pool(
        cut(inputs.query, "halves"),
        cut(inputs.key, "halves"),
        cut(inputs.value, "halves"),
        Gaussian(1.0),
        engine=engine,
        tol=0.0,
    )
    close(got.output, truth.output)


@pytest.mark.xdist_group("cluster")
def test_on_a_cluster_of_processes(on_cluster):
    inputs = make_inputs("weights", 60, 90, 2, d=2)
    truth, got = both(inputs, Gaussian(1.3), "ragged", "halves")
    close(got.output, truth.output)
    here = regard.pool(inputs.query, cut(inputs.key, "ragged"), cut(inputs.value, "ragged"), Gaussian(1.3), tol=0.0)
    close(here.output, regard.pool(*inputs[:3], Gaussian(1.3), tol=0.0).output)

"""Leaving out, weighing by zero and masking are deletion, to the letter."""

from __future__ import annotations

import numpy as np
import pytest

from regard.pooling import functions as pooling
from regard.pooling.functions import attention_weights, pool
from support.agreement import SCORES, D, near, same
from support.engines import EACH, PATHS, every_dtype, taken
from support.generators import make_inputs


@taken(EACH)
def test_leave_one_out_is_literal_deletion(score, engine):
    _, key, value, _ = make_inputs("plain", 1, 37, 2, d=D)
    rows = np.arange(37)
    left_out = pool(key, key, value, SCORES[score], exclude=(rows, rows), engine=engine)
    for i in rows:
        others = rows != i
        assert same(
            pooling.Pooled(left_out.output[i : i + 1], left_out.logsumexp[i : i + 1]),
            pool(key[i : i + 1], key[others], value[others], SCORES[score], engine=engine),
        )


@taken(PATHS)
def test_leaving_groups_out_is_literal_deletion(score, engine):
    _, key, value, _ = make_inputs("plain", 1, 60, 1, d=D)
    groups = np.random.default_rng(3).integers(-2, 4, 60)
    left_out = pool(key, key, value, SCORES[score], exclude=(groups, groups), engine=engine)
    for group in np.unique(groups):
        own = groups == group
        expected = pool(key[own], key[~own], value[~own], SCORES[score], engine=engine)
        assert same(pooling.Pooled(left_out.output[own], left_out.logsumexp[own]), expected)


@taken(PATHS)
def test_labels_survive_batches_and_any_integers(score, engine):
    """Only equality of labels counts, whatever numbers they are and in whatever batch the queries come."""
    query, key, value, options = make_inputs("exclude", 40, 60, 1, d=D)
    expected = pool(query, key, value, SCORES[score], engine=engine, **options)
    far = np.array([-(2**62), -1, 0, 7, 2**31 + 5, 2**62])
    renamed = tuple(far[labels] for labels in options["exclude"])
    assert same(pool(query, key, value, SCORES[score], exclude=renamed, engine=engine), expected)
    half = pool(query[20:], key, value, SCORES[score], exclude=(renamed[0][20:], renamed[1]), engine=engine)
    assert same(half, pooling.Pooled(expected.output[20:], expected.logsumexp[20:]))


@every_dtype
@taken(EACH)
def test_weight_k_is_k_copies_and_zero_is_deletion(score, dtype, engine):
    query, key, value, _ = make_inputs("plain", 35, 40, 2, d=D, dtype=dtype)
    counts = np.random.default_rng(9).integers(0, 4, 40)
    copies = np.repeat(np.arange(40), counts)
    expected = pool(query, key[copies], value[copies], SCORES[score], engine=engine)
    for weight in (counts, counts.astype(float), counts.astype(np.float32)):
        assert same(pool(query, key, value, SCORES[score], sample_weight=weight, engine=engine), expected, dtype)


@taken(EACH, "mask")
@pytest.mark.parametrize("garbage", [0.0, np.nan, np.inf, -np.inf, 1e308])
def test_a_mask_is_deletion_whatever_it_covers(garbage, score, engine):
    query, key, value, _ = make_inputs("plain", 34, 40, 2, d=D)
    covered = np.random.default_rng(4).random(40) < 0.3
    expected = pool(query, key[~covered], value[~covered], SCORES[score], engine=engine)
    key, value = key.copy(), value.copy()
    key[covered, 1], value[covered, 0] = garbage, garbage
    for mask in (~covered, np.where(covered, -np.inf, 0.0), np.broadcast_to(~covered, (34, 40))):
        assert same(pool(query, key, value, SCORES[score], mask=mask, engine=engine), expected)
    assert same(pool(query, key, value, SCORES[score], sample_weight=(~covered).astype(float), engine=engine), expected)
    weights = attention_weights(query, key, SCORES[score], mask=~covered, engine=engine)
    assert not weights[:, covered].any()
    assert near(weights[:, ~covered], attention_weights(query, key[~covered], SCORES[score], engine=engine))


@taken(EACH, "mask")
def test_a_mask_row_by_row_is_deletion_row_by_row(score, engine):
    query, key, value, options = make_inputs("mask", 34, 40, 1, d=D)
    got = pool(query, key, value, SCORES[score], engine=engine, **options)
    for i, seen in enumerate(options["mask"]):
        expected = pool(query[i : i + 1], key[seen], value[seen], SCORES[score], engine=engine)
        assert same(pooling.Pooled(got.output[i : i + 1], got.logsumexp[i : i + 1]), expected)

"""Masks that cover everything, garbage or the nearest key, and masks of a wrong kind, by line of the list: 47 to 50."""

from __future__ import annotations

import numpy as np
import pytest

from regard.pooling.functions import attention_weights, pool
from regard.scores import Gaussian
from support.engines import EACH, engines_for, every_dtype, few_and_many, taken
from support.extremes import KEY, QUERY, VALUE, arrays, close
from support.generators import score_table

SCORES = score_table(2)


@every_dtype
@taken(EACH, "mask")
def test_47_a_fully_masked_row_is_zeros(score, dtype, engine):
    query, key, value = arrays(dtype)
    mask = np.ones((40, 50), bool)
    mask[3] = False
    for given in (mask, np.where(mask, 0.0, -np.inf)):
        output, logsumexp = pool(query, key, value, SCORES[score], mask=given, engine=engine)
        assert output[3] == 0.0
        assert np.isneginf(logsumexp[3])
        assert not attention_weights(query, key, SCORES[score], mask=given, engine=engine)[3].any()


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -np.inf])
@taken(EACH, "mask")
def test_48_nan_and_inf_behind_a_mask_have_no_effect(score, garbage, engine):
    key, value = KEY.copy(), VALUE.copy()
    key[7], value[7], value[11] = garbage, garbage, garbage
    mask = np.ones((40, 50), bool)
    mask[:, [7, 11]] = False
    clean = pool(QUERY, KEY, VALUE, SCORES[score], mask=mask, engine=engine)
    dirty = pool(QUERY, key, value, SCORES[score], mask=mask, engine=engine)
    assert np.array_equal(clean.output, dirty.output)
    assert np.array_equal(clean.logsumexp, dirty.logsumexp)


def test_48_nan_in_a_key_that_a_query_may_attend_to_is_an_error():
    key = KEY.copy()
    key[7] = np.nan
    mask = np.ones((40, 50), bool)
    mask[1:, 7] = False
    with pytest.raises(ValueError, match=r"key row \d+ is not finite"):
        pool(QUERY, key, VALUE, Gaussian(), mask=mask)


@engines_for(Gaussian(), option="mask")
@few_and_many
@pytest.mark.parametrize("distance", [1e4, 1e8, 1e200])
def test_49_a_masked_key_gets_nothing_from_a_far_query(distance, queries, engine):
    """With −1e6 in place of −inf the nearest key would win although it is masked."""
    key = np.array([0.0, 1.0, 2.0])
    mask = np.array([[True, True, False]])
    far = np.full(queries, distance)
    for given in (mask, np.where(mask, 0.0, -np.inf)):
        weights = attention_weights(far, key, Gaussian(), mask=given, engine=engine)
        assert not weights[:, 2].any()
        assert close(weights.sum(axis=1), 1.0)
        output = pool(far, key, [1.0, 2.0, 99.0], Gaussian(), mask=given, engine=engine).output
        assert (output <= 2.0).all()


@engines_for(Gaussian(), option="additive")
@every_dtype
def test_49_a_finite_mask_is_obeyed_however_low(dtype, engine):
    """An additive mask near the lowest number is not mistaken for a query far away."""
    low = np.finfo(dtype).min
    mask = np.array([[low, 0.1 * low], [0.0, low], [low, low]], dtype)
    key, value = np.array([0.0, 1.0], dtype), np.array([1.0, 2.0], dtype)
    output = pool(np.zeros(3, dtype), key, value, Gaussian(), mask=mask, engine=engine).output
    assert output[:2].tolist() == [2.0, 1.0]
    assert 1.0 <= output[2] <= 2.0


@pytest.mark.parametrize(
    "mask",
    [
        np.ones((40, 50), int),
        np.ones((40, 50), np.uint8),
        [[1] * 50] * 40,
        np.full((40, 50), "x"),
        np.full((40, 50), None),
    ],
)
def test_50_a_mask_that_is_neither_boolean_nor_float_is_an_error(mask):
    with pytest.raises(TypeError, match="mask must be boolean"):
        pool(QUERY, KEY, VALUE, Gaussian(), mask=mask)

"""Bad and extreme weights, by line of the list: 43 to 46."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from regard.pooling.functions import attention_weights, pool
from regard.scores import RADIAL, Gaussian, Nearest
from support.engines import EACH, engines_for, every_dtype, every_engine, few_and_many, taken
from support.extremes import KEY, QUERY, SOFT, VALUE, arrays, close
from support.generators import score_table

SCORES = score_table(2)


@taken(EACH, "weights")
def test_43_zero_weight_is_deletion(score, engine):
    weight = np.where(np.arange(50) % 3, 0.0, 2.0)
    kept = weight > 0.0
    got = pool(QUERY, KEY, VALUE, SCORES[score], sample_weight=weight, engine=engine)
    expected = pool(QUERY, KEY[kept], VALUE[kept], SCORES[score], sample_weight=weight[kept], engine=engine)
    assert np.array_equal(got.output, expected.output)
    assert np.array_equal(got.logsumexp, expected.logsumexp)


@every_engine
@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.zeros(50), "all sample weights are zero"),
        (np.zeros(50, int), "all sample weights are zero"),
        (np.full(50, -1.0), "sample_weight .*negative"),
        (np.where(np.arange(50), 1.0, np.nan), "sample_weight .*finite"),
        (np.where(np.arange(50), 1.0, np.inf), "sample_weight .*finite"),
    ],
)
def test_44_45_bad_weights_are_errors(weight, words, engine):
    with pytest.raises(ValueError, match=words):
        pool(QUERY, KEY, VALUE, Gaussian(), sample_weight=weight, engine=engine)


@every_dtype
@few_and_many
@taken(EACH, "weights")
def test_46_the_size_of_the_weights_cancels(score, queries, dtype, engine):
    query, key, value = arrays(dtype, queries)
    value = value * dtype(1e20)
    weight = np.random.default_rng(1).random(50) + 0.1
    plain = pool(query, key, value, SCORES[score], sample_weight=weight, engine=engine)
    weights = attention_weights(query, key, SCORES[score], sample_weight=weight, engine=engine)
    seen = np.isfinite(plain.logsumexp)
    for scale in (1e-300, 1e-290, 1e290, 1e300):
        options = {"sample_weight": weight * scale, "engine": engine}
        output, logsumexp = pool(query, key, value, SCORES[score], **options)
        assert close(output / 1e20, plain.output / 1e20, dtype), scale
        expected = plain.logsumexp[seen] + np.log(scale)
        assert np.allclose(logsumexp[seen], expected, rtol=8 * np.finfo(dtype).eps), scale
        assert close(attention_weights(query, key, SCORES[score], **options), weights, dtype), scale


@engines_for(Gaussian(), option="mask")
@every_dtype
@few_and_many
@pytest.mark.parametrize(
    "score", [*(score(0.5) for score in RADIAL.values()), Nearest()], ids=lambda s: type(s).__name__
)
def test_46_a_light_key_is_seen_where_it_is_alone(score, queries, dtype, engine):
    """Far from the heavy key, or masked from it, the light one is all there is."""
    query = np.resize(np.array([0.0, 100.0], dtype), queries)
    key, value = np.array([0.0, 100.0], dtype), np.array([1.0, 2.0], dtype)
    for weight in itertools.product((1.0, 1e300), (1e-50, 1e-300)):
        alone = (
            {"mask": np.arange(queries)[:, None] % 2 == np.arange(2)} if type(score).__name__.lower() in SOFT else {}
        )
        output, logsumexp = pool(query, key, value, score, sample_weight=weight, engine=engine, **alone)
        assert np.array_equal(output, np.resize([1.0, 2.0], queries))
        assert np.isfinite(logsumexp).all()

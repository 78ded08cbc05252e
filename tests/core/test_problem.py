"""What a problem accepts: weights given as objects, and numbers longer than float64."""

import numpy as np
import pytest

from regard import pool
from regard.core.problem import checked_weight
from regard.scores import Gaussian

QUERY, KEY, VALUE = np.array([[0.2]]), np.array([[0.0], [1.0]]), np.array([3.0, 5.0])


def test_weights_may_be_numbers_as_objects():
    weight = checked_weight(np.array([1, 2.5], dtype=object), 2)
    assert weight.dtype == np.float64
    np.testing.assert_array_equal(weight, [1.0, 2.5])


def test_objects_that_are_not_numbers_are_named():
    with pytest.raises(TypeError, match="must hold real numbers, got objects that are not numbers"):
        checked_weight(np.array([1.0, "two"], dtype=object), 2)


@pytest.mark.skipif(np.finfo(np.longdouble).max <= np.finfo(np.float64).max, reason="long double is float64 here")
def test_long_floats_must_fit_into_float64():
    as_long = (array.astype(np.longdouble) for array in (QUERY, KEY, VALUE))
    assert pool(*as_long, Gaussian()).output[0] == pytest.approx(pool(QUERY, KEY, VALUE, Gaussian()).output[0])
    with pytest.raises(ValueError, match="key"):
        pool(QUERY, KEY.astype(np.longdouble) * np.longdouble("1e4000"), VALUE, Gaussian())

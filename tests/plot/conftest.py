"""Small fitted models that the tests of the Displays share."""

from __future__ import annotations

import numpy as np
import pytest

from regard import LocalLinearRegressor, NadarayaWatsonRegressor


@pytest.fixture(scope="session")
def line():
    """One feature, rows in no order."""
    rng = np.random.default_rng(4)
    x = rng.random((40, 1)) * 5
    return NadarayaWatsonRegressor().fit(x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=40))


@pytest.fixture(scope="session")
def table():
    """Three features with names: the second decides most, the third does not vary."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(5)
    frame = pandas.DataFrame(rng.random((60, 3)), columns=["low", "high $", "same"])
    frame["same"] = 1.0
    y = 0.3 * frame["low"] + np.sin(6 * frame["high $"])
    return LocalLinearRegressor(bandwidth=[0.8, 0.3, 1.0]).fit(frame, y)

"""Problems that touch every path through the engines, and what it means for two answers to agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regard.pooling import functions as pooling
from support.engines import PATHS
from support.generators import score_table

D = 3
SCORES = score_table(D)
every_path = pytest.mark.parametrize("score", PATHS)


def near(a: Any, b: Any, dtype: Any = np.float64) -> bool:
    """Equal to rounding, for values of order one; infinities in the same places."""
    scale = 64 * np.finfo(dtype).eps
    return np.allclose(a, b, rtol=scale, atol=scale)


def same(a: pooling.Pooled, b: pooling.Pooled, dtype: Any = np.float64) -> bool:
    return near(a.output, b.output, dtype) and near(a.logsumexp, b.logsumexp, dtype)


def identical(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))

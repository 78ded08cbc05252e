"""One plain problem, to be driven to extremes, and a comparison to rounding."""

from __future__ import annotations

import numpy as np

from regard.scores import KERNELS

SOFT = [name for name, row in KERNELS.items() if not row.compact]

rng = np.random.default_rng(23)
KEY, VALUE = rng.normal(size=(50, 2)), rng.normal(size=50)
QUERY = rng.normal(size=(40, 2))


def arrays(dtype, queries=40):
    return QUERY[:queries].astype(dtype), KEY.astype(dtype), VALUE.astype(dtype)


def close(got, expected, dtype=np.float64):
    return np.allclose(got, expected, rtol=64 * np.finfo(dtype).eps, atol=64 * np.finfo(dtype).eps)

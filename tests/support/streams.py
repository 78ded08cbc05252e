"""What tests of streams share."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.pooling.functions import Pooled


def close(found: Pooled, whole: Pooled, dtype: Any = np.float64, rounding: float = 64) -> None:
    """Equal to rounding, values of order one; −inf in the same places."""
    eps = rounding * np.finfo(dtype).eps
    assert found.output.dtype == found.logsumexp.dtype == whole.output.dtype
    assert found.output.shape == whole.output.shape
    np.testing.assert_allclose(found.output, whole.output, rtol=eps, atol=eps)
    np.testing.assert_allclose(found.logsumexp, whole.logsumexp, rtol=eps, atol=eps)

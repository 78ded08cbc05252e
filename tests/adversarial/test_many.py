"""Many values and many pairs, by line of the list: 41 and 42."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from regard.pooling.functions import pool
from regard.scores import Gaussian
from support.engines import every_engine


@every_engine
def test_41_a_million_values_of_a_tenth(engine):
    n = 1_000_000
    for value in (np.full(n, 0.1, np.float32), np.where(np.arange(n) % 2, np.float32(0.3), np.float32(-0.1))):
        x = np.zeros(n, np.float32)
        output = pool(x[:1], x, value, Gaussian(), engine=engine).output
        assert abs(output[0] - value.astype(float).mean()) < 1e-6
    if engine == "tiled":
        # The fused program, and weights that fall off.
        x = np.linspace(-3.0, 3.0, n, dtype=np.float32)
        assert (
            np.abs(pool(x[:: n // 40], x, np.full(n, 0.1, np.float32), Gaussian(), engine=engine).output - 0.1).max()
            < 1e-7
        )
        line = pool(np.zeros(40, np.float32), x, x + np.float32(0.1), Gaussian(), engine=engine).output
        assert np.abs(line - 0.1).max() < 1e-6


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="peak memory is read from /proc, which is Linux's")
def test_42_memory_does_not_grow_with_the_pairs():
    """60,000 × 60,000 pairs would be 14 GB of weights; pooling them adds less than 200 MB."""
    code = textwrap.dedent("""
        import re
        import numpy as np
        from regard import pool
        from regard.scores import Epanechnikov, Gaussian

        def peak():
            return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

        x = np.random.default_rng(0).normal(size=(60_000, 1)).astype(np.float32)
        v = np.sin(x[:, 0])
        small = pool(x[:300], x[:300], v[:300], Gaussian(4.0), engine="tiled")  # compiles, or reads the cache
        before = peak()
        output = pool(x, x, v, Gaussian(4.0)).output
        grown = peak() - before
        assert grown < 200e6, grown
        assert abs(output - v).max() < 0.5
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

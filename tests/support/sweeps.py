"""Marks that run a test for every engine, dtype, kernel, and for few queries and many."""

from __future__ import annotations

import pytest

from regard.scores import KERNELS
from support.generators import DTYPES, ENGINES

every_engine = pytest.mark.parametrize("engine", ENGINES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
every_kernel = pytest.mark.parametrize("name", KERNELS)
few_and_many = pytest.mark.parametrize("queries", [3, 40])

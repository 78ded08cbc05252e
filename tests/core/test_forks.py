"""Forked processes compute what their parent computes, whatever ran before the fork."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from regard.engines import ENGINES
from support import forking

pytestmark = [
    pytest.mark.xdist_group("fork"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
]


@pytest.fixture(scope="module")
def ran():
    """Runs ``forking.py`` in a fresh process with two threads for OpenMP, once for each argument."""
    kept = {}

    def run(what):
        if what not in kept:
            env = {**os.environ, "OMP_NUM_THREADS": "2"}
            done = subprocess.run(
                [sys.executable, forking.__file__, what], capture_output=True, text=True, timeout=600, env=env
            )
            assert done.returncode == 0, done.stderr
            kept[what] = json.loads(done.stdout)
        return kept[what]

    return run


def agree(found, truth, case):
    assert isinstance(found, list), f"the child {found}"
    # Torch learns in single precision, and sums in another order on one thread.
    assert np.allclose(found, truth, rtol=1e-3 if case == "AttentionRegressor" else 1e-9)


@pytest.mark.parametrize("case", forking.CASES)
@pytest.mark.parametrize("order", ["fork first", "parent ran"])
def test_a_child_computes_as_its_parent(case, order, ran):
    agree(ran("all")[order][case], ran("all")["parent"][case], case)


@pytest.mark.parametrize("case", forking.OPENMP)
def test_a_child_computes_after_torch_alone_ran_in_its_parent(case, ran):
    agree(ran("all")["torch ran"][case], ran("all")["parent"][case], case)


@pytest.mark.parametrize("case", forking.LATE)
def test_a_child_that_imports_regard_itself(case, ran):
    agree(ran("late")["late"][case], ran("all")["parent"][case], case)


def test_every_engine_and_estimator_is_forked():
    """CUDA refuses to run in a forked child by itself, so the engine for GPUs is left out."""
    import regard.estimators

    assert set(ENGINES) - {"fused"} == set(forking.ENGINES)
    assert set(forking.MODELS) == {name for name in regard.estimators.__all__ if name.endswith(("or", "er"))}

"""What the whole suite shares: profiles for fuzzing, fixtures, and how long the compiler took."""

from __future__ import annotations

import os
import sys
from typing import Any

# scipy reads this once, when it is first imported; scikit-learn's array-API checks need it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
# Processes that share the tests share the cores: threads of BLAS and of torch would wait for each other. They read this
# when they are loaded.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
# Triton's programs run on a CPU, interpreted. Read when they are first imported, and nothing here imports them.
os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import pytest
from hypothesis import settings

from regard.bandwidth import descent
from support.soak import FULL

settings.register_profile("tenth", max_examples=40, derandomize=True, deadline=None, database=None)
settings.register_profile("full", max_examples=400, derandomize=True, deadline=None, database=None)
settings.load_profile("full" if FULL else "tenth")


_workers: list[float] = []


def _compile_seconds() -> float:
    module = sys.modules.get("regard.programs.cpu.compiled")
    return float(module.notice.seconds) if module is not None else 0.0


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its seconds to the process that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["compile_seconds"] = _compile_seconds()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _workers.append(float(getattr(node, "workeroutput", {}).get("compile_seconds", 0.0)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    seconds = _compile_seconds() + sum(_workers)
    where = f" in {len(_workers)} workers" if _workers else ""
    terminalreporter.write_line(f"compiling programs took {seconds:.1f} s{where}")


@pytest.fixture
def light_search(monkeypatch):
    """Fewer starts of descents, for tests of something else than the minimum; soak runs have all."""
    if not FULL:
        for name, value in {
            "STARTS_PER_PARAMETER": 4,
            "BEST_STARTS": 2,
            "RANDOM_STARTS_PER_PARAMETER": 0,
            "FULL_DESCENTS": 1,
            "LINE_SCAN_ROUNDS": 1,
        }.items():
            monkeypatch.setattr(f"regard.bandwidth.multistart.{name}", value)


@pytest.fixture
def brief_heads(monkeypatch):
    """Heads of a few evaluations and three folds, for tests of something else than the minimum; soak runs have all."""
    if not FULL:
        for module, evaluations in (
            ("line_heads", {"START": 3, "DESCENT": 4, "FOLD": 2, "FRESH_FOLD": 3}),
            ("class_heads", {"DESCENT": 5, "FOLD": 3}),
        ):
            for name, most in evaluations.items():
                monkeypatch.setattr(f"regard.bandwidth.{module}.{name}_EVALUATIONS", most)
            for name in ("FOLDS_FEW_ROWS", "FOLDS_MANY_ROWS"):
                monkeypatch.setattr(f"regard.bandwidth.{module}.{name}", 3)


@pytest.fixture
def brief_learning(monkeypatch, light_search, brief_heads):
    """Descents of a few iterations, for tests of something else than the minimum; soak runs have all."""
    if not FULL:
        monkeypatch.setattr("regard.bandwidth.multistart.SCAN_DESCENTS", 1)
        for options in (descent.FULL_DESCENT, descent.DESCENT_ACROSS_JUMPS):
            monkeypatch.setitem(options, "maxiter", 4)
            monkeypatch.setitem(options, "maxfun", 12)


_patched: set[Any] = set()


@pytest.fixture
def interpreted(monkeypatch):
    pytest.importorskip("triton")
    from triton.runtime import interpreter

    def call(self, *args, **kwargs):
        # A launch patches what all functions share: each need not do so again at every call, half of all time.
        if self.fn not in _patched:
            interpreter._patch_lang(self.fn)
            _patched.add(self.fn)
        return self.rewrite()(*args, **kwargs)

    monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", call)


@pytest.fixture
def programs(monkeypatch, interpreted):
    """Tensors on a CPU go to the Triton programs for laid-out rows, however few they are."""
    from regard.tensors import tensor_planner as planner

    monkeypatch.setitem(planner.MAX_DENSE, "cpu", -1)
    monkeypatch.setattr(planner, "on_programs", lambda query: True)
    monkeypatch.setattr(planner, "MAX_LAYER_WORK", 0)


@pytest.fixture
def engine_here(request, monkeypatch):
    """The engine of this test's parameters runs in this process: the GPU's interpreted, dask's in small blocks."""
    engine = request.node.callspec.params.get("engine") if hasattr(request.node, "callspec") else None
    if engine == "fused":
        import torch

        from regard.engines.gpu import fused, placement

        request.getfixturevalue("programs")
        for module in (fused, placement):
            monkeypatch.setattr(module, "device", lambda: torch.device("cpu"))
        # The interpreter computes rows that only fill a tile, and lanes of a branch not taken.
        with np.errstate(all="ignore"):
            yield
    elif engine == "dask":
        import dask

        monkeypatch.setattr("regard.pooling.planner.SENT_PAIRS", 1)
        with dask.config.set(scheduler="synchronous"):
            yield
    else:
        yield

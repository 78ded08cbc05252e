"""What the whole suite shares: profiles for fuzzing, and a word on how long the compiler took."""

from __future__ import annotations

import os
import sys
from typing import Any

# scipy reads this once, when it is first imported; scikit-learn's array-API checks need it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
from hypothesis import settings

FULL = bool(os.environ.get("REGARD_SOAK"))
settings.register_profile("tenth", max_examples=40, derandomize=True, deadline=None, database=None)
settings.register_profile("full", max_examples=400, derandomize=True, deadline=None, database=None)
settings.load_profile("full" if FULL else "tenth")

_workers: list[float] = []


def _compile_seconds() -> float:
    module = sys.modules.get("regard.programs.compiled")
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

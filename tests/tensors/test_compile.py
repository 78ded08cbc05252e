"""The Triton programs compile for a GPU, on a machine without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.fused_compile import calls
from support.soak import FULL

NAMES = list(calls()) if FULL else ["gaussian", "additive", "layer, few features"]


def test_programs_compile(tmp_path):
    backends = pytest.importorskip("triton.backends")
    if "nvidia" not in backends.backends:
        pytest.skip("this Triton has no compiler for NVIDIA devices")
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["TRITON_CACHE_DIR"] = str(tmp_path)
    script = Path(__file__).resolve().parents[1] / "support" / "fused_compile.py"
    done = subprocess.run([sys.executable, str(script), *NAMES], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [line.rsplit(" ", 1)[0] for line in done.stdout.splitlines()] == NAMES

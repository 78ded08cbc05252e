"""Triton programs on a CPU: interpreted, at small shapes (bfloat16 products cannot be; benchmarks/gpu.py has them)."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

# Read when the programs are first imported, and nothing above imports them.
os.environ["TRITON_INTERPRET"] = "1"


_patched = set()


@pytest.fixture(autouse=True)
def _steady():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    # The interpreter computes rows that only fill a tile, and lanes of a branch not taken.
    with np.errstate(all="ignore"):
        yield
    torch.set_num_threads(before)


@pytest.fixture
def programs(monkeypatch, interpreted):
    """Tensors on a CPU go to the Triton programs for laid-out rows, however few they are."""
    from regard.tensors import planner

    monkeypatch.setitem(planner.SMALL, "cpu", -1)
    monkeypatch.setattr(planner, "on_programs", lambda query: True)
    monkeypatch.setattr(planner, "LAYER_WORK", 0)


@pytest.fixture
def layers(monkeypatch, interpreted):
    """Tensors on a CPU go to the Triton programs for problems of a layer's size, where those take them."""
    from regard.tensors import planner

    monkeypatch.setattr(planner, "on_programs", lambda query: True)


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
def compiled(monkeypatch):
    """Tensors on a CPU go to the compiled programs of the tiled engine, however few they are."""
    from regard.tensors import planner

    monkeypatch.setitem(planner.SMALL, "cpu", -1)

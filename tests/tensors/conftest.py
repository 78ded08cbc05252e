"""Triton programs on a CPU: interpreted, at small shapes (bfloat16 products cannot be; benchmarks/gpu.py has them)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from support.tensor_paths import take_blocks, take_engines


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
def layers(monkeypatch, interpreted):
    """Tensors on a CPU go to the Triton programs for problems of a layer's size, where those take them."""
    from regard.tensors import tensor_planner as planner

    monkeypatch.setattr(planner, "on_programs", lambda query: True)


@pytest.fixture
def compiled(monkeypatch):
    """Tensors on a CPU go to the compiled programs of the engines, however few they are."""
    take_engines(monkeypatch)


@pytest.fixture
def blocks(monkeypatch):
    """Tensors on a CPU go through small blocks of queries, where scores are products."""
    take_blocks(monkeypatch)

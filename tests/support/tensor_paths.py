"""Ways by which tensors on a CPU are computed, taken whatever the sizes."""

from __future__ import annotations

import pytest

from regard.tensors import query_blocks
from regard.tensors import tensor_planner as planner


def take_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything goes to the compiled programs of the engines."""
    take_blocks(monkeypatch)
    monkeypatch.setattr(planner, "MIN_PAIRS_FOR_ENGINES", 0)
    monkeypatch.setattr(planner, "MAX_WIDTH_FOR_ENGINES", 1 << 30)


def take_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores that are products go through blocks of few queries, which keep no weights; others to the engines."""
    monkeypatch.setitem(planner.MAX_DENSE, "cpu", -1)
    monkeypatch.setattr(planner, "MAX_DENSE_OF_SMALL_MEMBERS", -1)
    monkeypatch.setattr(planner, "MAX_PAIRS_WITHOUT_BLOCKS", -1)
    monkeypatch.setattr(planner, "MAX_PAIRS_WITHOUT_TORCH_ATTENTION", -1)
    monkeypatch.setattr(query_blocks, "MIN_BLOCK_QUERIES", 2)
    monkeypatch.setitem(query_blocks.BLOCK_SCORES, "cpu", 7)
    monkeypatch.setattr(query_blocks, "MAX_KEPT_WEIGHTS", -1)

"""Every test of the modules starts from the same seed, on one thread: the tensors are small."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _steady():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)

"""A place for a model file, and the bytes of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from models import fitted
from regard.store.models import save


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.regard"


@pytest.fixture
def content(path: Path) -> bytes:
    save(fitted(), path)
    return path.read_bytes()

"""A place for a model file, and the bytes of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.store.models import save
from support.models import fitted


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.regard"


@pytest.fixture
def content(path: Path) -> bytes:
    save(fitted(), path)
    return path.read_bytes()

"""The code of docs/saving.md runs as written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "saving.md"


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "saving.md", "exec"), names)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model.onnx", "model.regard"]

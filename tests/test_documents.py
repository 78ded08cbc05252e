"""README's code and the examples run as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
READMES = ("README.md", "README.zh-CN.md")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("name", READMES)
def test_readme_code_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(name)
    assert found
    for block in found:
        exec(compile(block, name, "exec"), {})


def test_both_readmes_show_the_same_six_lines():
    def statements(name: str) -> list[str]:
        lines = (line.split("  #")[0].rstrip() for line in blocks(name)[0].splitlines())
        return [line for line in lines if line]

    english = statements("README.md")
    assert english == statements("README.zh-CN.md")
    assert len(english) == 6


@pytest.mark.parametrize("name", READMES)
def test_readme_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, env=os.environ, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_examples_are_numbered_in_order():
    assert [path.name[:2] for path in EXAMPLES] == [f"{n:02d}" for n in range(1, len(EXAMPLES) + 1)]

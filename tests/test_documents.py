"""README's code and the examples run as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
READMES = ("README.md", "README.zh-CN.md")
DOCS = ROOT / "docs"
# Folders whose pages run here, from the first block to the last.
FOLDERS = ("start", "guides", "elsewhere", "how")
BOOK = sorted(page.relative_to(DOCS).as_posix() for folder in FOLDERS for page in (DOCS / folder).glob("*.md"))
GALLERY = sorted((DOCS / "gallery").glob("plot_*.py"))
# Pages with a Chinese side. That of seq2seq.md is shorter, tests/seq2seq/test_pages.py runs it; notes.md is generated.
PAGES = sorted(
    page.relative_to(DOCS).as_posix().removesuffix(".zh.md")
    for folder in ("", *FOLDERS)
    for page in (DOCS / folder).glob("*.zh.md")
    if not page.name.startswith(("seq2seq.", "notes."))
)
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


def statements(block: str) -> list[str]:
    """Lines of code without comments."""
    return [line for line in (line.split("  #")[0].rstrip() for line in block.splitlines()) if line]


def commands(name: str) -> list[list[str]]:
    """What the console blocks that begin with a prompt run."""
    found = re.findall(r"```console\n(\$.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)
    return [[line.removeprefix("$ ") for line in block.splitlines()] for block in found]


def test_both_readmes_show_the_same_code():
    """The Chinese one shows a part of it."""
    english, chinese = ([statements(block) for block in blocks(name)] for name in READMES)
    assert len(chinese[0]) == 6
    assert [block for block in english if block in chinese] == chinese
    assert commands("README.md") == commands("README.zh-CN.md")


def test_the_readmes_commands_run_as_written(tmp_path):
    """In a shell, one after the other; those that need a cluster or texts of one's own are in a block of their own."""
    lines, others = commands("README.md")
    program = 'regard() { "$PYTHON" -m regard.cli "$@"; }\n' + "\n".join(lines)
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["bash", "-e", "-c", program], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr
    prices = (tmp_path / "prices.csv").read_text().splitlines()
    assert prices[0] == "price"
    assert len(prices) == 401
    predicted, attended = done.stdout.split("query,rank,key,weight,value,mass")
    assert predicted.startswith("price,price_low,price_high,row_1,weight_1")
    assert len(attended.split()) == 3 * 400
    assert all(line.startswith(("regard fit ", "regard translate ")) for line in others)


@pytest.mark.parametrize("name", READMES)
def test_readme_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


def test_pages_for_learners_have_a_chinese_side():
    assert {"masks", "plots", "uncertainty", "explanations", "tables", "saving"} <= set(PAGES)
    assert all((DOCS / f"{page}.md").exists() for page in PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_both_sides_of_a_page_have_the_same_parts(page):
    """The same code but for its comments; as many headings, lines of tables and lists; a link to the other side."""
    english, chinese = ((DOCS / f"{page}{side}").read_text(encoding="utf-8") for side in (".md", ".zh.md"))
    name = Path(page).name
    assert f"]({name}.zh.md)" in english
    assert f"]({name}.md)" in chinese
    code = [[statements(block) for block in blocks(f"docs/{page}{side}")] for side in (".md", ".zh.md")]
    assert code[0] == code[1]
    for start in ("#", r"\|", "-", r"\d\.", "    ", "```"):
        counts = [len(re.findall(rf"^{start}", without_code(text), re.M)) for text in (english, chinese)]
        assert counts[0] == counts[1], (start, counts)
    assert "保形" not in chinese, "conformal is 共形"


def without_code(text: str) -> str:
    return re.sub(r"```python\n.*?```", "```python\n```", text, flags=re.S)


@pytest.mark.parametrize("page", [page for page in PAGES if "/" not in page])
def test_the_chinese_side_runs_and_its_links_lead_somewhere(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks(f"docs/{page}.zh.md"):
        exec(compile(block, f"{page}.zh.md", "exec"), names)
    for target in re.findall(r"\]\(([^)#]+)\)", (DOCS / f"{page}.zh.md").read_text(encoding="utf-8")):
        assert (DOCS / target).exists(), target


def run_commands(lines: str, folder: Path) -> None:
    """Run console lines in one shell, with ``regard`` and ``python`` those of this environment."""
    program = 'regard() { "$PYTHON" -m regard.cli "$@"; }\npython() { "$PYTHON" "$@"; }\n'
    program += "\n".join(line.removeprefix("$ ") for line in lines.splitlines())
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    done = subprocess.run(
        ["bash", "-e", "-c", program], capture_output=True, text=True, cwd=folder, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [page for page in BOOK if not page.endswith(".zh.md")])
def test_a_page_of_the_book_runs(page, tmp_path, monkeypatch):
    """Its Python blocks in one namespace, and its console blocks with a prompt, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    # Warnings do not stop a reader's Python either; what a page says of them, it asserts.
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for kind, block in re.findall(
            r"```(python|console)\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S
        ):
            if kind == "python":
                exec(compile(block, page, "exec"), names)
            elif block.startswith("$ "):
                run_commands(block, tmp_path)


@pytest.mark.parametrize("page", BOOK)
def test_links_of_the_book_lead_somewhere(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((DOCS / page).parent / target).exists(), target


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_a_script_of_the_gallery_runs_and_draws(path, tmp_path, monkeypatch):
    """Under sixty lines, with a title for the gallery, and one figure at least."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert re.match(r'"""\n[^\n]+\n=+\n\n', text)
    monkeypatch.chdir(tmp_path)
    drawing = "import runpy, sys, matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt\n"
    drawing += "runpy.run_path(sys.argv[1]); assert plt.get_fignums(), 'no figure'"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", drawing, str(path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, env=os.environ, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_examples_are_numbered_in_order():
    assert [path.name[:2] for path in EXAMPLES] == [f"{n:02d}" for n in range(1, len(EXAMPLES) + 1)]

"""README's code and the examples run as written."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
READMES = ("README.md", "README.zh-CN.md")
DOCS = ROOT / "docs"
# Written by `make docs`, from docstrings, notebooks and results; tests of their own run them.
BUILT = ("_build", "api", "auto_gallery", "notes_as_notebooks", "performance", "decisions")
ALL_PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if path.relative_to(DOCS).parts[0] not in (*BUILT, "changes.md", "contributing.md")
)
# Pages with a Chinese side. notes.md is generated; the first page of a folder lists what there is in its language.
PAGES = [
    page.removesuffix(".zh.md")
    for page in ALL_PAGES
    if page.endswith(".zh.md") and not page.startswith("notes.") and not page.split("/")[-1].startswith("index.")
]
GALLERY = sorted((DOCS / "gallery").glob("plot_*.py"))
# Lines with a prompt that set something up, or need a cluster; they are shown and not run.
NOT_RUN = re.compile(r"(pip|make|git|python3? -m (venv|pip)|source|cd) |.*tcp://")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)


def test_readme_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks("README.md")
    assert found
    for block in found:
        exec(compile(block, "README.md", "exec"), {})


def statements(block: str) -> list[str]:
    """Lines of code without comments."""
    return [line for line in (line.split("  #")[0].rstrip() for line in block.splitlines()) if line]


def commands(name: str) -> list[list[str]]:
    """What the console blocks that begin with a prompt run."""
    found = re.findall(r"```console\n(\$.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.S)
    return [[line.removeprefix("$ ") for line in block.splitlines()] for block in found]


def test_both_readmes_show_the_same_code():
    """But for its comments, and every figure of one is in the other."""
    english, chinese = ([statements(block) for block in blocks(name)] for name in READMES)
    assert english == chinese
    pictures = [re.findall(r"!\[.*?\]\((.*?)\)", (ROOT / name).read_text(encoding="utf-8")) for name in READMES]
    assert sorted(pictures[0]) == sorted(pictures[1])


def test_the_commands_of_the_overview_print_what_it_says(tmp_path):
    """Those of the overview, in a shell, one after the other, and what they print."""
    (lines,) = commands("docs/overview.md")
    done = in_a_shell("\n".join(lines), tmp_path)
    assert done.returncode == 0, done.stderr
    prices = (tmp_path / "prices.csv").read_text().splitlines()
    assert prices[0] == "price"
    assert len(prices) == 401
    predicted, attended = done.stdout.split("query,rank,key,weight,value,mass")
    assert predicted.startswith("price,price_low,price_high,row_1,weight_1")
    assert len(attended.split()) == 3 * 400


@pytest.mark.parametrize("name", READMES)
def test_readme_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


def test_pages_for_learners_have_a_chinese_side():
    """All but those on running a cluster and on measurements, and the list of decisions; folders choose their own."""
    written = {page.removesuffix(".md") for page in ALL_PAGES if "/" not in page and not page.endswith(".zh.md")}
    learners = {page for page in PAGES if "/" not in page}
    assert written == learners | {"index", "notes", "cluster", "performance", "decisions"}
    assert all((DOCS / f"{page}.zh.md").exists() for page in ("index", "notes"))


@pytest.mark.parametrize("page", PAGES)
def test_both_sides_of_a_page_have_the_same_parts(page):
    """The same code but for its comments; as many headings, lines of tables and lists; a link to the other side."""
    english, chinese = ((DOCS / f"{page}{side}").read_text(encoding="utf-8") for side in (".md", ".zh.md"))
    name = page.rsplit("/", 1)[-1]
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


def parts_to_run(name: str) -> list[tuple[str, str]]:
    """The page's code blocks in order: Python, and the lines of consoles that begin with a prompt."""
    found = re.findall(r"^```(python|console)\n(.*?)^```", (DOCS / name).read_text(encoding="utf-8"), re.S | re.M)
    lines = {id(block): [line[2:] for line in block.splitlines() if line.startswith("$ ")] for _, block in found}
    return [
        (language, block if language == "python" else "\n".join(line for line in lines[id(block)] if runs(line)))
        for language, block in found
    ]


def runs(line: str) -> bool:
    return not NOT_RUN.match(line)


def in_a_shell(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with the command `regard` of this tree."""
    program = 'regard() { "$PYTHON" -m regard.cli "$@"; }\npython() { "$PYTHON" "$@"; }\n' + program
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    return subprocess.run(
        ["bash", "-e", "-c", program], capture_output=True, text=True, cwd=folder, env=environment, timeout=600
    )


@pytest.mark.parametrize("name", [name for name in ALL_PAGES if not name.startswith("seq2seq.")])
def test_every_page_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
    """In one folder and one session, as a reader would. A Chinese side with the same code runs as the English one."""
    parts = parts_to_run(name)
    english = name.removesuffix(".zh.md") + ".md"
    if english != name and english in ALL_PAGES and comparable(parts) == comparable(parts_to_run(english)):
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name])
    names: dict = {"__name__": "page"}
    with warnings.catch_warnings():
        # Warnings do not stop a reader's Python either; what a page says of them, it asserts.
        warnings.simplefilter("default")
        for language, block in parts:
            if language == "python":
                exec(compile(block, name, "exec"), names)
            elif block and name != "overview.md":  # its commands have a test of their own
                done = in_a_shell(block, tmp_path)
                assert done.returncode == 0, (block, done.stderr)


def comparable(parts: list[tuple[str, str]]) -> list[list[str]]:
    return [statements(block) for _, block in parts]


@pytest.mark.parametrize("name", ALL_PAGES)
def test_every_link_of_a_page_leads_somewhere(name):
    text = re.sub(r"^```.*?^```", "", (DOCS / name).read_text(encoding="utf-8"), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http:", "https:")):
            assert ((DOCS / name).parent / target).exists(), target


def test_no_block_is_of_a_kind_that_nothing_runs():
    """Python that needs a GPU is marked py, on the page about GPUs only; it is compiled here."""
    for name in ALL_PAGES:
        text = (DOCS / name).read_text(encoding="utf-8")
        kinds = {"python", "console", "text", "sh", ""} | ({"py"} if name.startswith("guides/gpu.") else set())
        assert set(re.findall(r"^```(\w*)$", text, re.M)[::2]) <= kinds, name
        for block in re.findall(r"^```py\n(.*?)^```", text, re.S | re.M):
            compile(block, name, "exec")


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_gallery_script_runs_and_draws(path, tmp_path, monkeypatch):
    """Under sixty lines, with a title for the gallery, and one figure at least."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert re.match(r'"""\n[^\n]+\n=+\n\n', text)
    monkeypatch.chdir(tmp_path)
    try:
        runpy.run_path(str(path), run_name="__main__")
        assert plt.get_fignums()
    finally:
        plt.close("all")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, env=os.environ, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_examples_are_numbered_in_order():
    assert [path.name[:2] for path in EXAMPLES] == [f"{n:02d}" for n in range(1, len(EXAMPLES) + 1)]

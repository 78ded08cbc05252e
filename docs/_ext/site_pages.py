"""The sections of the site, the pages that come from elsewhere in the repository, and links between them.

A page in docs/ is plain Markdown. At build time a section's page gets the list of its pages; Changes, Contributing, the
notebooks and the benchmark results become pages; links to other files of the repository become copies of those files.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from site_api import write_reference
from sphinx.application import Sphinx

import performance_page

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
CHINESE = ".zh"


@dataclass(frozen=True)
class Section:
    page: str  # its first page, without suffix
    english: str
    chinese: str
    folders: tuple[str, ...] = ()  # every page in them belongs to it
    pages: tuple[str, ...] = field(default=())  # and these

    def holds(self, page: str) -> bool:
        page = page.removesuffix(CHINESE)
        return page == self.page or page in self.pages or page.split("/")[0] in self.folders


SECTIONS = (
    Section("start/index", "Start here", "入门", ("start",), ("overview",)),
    Section(
        "guides/index",
        "Guides",
        "指南",
        ("guides",),
        ("tables", "uncertainty", "explanations", "plots", "saving", "cluster", "masks", "hard_attention", "seq2seq"),
    ),
    Section("auto_gallery/index", "Gallery", "图例", ("auto_gallery",)),
    Section("api/index", "API", "API", ("api",)),
    Section("elsewhere/index", "From elsewhere", "对照", ("elsewhere",)),
    Section("how/index", "How it works", "原理", ("how",)),
    Section("performance", "Performance", "性能", ("performance",)),
    Section("notebooks", "Notes", "笔记", ("notes_as_notebooks",), ("notes",)),
    Section("decisions", "Decisions", "决定", ("decisions",), ("changes", "contributing")),
)

# Files of the repository that are pages of the site: path → page.
FILES = {
    "README.md": "index",
    "README.zh-CN.md": "index.zh",
    "CHANGELOG.md": "changes",
    "CONTRIBUTING.md": "contributing",
    "benchmarks/README.md": "performance/method",
    "notebooks/README.md": "notebooks",
}
# Folders that a page links to.
FOLDERS = {section.page.removesuffix("/index"): section.page for section in SECTIONS} | {
    "benchmarks/results": "performance"
}


def elsewhere() -> dict[str, str]:
    """Every file outside docs/ that is a page: its path in the repository → the page."""
    found = dict(FILES)
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.md")):
        found[path.relative_to(ROOT).as_posix()] = f"performance/{path.stem}"
    for path in sorted((ROOT / "notebooks").glob("*/*.ipynb")):
        side = CHINESE if path.parent.name == "zh" else ""
        found[path.relative_to(ROOT).as_posix()] = f"notes_as_notebooks/{path.stem}{side}"
    return found


PAGES_FROM_ELSEWHERE = elsewhere()
RESULT_TITLES = {f"performance/{result.name}": result.title for result in performance_page.REPORTS}
ORIGIN = {page: path for path, page in PAGES_FROM_ELSEWHERE.items() if page not in ("index", "index.zh", "notebooks")}


def write_if_changed(path: Path, text: str) -> None:
    """Sphinx reads again what is newer than its last build."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def notebook(path: Path) -> str:
    """A notebook as Markdown."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def write_pages(_app: Sphinx) -> None:
    """Before Sphinx looks for pages: those made from other files."""
    written = set()
    for page, path in ORIGIN.items():
        source = ROOT / path
        text = notebook(source) if source.suffix == ".ipynb" else source.read_text(encoding="utf-8")
        # Tables of results may come without a title.
        title = RESULT_TITLES.get(page, source.stem)
        write_if_changed(DOCS / f"{page}.md", text if text.startswith("# ") else f"# {title}\n\n{text}")
        written.add(DOCS / f"{page}.md")
    written |= write_reference(DOCS / "api", write_if_changed)
    for folder in ("api", "notes_as_notebooks", "performance"):
        for path in set((DOCS / folder).iterdir()) - written:
            path.unlink()


def prepare(app: Sphinx, page: str, content: list[str]) -> None:
    """A page's text as Sphinx reads it."""
    text = content[0]
    if not has_markdown(page):
        return
    text = with_links_of_the_site(page, text)
    if page.removesuffix(CHINESE) == "index":
        text += toctree([section_page(section, page) for section in SECTIONS] + other_language(page), hidden=True)
    for section in SECTIONS:
        if page.removesuffix(CHINESE) == section.page:
            pages, linked = pages_of(section, page, text, app.env.found_docs)
            # A page that links to all of them has its own list.
            text += toctree(pages, hidden=set(pages) <= set(linked))
    content[0] = text


def with_new_lists(app: Sphinx, _env: Any, added: set[str], _changed: set[str], removed: set[str]) -> list[str]:
    """Pages whose lists change because a page was added or removed."""
    lists = ["index", *(section.page for section in SECTIONS)] if added or removed else []
    return [page for name in lists for page in (name, name + CHINESE) if page in app.env.found_docs]


def section_page(section: Section, page: str) -> str:
    """A section's page on one side; empty if that side lacks it."""
    side = CHINESE if page.endswith(CHINESE) else ""
    return section.page + side if (DOCS / f"{section.page}{side}.md").exists() or not side else ""


def other_language(page: str) -> list[str]:
    return [] if page.endswith(CHINESE) else ["index" + CHINESE]


def pages_of(section: Section, page: str, text: str, found: set[str]) -> tuple[list[str], list[str]]:
    """Its pages on this side: those that the text links to in that order, then the others by name; and the former."""
    chinese = page.endswith(CHINESE)
    own = sorted(
        other for other in found if section.holds(other) and other != page and other.endswith(CHINESE) == chinese
    )
    own = [other for other in own if other.removesuffix(CHINESE) != section.page]
    folder = os.path.dirname(page)
    targets = (os.path.normpath(os.path.join(folder, target)) for target in re.findall(r"\]\(([^)#]+\.md)", text))
    linked = [target.removesuffix(".md") for target in targets]
    return sorted(own, key=lambda other: linked.index(other) if other in linked else len(linked)), linked


def toctree(pages: list[str], *, hidden: bool = False) -> str:
    lines = ["", "", "```{toctree}", *([":hidden:"] if hidden else [":maxdepth: 1"]), ""]
    pages = [page for page in pages if page]
    return "\n".join([*lines, *map(entry, pages), "```", ""]) if pages else ""


def entry(page: str) -> str:
    """A page in a table of contents; results have the titles of the performance page."""
    title = RESULT_TITLES.get(page)
    return f"{title} </{page}>" if title else f"/{page}"


LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def with_links_of_the_site(page: str, text: str) -> str:
    """Links to files outside docs/ lead to their pages or to copies; code blocks stay as they are."""
    here = ROOT / ORIGIN[page] if page in ORIGIN else DOCS / f"{page}.md"
    parts = re.split(r"(^```.*?^```[^\S\n]*$)", text, flags=re.S | re.M)
    for i in range(0, len(parts), 2):
        parts[i] = LINK.sub(lambda found: link(found, here, page), parts[i])
    return "".join(parts)


def link(found: re.Match[str], here: Path, page: str) -> str:
    picture, shown, target = found.groups()
    name, _, anchor = target.partition("#")
    if not name or ":" in name:
        return found.group()
    path = Path(os.path.normpath(here.parent / name))
    if not path.is_relative_to(ROOT) or not path.exists():
        return found.group()  # Sphinx says so.
    inside = path.relative_to(ROOT).as_posix()
    at = (DOCS / page).parent
    if picture:
        return f"![{shown}]({os.path.relpath(path, at)})"
    if path.is_dir():
        folder = inside.removeprefix("docs/")
        target_page = FOLDERS.get("auto_gallery" if folder == "gallery" else folder)
    else:
        target_page = PAGES_FROM_ELSEWHERE.get(inside)
        if target_page is None and inside.startswith("docs/gallery/"):
            target_page = f"auto_gallery/{path.stem}"
        elif target_page is None and inside.startswith("docs/") and path.suffix == ".md":
            target_page = inside.removeprefix("docs/").removesuffix(".md")
    if target_page is not None:
        return (
            f"[{shown}]({os.path.relpath(DOCS / target_page, at)}{'.md' if has_markdown(target_page) else '.rst'}"
            + (f"#{anchor})" if anchor else ")")
        )
    if path.is_dir():
        return found.group()  # Sphinx says so.
    return f"[{shown}](path:{os.path.relpath(path, at)})"


def has_markdown(page: str) -> bool:
    return not page.startswith(("auto_gallery/", "api/"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages, priority=100)
    app.connect("env-get-outdated", with_new_lists)
    app.connect("source-read", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Write docs/notes.md and docs/notes.zh.md from docs/notes_items.toml: ``python tools/notes_page.py``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from notes_numbers import numbers

ROOT = Path(__file__).resolve().parents[1]
ITEMS = ROOT / "docs" / "notes_items.toml"
PAGES = {"en": ROOT / "docs" / "notes.md", "zh": ROOT / "docs" / "notes.zh.md"}
STATIONS = ROOT / "src" / "regard" / "tour" / "stations"
NOTEBOOKS = ROOT / "notebooks"
# Sums of some dozens of numbers near 1 are exact to about 1e-15.
MAX_ROUNDING = 1e-12

KINDS = {"claim": "论断", "method": "方法", "number": "数", "picture": "图", "question": "问题"}
VERDICTS = {
    "right": "正确",
    "right if": "有条件",
    "wrong": "错误",
    "answered": "已答",
    "drawn": "已画",
    "unfinished": "未写完",
}
# The notes in the order of their files, and the heading of those lines that open a part of the page.
NOTES = {
    "1": ("Attention Pool: Nadaraya-Watson 核回归", "note 1", "笔记 1"),
    "2": ("9.2 注意力汇聚：Nadaraya-Watson 核回归", "note 2", "笔记 2"),
    "3": ("注意力提示、可视化与汇聚（未完）", "note 3", "笔记 3"),
    "4": ("chap10 注意力机制（基础部分）", "note 4", "笔记 4"),
    "5": ("2. 注意力汇聚：Nadaraya-Watson 核回归", "note 5", "笔记 5"),
}
TEXTS = {
    "en": {
        "title": "The notes, item by item",
        "intro": (
            "This project began with five sets of study notes after the chapter on attention of *Dive into Deep "
            "Learning*. This page lists everything they say, ask and draw, whether it holds, and where it is "
            "shown. Lines that several notes share are one item. “Right if” names the condition, or the "
            "reading, under which a sentence holds. Numbers are computed by `tools/notes_numbers.py` with "
            "`regard.data.notes(seed=0)`; the page is generated from [notes_items.toml](notes_items.toml), and "
            "the tests check its numbers and its links.\n\n"
            "[中文](notes.zh.md) · the notes' recipe as [notebooks](../notebooks/README.md) · `regard tour`"
        ),
        "count": "{n} items: {counts}.",
        "heads": ("", "lines", "what the note says", "verdict", "shown at"),
        "colon": ": ",
        "station": "tour: ",
        "notebook": "notebook ",
        "image": "figure",
        "rounding": "rounding",
    },
    "zh": {
        "title": "逐条对照笔记",
        "intro": (
            "这个项目始于五份学习笔记，内容出自《动手学深度学习》的注意力一章。本页列出笔记里说的、问的、画的每一条，"
            "是否成立，以及在哪里可以看到。几份笔记共有的内容合为一条；各份笔记用词不一，这里用同一套词。“有条件”会写明在什么条件下、怎样理解时成立。"
            "数字由 `tools/notes_numbers.py` 用 `regard.data.notes(seed=0)` 算出；"
            "本页由 [notes_items.toml](notes_items.toml) 生成，数字和链接都经测试检查。\n\n"
            "[English](notes.md) · 笔记的做法写成的[笔记本](../notebooks/README.md) · `regard tour --lang zh`"
        ),
        "count": "共 {n} 条：{counts}。",
        "heads": ("", "行", "笔记说的", "结论", "见"),
        "colon": "：",
        "station": "导览：",
        "notebook": "笔记本 ",
        "image": "图",
        "rounding": "舍入误差",
    },
}


def items() -> list[dict[str, Any]]:
    """All items, in the order of the notes and of their lines."""

    def first_line(item: dict[str, Any]) -> tuple[str, int]:
        note, lines = item["at"][0].split(":")
        return note, int(lines.split("-")[0])

    return sorted(tomllib.loads(ITEMS.read_text(encoding="utf-8"))["item"], key=first_line)


def spoken(known: dict[str, float], language: str) -> dict[str, Any]:
    """Numbers as texts take them: rounding errors differ between machines and are named, not printed."""
    small = {name: value for name, value in known.items() if name.endswith("_gap")}
    if large := [name for name, value in small.items() if not value < MAX_ROUNDING]:
        raise ValueError(f"no rounding errors: {', '.join(large)}")
    return {**known, **dict.fromkeys(small, TEXTS[language]["rounding"])}


def anchor(heading: str) -> str:
    """The fragment that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def station_title(name: str, language: str) -> str:
    """The title of a station of the tour, or its name as long as it has no text."""
    text = STATIONS / f"{name}.md"
    found = re.search(rf"^title\.{language}: (.+)$", text.read_text(encoding="utf-8"), re.M) if text.exists() else None
    return found[1] if found else name


def link(place: str, language: str) -> str:
    """A place as a link; paths are relative to docs/."""
    kind, name = place.split(":", 1)
    words = TEXTS[language]
    if kind == "station":
        return f"{words['station']}[{station_title(name, language)}](../src/regard/tour/stations/{name}.md)"
    if kind == "api":
        return f"`{name}`"
    if kind == "doc":
        page, _, heading = name.partition("#")
        chinese = page.replace(".md", ".zh.md")
        if language == "zh" and (ROOT / "docs" / chinese).exists():
            return f"[{chinese}]({chinese})"
        return f"[{page}{' § ' + heading if heading else ''}]({page}{'#' + anchor(heading) if heading else ''})"
    if kind == "notebook":
        return f"[{words['notebook']}{name}](../notebooks/{language}/{name}.ipynb)"
    if kind == "image":
        return f"[{words['image']}]({'images/' + name if not name.startswith('../') else name[3:]})"
    path, _, test = name.partition("::")
    return f"[`{test}`](../{path})"


def row(number: int, item: dict[str, Any], language: str, known: dict[str, float]) -> str:
    """One line of the table."""
    verdict = item["verdict"] if language == "en" else VERDICTS[item["verdict"]]
    why = item.get(f"why_{language}", "").format(**spoken(known, language))
    kind = item["kind"] if language == "en" else KINDS[item["kind"]]
    cells = (
        str(number),
        "<br>".join(item["at"]),
        f"*{kind}* {item[language]}",
        f"**{verdict}**" + (TEXTS[language]["colon"] + why if why else ""),
        "<br>".join(link(place, language) for place in item["shown"]),
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def page(language: str, known: dict[str, float]) -> str:
    """The whole page."""
    words, listed = TEXTS[language], items()
    counts = [
        f"{sum(item['verdict'] == verdict for item in listed)} {verdict if language == 'en' else chinese}"
        for verdict, chinese in VERDICTS.items()
    ]
    lines = [
        "<!-- Written by tools/notes_page.py; change notes_items.toml instead. -->",
        f"# {words['title']}",
        "",
        words["intro"],
        "",
        *(f"{number}. {title}" for number, (title, *_) in NOTES.items()),
        "",
        words["count"].format(n=len(listed), counts=(", " if language == "en" else "，").join(counts)),
    ]
    first = None
    for number, item in enumerate(listed, 1):
        note = item["at"][0].split(":")[0]
        if note != first:
            first = note
            heading = NOTES[note][1 if language == "en" else 2].capitalize()
            lines += ["", f"## {heading}", "", "| " + " | ".join(words["heads"]) + " |", "|---|---|---|---|---|"]
        lines.append(row(number, item, language, known))
    return "\n".join(lines) + "\n"


def main() -> None:
    known = numbers()
    for language, path in PAGES.items():
        path.write_text(page(language, known), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The page: one self-contained HTML file, made from the template, the style sheet and what the stations told."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from regard import __version__
from regard.data.text import Text
from regard.tour.station import Drawing, Station, Told

WORDS = {
    "title": Text("regard: the tour", "regard：导览"),
    "kicker": Text("regard · the tour", "regard · 导览"),
    "heading": Text("Every answer is a weighted average", "每个答案都是加权平均"),
    "lead": Text(
        "From the plain mean to attention that learns, mostly on fifty points of a curve. Each stop asks one question, "
        "draws a picture and answers with a number that was computed while this page was made.",
        "从平均值走到会学习的注意力，多半只用一条曲线上的五十个点。每一站问一个问题，画出图来，"
        "再用一个数来回答；这些数都是生成本页时当场算出来的。",
    ),
    "contents": Text("Stops", "站点"),
    "answer": Text("Answer", "答案"),
    "try": Text("Try it", "动手试试"),
    "summary": Text("The tour in one table", "一张表看完全程"),
    "question": Text("Question", "问题"),
    "station": Text("Station", "站点"),
    "again": Text("Walk it again:", "再走一遍："),
    "data": Text(
        "In the code, x_train, y_train, x_test and y_truth are the four arrays of regard.data.notes({call}).",
        "代码里的 x_train、y_train、x_test、y_truth 就是 regard.data.notes({call}) 的四个数组。",
    ),
}

# Chinese characters and their full-width punctuation.
_CJK = "\u2018-\u201d\u3000-\u303f\u4e00-\u9fff\uff00-\uffef"


class Stop(NamedTuple):
    """A station after the visit."""

    station: Station
    number: int
    told: Told
    pictures: tuple[bytes, ...]  # SVG of each of its drawings


def page(stops: Sequence[Stop], lang: str, seed: int) -> str:
    """The whole page as HTML; it needs no other file and no network."""
    words = {name: escape(text.said(lang)) for name, text in WORDS.items()}
    words["data"] = words["data"].format(call=f"seed={seed}" if seed else "")
    # The command walks with seed 0; other seeds are for callers of ``run``.
    call = f'regard.tour.run("tour", lang="{lang}", seed={seed})' if seed else f"regard tour --lang {lang}"
    room = files("regard.tour")
    return Template(room.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        words,
        lang="zh-CN" if lang == "zh" else lang,
        css=room.joinpath("page.css").read_text(encoding="utf-8"),
        toc="\n".join(f'<li><a href="#{s.station.name}">{escape(s.station.title.said(lang))}</a></li>' for s in stops),
        sections="\n".join(_section(stop, lang, words) for stop in stops),
        rows="\n".join(_row(stop, lang) for stop in stops),
        call=escape(call),
        version=escape(__version__),
    )


def _prose(words: str) -> str:
    """Plain text as HTML: powers raised, equations kept on one line."""
    return re.sub(r"\^\(([^)]*)\)", r"<sup>\1</sup>", escape(words)).replace(" = ", "&nbsp;=&nbsp;")


def _story(html: str) -> str:
    """Chinese has no spaces between words, so a line break in the source must not leave one."""
    joined = re.sub(rf"(?<=[{_CJK}])\s*\n\s*(?=[{_CJK}])", "", html)
    return joined.replace(" = ", "&nbsp;=&nbsp;")


def _section(stop: Stop, lang: str, words: dict[str, str]) -> str:
    station = stop.station
    return f"""<section id="{station.name}">
<h2><span class="stop">{stop.number}</span>{escape(station.title.said(lang))}</h2>
<p class="question">{_prose(station.question.said(lang))}</p>
<div class="story">{_story(station.story.said(lang))}</div>
<p class="formula">{" ".join(f"<span>{part}</span>" for part in station.formula)}</p>
{"".join(_picture(drawing, svg, lang) for drawing, svg in zip(stop.told.drawings, stop.pictures, strict=True))}
<div class="answer"><p class="number">{escape(stop.told.number)}</p>
<div><p class="tag">{words["answer"]}</p><p>{_prose(stop.told.answer.said(lang))}</p></div></div>
<details><summary>{words["try"]}</summary><pre><code>{escape(station.code)}</code></pre></details>
</section>"""


def _picture(drawing: Drawing, svg: bytes, lang: str) -> str:
    source = "data:image/svg+xml;base64," + b64encode(svg).decode("ascii")
    kind = ' class="wide"' if drawing.wide else ""
    caption = drawing.caption.said(lang)
    return (
        f'<figure{kind}><div class="card"><img src="{source}" alt="{escape(caption)}"></div>'
        f"<figcaption>{_prose(caption)}</figcaption></figure>"
    )


def _row(stop: Stop, lang: str) -> str:
    station = stop.station
    title, question = escape(station.title.said(lang)), _prose(station.question.said(lang))
    return (
        f'<tr><th scope="row"><a href="#{station.name}">{title}</a></th><td>{question}</td>'
        f'<td><b class="figure">{escape(stop.told.number)}</b>{_prose(stop.told.answer.said(lang))}</td></tr>'
    )

"""The page: one self-contained HTML file, made from the template, the style sheet and the stations' findings."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from regard import __version__
from regard.tour.station import Drawing, Findings, Station
from regard.tour.texts import fill, read_texts

# Figures wider than this have panels side by side: a phone should scroll rather than shrink them.
WIDE_INCHES = 8.0


class Stop(NamedTuple):
    """A station after the visit."""

    station: Station
    number: int
    findings: Findings
    pictures: tuple[bytes, ...]  # SVG of each of its drawings


def page(stops: Sequence[Stop], lang: str, seed: int) -> str:
    """The whole page as HTML; it needs no other file and no network."""
    texts = read_texts("tour_page")
    words = {name: escape(text.said(lang)) for name, text in texts.items()}
    words["data"] = escape(fill(texts["data"], call=f"seed={seed}" if seed else "").said(lang))
    # The command takes seed 0; other seeds are for callers of ``run``.
    call = f'regard.tour.run("tour", lang="{lang}", seed={seed})' if seed else f"regard tour --lang {lang}"
    folder = files("regard.tour")
    return Template(folder.joinpath("tour_page.html").read_text(encoding="utf-8")).substitute(
        words,
        lang="zh-CN" if lang == "zh" else lang,
        css=folder.joinpath("tour_page.css").read_text(encoding="utf-8"),
        toc="\n".join(
            f'<li><a href="#{s.station.name}">{escape(s.station.texts["title"].said(lang))}</a></li>' for s in stops
        ),
        sections="\n".join(_section(stop, lang, words) for stop in stops),
        rows="\n".join(_row(stop, lang) for stop in stops),
        call=escape(call),
        version=escape(__version__),
    )


def _prose(words: str) -> str:
    """Plain text as HTML: powers raised, equations on one line."""
    return re.sub(r"\^\(([^)]*)\)", r"<sup>\1</sup>", escape(words)).replace(" = ", "&nbsp;=&nbsp;")


def _section(stop: Stop, lang: str, words: dict[str, str]) -> str:
    texts, (drawings, number, answer) = stop.station.texts, stop.findings
    story = texts["story"].said(lang).replace(" = ", "&nbsp;=&nbsp;").replace("\n\n", "</p>\n<p>")
    return f"""<section id="{stop.station.name}">
<h2><span class="stop">{stop.number}</span>{escape(texts["title"].said(lang))}</h2>
<p class="question">{_prose(texts["question"].said(lang))}</p>
<div class="story"><p>{story}</p></div>
<p class="formula">{" ".join(f"<span>{part}</span>" for part in texts["formula"].en.splitlines())}</p>
{"".join(_picture(drawing, svg, lang) for drawing, svg in zip(drawings, stop.pictures, strict=True))}
<div class="answer"><p class="number">{escape(number)}</p>
<div><p class="tag">{words["answer"]}</p><p>{_prose(answer.said(lang))}</p></div></div>
<details><summary>{words["try"]}</summary><pre><code>{escape(stop.station.code)}</code></pre></details>
</section>"""


def _picture(drawing: Drawing, svg: bytes, lang: str) -> str:
    source = "data:image/svg+xml;base64," + b64encode(svg).decode("ascii")
    kind = ' class="wide"' if drawing.figure.get_figwidth() > WIDE_INCHES else ""
    caption = drawing.caption.said(lang)
    return (
        f'<figure{kind}><div class="card"><img src="{source}" alt="{escape(caption)}"></div>'
        f"<figcaption>{_prose(caption)}</figcaption></figure>"
    )


def _row(stop: Stop, lang: str) -> str:
    texts = stop.station.texts
    title, question = escape(texts["title"].said(lang)), _prose(texts["question"].said(lang))
    return (
        f'<tr><th scope="row"><a href="#{stop.station.name}">{title}</a></th><td>{question}</td>'
        f'<td><b class="figure">{escape(stop.findings.number)}</b>{_prose(stop.findings.answer.said(lang))}</td></tr>'
    )

"""The page: one self-contained HTML file, made from the template, style sheet, script and the stations' findings."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from regard import __version__
from regard.data import NotesData
from regard.plot import fonts
from regard.tour.page_script import bundled
from regard.tour.station import Drawing, Findings, Station
from regard.tour.texts import read_texts

# Where letters begin that fonts of Latin, Greek and mathematics do not have.
EAST_ASIA = "\u2e80"
# Stations with a slider for w, and what it shows; see sliders.js.
SLIDERS = {"kernel": "query", "heatmap": "order", "learned": "loss", "diagnosis": "verdict"}


class Stop(NamedTuple):
    """A station after the visit."""

    station: Station
    number: int
    findings: Findings
    pictures: tuple[bytes, ...]  # SVG of each of its drawings


def page(stops: Sequence[Stop], lang: str, seed: int, data: NotesData) -> str:
    """The whole page as HTML; it needs no other file and no network, and without JavaScript only the sliders."""
    texts = read_texts("tour_page")
    words = {name: escape(text.said(lang)) for name, text in texts.items()}
    words |= {name: texts[name].said(lang) for name in ("play", "more")}  # with marks of their own
    # The command takes seed 0; other seeds are for callers of ``run``.
    call = f'regard.tour.run("tour", lang="{lang}", seed={seed})' if seed else f"regard tour --lang {lang}"
    folder = files("regard.tour")
    html = Template(folder.joinpath("tour_page.html").read_text(encoding="utf-8")).substitute(
        words,
        lang="zh-CN" if lang == "zh" else lang,
        css=folder.joinpath("tour_page.css").read_text(encoding="utf-8"),
        toc="\n".join(
            f'<li><a href="#{s.station.name}">{escape(s.station.texts["title"].said(lang))}</a></li>' for s in stops
        ),
        sections="\n".join(_section(stop, lang, seed, words) for stop in stops),
        rows="\n".join(_row(stop, lang) for stop in stops),
        seeds=words["other_seed"] if seed else "",
        call=escape(call),
        version=escape(__version__),
        slider_data=_slider_data(data, {name: text.said(lang) for name, text in texts.items()}),
        script=bundled("sliders"),
    )
    return html.replace("<style>\n", f"<style>\n{_font(html)}", 1)


def _font(html: str) -> str:
    """A style sheet with the page's Chinese letters, if there are any: not every machine has a font for them."""
    letters = "".join(sorted({letter for letter in html if letter >= EAST_ASIA}))
    if not letters:
        return ""
    source = "data:font/otf;base64," + b64encode(fonts.letters_of(letters)).decode("ascii")
    # Without a range it would set the height of lines of Latin letters, too.
    return f'@font-face {{ font-family: "{fonts.CHINESE}"; src: url({source}); unicode-range: U+2E80-FFEF; }}\n'


def _slider_data(data: NotesData, words: dict[str, str]) -> str:
    """What the script needs as JSON that no browser takes for HTML."""
    prefix = "slider."
    arrays = {name: values.tolist() for name, values in data._asdict().items()}
    spoken = {name.removeprefix(prefix): text for name, text in words.items() if name.startswith(prefix)}
    return json.dumps({**arrays, "words": spoken}, ensure_ascii=False).replace("<", "\\u003c")


def _prose(words: str) -> str:
    """Plain text as HTML: powers raised, equations on one line."""
    return re.sub(r"\^\(([^)]*)\)", r"<sup>\1</sup>", escape(words)).replace(" = ", "&nbsp;=&nbsp;")


def _paragraphs(html: str) -> str:
    """Paragraphs of HTML; equations on one line, except in code, which must stay as it can be pasted."""
    return "<p>" + re.sub(r" = (?![^<]*</code>)", "&nbsp;=&nbsp;", html).replace("\n\n", "</p>\n<p>") + "</p>"


def _headline(number: str) -> str:
    """The lines of a number, each with its value before its words."""
    lines = (line.partition(" | ") for line in number.splitlines())
    return "".join(f"<span><b>{escape(value)}</b> {_prose(words)}</span>" for value, _, words in lines)


def _section(stop: Stop, lang: str, seed: int, words: dict[str, str]) -> str:
    texts, (drawings, number, answer) = stop.station.texts, stop.findings
    code = escape(stop.station.code(seed))
    return f"""<section id="{stop.station.name}">
<h2><span class="stop">{stop.number}</span>{escape(texts["title"].said(lang))}</h2>
<p class="question">{_prose(texts["question"].said(lang))}</p>
<div class="story">{_paragraphs(texts["story"].said(lang))}</div>
<p class="formula">{" ".join(f"<span>{part}</span>" for part in texts["formula"].en.splitlines())}</p>
{"".join(_picture(drawing, svg, lang) for drawing, svg in zip(drawings, stop.pictures, strict=True))}
{_slider(SLIDERS[stop.station.name], words) if stop.station.name in SLIDERS else ""}
<div class="answer"><p class="number">{_headline(number.said(lang))}</p>
<div><p class="tag">{words["answer"]}</p><p>{_prose(answer.said(lang))}</p></div></div>
<details class="try"><summary>{words["try"]}</summary><pre><code>{code}</code></pre></details>
<div class="exercise"><p class="tag">{words["exercise"]}</p>{_paragraphs(texts["exercise"].said(lang))}
<details><summary>{words["solution"]}</summary>{_paragraphs(texts["solution"].said(lang))}</details></div>
</section>"""


def _slider(shows: str, words: dict[str, str]) -> str:
    return f'<div class="slider" data-shows="{shows}" hidden></div>\n<p class="more">{words["more"]}</p>'


def _picture(drawing: Drawing, svg: bytes, lang: str) -> str:
    source = "data:image/svg+xml;base64," + b64encode(svg).decode("ascii")
    inches = f"--inches: {drawing.figure.get_figwidth():g}"
    caption = drawing.caption.said(lang)
    return (
        f'<figure><div class="card"><img src="{source}" alt="{escape(caption)}" style="{inches}"></div>'
        f"<figcaption>{_prose(caption)}</figcaption></figure>"
    )


def _row(stop: Stop, lang: str) -> str:
    texts = stop.station.texts
    title, question = escape(texts["title"].said(lang)), _prose(texts["question"].said(lang))
    number, answer = (words.said(lang) for words in (stop.findings.number, stop.findings.answer))
    return (
        f'<tr><th scope="row"><a href="#{stop.station.name}">{title}</a></th><td>{question}</td>'
        f'<td><p class="figure">{_headline(number)}</p>{_prose(answer)}</td></tr>'
    )

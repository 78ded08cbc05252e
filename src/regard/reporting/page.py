"""The report as one HTML file that needs no other file and no network."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from regard import __version__
from regard.model.diagnosis import Diagnosis
from regard.reporting.facts import Facts
from regard.reporting.words import WORDS, cell, judgement, lead, number, weight_in_words

# Features shown in tables at most.
COLUMNS = 30


class Page:
    """Writes the sections one after another, in one language."""

    def __init__(self, facts: Facts, target: str, lang: str, pictures: dict[str, bytes]) -> None:
        self.facts, self.target, self.lang, self.pictures = facts, target, lang, pictures

    def say(self, name: str, **given: str) -> str:
        text = WORDS[name].said(self.lang)
        return escape(text.format(**given) if given else text)

    def filled(self, name: str, **given: str) -> str:
        """The same, with HTML to fill in."""
        return escape(WORDS[name].said(self.lang)).format(**given)

    def joined(self, *sentences: str) -> str:
        """Sentences one after another; Chinese ones stand without a space between."""
        return ("" if self.lang == "zh" else " ").join(one for one in sentences if one)

    def whole(self, doubts: Iterable[str], found: Diagnosis | None, plan: str, code: str) -> str:
        title = self.say("title", target=self.target)
        css = files("regard.reporting").joinpath("page.css").read_text(encoding="utf-8")
        parts = [
            f"<header><p class='kicker'>{self.say('kicker')}</p><h1>{title}</h1>",
            f"<p class='lead'>{escape(lead(self.facts, self.target).said(self.lang))}</p></header><main>",
            self.gaps(),
            *self.good(),
            *doubts,
            *self.looks(),
            *self.verdict(found),
            *self.map(),
            *self.foremost(),
            *self.data(),
            f"<h2>{self.say('made')}</h2><pre>{escape(plan)}</pre>",
            f"<h2>{self.say('again')}</h2><pre>{escape(code)}</pre>",
            f"</main><footer>regard {escape(__version__)}</footer>",
        ]
        lang = "zh-CN" if self.lang == "zh" else self.lang
        head = (
            "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
            "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; img-src data:; "
            "style-src 'unsafe-inline'\">"
            f"<title>{title}</title><style>{css}</style>"
        )
        body = "\n".join(part for part in parts if part)
        return f"<!doctype html>\n<html lang='{lang}'><head>{head}</head><body>\n{body}\n</body></html>\n"

    def gaps(self) -> str:
        many = self.facts.gaps
        return f"<p class='note'>{self.say('gaps', count=f'{many:,}')}</p>" if many else ""

    def good(self) -> Iterable[str]:
        classes, facts = bool(self.facts.classes), self.facts
        yield f"<h2>{self.say('good')}</h2><p>{self.say('good_left_out' if facts.left_out else 'good_new')}</p>"
        best = min(one.error for one in facts.contestants)
        rows = [
            [
                self.say("mean_class" if classes and one.name == "mean" else one.name),
                number(one.error),
                f"{one.score:.0%}" if classes else f"{one.score:.3f}",
            ]
            for one in facts.contestants
        ]
        heads = [self.say("who"), self.say("loss" if classes else "error"), self.say("right" if classes else "r2")]
        yield self.table(heads, rows, [one.error == best for one in facts.contestants])
        yield self.figure("answers", self.say("answers_class" if classes else "answers"))

    def looks(self) -> Iterable[str]:
        facts = self.facts
        if facts.relevance is None or not facts.relevance.any():
            return
        yield f"<h2>{self.say('looks')}</h2><p>{self.say('looks_lead')}</p>"
        yield self.figure("relevance", "")
        varies, largest = np.ptp(facts.X, axis=0) > 0.0, float(facts.relevance.max())
        rows = []
        for i in np.argsort(-facts.relevance, kind="stable")[:COLUMNS]:
            share = float(facts.relevance[i])
            word = weight_in_words(share, bool(varies[i]), largest).said(self.lang)
            reach = [] if facts.reach is None else [f"± {number(float(facts.reach[i]))}"]
            rows.append([escape(facts.names[i]), f"{share:.0%}", *reach, escape(word)])
        reach_head = [] if facts.reach is None else [self.say("reach")]
        yield self.table([self.say("feature"), self.say("share"), *reach_head, self.say("says")], rows)

    def verdict(self, found: Diagnosis | None) -> Iterable[str]:
        if found is not None:
            told = escape(judgement(found).said(self.lang))
            yield f"<h2>{self.say('verdict')}</h2><p class='verdict'>{told}</p>"

    def map(self) -> Iterable[str]:
        yield f"<h2>{self.say('map')}</h2><p>{self.say('map_lead')}</p>" + self.figure("attention", "")

    def foremost(self) -> Iterable[str]:
        facts = self.facts
        yield f"<h2>{self.say('foremost')}</h2>"
        yield f"<p>{self.say('foremost_lead', expected=f'{facts.expected:.2%}')}</p>"
        # Row numbers are those of the training rows, which are only here if X is them.
        shown = range(min(len(facts.names), 6)) if facts.left_out else ()
        rows = []
        for place, row, share in zip(facts.foremost, facts.numbers, facts.attended, strict=True):
            cells = [cell(float(facts.X[place, i]), facts.X[:, i]) for i in shown]
            value = [self.value(facts.y[place])] if facts.left_out else []
            rows.append([f"{row:,}", f"{share:.2%}", *value, *cells])
        target = [escape(self.target)] if facts.left_out else []
        heads = [self.say("row"), self.say("attention"), *target, *(escape(facts.names[i]) for i in shown)]
        yield self.table(heads, rows)

    def data(self) -> Iterable[str]:
        facts = self.facts
        yield f"<h2>{self.say('data')}</h2>"
        columns = list(zip(facts.names[:COLUMNS], facts.X.T, strict=False))
        if not facts.classes:
            columns.insert(0, (self.target, facts.y))
        rows = [
            [escape(name), *(cell(float(value), column) for value in (column.min(), np.median(column), column.max()))]
            for name, column in columns
        ]
        heads = [self.say("feature"), self.say("least"), self.say("middle"), self.say("most")]
        yield self.table(heads, rows)

    def value(self, value: Any) -> str:
        """A value of y: a number, or the name of a class."""
        return escape(self.facts.classes[int(value)]) if self.facts.classes else cell(float(value), self.facts.y)

    def table(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        best: Sequence[bool] | None = None,
        foot: Sequence[str] = (),
    ) -> str:
        """Cells are HTML already."""
        top = "".join(f"<th{'' if i == 0 else ' class=n'}>{head}</th>" for i, head in enumerate(heads))
        body = []
        for n, row in enumerate(rows):
            cells = f"<th>{row[0]}</th>" + "".join(f"<td class=n>{cell}</td>" for cell in row[1:])
            body.append(f"<tr{' class=best' if best is not None and best[n] else ''}>{cells}</tr>")
        # What stands at the foot belongs to the last columns; its name has the others to itself.
        ends = "".join(f"<td class=n>{cell}</td>" for cell in foot[1:])
        under = f"<tfoot><tr><th colspan={len(heads) - len(foot) + 1}>{foot[0]}</th>{ends}</tr></tfoot>" if foot else ""
        inner = f"<thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody>{under}"
        return f"<div class='scroll'><table>{inner}</table></div>"

    def figure(self, name: str, caption: str) -> str:
        source = "data:image/svg+xml;base64," + b64encode(self.pictures[name]).decode()
        under = f"<figcaption>{caption}</figcaption>" if caption else ""
        return f"<figure><div class='card'><img src='{source}' alt='{escape(name)}'></div>{under}</figure>"

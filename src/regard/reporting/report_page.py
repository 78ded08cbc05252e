"""The report as one self-contained HTML file."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from regard import __version__
from regard.model.diagnosis import Diagnosis
from regard.reporting.report_facts import ReportFacts
from regard.reporting.report_sentences import SENTENCES, cell, importance, lead, number, verdict
from regard.reporting.table_cells import TableCells

MAX_FEATURES_IN_TABLES = 30
MAX_FEATURES_OF_ATTENDED_ROWS = 6
MAX_CATEGORIES_LISTED = 6


def shares(column: Sequence[Any]) -> str:
    """The most frequent categories with their shares.

    >>> shares(["new", "old", "new", "new"])
    'new 75%, old 25%'
    """
    found = Counter(map(str, column)).most_common()
    more = [f"… ({len(found)})"] if len(found) > MAX_CATEGORIES_LISTED else []
    return ", ".join([f"{name} {count / len(column):.0%}" for name, count in found[:MAX_CATEGORIES_LISTED]] + more)


class ReportPage:
    """The sections of the page, in one language."""

    def __init__(
        self, facts: ReportFacts, cells: TableCells, target: str, lang: str, pictures: dict[str, bytes]
    ) -> None:
        self.facts, self.cells, self.target, self.lang, self.pictures = facts, cells, target, lang, pictures

    def say(self, name: str, **fields: str) -> str:
        """A sentence as HTML, its fields filled in with text."""
        text = SENTENCES["page"][name].said(self.lang)
        return escape(text.format(**fields) if fields else text)

    def say_html(self, name: str, **fields: str) -> str:
        """A sentence as HTML, its fields filled in with HTML."""
        return escape(SENTENCES["page"][name].said(self.lang)).format(**fields)

    def joined(self, *sentences: str) -> str:
        """Sentences in sequence; Chinese has no space between them."""
        return ("" if self.lang == "zh" else " ").join(filter(None, sentences))

    def html(self, certainty: Iterable[str], found: Diagnosis | None, plan: str, code: str) -> str:
        """The whole page; ``certainty`` holds the sections on intervals and examples."""
        title = self.say("title", target=self.target)
        css = files("regard.reporting").joinpath("page.css").read_text(encoding="utf-8")
        parts = [
            f"<header><p class='kicker'>{self.say('kicker')}</p><h1>{title}</h1>",
            f"<p class='lead'>{escape(lead(self.facts, self.target).said(self.lang))}</p></header><main>",
            self.gaps(),
            *self.accuracy(),
            *certainty,
            *self.relevance(),
            *self.verdict(found),
            self.attention_map(),
            *self.most_attended(),
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
        count = self.facts.gaps
        return f"<p class='note'>{self.say('gaps', count=f'{count:,}')}</p>" if count else ""

    def accuracy(self) -> Iterable[str]:
        classes, facts = bool(self.facts.classes), self.facts
        yield f"<h2>{self.say('good')}</h2><p>{self.say('good_left_out' if facts.left_out else 'good_new')}</p>"
        best = min(method.error for method in facts.methods)
        rows = [
            [
                self.say("mean_class" if classes and method.name == "mean" else method.name),
                number(method.error),
                f"{method.score:.0%}" if classes else f"{method.score:.3f}",
            ]
            for method in facts.methods
        ]
        heads = [self.say("who"), self.say("loss" if classes else "error"), self.say("right" if classes else "r2")]
        yield self.table(heads, rows, [method.error == best for method in facts.methods])
        yield self.figure("answers", self.say("answers_class" if classes else "answers"))

    def relevance(self) -> Iterable[str]:
        facts = self.facts
        if facts.relevance is None or not facts.relevance.any():
            return
        yield f"<h2>{self.say('looks')}</h2><p>{self.say('looks_lead')}</p>"
        yield self.figure("relevance", "")
        largest = float(facts.relevance.max())
        rows = []
        for i in np.argsort(-facts.relevance, kind="stable")[:MAX_FEATURES_IN_TABLES]:
            share = float(facts.relevance[i])
            bandwidth = [] if facts.bandwidth is None else [self.bandwidth(i)]
            word = self.say(importance(share, bool(facts.varies[i]), largest))
            rows.append([escape(facts.names[i]), f"{share:.0%}", *bandwidth, word])
        head = [] if facts.bandwidth is None else [self.say("reach")]
        yield self.table([self.say("feature"), self.say("share"), *head, self.say("says")], rows)
        if facts.bandwidth is not None and not np.isnan(facts.max_lambda).all():
            yield f"<p class='note'>{self.say('lambda')}</p>"

    def bandwidth(self, i: int) -> str:
        """The bandwidth of a column: ± h, or λ and the largest λ."""
        assert self.facts.bandwidth is not None
        own, most = float(self.facts.bandwidth[i]), float(self.facts.max_lambda[i])
        return f"± {number(own)}" if np.isnan(most) else f"λ {number(own)} / {number(most)}"

    def verdict(self, found: Diagnosis | None) -> Iterable[str]:
        if found is not None:
            text = escape(verdict(found).said(self.lang))
            yield f"<h2>{self.say('verdict')}</h2><p class='verdict'>{text}</p>"

    def attention_map(self) -> str:
        return f"<h2>{self.say('map')}</h2><p>{self.say('map_lead')}</p>" + self.figure("attention", "")

    def most_attended(self) -> Iterable[str]:
        facts = self.facts
        yield f"<h2>{self.say('foremost')}</h2>"
        yield f"<p>{self.say('foremost_lead', expected=f'{facts.expected:.2%}')}</p>"
        # Row numbers are those of training rows, whose cells are known only if X is the training table.
        shown = range(min(len(facts.names), MAX_FEATURES_OF_ATTENDED_ROWS)) if facts.left_out else ()
        rows = []
        for place, row, share in zip(facts.most_attended, facts.numbers, facts.attended, strict=True):
            cells = [self.cells.given(int(facts.rows[place]), i) for i in shown]
            value = [self.value(facts.y[place])] if facts.left_out else []
            rows.append([f"{row:,}", f"{share:.2%}", *value, *cells])
        target = [escape(self.target)] if facts.left_out else []
        heads = [self.say("row"), self.say("attention"), *target, *(escape(facts.names[i]) for i in shown)]
        yield self.table(heads, rows)

    def data(self) -> Iterable[str]:
        facts = self.facts
        yield f"<h2>{self.say('data')}</h2>"
        numbers = [] if facts.classes else [(self.target, facts.y)]
        categories = []
        for i in range(min(len(facts.names), MAX_FEATURES_IN_TABLES)):
            for name, column in self.cells.columns(i):
                if np.isnan(facts.max_lambda[i]):
                    numbers.append((name, np.array(column, np.float64)))
                else:
                    categories.append([escape(name), escape(shares(column))])
        rows = [
            [escape(name), *(cell(float(value), column) for value in (column.min(), np.median(column), column.max()))]
            for name, column in numbers
        ]
        heads = [self.say("feature"), self.say("least"), self.say("middle"), self.say("most")]
        if rows:
            yield self.table(heads, rows)
        if categories:
            yield self.table([self.say("feature"), self.say("categories")], categories)

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
        """TableCells are HTML already."""
        top = "".join(f"<th{'' if i == 0 else ' class=n'}>{head}</th>" for i, head in enumerate(heads))
        body = []
        for n, row in enumerate(rows):
            cells = f"<th>{row[0]}</th>" + "".join(f"<td class=n>{cell}</td>" for cell in row[1:])
            body.append(f"<tr{' class=best' if best is not None and best[n] else ''}>{cells}</tr>")
        ends = "".join(f"<td class=n>{cell}</td>" for cell in foot[1:])
        under = f"<tfoot><tr><th colspan={len(heads) - len(foot) + 1}>{foot[0]}</th>{ends}</tr></tfoot>" if foot else ""
        inner = f"<thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody>{under}"
        return f"<div class='scroll'><table>{inner}</table></div>"

    def figure(self, name: str, caption: str) -> str:
        source = "data:image/svg+xml;base64," + b64encode(self.pictures[name]).decode()
        under = f"<figcaption>{caption}</figcaption>" if caption else ""
        return f"<figure><div class='card'><img src='{source}' alt='{escape(name)}'></div>{under}</figure>"

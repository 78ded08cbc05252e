"""The report's sections on intervals and on example rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from regard.reporting.certainty import Certainty
from regard.reporting.example_rows import ExampleRow
from regard.reporting.report_page import ReportPage
from regard.reporting.report_sentences import number

# Columns shown of a row, the most relevant first.
MAX_COLUMNS = 5
# Effective weights are shown if one differs from the attention by more than this.
MIN_DIFFERENCE_TO_SHOW = 5e-4
# Rows from which the most, middle and least certain third are reported.
MIN_ROWS_FOR_THIRDS = 30


class CertaintySections:
    """The two sections, in the page's language."""

    def __init__(self, page: ReportPage, certainty: Certainty, examples: Sequence[ExampleRow]) -> None:
        self.page, self.certainty, self.examples = page, certainty, examples
        self.say = page.say

    def sections(self) -> Iterable[str]:
        yield f"<h2>{self.say('sure')}</h2>"
        if self.certainty.missing:
            yield f"<p>{self.say('sure_' + self.certainty.missing)}</p>"
        else:
            yield from self._classes() if self.page.facts.classes else self._numbers()
        if self.examples:
            leaning = self.say("leaning") if any(map(_has_effective_weights, self.examples)) else ""
            how = self.say("why_left_out" if self.page.facts.left_out else "why_new")
            yield f"<h2>{self.say('why')}</h2><p>{self.page.joined(how, leaning)}</p>"
            for example in self.examples:
                yield from self._example(example)

    def _inside(self, name: str, **fields: str) -> str:
        """How many rows lie inside, and how they were predicted."""
        how = self.say("by_others" if self.page.facts.left_out else "not_seen")
        sentence = self.say(name, how=how, inside=self._share(self.certainty.inside), **fields)
        return f"<p>{self.page.joined(sentence, self._subsampled())}</p>"

    def _share(self, inside: Any) -> str:
        return f"{float(np.mean(inside)):.1%}"

    def _numbers(self) -> Iterable[str]:
        certainty = self.certainty
        yield self._inside("sure_inside", half=number(float(np.median(certainty.size))))
        yield self.page.figure("sure", self.say("sure_picture" if certainty.curve is None else "sure_curve"))
        if len(certainty.rows) >= MIN_ROWS_FOR_THIRDS and np.ptp(certainty.size) > 1e-9 * float(certainty.size.max()):
            parts = np.array_split(np.argsort(certainty.size, kind="stable"), 3)
            rows = [
                [
                    self.say(name),
                    f"{len(part):,}",
                    self._share(certainty.inside[part]),
                    self._half(certainty.size[part]),
                ]
                for name, part in zip(("surest", "between", "unsurest"), parts, strict=True)
            ]
            yield self.page.table([self.say(name) for name in ("third", "rows", "inside", "half")], rows)
        yield f"<p class='note'>{self.say('promise')}</p>"

    def _half(self, size: Any) -> str:
        return f"± {number(float(np.median(size)))}"

    def _classes(self) -> Iterable[str]:
        certainty = self.certainty
        yield self._inside("sets_inside", size=f"{float(np.mean(certainty.size)):.2f}")
        rows = []
        for size in np.unique(certainty.size):
            here = certainty.size == size
            rows.append([f"{size}", f"{int(here.sum()):,}", self._share(certainty.inside[here])])
        yield self.page.table([self.say(name) for name in ("set_size", "rows", "inside")], rows)
        yield self.page.figure("sure", self.say("calibration"))
        yield f"<p class='note'>{self.say('promise_sets')}</p>"

    def _subsampled(self) -> str:
        """Which subsamples the numbers are from, if any."""
        used, given = len(self.certainty.rows), len(self.page.facts.y)
        sentences = []
        if used < given:
            sentences.append(self.say("looked_at", looked=f"{used:,}", there=f"{given:,}"))
        if self.certainty.scale_rows:
            sentences.append(self.say("learned_from", rows=f"{self.certainty.scale_rows:,}"))
        return self.page.joined(*sentences)

    def _example(self, example: ExampleRow) -> Iterable[str]:
        facts, explained = self.page.facts, example.explained
        row = int(facts.rows[example.place])
        yield f"<h3>{self.say(example.kind, row=f'{row:,}')}</h3>"
        answer = escape(str(explained.answer)) if facts.classes else self.page.value(explained.answer)
        fields = {
            "answer": answer,
            "half": self._certainty(example),
            "actual": self.page.value(facts.y[example.place]),
        }
        if not len(explained.index):
            yield f"<p>{self.page.say_html('no_row_in_reach', actual=fields['actual'])}</p>"
            return
        attended = {
            "neighbours": number(explained.neighbours),
            "rows": f"{explained.rows:,}",
            "mass": f"{explained.mass:.0%}",
        }
        away = self.say(explained.unit, distance=number(explained.distance)) if np.isfinite(explained.distance) else ""
        answered = self.page.say_html("answered", **fields)
        yield f"<p>{self.page.joined(answered, self.say('looked', **attended), away)}</p>"
        if explained.far:
            yield f"<p class='note'>{self.say('far')}</p>"
        yield self._rows(example, row)

    def _certainty(self, example: ExampleRow) -> str:
        """The half-width or probability that follows the prediction."""
        known = example.certainty
        if np.isnan(known):
            return ""
        return f" ({known:.0%})" if self.page.facts.classes else self.say("give_or_take", half=number(known))

    def _rows(self, example: ExampleRow, row: int) -> str:
        """A table of the row, the rows it attends to, and each column's share in the distance."""
        facts, explained, cells = self.page.facts, example.explained, self.page.cells
        known = not np.isnan(explained.nearness).any()
        order = (
            np.argsort(-explained.nearness, kind="stable")[:MAX_COLUMNS]
            if known
            else np.arange(min(len(explained.names), MAX_COLUMNS))
        )
        signed = _has_effective_weights(example)
        effective_head = [self.say("counts")] if signed else []
        heads = [self.say("row"), self.say("attention"), *effective_head, escape(self.page.target)]
        heads += [escape(facts.names[j]) for j in order]
        own = [self.say("this"), "", *([""] * signed), self.page.value(facts.y[example.place])]
        rows = [[*own, *(cells.given(row, j) for j in order)]]
        for k in range(len(explained.index)):
            value = escape(str(explained.value[k])) if facts.classes else self.page.value(explained.value[k])
            effective = [f"{explained.effective[k]:+.1%}"] if signed else []
            # In the model without the row, later rows have moved up by one.
            place = int(explained.index[k]) + int(facts.left_out and explained.index[k] >= row)
            line = [f"{int(explained.row[k]):,}", f"{explained.weight[k]:.1%}", *effective, value]
            rows.append([*line, *(cells.trained(place, j) for j in order)])
        foot = [self.say("shares"), *(f"{explained.nearness[j]:.0%}" for j in order)]
        return self.page.table(heads, rows, [k == 0 for k in range(len(rows))], foot if known else ())


def _has_effective_weights(example: ExampleRow) -> bool:
    """Whether effective weights differ from the attention, as those of a local line do."""
    explained = example.explained
    return bool((np.abs(explained.effective - explained.weight) > MIN_DIFFERENCE_TO_SHOW).any())

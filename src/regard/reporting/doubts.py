"""The report's sections "How sure?" and "Why?"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from regard.reporting.facts import Facts
from regard.reporting.page import Page
from regard.reporting.rows import cells_of
from regard.reporting.sure import THIRDS, Sure
from regard.reporting.why import Example
from regard.reporting.words import cell, number

# Columns shown of a row, those that decide most about nearness first.
COLUMNS = 5
# An effective weight this far from the attention is told beside it.
APART = 5e-4


class Cells:
    """Cells of the rows of X, and of the training rows where they are known, as a reader would write them."""

    def __init__(self, model: Any, X: Any, facts: Facts) -> None:
        self._X, self._facts = X, facts
        coding = getattr(model, "coding_", None)
        self.names = model._smoother.rows.fold[0] if coding else facts.names
        self._columns = [part.columns for part in coding.parts] if coding else [(j,) for j in range(len(self.names))]
        # Without a coding, training rows are remembered in the units of X.
        self._key = None if coding or facts.left_out else model.key_
        self._known: dict[int, list[Any]] = {}

    def given(self, row: int, name: int) -> str:
        """A cell of a row of X."""
        return ", ".join(self._said(self._column(j)[row], j) for j in self._columns[name])

    def trained(self, row: int, name: int) -> str:
        """A cell of a training row; those of a mixed table are known only where X holds them."""
        if self._facts.left_out:
            return self.given(row, name)
        return "" if self._key is None else self._said(self._key[row, name], self._columns[name][0])

    def _column(self, j: int) -> list[Any]:
        if j not in self._known:
            self._known[j] = cells_of(self._X, j)
        return self._known[j]

    def _said(self, value: Any, j: int) -> str:
        if value is None or value != value:
            return "–"
        if isinstance(value, str):
            return escape(value)
        numbers = np.array([float(one) for one in self._column(j) if one is not None])
        return cell(float(value), numbers)


class Doubts:
    """Writes the two sections, in the page's language."""

    def __init__(self, page: Page, sure: Sure, why: Sequence[Example], cells: Cells) -> None:
        self.page, self.sure, self.why, self.cells = page, sure, why, cells
        self.say = page.say

    def sections(self) -> Iterable[str]:
        yield f"<h2>{self.say('sure')}</h2>"
        if self.sure.why_not:
            yield f"<p>{self.say('sure_' + self.sure.why_not, rows=f'{len(self.page.facts.y):,}')}</p>"
        else:
            yield from self._classes() if self.page.facts.classes else self._numbers()
        if self.why:
            leaning = self.say("leaning") if any(map(_leans, self.why)) else ""
            how = self.say("why_left_out" if self.page.facts.left_out else "why_new")
            yield f"<h2>{self.say('why')}</h2><p>{self.page.joined(how, leaning)}</p>"
            for one in self.why:
                yield from self._example(one)

    def _inside(self, name: str, **given: str) -> str:
        """How many rows lie inside, and how they were answered."""
        how = self.say("by_others" if self.page.facts.left_out else "not_seen")
        said = self.say(name, how=how, inside=self._share(self.sure.inside), **given)
        return f"<p>{self.page.joined(said, self._some())}</p>"

    def _share(self, inside: Any) -> str:
        return f"{float(np.mean(inside)):.1%}"

    def _numbers(self) -> Iterable[str]:
        sure = self.sure
        yield self._inside("sure_inside", half=number(float(np.median(sure.size))))
        yield self.page.figure("sure", self.say("sure_picture" if sure.curve is None else "sure_curve"))
        if len(sure.rows) >= THIRDS and np.ptp(sure.size) > 1e-9 * float(sure.size.max()):
            parts = np.array_split(np.argsort(sure.size, kind="stable"), 3)
            rows = [
                [self.say(name), f"{len(part):,}", self._share(sure.inside[part]), self._half(sure.size[part])]
                for name, part in zip(("surest", "between", "unsurest"), parts, strict=True)
            ]
            yield self.page.table([self.say(name) for name in ("third", "rows", "inside", "half")], rows)
        yield f"<p class='note'>{self.say('promise')}</p>"

    def _half(self, size: Any) -> str:
        return f"± {number(float(np.median(size)))}"

    def _classes(self) -> Iterable[str]:
        sure = self.sure
        yield self._inside("sets_inside", size=f"{float(np.mean(sure.size)):.2f}")
        rows = []
        for size in np.unique(sure.size):
            here = sure.size == size
            rows.append([f"{size}", f"{int(here.sum()):,}", self._share(sure.inside[here])])
        yield self.page.table([self.say(name) for name in ("set_size", "rows", "inside")], rows)
        yield self.page.figure("sure", self.say("calibration"))
        yield f"<p class='note'>{self.say('promise_sets')}</p>"

    def _some(self) -> str:
        """Where not all rows were looked at."""
        looked, there = len(self.sure.rows), len(self.page.facts.y)
        said = []
        if looked < there:
            said.append(self.say("looked_at", looked=f"{looked:,}", there=f"{there:,}"))
        if self.sure.learned_from:
            said.append(self.say("learned_from", rows=f"{self.sure.learned_from:,}"))
        return self.page.joined(*said)

    def _example(self, one: Example) -> Iterable[str]:
        facts, told = self.page.facts, one.told
        row = int(facts.rows[one.place])
        yield f"<h3>{self.say(one.kind, row=f'{row:,}')}</h3>"
        answer = escape(str(told.answer)) if facts.classes else self.page.value(told.answer)
        words = {"answer": answer, "half": self._doubt(one), "actual": self.page.value(facts.y[one.place])}
        if not len(told.index):
            yield f"<p>{self.say('nobody', actual=words['actual'])}</p>"
            return
        seen = {"neighbours": number(told.neighbours), "rows": f"{told.rows:,}", "mass": f"{told.mass:.0%}"}
        away = self.say(told.unit, distance=number(told.distance)) if np.isfinite(told.distance) else ""
        answered = self.page.filled("answered", **words)
        yield f"<p>{self.page.joined(answered, self.say('looked', **seen), away)}</p>"
        if told.far:
            yield f"<p class='note'>{self.say('far')}</p>"
        yield self._rows(one, row)

    def _doubt(self, one: Example) -> str:
        """How sure it is of this one, to stand behind the answer."""
        if np.isnan(one.doubt):
            return ""
        return f" ({one.doubt:.0%})" if self.page.facts.classes else self.say("give_or_take", half=number(one.doubt))

    def _rows(self, one: Example, row: int) -> str:
        """The row itself, the rows looked at, and below them each column's share in the distance."""
        facts, told, cells = self.page.facts, one.told, self.cells
        known = not np.isnan(told.nearness).any()
        order = (
            np.argsort(-told.nearness, kind="stable")[:COLUMNS] if known else np.arange(min(len(told.names), COLUMNS))
        )
        leans = _leans(one)
        counts = [self.say("counts")] if leans else []
        heads = [self.say("row"), self.say("attention"), *counts, escape(self.page.target)]
        heads += [escape(cells.names[j]) for j in order]
        own = [self.say("this"), "", *([""] * leans), self.page.value(facts.y[one.place])]
        rows = [[*own, *(cells.given(row, j) for j in order)]]
        for k in range(len(told.index)):
            value = escape(str(told.value[k])) if facts.classes else self.page.value(told.value[k])
            effective = [f"{told.effective[k]:+.1%}"] if leans else []
            # Of a model without the row, those after it have moved up by one.
            place = int(told.index[k]) + int(facts.left_out and told.index[k] >= row)
            line = [f"{int(told.row[k]):,}", f"{told.weight[k]:.1%}", *effective, value]
            rows.append([*line, *(cells.trained(place, j) for j in order)])
        foot = [self.say("shares"), *(f"{told.nearness[j]:.0%}" for j in order)]
        return self.page.table(heads, rows, [k == 0 for k in range(len(rows))], foot if known else ())


def _leans(one: Example) -> bool:
    """Whether its rows count other than by their attention, as those of a local line do."""
    return bool((np.abs(one.told.effective - one.told.weight) > APART).any())

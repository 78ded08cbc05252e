"""The last station: its numbers once more from the model it learned, its pictures, and what it says without torch."""

from __future__ import annotations

import builtins
import re

import numpy as np
import pytest

from regard.data import notes
from regard.seq2seq import date_model
from regard.tour.station import Visit
from regard.tour.stations import date_translation
from support.story import CJK, NAMES

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")


@pytest.fixture(scope="module")
def answer(tours):
    return tours["en"].rows[NAMES.index("seq2seq")].answer


def test_its_numbers(answer):
    model, pairs = date_model.learn_dates(0).translator, date_model.date_pairs(0)[2]
    said = [one.text for one in model.translate(pairs.source)]
    exact = np.mean(np.array(said) == np.array(pairs.target))
    assert answer.startswith(
        f"Yes. Of {len(pairs):,} dates that were not trained on, it writes {100 * exact:.1f}% without"
    )
    right, beside, month, digits, dashes = [], [], [], [], []
    for one, places in zip(model.align(pairs.source, pairs.target), pairs.alignment, strict=True):
        for step, (row, place) in enumerate(zip(one.weights[:-1].astype(float), places, strict=True)):
            (dashes if place < 0 else digits).append(-sum(w * np.log(w) for w in row if w > 0))
            if place >= 0:
                right.append(row.argmax() == place)
            if place >= 0 and not right[-1]:
                beside.append(abs(row.argmax() - place) == 1)
                month.append("YYYY-MM-DD"[step] == "M")
    assert len(dashes) == 2 * len(pairs)
    assert f"For {100 * np.mean(right):.0f}% of the digits" in answer
    assert f"{100 * np.mean(beside):.0f}% have it on the character next to the origin, and " in answer
    assert f"{100 * np.mean(month):.0f}%, some of them the same, are digits of the month" in answer
    wide = [f"{np.exp(np.mean(nats)):.1f}" for nats in (digits, dashes)]
    assert f"A digit attends to {wide[0]} characters, a dash, which comes from nowhere, to {wide[1]} (" in answer


def test_lengths_with_and_without_attention(answer):
    strings, right = date_translation.reversals(0)
    assert 100 < strings < 200
    for soft, none, words in (
        (right["soft"][-1], right["none"][-1], "with attention and"),
        (right["soft"][0], right["none"][0], ""),
    ):
        assert f"{soft:.0f}%" in answer
        assert f"{none:.0f}%" in answer
        assert words in answer
    figure = date_translation.STATION.compute(Visit(notes(), 0, "en")).drawings[2].figure
    for line, attention in zip(figure.axes[0].lines, ("soft", "none"), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), right[attention])


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_its_alignments_are_those_of_the_model(lang):
    findings = date_translation.STATION.compute(Visit(notes(), 0, lang))
    assert [drawing.name for drawing in findings.drawings] == ["architecture", "seq2seq", "lengths"]
    panels = findings.drawings[1].figure.axes[:4]
    dates = ["".join(label.get_text() for label in ax.get_xticklabels()).replace("␣", " ") for ax in panels]
    assert len(dates) == len(set(dates)) == 4
    assert bool(CJK.search("".join(dates))) == (lang == "zh")
    for ax, one in zip(panels, date_model.learn_dates(0).translator.translate(dates), strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), one.weights)
        assert [label.get_text() for label in ax.get_yticklabels()] == list(one.tokens)
        assert ax.get_title() == f"→ {one.text}"
        assert ax.images[0].get_clim() == (0.0, 1.0)


def test_the_sizes_in_the_story_are_those_of_the_model():
    from regard.data import DATE_FORMATS, DATE_LANGUAGES

    assert (len(DATE_LANGUAGES), len(DATE_FORMATS)) == (5, 26)
    for story in (date_translation.TEXTS["story"].en, date_translation.TEXTS["story"].zh):
        assert str(date_model.ARCHITECTURE.hidden_size) in re.findall(r"\d+", story)


def test_without_torch_it_says_so(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name == "regard.seq2seq" and rest[2] == ("date_model",):
            raise ModuleNotFoundError("no torch", name="torch")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    findings = date_translation.STATION.compute(Visit(notes(), 0, "en"))
    assert findings.drawings == ()
    assert "torch, which is not installed here. pip install 'regard[nn]'" in findings.answer.en
    assert "没有安装" in findings.answer.zh

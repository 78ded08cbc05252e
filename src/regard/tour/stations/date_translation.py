"""Sequence to sequence: a decoder that learns to read dates, and its attention to each character it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from regard.plot import AlignmentDisplay, style
from regard.plot.display import plain
from regard.tour.station import Findings, Station, Visit, findings, needs_torch
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/date_translation")

if TYPE_CHECKING:
    from regard.data import Pairs
    from regard.seq2seq.translator import Translation, Translator

# Dates to draw; the last one in Chinese figures, the one before it in English ones.
EXAMPLES = ("May 3rd, 2021", "mardi 24 août 1999", "3. Mai 2021", "21 de junio de 2048", "二〇二一年十一月二十三日")
DASH = "-"
END = "<eos>"


@needs_torch
def compute(visit: Visit) -> Findings:
    from regard.seq2seq import date_model

    translator = date_model.learn_dates(visit.seed).translator
    held_out = date_model.date_pairs(visit.seed)[2]
    translations = translator.translate(held_out.source)
    right = np.mean([one.text == true for one, true in zip(translations, held_out.target, strict=True)])
    origin, digits, dashes = _attention_statistics(translator, held_out)
    drawn = translator.translate([*EXAMPLES[:3], EXAMPLES[4 if visit.lang == "zh" else 3]])
    return findings(
        TEXTS,
        {"seq2seq": _alignments(visit, drawn)},
        n=len(held_out),
        exact=100 * float(right),
        at_origin=100 * origin,
        digit=digits,
        dash=dashes,
    )


def _attention_statistics(translator: Translator, pairs: Pairs) -> tuple[float, float, float]:
    """Share of digits with the largest weight on their origin; characters attended to by a digit and by a dash."""
    from regard.seq2seq import token_alignment
    from regard.seq2seq.alignment import entropy, links

    assert pairs.alignment is not None
    at_origin: list[bool] = []
    entropies: dict[bool, list[float]] = {True: [], False: []}
    aligned = translator.align(pairs.source, pairs.target)
    for one, source, target, places in zip(aligned, pairs.source, pairs.target, pairs.alignment, strict=True):
        gold = token_alignment(translator.source, translator.target, source, target, places)
        at_origin += [place in true for place, true in zip(links(one.weights), gold, strict=False) if true]
        for token, nats in zip(one.tokens, entropy(one.weights), strict=True):
            if token != END:
                entropies[token == DASH].append(float(nats))
    digits, dashes = (float(np.exp(np.mean(entropies[dash]))) for dash in (False, True))
    return float(np.mean(at_origin)), digits, dashes


def _alignments(visit: Visit, translations: list[Translation]) -> Figure:
    figure = style.picture(10.4, 8.2)
    labels = {"source": visit.label(TEXTS["read"]), "target": visit.label(TEXTS["written"])}
    axes: Any = figure.subplots(2, 2)
    for ax, one in zip(axes.flat, translations, strict=True):
        display = AlignmentDisplay(one.weights, one.tokens, one.source_tokens, labels=labels).plot(ax, colorbar=False)
        ax.set_title(plain(f"→ {one.text}"))
    style.colorbar(display.image_, axes, visit.label(TEXTS["weight"]), shrink=0.6)
    return figure


STATION = Station("seq2seq", TEXTS, compute)

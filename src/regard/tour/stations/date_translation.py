"""Sequence to sequence: a decoder that learns to read dates, and what attention is worth as sources grow longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from regard.data import Pairs, reversal
from regard.plot import AlignmentDisplay, style
from regard.plot.display import plain
from regard.tour.station import Findings, Station, Visit, findings, needs_torch
from regard.tour.stations.cues import draw_box
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/date_translation")

if TYPE_CHECKING:
    from regard.seq2seq.translator import Translation, Translator

# Dates to draw; the last one in Chinese figures, the one before it in English ones.
EXAMPLES = ("May 3rd, 2021", "mardi 24 août 1999", "3. Mai 2021", "21 de junio de 2048", "二〇二一年十一月二十三日")
DASH = "-"
END = "<eos>"
# Places of the month's digits in YYYY-MM-DD.
MONTH = (5, 6)
# Strings to reverse: how many to learn from, to validate with and to test, and passes over them.
STRINGS = 6000
VALID_STRINGS = 200
TEST_STRINGS = 800
REVERSAL_EPOCHS = 4
# Letters of the longest, and the first and last length of each group of the picture.
LONGEST = 16
LENGTHS = ((1, 4), (5, 8), (9, 12), (13, 16))


class AlignmentStatistics(NamedTuple):
    """Where the digits of held-out dates have their largest weights, as shares, and how widely the weights spread."""

    at_origin: float  # of the digits: on the character that the digit comes from
    beside: float  # of the other digits: on the character next to it
    month: float  # of the other digits: those of the month
    digit: float  # characters attended to by a digit
    dash: float  # and by a dash


@needs_torch
def compute(visit: Visit) -> Findings:
    from regard.seq2seq import date_model

    translator = date_model.learn_dates(visit.seed).translator
    held_out = date_model.date_pairs(visit.seed)[2]
    translations = translator.translate(held_out.source)
    right = np.mean([one.text == true for one, true in zip(translations, held_out.target, strict=True)])
    attended = attention_statistics(translator, held_out)
    drawn = translator.translate([*EXAMPLES[:3], EXAMPLES[4 if visit.lang == "zh" else 3]])
    strings, reversed_right = reversals(visit.seed)
    return findings(
        TEXTS,
        {
            "architecture": draw_architecture(visit),
            "seq2seq": _alignments(visit, drawn),
            "lengths": _lengths(visit, reversed_right),
        },
        n=len(held_out),
        exact=100 * float(right),
        at_origin=100 * attended.at_origin,
        beside=100 * attended.beside,
        month=100 * attended.month,
        elsewhere=TEXTS["elsewhere"],
        digit=attended.digit,
        dash=attended.dash,
        strings=strings,
        short=LENGTHS[0][1],
        long=LENGTHS[-1],
        soft=reversed_right["soft"][-1],
        none=reversed_right["none"][-1],
        soft_short=reversed_right["soft"][0],
        none_short=reversed_right["none"][0],
    )


def attention_statistics(translator: Translator, pairs: Pairs) -> AlignmentStatistics:
    """Places of the largest weights beside the gold alignment, and exponentials of mean entropies."""
    from regard.seq2seq import token_alignment
    from regard.seq2seq.alignment import entropy, links

    assert pairs.alignment is not None
    at_origin, beside, month = [], [], []
    entropies: dict[bool, list[float]] = {True: [], False: []}
    aligned = translator.align(pairs.source, pairs.target)
    for one, source, target, places in zip(aligned, pairs.source, pairs.target, pairs.alignment, strict=True):
        gold = token_alignment(translator.source, translator.target, source, target, places)
        for step, (place, true) in enumerate(zip(links(one.weights), gold, strict=False)):
            if true:
                at_origin.append(place in true)
                if place not in true:
                    beside.append(min(abs(place - origin) for origin in true) == 1)
                    month.append(step in MONTH)
        for token, nats in zip(one.tokens, entropy(one.weights), strict=True):
            if token != END:
                entropies[token == DASH].append(float(nats))
    digits, dashes = (float(np.exp(np.mean(entropies[dash]))) for dash in (False, True))
    return AlignmentStatistics(_share(at_origin), _share(beside), _share(month), digits, dashes)


def _share(found: list[bool]) -> float:
    return sum(found) / max(len(found), 1)


def reversals(seed: int) -> tuple[int, dict[str, list[float]]]:
    """Test strings, and the percentage reversed without a mistake in each of ``LENGTHS``, "soft" and "none"."""
    from regard.nn.loo_training import torch_threads
    from regard.seq2seq import Architecture, Lesson, Training, learn

    pairs = reversal(STRINGS + VALID_STRINGS + TEST_STRINGS, seed, lengths=(1, LONGEST))
    rest, test = pairs.split(TEST_STRINGS / len(pairs), seed)
    train, valid = rest.split(VALID_STRINGS / len(rest), seed + 1)
    length = np.array([len(text) for text in test.source])
    lesson = Lesson(unit="characters", label_smoothing=0.0)
    training = Training(epochs=REVERSAL_EPOCHS, learning_rate=0.01, patience=REVERSAL_EPOCHS, seed=seed)
    found: dict[str, list[float]] = {}
    for attention in ("soft", "none"):
        architecture = Architecture(embed_size=32, hidden_size=64, attention=attention)
        # Matrices this small gain little from a second thread.
        with torch_threads(1):
            learned = learn(train, valid, architecture=architecture, lesson=lesson, training=training)
        if learned.outcome.ended == "interrupted":
            raise KeyboardInterrupt
        written = [one.text for one in learned.translator.translate(test.source)]
        right = np.array(written) == np.array(test.target)
        found[attention] = [100 * float(right[(length >= low) & (length <= high)].mean()) for low, high in LENGTHS]
    return len(test), found


def draw_architecture(visit: Visit) -> Figure:
    """Encoder, attention and one step of the decoder."""
    figure = style.picture(6.6, 5.0)
    ax = figure.subplots()
    ax.set(xlim=(-0.3, 10.9), ylim=(-1.5, 7.3))
    ax.axis("off")

    def words(name: str) -> str:
        return visit.label(TEXTS[name])

    for left, right, top, name in ((-0.2, 4.9, 2.5, "encoder"), (5.2, 10.7, 6.35, "decoder")):
        frame: dict[str, Any] = {"facecolor": "none", "edgecolor": style.MUTED, "linestyle": (0, (4, 3))}
        ax.add_patch(Rectangle((left, -0.75), right - left, top + 0.75, **frame))
        middle = (left + right) / 2
        ax.text(middle, -0.9, words(name), ha="center", va="top", size=10.5, weight="bold", color=style.INK)
    for place in range(4):
        x = 1.25 * place
        draw_box(ax, x, 0.2, 0.95, 0.75, f"x{'₁₂₃₄'[place]}", style.MUTED)
        _flow(ax, (x + 0.475, 0.58), (x + 0.475, 1.5), style.MUTED)
        draw_box(ax, x, 1.9, 0.95, 0.75, f"k{'₁₂₃₄'[place]}, v{'₁₂₃₄'[place]}", style.BLUE)
        _flow(ax, (x + 0.475, 2.28), (x + 0.475, 4.4), style.BLUE)
        if place:
            _flow(ax, (x - 0.3, 1.9), (x, 1.9), style.MUTED, both=True)
    draw_box(ax, 0.0, 5.0, 4.7, 1.15, words("attention"), style.ORANGE)
    ax.text(2.35, 3.35, words("keys_values"), ha="center", va="center", size=10, color=style.BLUE, bbox=_PATCH)
    ax.text(2.35, -0.3, words("source"), ha="center", va="top", size=10, color=style.INK)
    draw_box(ax, 5.5, 1.9, 1.3, 0.75, "hₜ₋₁", style.VERMILION)
    _flow(ax, (6.0, 2.28), (4.7, 4.7), style.VERMILION)
    ax.text(5.6, 3.5, words("query"), ha="left", va="center", size=10, color=style.VERMILION)
    draw_box(ax, 7.7, 5.0, 2.4, 1.15, words("concatenated"), style.GREEN)
    _flow(ax, (4.7, 5.25), (7.7, 5.25), style.GREEN)
    ax.text(6.2, 5.4, words("context"), ha="center", va="bottom", size=10, color=style.GREEN)
    ax.text(8.9, 6.65, words("last"), ha="center", va="bottom", size=10, color=style.INK)
    _flow(ax, (8.9, 6.6), (8.9, 5.6), style.MUTED)
    _flow(ax, (8.9, 4.42), (8.9, 2.28), style.GREEN)
    ax.text(8.9, 3.35, "GRU", ha="center", va="center", size=10, color=style.INK, bbox=_PATCH)
    _flow(ax, (6.8, 1.9), (8.25, 1.9), style.VERMILION)
    draw_box(ax, 8.25, 1.9, 1.3, 0.75, "hₜ", style.VERMILION)
    _flow(ax, (8.9, 1.52), (8.9, 0.58), style.MUTED)
    draw_box(ax, 7.4, 0.2, 3.0, 0.75, words("next"), style.MUTED)
    return figure


# Behind words that stand on an arrow.
_PATCH = {"facecolor": style.PAPER, "edgecolor": "none", "pad": 2.0}


def _flow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, both: bool = False) -> None:
    how = {"arrowstyle": "<|-|>" if both else "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=how)


def _alignments(visit: Visit, translations: list[Translation]) -> Figure:
    figure = style.picture(10.4, 8.2)
    labels = {"source": visit.label(TEXTS["read"]), "target": visit.label(TEXTS["written"])}
    axes: Any = figure.subplots(2, 2)
    for ax, one in zip(axes.flat, translations, strict=True):
        display = AlignmentDisplay(one.weights, one.tokens, one.source_tokens, labels=labels).plot(ax, colorbar=False)
        ax.set_title(plain(f"→ {one.text}"))
    style.colorbar(display.image_, axes, visit.label(TEXTS["weight"]), shrink=0.6)
    return figure


def _lengths(visit: Visit, right: dict[str, list[float]]) -> Figure:
    figure = style.picture(6.4, 3.6)
    ax = style.dress(figure.subplots())
    places: NDArray[Any] = np.arange(len(LENGTHS))
    for attention, line, colour in (("soft", "o-", style.BLUE), ("none", "s--", style.VERMILION)):
        label = visit.label(TEXTS[attention])
        ax.plot(places, right[attention], line, color=colour, linewidth=2.4, markersize=7, label=label)
    ax.set(
        xlabel=visit.label(TEXTS["length"]),
        ylabel=visit.label(TEXTS["right"]),
        ylim=(-4, 104),
        xticks=places,
        xticklabels=[f"{low}–{high}" for low, high in LENGTHS],
    )
    style.legend(ax, loc="lower left")
    return figure


STATION = Station("seq2seq", TEXTS, compute)

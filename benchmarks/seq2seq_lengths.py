"""What attention buys: quality by source length, with attention and without, as a table and a plot.

Exact matches and right tokens for tasks with one right answer; BLEU for pairs of a file.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from machine import table
from regard.plot.style import BLUE, VERMILION, dress, legend, picture
from seq2seq import Data, Pupil, ours, say

BUCKETS = 6


def lengths(data: Data, args: argparse.Namespace, device: torch.device) -> tuple[list[dict[str, Any]], str]:
    """Train both, measure by length of the source, and draw; what was found, and the same as a table."""
    pupils = {name: ours(data, args.size, args.batch_size, device, name) for name in ("soft", "none")}
    said = {}
    for name, pupil in pupils.items():
        for epoch in range(args.epochs):
            pupil.epoch(epoch, device)
        said[name] = _spoken(pupil, data, args.batch_size, device)
    found = []
    size = data.held[0].lengths
    for low, high in _buckets(size):
        rows = np.flatnonzero((size >= low) & (size <= high)).tolist()
        row: dict[str, Any] = {"from": low, "to": high, "sentences": len(rows)}
        for name in pupils:
            row |= {f"{name}_{key}": value for key, value in _quality(data, said[name], rows, bool(args.data)).items()}
        found.append(row)
    _draw(found, args.plot, bool(args.data))
    keys = [key for key in found[0] if "_" in key]
    head = [
        "source tokens",
        "sentences",
        *[key.replace("soft_", "attention, ").replace("none_", "none, ") for key in keys],
    ]
    cells = [
        [f"{row['from']}–{row['to']}", f"{row['sentences']:,}", *[f"{row[key]:.1f}" for key in keys]] for row in found
    ]
    return found, table(head, cells)


def _spoken(pupil: Pupil, data: Data, batch_size: int, device: torch.device) -> list[list[int]]:
    return say(pupil.model, data, list(range(len(data.held[0]))), batch_size, device)  # type: ignore[arg-type]


def _buckets(size: Any) -> list[tuple[int, int]]:
    """Ranges of lengths with about as many sentences each."""
    edges = np.unique(np.quantile(size, np.linspace(0.0, 1.0, BUCKETS + 1)).astype(int))
    lows = [int(edges[0]), *[int(edge) + 1 for edge in edges[1:-1]]]
    return list(zip(lows, [int(edge) for edge in edges[1:]], strict=True))


def _quality(data: Data, said: list[list[int]], rows: list[int], words: bool) -> dict[str, float]:
    """In percent."""
    if words:
        import sacrebleu

        texts = [data.target.decode(said[row]) for row in rows]
        wanted = [data.texts.target[row].lower() for row in rows]
        return {"BLEU": sacrebleu.corpus_bleu(texts, [wanted]).score}
    right = sum(said[row] == data.said[row] for row in rows)
    tokens = sum(
        sum(a == b for a, b in zip(said[row], data.said[row], strict=False)) / max(len(data.said[row]), 1)
        for row in rows
    )
    return {"exact": 100.0 * right / len(rows), "tokens": 100.0 * tokens / len(rows)}


def _draw(found: list[dict[str, Any]], path: str, words: bool) -> None:
    figure = picture(6.4, 3.8)
    ax = dress(figure.add_subplot())
    key = "BLEU" if words else "tokens"
    middle = [(row["from"] + row["to"]) / 2 for row in found]
    for name, label, colour, style in (
        ("soft", "with attention", BLUE, "o-"),
        ("none", "without: one state for the whole sentence", VERMILION, "s--"),
    ):
        ax.plot(middle, [row[f"{name}_{key}"] for row in found], style, color=colour, label=label)
    ax.set(xlabel="source tokens", ylabel="BLEU" if words else "right tokens, %", ylim=(0.0, None if words else 102.0))
    legend(ax, loc="best")
    figure.savefig(path, dpi=150)

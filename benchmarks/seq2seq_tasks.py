"""Sequences with known answers: dates, number words and reversal, how many come out exactly right and how they align.

    python benchmarks/seq2seq_tasks.py [--only dates,numbers,reversal] [--seconds 150] [--threads 1] [--save]

Each is trained on a CPU for at most that long. Alignment error is that of the source token attended most, for given
targets, against the generator's own alignment.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from machine import describe, facts, save, table
from regard.data import DATE_FORMATS, Pairs, dates, number_words, reversal
from regard.seq2seq.alignment import error_rate, links
from regard.seq2seq.measures import quality
from regard.seq2seq.model import Architecture
from regard.seq2seq.pair_training import Lesson, learn
from regard.seq2seq.training_settings import Training
from regard.seq2seq.translator import Translator
from regard.seq2seq.vocabulary import token_alignment

# Left out of training.
UNSEEN_FORMAT, UNSEEN_YEARS = "es-el", range(2051, 2100)
LONGEST, LONGER = 25, (26, 27, 28, 29, 30, 35, 40)


def alignment_error(translator: Translator, pairs: Pairs) -> float:
    assert pairs.alignment is not None
    found: list[int] = []
    gold: list[tuple[int, ...]] = []
    said = translator.align(pairs.source, pairs.target)
    for one, source, target, row in zip(said, pairs.source, pairs.target, pairs.alignment, strict=True):
        wanted = token_alignment(translator.source, translator.target, source, target, row)
        gold += wanted
        found += links(one.weights[: len(wanted)]).tolist()
    return error_rate(found, gold)


def judged(translator: Translator, name: str, pairs: Pairs) -> dict[str, Any]:
    said = [one.text for one in translator.translate(pairs.source, batch_size=128)]
    return {
        "name": name,
        "pairs": len(pairs),
        "exact": quality(said, pairs.target).exact,
        "alignment_error": alignment_error(translator, pairs),
    }


def taught(train: Pairs, valid: Pairs, seconds: float, architecture: Architecture, lesson: Lesson) -> dict[str, Any]:
    began = time.perf_counter()
    training = Training(epochs=40, learning_rate=3e-3, seconds=seconds, patience=6)
    learned = learn(train, valid, architecture=architecture, lesson=lesson, training=training)
    spent = time.perf_counter() - began
    return {"translator": learned.translator, "seconds": spent, "epochs": len(learned.outcome.losses)}


def date_task(seconds: float) -> dict[str, Any]:
    known = [name for name in DATE_FORMATS if name != UNSEEN_FORMAT]
    years = [year for year in range(1900, 2100) if year not in UNSEEN_YEARS]
    train, rest = dates(30_000, formats=known, years=years).split(0.1, by="target")
    valid, held_out = rest.take(range(1000)), rest.take(range(1000, len(rest)))
    found = taught(train, valid, seconds, Architecture(32, 96), Lesson("characters", label_smoothing=0.0))
    translator = found.pop("translator")
    rows = [
        judged(translator, "dates held out, known formats", held_out),
        judged(translator, "unseen years, 2051 to 2099", dates(1000, 1, formats=known, years=UNSEEN_YEARS)),
        judged(translator, f"an unseen format, {UNSEEN_FORMAT}", dates(1000, 1, formats=[UNSEEN_FORMAT], years=years)),
    ]
    return {**found, "pairs": len(train), "rows": rows}


def number_task(seconds: float) -> dict[str, Any]:
    train, rest = number_words(20_000).split(0.1)
    valid, held_out = rest.take(range(500)), rest.take(range(500, len(rest)))
    lesson = Lesson("words", "characters", label_smoothing=0.0)
    found = taught(train, valid, seconds, Architecture(64, 96, order="luong"), lesson)
    rows = [judged(found.pop("translator"), "number words held out", held_out)]
    return {**found, "pairs": len(train), "rows": rows}


def reversal_task(seconds: float) -> dict[str, Any]:
    train, valid = reversal(20_000, lengths=(1, LONGEST)).split(0.05)
    lesson = Lesson("characters", label_smoothing=0.0)
    found = taught(train, valid, seconds, Architecture(64, 128, order="luong", coverage=True), lesson)
    translator = found.pop("translator")
    rows = [judged(translator, f"reversal held out, 1 to {LONGEST} letters", valid)]
    rows.append(judged(translator, "26 to 30 letters", reversal(1000, 7, lengths=(26, 30))))
    rows += [judged(translator, f"{n} letters", reversal(500, 8, lengths=(n, n))) for n in LONGER]
    return {**found, "pairs": len(train), "rows": rows}


TASKS = {"dates": date_task, "numbers": number_task, "reversal": reversal_task}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TASKS))
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    record: dict[str, Any] = {"machine": facts(), "threads": options.threads}
    lines = []
    for name in options.only.split(","):
        record[name] = TASKS[name](options.seconds)
        found = record[name]
        for row in found["rows"]:
            cells = [f"{row['pairs']:,}", f"{row['exact']:.2%}", f"{row['alignment_error']:.2%}"]
            lines.append(
                [row["name"], *cells, f"{found['seconds']:.0f} s", str(found["epochs"]), f"{found['pairs']:,}"]
            )
        print(*lines[-len(found["rows"]) :], sep="\n", flush=True)
    head = ["", "texts", "exactly right", "alignment error", "training", "epochs", "pairs"]
    text = f"{describe(record['machine'])}\n{options.threads} threads\n\n{table(head, lines)}"
    print(text)
    if options.save:
        save("seq2seq_tasks", record, text)


if __name__ == "__main__":
    main()

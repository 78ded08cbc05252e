"""Where others are ahead of regard, and what was asked and not reached: lines for the performance page.

Every comparison in ``benchmarks/results`` is taken, so that none is left out by choice. Smaller is better in all of
them: rates are inverted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from read_results import OURS, RESULTS, data_of, errors, log_losses, mean, ratio, seconds, speed_cases


class Case(NamedTuple):
    """One figure of regard beside those of others."""

    shape: str
    ours: float
    others: dict[str, float]

    @property
    def best(self) -> str:
        return min(self.others, key=lambda who: self.others[who])

    @property
    def ratio(self) -> float:
        return self.ours / self.others[self.best]


def line(what: str, cases: Iterable[Case]) -> Iterator[str]:
    """Who is best where regard is not, in how many cases, and by how much at most; nothing if regard is best in all.

    >>> list(line("seconds", [Case("n = 10", 3.0, {"a": 1.0, "b": 2.0}), Case("n = 20", 1.0, {"a": 4.0})]))
    ['seconds: a in 1 of 2 cases, by at most 3.0× (n = 10)']
    """
    cases = [case for case in cases if case.others]
    behind = [case for case in cases if case.ratio > 1]
    if behind:
        most = max(behind, key=lambda case: case.ratio)
        who = list(dict.fromkeys(case.best for case in behind))
        by = f"{most.ratio:.2f}×" if most.ratio < 2 else f"{most.ratio:.1f}×" if most.ratio < 10 else ratio(most.ratio)
        if len(cases) == 1:
            yield f"{what}, {most.shape}: {most.best}, by {by}"
        else:
            where = most.shape if len(who) == 1 else f"{most.best}, {most.shape}"
            yield f"{what}: {'; '.join(who)} in {len(behind)} of {len(cases)} cases, by at most {by} ({where})"


def accuracy() -> Iterator[str]:
    yield from each_set("error", errors())
    sets = data_of("accuracy")["sets"]
    times = {name: {who: mean(found) for who, found in one["seconds"].items()} for name, one in sets.items()}
    yield from line("seconds of a fit", of_sets(times))


def classification() -> Iterator[str]:
    yield from each_set("log-loss", log_losses())
    sets = data_of("classification")["sets"]
    for what, smaller in (("errors of the most probable class", lambda one: 1 - one["accuracy"]),
                          ("calibration error", lambda one: one["calibration_error"]),
                          ("seconds of a fit", lambda one: one["seconds"])):  # fmt: skip
        found = {
            name: {who: smaller(one) for who, one in found.items() if "seconds" in one} for name, found in sets.items()
        }
        yield from line(what, of_sets(found))


def each_set(what: str, table: dict[str, dict[str, float]]) -> Iterator[str]:
    """A line for every set and everyone who is ahead there."""
    for name, found in table.items():
        for who, value in sorted(found.items(), key=lambda item: item[1]):
            if value < found[OURS]:
                yield f"{name}: {who} has a smaller {what}, {value:.4g} beside {found[OURS]:.4g}"


def of_sets(table: dict[str, dict[str, float]]) -> Iterator[Case]:
    for name, found in table.items():
        yield Case(name, found[OURS], {who: value for who, value in found.items() if who != OURS})


def intervals() -> Iterator[str]:
    cases = []
    for name, one in data_of("intervals")["sets"].items():
        theirs = {who: mean([split[who] for split in one["boosting"]]) for who in (one["boosting"] or [{}])[0]}
        ours = mean([split["pinball"] for split in one["ours"][: len(one["boosting"])]])
        cases.append(Case(name, ours, {f"boosting, {who}": value for who, value in theirs.items()}))
    yield from line("pinball loss of quantiles", cases)


def fit(name: str = "fit") -> Iterator[str]:
    record = data_of(name)["cases"]
    ours = "regard-cuda" if name.endswith("cuda") else OURS
    for d, same in groupby(sorted(record, key=lambda one: int(one["d"])), key=lambda one: one["d"]):
        by_rows: dict[int, dict[str, dict[str, Any]]] = {}
        for one in same:
            by_rows.setdefault(one["n"], {})[one["contestant"]] = one
        for part, what in (("error", "error"), ("fit_seconds", "seconds of a fit"),
                           ("predict_seconds", "seconds of predicting"), ("peak_mb", "memory")):  # fmt: skip
            cases = [
                Case(
                    f"{n:,} rows",
                    found[ours][part],
                    {who: one[part] for who, one in found.items() if not who.startswith(OURS) and part in one},
                )
                for n, found in by_rows.items()
                if part in found.get(ours, {})
            ]
            yield from line(f"d = {d}, {what}", cases)


def speed() -> Iterator[str]:
    for case, ours, peer in speed_cases():
        if peer["time"] < ours:
            shape = f"{case['n']:,} queries over {case['n']:,} keys, d = {case['d']}"
            yield f"{shape}: {peer['name']} is faster, {seconds(peer['time'])} beside {seconds(ours)}"
    for case in data_of("speed")["cases"]:
        ours = next(one["time"] for one in case["contestants"] if one["name"] == OURS)
        for one in case["contestants"]:
            if not one["ranked"] and not one["name"].startswith(OURS) and one["time"] < ours:
                yield (
                    f"{case['n']:,} rows, d = {case['d']}: {one['name']}, which leaves keys out and errs by "
                    f"{one['error_over_range']:.0e} of the range, is faster: {seconds(one['time'])} beside "
                    f"{seconds(ours)}"
                )


def bandwidth() -> Iterator[str]:
    for one in data_of("bandwidth")["cases"]:
        yield from line("seconds", [Case(one["case"], 1 / one["ratio"], {one["peer"]: 1.0})])


def layers(name: str = "layers") -> Iterator[str]:
    rows = data_of(name)["rows"]
    for layer in dict.fromkeys(one["layer"] for one in rows):
        cases = [
            Case(
                f"{one['keys']:,} keys, {one['mode']}",
                one["ms"][OURS],
                {who: time for who, time in one["ms"].items() if who != OURS},
            )
            for one in rows
            if one["layer"] == layer
        ]
        yield from line(layer, cases)


def gpu() -> Iterator[str]:
    found = data_of("gpu")
    rates = [
        Case(
            f"d = {one['d']}, w = {one['w']:g}",
            1 / one["rate"],
            {peer["name"]: 1 / peer["rate"] for peer in one["peers"] if "rate" in peer},
        )
        for one in found["gaussian"]
    ]
    yield from line("Gaussian", rates)
    for part, what in (("", "forward"), ("both_", "with backward")):
        yield from line(
            f"dot products, {what}",
            [
                Case(
                    f"{one['dtype']}, {one['n']:,} rows, d = {one['d']}",
                    one[f"{part}ms"],
                    {"SDPA": one[f"sdpa_{part}ms"]},
                )
                for one in found["dot"]
            ],
        )
        yield from line(
            f"layers with lengths, {what}",
            [
                Case(
                    f"{one['name']}, {one['B']} × {one['n']}, d = {one['d']}",
                    one[f"ours_{part}ms"],
                    {"torch": one[f"torch_{part}ms"], "torch.compile": one[f"compile_{part}ms"]},
                )
                for one in found["layers"]
            ],
        )


def seq2seq(name: str = "seq2seq") -> Iterator[str]:
    """The textbook's decoder has attention as ours has; one without attention answers another question."""
    found = data_of(name)
    for part, key, what in (
        ("training", "held_out_loss", "held-out loss"),
        ("training", "sentences_per_second", "seconds of training"),
        ("inference", "sentences_per_second", "seconds of decoding"),
    ):
        figures = {
            who: one[key] if key == "held_out_loss" else 1 / one[key]
            for who, one in found[part].items()
            if who == "ours" or who.startswith("textbook")
        }
        yield from line(what, [Case(found["task"], figures.pop("ours"), figures)])


# Results with others in them, by file.
COMPARED: dict[str, Callable[[], Iterator[str]]] = {
    "accuracy": accuracy,
    "classification": classification,
    "intervals": intervals,
    "fit": fit,
    "fit_cuda": lambda: fit("fit_cuda"),
    "speed": speed,
    "bandwidth": bandwidth,
    "layers": layers,
    "layers_cuda": lambda: layers("layers_cuda"),
    "gpu": gpu,
    "seq2seq": seq2seq,
    "seq2seq_cuda": lambda: seq2seq("seq2seq_cuda"),
}


def others_ahead(name: str) -> list[str]:
    """In what others are ahead of regard in one result."""
    return list(COMPARED[name]()) if name in COMPARED else []


# Columns of tables of results: what was asked, and what was measured.
ASKED = ("asked", "asked for", "floor", "less than")
MEASURED = ("measured", "medians", "T pairs/s", "peer's time over ours", "MB added", "regard")


def missed(name: str) -> list[str]:
    """What the tables of one result asked and did not get."""
    lines, head = [], []
    for row in (RESULTS / f"{name}.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")] if row.startswith("|") else []
        if not cells:
            head = []
        elif not head:
            head = cells
        else:
            lines += short_of(dict(zip(head, cells, strict=True)))
    return lines


def short_of(row: dict[str, str]) -> Iterator[str]:
    """One line if a row of a table says, or its figures say, that something was not reached."""
    asked, measured = ([key for key in keys if key in row] for keys in (ASKED, MEASURED))
    if asked and measured:
        of = ", ".join(cell for key, cell in list(row.items())[: min(map(list(row).index, (asked[0], measured[0])))])
        verdict = next((cell for key, cell in row.items() if key == "met" or key.startswith("verdict")), None)
        missed = exceeds(row[measured[0]], row[asked[0]]) if verdict is None else verdict.startswith(("SHORT", "NO"))
        if missed:
            yield f"{of}: {row[measured[0]]}, asked {row[asked[0]]}"
        for key, cell in row.items():
            if re.fullmatch(r"[\d.]+ > [\d.]+", cell):
                of_row = ", ".join(f"{name} {row[name]}" for name in list(row)[:2])
                yield f"{of_row}, {key}: {cell.replace(' > ', ', asked ≤ ')}"


def exceeds(measured: str, asked: str) -> bool:
    """
    >>> exceeds("19.0 ms", "≤ 15 ms"), exceeds("0.65", "≤ 0.66"), exceeds("1.2e-07", "torch 1.8e-07")
    (True, False, False)
    """
    limit = re.match(r"([≤≥]) ([\d.]+)", asked)
    figure = re.match(r"[\d.]+", measured)
    if limit is None or figure is None:
        return False
    over = float(figure[0]) - float(limit[2])
    return over > 0 if limit[1] == "≤" else over < 0

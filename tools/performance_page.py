"""Write docs/performance.md, its charts and README's tables from the results: ``python tools/performance_page.py``.

Every section has the machine, the versions and the date of its run, the command, and the shapes, as the results state
them. What others do better is collected from the same files, so that no figure stands on the page by choice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
# Rows of a table that are shown here; the rest is on the page of the result.
MAX_ROWS = 24
OURS = "regard"


class Result(NamedTuple):
    """One file of results, and what it is about."""

    name: str
    title: str
    question: str
    command: str


REPORTS = (
    Result("accuracy", "Accuracy", "How large is the error on rows held out?", "python benchmarks/accuracy.py"),
    Result(
        "classification",
        "Class probabilities",
        "How good are probabilities of classes on rows held out?",
        "python benchmarks/classification.py",
    ),
    Result("intervals", "Intervals", "Do intervals contain what they promise?", "python benchmarks/intervals.py"),
    Result(
        "fit", "Fitting", "How long does it take to fit n rows of d features?", "python benchmarks/fit.py --limit 120"
    ),
    Result("speed", "Pooling by rows", "How long do n queries over n keys take?", "python benchmarks/speed.py"),
    Result(
        "pooling", "Pooling pair by pair", "How many pairs a second, and how exact?", "python benchmarks/pooling.py"
    ),
    Result("memory", "Memory", "How much memory does pooling add?", "python benchmarks/memory.py"),
    Result("bandwidth", "Learning a bandwidth", "How long does leave-one-out take?", "python benchmarks/bandwidth.py"),
    Result("mapped", "Mapped models", "How soon does a model in a file answer?", "python benchmarks/mapped.py"),
    Result("cluster", "Clusters", "What does a cluster of processes gain?", "python benchmarks/cluster.py"),
    Result(
        "layers",
        "Layers on a CPU",
        "How long does a layer take beside the same in torch?",
        "python benchmarks/layers.py",
    ),
    Result("gpu", "GPU", "How fast is fused pooling on a GPU?", "PYTHONPATH=src python benchmarks/gpu.py"),
    Result(
        "housing_cuda",
        "Fitting on a GPU",
        "How long do fits of California housing take on a GPU?",
        "PYTHONPATH=src python benchmarks/housing.py --device cuda",
    ),
    Result(
        "multi30k",
        "Translation",
        "How well does a small model translate Multi30k?",
        "PYTHONPATH=src python benchmarks/multi30k.py --data FOLDER --device cuda --out OUT",
    ),
    Result(
        "seq2seq",
        "Training of sequence models",
        "What does attention cost in training and decoding?",
        "python benchmarks/seq2seq.py --task dates --save",
    ),
    Result(
        "seq2seq_cuda",
        "The same on a GPU",
        "What does attention cost in training and decoding?",
        "python benchmarks/seq2seq.py --device cuda --save",
    ),
    Result(
        "seq2seq_lengths",
        "Attention and length",
        "What does attention gain for long sources?",
        "python benchmarks/seq2seq.py --lengths",
    ),
    Result(
        "seq2seq_tasks",
        "Small sequence tasks",
        "How many answers are exactly right?",
        "python benchmarks/seq2seq_tasks.py",
    ),
    Result("play", "The playground", "How smooth is the page of `regard play`?", "python benchmarks/play.py"),
    Result("import_time", "Import", "How long does `import regard` take?", "python benchmarks/import_time.py"),
)

HEAD = """# Performance

Every figure below was measured by a script in [benchmarks/](../benchmarks/README.md), which explains what is computed,
and how noise is kept out. This page is generated from [the results](../benchmarks/results/) by
`python tools/performance_page.py`; a test fails if it is out of date. Seconds depend on the machine and its load, which
each section states: trust ratios of one run before seconds of different ones.
"""


def text_of(name: str) -> str:
    return (RESULTS / f"{name}.md").read_text(encoding="utf-8")


def data_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def circumstances(text: str) -> str:
    """The lines before the first table: machine, date, versions, what was computed."""
    head = text.split("\n|", 1)[0]
    return "\n\n".join(line for line in head.splitlines() if line.strip() and not line.startswith("#"))


def first_table(text: str) -> tuple[str, int]:
    """The first table, at most ``MAX_ROWS`` of its rows, and how many rows were left out."""
    lines = [line for line in text[text.index("|") :].split("\n\n", 1)[0].splitlines() if line.startswith("|")]
    return "\n".join(lines[: 2 + MAX_ROWS]), max(len(lines) - 2 - MAX_ROWS, 0)


def speed_table() -> str:
    """Seconds of regard and of the fastest peer that is exact within tol, for every shape."""
    lines = [
        "| d | rows and queries | regard | fastest peer | its time | its time over regard's |",
        "|---|---|---|---|---|---|",
    ]
    for case, ours, peer in speed_cases():
        lines.append(
            f"| {case['d']} | {case['n']:,} | {seconds(ours)} ({case['engine']}) | {peer['name']} | "
            f"{'≈ ' if peer['extended'] else ''}{seconds(peer['time'])} | {ratio(peer['time'] / ours)} |"
        )
    return "\n".join(lines)


def speed_cases() -> Iterator[tuple[dict[str, Any], float, dict[str, Any]]]:
    for case in data_of("speed")["cases"]:
        ours = next(one["time"] for one in case["contestants"] if one["name"] == OURS)
        peers = [one for one in case["contestants"] if one["ranked"]]
        if peers:
            yield case, ours, min(peers, key=lambda one: float(one["time"]))


def seconds(time: float) -> str:
    """
    >>> seconds(5.6e-05), seconds(0.26), seconds(39.6), seconds(2820), seconds(1e6)
    ('56 µs', '0.26 s', '40 s', '47 min', '11.6 days')
    """
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if time >= (2 * unit if unit > 1.0 else 0.1):
            return f"{time / unit:.3g} {name}" if unit == 86400.0 else f"{time / unit:.2g} {name}"
    return f"{time * 1e3:.2g} ms" if time >= 1e-3 else f"{time * 1e6:.2g} µs"


def ratio(number: float) -> str:
    """
    >>> ratio(0.92), ratio(3.44), ratio(4699.2)
    ('0.92×', '3.4×', '4,700×')
    """
    return f"{float(f'{number:.2g}'):,.0f}×" if number >= 10 else f"{number:.2g}×"


def mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


def errors() -> dict[str, dict[str, float]]:
    """Mean error of every contestant on every set of accuracy.json."""
    return {
        name: {who: mean(found) for who, found in one["errors"].items()}
        for name, one in data_of("accuracy")["sets"].items()
    }


def log_losses() -> dict[str, dict[str, float]]:
    """Log-loss of every contestant on every set of classification.json."""
    return {
        name: {who: found["log_loss"] for who, found in one.items() if "log_loss" in found}
        for name, one in data_of("classification")["sets"].items()
    }


def behind() -> list[str]:
    """One line for each figure in which another one is ahead, or that falls short of what was asked."""
    lines = []
    for table, what in ((errors(), "error"), (log_losses(), "log-loss")):
        for name, found in table.items():
            for who, value in sorted(found.items(), key=lambda item: item[1]):
                if value < found[OURS]:
                    lines.append(f"{name}: {who} has a smaller {what}, {value:.4g} beside {found[OURS]:.4g}.")
    sets = data_of("accuracy")["sets"]
    times = {name: {who: mean(found) for who, found in one["seconds"].items()} for name, one in sets.items()}
    slower = [found[OURS] / found["boosting"] for found in times.values() if "boosting" in found]
    lines.append(
        f"Fitting the sets of the table of errors takes {min(slower):.0f} to {max(slower):.0f} times as long as "
        "boosting."
    )
    for case, ours, peer in speed_cases():
        if peer["time"] < ours:
            shape = f"{case['n']:,} queries over {case['n']:,} keys, d = {case['d']}"
            lines.append(f"{shape}: {peer['name']} is faster, {seconds(peer['time'])} beside {seconds(ours)}.")
    for case in data_of("speed")["cases"]:
        ours = next(one["time"] for one in case["contestants"] if one["name"] == OURS)
        for one in case["contestants"]:
            if not one["ranked"] and not one["name"].startswith(OURS) and one["time"] < ours:
                shape = f"{case['n']:,} rows, d = {case['d']}"
                lines.append(
                    f"{shape}: {one['name']}, which leaves keys out and errs by {one['error_over_range']:.0e} of the "
                    f"range, is faster: {seconds(one['time'])} beside {seconds(ours)}."
                )
    rows = data_of("layers")["rows"]
    for layer in dict.fromkeys(row["layer"] for row in rows):
        found = [row for row in rows if row["layer"] == layer and row["ratio"] > 1.0]
        if found:
            worst = max(found, key=lambda row: float(row["ratio"]))
            lines.append(
                f"Layers on a CPU, {layer}: another way is faster in {len(found)} of "
                f"{sum(row['layer'] == layer for row in rows)} cases, by {ratio(worst['ratio'])} at most "
                f"({worst['best']}, {worst['mode']} at {worst['keys']} keys)."
            )
    for path in sorted(RESULTS.glob("*.md")):
        for row in path.read_text(encoding="utf-8").splitlines():
            if row.startswith("|") and re.search(r"\| (SHORT|NO)\b", row):
                cells = [cell.strip() for cell in row.strip("|").split("|")]
                lines.append(f"{path.stem}: asked and not reached: {', '.join(cell for cell in cells if cell)}.")
    return lines


def digest(data: Mapping[str, Any]) -> str:
    """What a chart was drawn from."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def chart_path(name: str) -> Path:
    return IMAGES / f"performance-{name}.png"


CHARTS: dict[str, tuple[Callable[[], dict[str, dict[str, float]]], str]] = {
    "accuracy": (errors, "mean error over the smallest"),
    "classification": (log_losses, "log-loss over the smallest"),
}


def draw(name: str) -> None:
    """Values over the smallest of each set: one row for each set, one mark for each contestant."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    from regard.plot.style import CYCLE, INK, dress, picture

    table, label = CHARTS[name][0](), CHARTS[name][1]
    who = list(dict.fromkeys(one for found in table.values() for one in found))
    figure = picture(7.2, 1.4 + 0.36 * len(table))
    ax = dress(figure.subplots())
    for number, one in enumerate(who):
        rows = [(found[one] / min(found.values()), row) for row, found in enumerate(table.values()) if one in found]
        ours = one == OURS
        ax.plot(
            *zip(*rows, strict=True),
            linestyle="",
            marker="o" if ours else "sD^vPX<>"[number % 8],
            markersize=9 if ours else 6,
            color=INK if ours else CYCLE[(number - 1) % len(CYCLE)],
            zorder=3 if ours else 2,
            label=one,
        )
    ax.set(yticks=range(len(table)), yticklabels=list(table), xscale="log", xlabel=f"{label} (log scale; 1 is best)")
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xticks([value for value in (1, 1.5, 2, 3, 5, 10) if value <= ax.get_xlim()[1]])
    ax.invert_yaxis()
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.9 / (0.36 * len(table))), ncols=6, frameon=False)
    figure.savefig(chart_path(name), dpi=110, metadata={"Description": digest(table)}, bbox_inches="tight")


def drawn_from(name: str) -> str:
    """The digest in a chart's file."""
    with Image.open(chart_path(name)) as image:
        return str(image.info.get("Description"))


def section(result: Result) -> str:
    text = text_of(result.name)
    parts = [f"## {result.title}", f"{result.question} `{result.command}`"]
    parts.append("\n\n".join(f"> {line}" for line in circumstances(text).split("\n\n")).replace("\n\n", "\n>\n"))
    if result.name == "speed":
        parts += [speed_table(), "![Seconds against rows, regard and its peers.](../benchmarks/results/speed.png)"]
        left = 1
    else:
        table, left = first_table(text)
        parts.append(table)
    if result.name in CHARTS:
        parts.append(f"![{CHARTS[result.name][1]}, by set.](images/performance-{result.name}.png)")
    if result.name == "seq2seq_lengths":
        parts.append("![Exactly right against source length.](../benchmarks/results/seq2seq_lengths.png)")
    rest = "All of it, with more tables" if left or text.count("\n\n|") > 1 else "The same with its source"
    return "\n\n".join([*parts, f"{rest}: [{result.name}.md](../benchmarks/results/{result.name}.md)."])


def page() -> str:
    reports = [result for result in REPORTS if (RESULTS / f"{result.name}.md").exists()]
    ahead = ["## Where others are ahead", "Collected from all results, and what was asked and not reached."]
    ahead.append("\n".join(f"- {line}" for line in behind()))
    return "\n\n".join([HEAD.strip(), *ahead, *map(section, reports)]) + "\n"


def readme_accuracy(heads: tuple[str, ...]) -> str:
    """Errors and seconds of the contestants of README, by set; the smallest error is bold."""
    sets, table = data_of("accuracy")["sets"], errors()
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for name in README_SETS:
        best = min(table[name][who] for who in README_WHO)
        cells = []
        for who in README_WHO:
            value = f"{table[name][who]:#.3g}"
            known = [one for one in sets[name]["seconds"][who] if one is not None]
            value = f"**{value}**" if table[name][who] == best else value
            cells.append(f"{value} · {float(np.median(known)):.2g} s")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def readme_speed(heads: tuple[str, ...]) -> str:
    """Seconds of regard and of the fastest exact peer, for the shapes of README."""
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|---|"]
    for case, ours, peer in speed_cases():
        if (case["d"], case["n"]) in README_SHAPES:
            shape = f"n = {case['n']:,}, d = {case['d']}"
            about = "≈ " if peer["extended"] else ""
            times = f"{about}{seconds(peer['time'])} ({peer['name']})"
            lines.append(f"| {shape} | {seconds(ours)} | {times} | {ratio(peer['time'] / ours)} |")
    return "\n".join(lines)


README_SETS = ("yacht", "energy", "concrete", "kin8nm", "power-plant", "california")
README_WHO = (OURS, "boosting", "forest", "vectors")
README_SHAPES = ((1, 100), (1, 10_000), (1, 1_000_000), (2, 1_000_000), (3, 1_000_000), (8, 1_000_000))
# Heads of the two tables in each language.
READMES = {
    "README.md": (
        ("regard", "boosting", "random forest", "support vectors"),
        ("rows and features", "regard", "fastest exact peer", "its time over regard's"),
    ),
    "README.zh-CN.md": (
        ("regard", "梯度提升", "随机森林", "支持向量机"),
        ("行数与特征数", "regard", "最快的精确对手", "是 regard 的几倍"),
    ),
}


def readme(name: str) -> str:
    """A README with its tables as the results have them."""
    text = (ROOT / name).read_text(encoding="utf-8")
    accuracy, speed = READMES[name]
    for mark, table in (("accuracy", readme_accuracy(accuracy)), ("speed", readme_speed(speed))):
        text, count = re.subn(
            rf"<!-- {mark} -->\n.*?<!-- end -->", f"<!-- {mark} -->\n\n{table}\n\n<!-- end -->", text, flags=re.S
        )
        if count != 1:
            raise ValueError(f"{name} must have one place for the table of {mark}, got {count}")
    return text


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    for name in READMES:
        (ROOT / name).write_text(readme(name), encoding="utf-8")
    for name in CHARTS:
        draw(name)


if __name__ == "__main__":
    main()

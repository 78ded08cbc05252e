"""Write docs/performance.md, its charts and the tables of other pages from the results:
``python tools/performance_page.py``.

Every section has the machine, the versions and the date of its run, the command, and the shapes, as the results state
them. What others do better is collected from the same files, so that no figure stands on the page by choice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from others_ahead import missed, others_ahead
from read_results import OURS, RESULTS, ROOT, data_of, errors, log_losses, ratio, seconds, speed_cases, text_of

PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
# Rows of a table that are shown here; the rest is on the page of the result.
MAX_ROWS = 24


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
        "How long does a layer take, beside torch?",
        "python benchmarks/layers.py",
    ),
    Result("gpu", "GPU", "How fast is fused pooling on a GPU?", "PYTHONPATH=src python benchmarks/gpu.py"),
    Result(
        "layers_cuda",
        "Layers on a GPU",
        "How long does a layer take, beside torch?",
        "PYTHONPATH=src python benchmarks/layers.py",
    ),
    Result(
        "fit_cuda",
        "Fitting on a GPU",
        "How long does it take to fit n rows of d features?",
        "PYTHONPATH=src python benchmarks/fit.py --limit 120",
    ),
    Result(
        "housing_cuda",
        "California housing on a GPU",
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


# The line under the head of a table.
RULE = re.compile(r"^\|[-|: ]+\|$", re.M)


def parts(text: str) -> tuple[str, str]:
    """What stands before the first table, and the text from that table on."""
    lines = text.splitlines()
    start = next(i for i in range(1, len(lines)) if RULE.match(lines[i])) - 1
    return "\n".join(lines[:start]), "\n".join(lines[start:])


def circumstances(text: str) -> str:
    """The lines before the first table: machine, date, versions, what was computed."""
    return "\n\n".join(line for line in parts(text)[0].splitlines() if line.strip() and line[0] not in "#!")


def first_table(text: str) -> tuple[str, int]:
    """The first table, at most ``MAX_ROWS`` of its rows, and how many rows were left out."""
    lines = parts(text)[1].split("\n\n", 1)[0].splitlines()
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


# Pictures that benchmarks draw, and what they show.
PICTURES = {
    "speed": "Seconds against rows, regard and its peers",
    "seq2seq_lengths": "Exactly right against source length",
    "fit": "Seconds of a fit and error against rows",
    "fit_cuda": "Seconds of a fit and error against rows",
}


def section(result: Result) -> str:
    text = text_of(result.name)
    blocks = [f"## {result.title}", f"{result.question} `{result.command}`"]
    blocks.append("\n\n".join(f"> {line}" for line in circumstances(text).split("\n\n")).replace("\n\n", "\n>\n"))
    if result.name == "speed":
        blocks.append(speed_table())
        left = 1
    else:
        table, left = first_table(text)
        blocks.append(table)
    if result.name in CHARTS:
        blocks.append(f"![{CHARTS[result.name][1]}, by set.](images/performance-{result.name}.png)")
    if (RESULTS / f"{result.name}.png").exists():
        blocks.append(f"![{PICTURES[result.name]}.](../benchmarks/results/{result.name}.png)")
    rest = "All of it, with more tables" if left or len(RULE.findall(text)) > 1 else "The same with its source"
    return "\n\n".join([*blocks, f"{rest}: [{result.name}.md](../benchmarks/results/{result.name}.md)."])


def page() -> str:
    reports = [result for result in REPORTS if (RESULTS / f"{result.name}.md").exists()]
    ahead = [
        "## Where others are ahead",
        "Collected from all results: who is ahead, in how many cases and by how much, and what was asked and missed.",
    ]
    ahead.append("\n".join(line for result in reports for line in behind(result)))
    return "\n\n".join([HEAD.strip(), *ahead, *map(section, reports)]) + "\n"


def behind(result: Result) -> list[str]:
    """The lines of one result, below its title; none if no other library is ahead and all was reached."""
    lines = [*others_ahead(result.name), *(f"missed: {line}" for line in missed(result.name))]
    return [f"- **{result.title}**", *(f"  - {line}" for line in lines)] if lines else []


def accuracy_table(*heads: str) -> str:
    """Errors and median seconds of the contestants of README, by set; the smallest error of all contestants is bold."""
    sets, table = data_of("accuracy")["sets"], errors()
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for name in SETS:
        best = min(table[name].values())
        cells = []
        for who in README_WHO:
            value = f"{table[name][who]:#.3g}"
            value = f"**{value}**" if table[name][who] == best else value
            cells.append(f"{value} · {median(sets[name]['seconds'][who]):.2g} s")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def median(values: list[float | None]) -> float:
    return float(np.median([value for value in values if value is not None]))


def readme_speed(*heads: str) -> str:
    """Seconds of regard and of the fastest exact peer, for the shapes of README."""
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|---|"]
    for case, ours, peer in speed_cases():
        if (case["d"], case["n"]) in README_SHAPES:
            shape = f"n = {case['n']:,}, d = {case['d']}"
            about = "≈ " if peer["extended"] else ""
            times = f"{about}{seconds(peer['time'])} ({peer['name']})"
            lines.append(f"| {shape} | {seconds(ours)} | {times} | {ratio(peer['time'] / ours)} |")
    return "\n".join(lines)


def million_table(clustered: str, *heads: str) -> str:
    """Seconds and engine for a million queries over a million rows; ``clustered`` says how rows lie for d = 8."""
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|"]
    for case, ours, _ in speed_cases():
        if case["n"] == 1_000_000:
            features = f"{case['d']}{clustered}" if case["d"] == 8 else case["d"]
            lines.append(f"| {features} | {case['engine']} | {ours:.2g} |")
    return "\n".join(lines)


def fit_table(*heads: str) -> str:
    """Median seconds of a fit of every set, with the sizes of its training tables."""
    sets = data_of("accuracy")["sets"]
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|---|"]
    for name, (rows, columns) in SETS.items():
        lines.append(f"| {name} | {rows:,} | {columns} | {median(sets[name]['seconds'][OURS]):.2g} |")
    return "\n".join(lines)


def cost_table(*heads: str) -> str:
    """Seconds and memory of fits and predictions by columns and rows; empty before fit.py was run."""
    if not (RESULTS / "fit.json").exists():
        return ""
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|---|---|"]
    ours = [one for one in data_of("fit")["cases"] if one["contestant"] == OURS and "error" in one]
    lines += [
        f"| {one['d']} | {one['n']:,} | {one['fit_seconds']:.2g} | {one['predict_seconds']:.2g} | "
        f"{one['peak_mb'] / 1e3:.2g} |"
        for one in ours
    ]
    return "\n".join(lines)


# Training rows and columns of the sets that are shown outside the performance page.
SETS = {
    "yacht": (277, 6),
    "energy": (691, 8),
    "concrete": (927, 8),
    "kin8nm": (7_372, 8),
    "power-plant": (8_611, 4),
    "california": (16_512, 8),
}
README_WHO = (OURS, "boosting", "forest", "vectors")
README_SHAPES = ((1, 100), (1, 10_000), (1, 1_000_000), (2, 1_000_000), (3, 1_000_000), (8, 1_000_000))
# Pages with tables between marks, and what writes each.
TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "accuracy": partial(accuracy_table, "regard", "boosting", "random forest", "support vectors"),
        "speed": partial(readme_speed, "rows and features", "regard", "fastest exact peer", "its time over regard's"),
    },
    "README.zh-CN.md": {
        "accuracy": partial(accuracy_table, "regard", "梯度提升", "随机森林", "支持向量机"),
        "speed": partial(readme_speed, "行数与特征数", "regard", "最快的精确对手", "是 regard 的几倍"),
    },
    "docs/guides/large.md": {
        "million": partial(million_table, ", in clusters", "features", "engine", "seconds"),
        "fits": partial(fit_table, "table", "rows", "columns", "seconds"),
        "costs": partial(
            cost_table, "columns", "rows", "fit, seconds", "10,000 predictions, seconds", "peak memory, GB"
        ),
    },
    "docs/guides/large.zh.md": {
        "million": partial(million_table, "，成团", "特征数", "引擎", "秒"),
        "fits": partial(fit_table, "表", "行数", "列数", "秒"),
        "costs": partial(cost_table, "列数", "行数", "拟合，秒", "一万个预测，秒", "内存峰值，GB"),
    },
}


def with_tables(name: str) -> str:
    """A page with its tables as the results have them."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for mark, table in TABLES[name].items():
        text, count = re.subn(
            rf"<!-- {mark} -->\n.*?<!-- end -->", f"<!-- {mark} -->\n\n{table()}\n\n<!-- end -->", text, flags=re.S
        )
        if count != 1:
            raise ValueError(f"{name} must have one place for the table of {mark}, got {count}")
    return text


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    for name in TABLES:
        (ROOT / name).write_text(with_tables(name), encoding="utf-8")
    for name in CHARTS:
        draw(name)


if __name__ == "__main__":
    main()

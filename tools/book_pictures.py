"""The pictures of docs/start, docs/guides and docs/how, drawn from what the package computes: docs/images/*.

python tools/book_pictures.py            all of them
python tools/book_pictures.py how-state  some of them
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import matplotlib

matplotlib.use("agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from numpy.typing import NDArray
from scipy.optimize import minimize

import regard
from regard.bandwidth.gauss_newton import Curved, minimise
from regard.bandwidth.learned_heads import LearnedHead
from regard.plot.style import BLUE, GREEN, HAIRLINE, INK, MUTED, ORANGE, PURPLE, VERMILION, WEIGHTS
from regard.scores import Gaussian

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
CHINESE = Path(regard.__file__).parent / "plot" / "fonts"
Array = NDArray[np.float64]


def box(
    ax: Axes, x: float, y: float, text: str, *, width: float = 1.9, height: float = 0.62, colour: str = BLUE
) -> None:
    """A rounded box with text, centred at (x, y)."""
    shape = FancyBboxPatch(
        (x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0.02,rounding_size=0.1", linewidth=1.4
    )
    shape.set(edgecolor=colour, facecolor=(*matplotlib.colors.to_rgb(colour), 0.1))
    ax.add_patch(shape)
    ax.text(x, y, text, ha="center", va="center", color=INK, fontsize=9.5, linespacing=1.35)


def arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "") -> None:
    """An arrow with a word beside its middle."""
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=13, color=MUTED, linewidth=1.3))
    if text:
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        ax.text(
            x, y, text, ha="center", va="center", fontsize=8.5, color=INK, bbox={"fc": "w", "ec": "none", "pad": 1.5}
        )


def canvas(width: float, height: float, x: float, y: float) -> tuple[Figure, Axes]:
    """A figure without axes, x × y units wide and high."""
    fig, ax = plt.subplots(figsize=(width, height), layout="constrained")
    ax.set(xlim=(0, x), ylim=(0, y))
    ax.axis("off")
    return fig, ax


CHOOSE_WORDS = {
    "en": {
        "start": "a table, X and y",
        "wide": "wide and sparse, or milliseconds\nat a million rows?",
        "other": "a linear model,\nboosting",
        "yes": "yes",
        "no": "no",
        "what": "what is y?",
        "number": "a number",
        "class": "classes",
        "why": "what do you need?",
        "best": "accuracy,\nnothing to set",
        "one": "a bandwidth\nto quote",
        "classes": "KernelClassifier",
        "kernel": "KernelRegressor",
        "slopes": "slopes, edges, trends?",
        "lines": 'LocalLinearRegressor\nridge="loo" in several columns',
        "means": "NadarayaWatsonRegressor",
        "bandwidth": "which bandwidth?",
        "loo": '"loo"',
        "groups": '"loo" with groups=',
        "adaptive": '"adaptive"',
        "fixed": "a number",
        "usual": "rows are independent",
        "blocks": "patients, days, series",
        "dense": "density varies tenfold",
        "given": "prescribed",
    },
    "zh": {
        "start": "一张表：X 和 y",
        "wide": "又宽又稀疏，或者\n一百万行、要求几毫秒？",
        "other": "线性模型、\n提升树",
        "yes": "是",
        "no": "否",
        "what": "y 是什么？",
        "number": "数",
        "class": "类别",
        "why": "你需要什么？",
        "best": "准确，\n什么都不设",
        "one": "一个说得出的\n带宽",
        "classes": "KernelClassifier",
        "kernel": "KernelRegressor",
        "slopes": "有斜坡、边缘、趋势？",
        "lines": 'LocalLinearRegressor\n多列时 ridge="loo"',
        "means": "NadarayaWatsonRegressor",
        "bandwidth": "哪种带宽？",
        "loo": '"loo"',
        "groups": '"loo" 加 groups=',
        "adaptive": '"adaptive"',
        "fixed": "一个数",
        "usual": "行之间独立",
        "blocks": "病人、日子、序列",
        "dense": "疏密相差十倍",
        "given": "有规定",
    },
}


def choose(lang: str = "en") -> Figure:
    """From the data to an estimator and a bandwidth."""
    words = CHOOSE_WORDS[lang]
    with plt.rc_context({"font.family": [*chinese_font(lang), "DejaVu Sans"]}):
        fig, ax = canvas(9.8, 6.9, 11.2, 7.9)
        box(ax, 5, 7.4, words["start"], colour=MUTED)
        box(ax, 5, 6.35, words["wide"], width=3.4, height=0.75, colour=ORANGE)
        box(ax, 9, 6.35, words["other"], height=0.75, colour=MUTED)
        box(ax, 5, 5.2, words["what"], colour=ORANGE)
        box(ax, 1.6, 5.2, words["classes"], colour=GREEN)
        box(ax, 5, 4.1, words["why"], colour=ORANGE)
        box(ax, 1.6, 4.1, words["kernel"], colour=GREEN)
        box(ax, 8.9, 4.1, words["slopes"], width=2.5, colour=ORANGE)
        box(ax, 6.7, 2.85, words["lines"], width=3.1, height=0.75, colour=GREEN)
        box(ax, 9.8, 2.85, words["means"], width=2.5, height=0.75, colour=GREEN)
        box(ax, 5, 1.75, words["bandwidth"], colour=ORANGE)
        arrow(ax, (5, 7.05), (5, 6.8))
        arrow(ax, (6.75, 6.35), (8, 6.35), words["yes"])
        arrow(ax, (5, 5.93), (5, 5.56), words["no"])
        arrow(ax, (4, 5.2), (2.6, 5.2), words["class"])
        arrow(ax, (5, 4.85), (5, 4.46), words["number"])
        arrow(ax, (4, 4.1), (2.6, 4.1), words["best"])
        arrow(ax, (6, 4.1), (7.6, 4.1), words["one"])
        arrow(ax, (8.4, 3.75), (7.3, 3.28), words["yes"])
        arrow(ax, (9.2, 3.75), (9.7, 3.28), words["no"])
        arrow(ax, (6.2, 2.43), (5.4, 2.12))
        arrow(ax, (9.2, 2.43), (6, 1.9))
        places = {"loo": ("usual", 1.4), "groups": ("blocks", 4.1), "adaptive": ("dense", 6.8), "fixed": ("given", 9.5)}
        for name, (reason, x) in places.items():
            box(ax, x, 0.45, f"{words[name]}\n{words[reason]}", width=2.35, height=0.8, colour=GREEN)
            arrow(ax, (5 + 0.12 * (x - 5), 1.4), (x, 0.9))
    return fig


def chinese_font(lang: str) -> list[str]:
    """The family of the package's font of Chinese characters, registered."""
    if lang == "en":
        return []
    (path,) = [path for path in CHINESE.iterdir() if path.suffix in {".otf", ".ttf", ".ttc"}]
    matplotlib.font_manager.fontManager.addfont(path)
    return [matplotlib.font_manager.FontProperties(fname=path).get_name()]


def start_torch() -> Figure:
    """Left-out attention before and after w is learned."""
    data = regard.data.notes(200, seed=0)
    x, rows = data.x_train[:, None], np.arange(200)
    learned = 1.0 / regard.NadarayaWatsonRegressor().fit(x, data.y_train).bandwidth_[0]
    fig, axes = plt.subplots(1, 2, figsize=(7.5, 3.7), layout="constrained")
    for ax, w, title in zip(axes, (1.0, learned), ("w = 1", f"learned: w = {learned:.2f}"), strict=True):
        ax.imshow(regard.attention_weights(x, x, Gaussian(w), exclude=(rows, rows)), cmap=WEIGHTS)
        ax.set(title=title, xlabel="keys", ylabel="queries")
    return fig


def start_learn() -> Figure:
    """Too narrow, about right, too wide: the curve and its attention."""
    data = regard.data.notes(seed=0)
    x, fine = data.x_train[:, None], np.linspace(0, 5, 400)[:, None]
    fig, axes = plt.subplots(2, 3, figsize=(9, 5.2), height_ratios=[1, 1.15], layout="constrained")
    for (curve, heat), (h, name) in zip(
        axes.T, ((0.05, "too narrow"), (0.35, "about right"), (3.0, "too wide")), strict=True
    ):
        model = regard.NadarayaWatsonRegressor(bandwidth=h).fit(x, data.y_train)
        curve.scatter(data.x_train, data.y_train, s=9, color=INK, alpha=0.6, linewidth=0)
        curve.plot(fine, regard.data.notes_truth(fine), color=MUTED, linestyle=":")
        curve.plot(fine, model.predict(fine), color=BLUE, linewidth=2)
        curve.set(title=f"{name}: h = {h}", xlim=(0, 5), ylim=(-1, 6))
        weights = model.attend(x)
        heat.imshow(weights / weights.max(axis=1, keepdims=True), cmap=WEIGHTS)
        heat.set(xticks=[], yticks=[], xlabel="keys", ylabel="queries")
    return fig


def how_state() -> Figure:
    """Tiles → states → one state → answer."""
    rng = np.random.default_rng(1)
    fig, ax = canvas(9.4, 4.3, 12, 5.4)
    for row, (tile, y) in enumerate(zip("abc", (4.5, 2.7, 0.9), strict=True)):
        score = rng.normal(size=(3, 9))
        for q in range(3):
            for k in range(9):
                shade = WEIGHTS(1 / (1 + np.exp(-1.7 * score[q, k])))
                ax.add_patch(
                    Rectangle((0.2 + 0.28 * k, y + 0.28 - 0.28 * q), 0.26, 0.26, facecolor=shade, edgecolor="w")
                )
        ax.text(1.45, y - 0.5, f"keys {9 * row} … {9 * row + 8}", ha="center", fontsize=9, color=MUTED)
        box(ax, 4.7, y, f"state {tile}\npeak, mass, moments", width=2.2, height=0.8)
        arrow(ax, (2.85, y), (3.55, y), "lift")
    ax.text(1.45, 5.25, "scores, query × key", ha="center", fontsize=9, color=INK)
    box(ax, 7.7, 3.6, "a + b", width=1.3, height=0.7)
    arrow(ax, (5.85, 4.5), (7.0, 3.8), "merge")
    arrow(ax, (5.85, 2.7), (7.0, 3.4))
    box(ax, 9.2, 2.0, "a + b + c", width=1.5, height=0.7)
    arrow(ax, (7.9, 3.2), (8.8, 2.4), "merge")
    arrow(ax, (5.85, 0.9), (8.4, 1.8))
    box(ax, 11.1, 2.0, "answer", width=1.3, height=0.7, colour=GREEN)
    arrow(ax, (9.98, 2.0), (10.42, 2.0))
    ax.text(10.2, 2.6, "÷ mass", ha="center", fontsize=9, color=INK)
    return fig


def leaves(points: Array, size: int = 32) -> list[Array]:
    """Points (n, d) cut at medians of the longest side, until a part has at most ``size``."""
    if len(points) <= size:
        return [points]
    order = points[np.argsort(points[:, np.ptp(points, axis=0).argmax()])]
    return leaves(order[: len(order) // 2], size) + leaves(order[len(order) // 2 :], size)


def how_engines() -> Figure:
    """Tiles that a block of queries visits, and the time of engines against rows."""
    rng = np.random.default_rng(3)
    centres = rng.uniform(0, 10, (14, 2))
    key = np.concatenate([centre + rng.normal(0, 0.9, (110, 2)) for centre in centres])
    block = np.array([4.2, 5.0])
    fig, (tiles, times) = plt.subplots(1, 2, figsize=(10, 4.3), width_ratios=[1.05, 1], layout="constrained")
    for part in leaves(key):
        low, high = part.min(axis=0), part.max(axis=0)
        gap = np.maximum(np.maximum(low - block, block - high), 0.0)
        near = np.exp(-0.5 * ((gap / 0.25) ** 2).sum()) > 1e-9 / len(key)
        box_of_tile = Rectangle(tuple(low), *(high - low), fill=near, linewidth=1.0)
        box_of_tile.set(facecolor=(*matplotlib.colors.to_rgb(BLUE), 0.13), edgecolor=BLUE if near else HAIRLINE)
        tiles.add_patch(box_of_tile)
        tiles.scatter(*part.T, s=3, color=BLUE if near else MUTED, alpha=0.8 if near else 0.4, linewidth=0)
    tiles.plot(*block, marker="X", color=VERMILION, markersize=11)
    tiles.set(title="pruned: visited (blue), skipped (grey)", xticks=[], yticks=[], aspect="equal")

    sizes = np.geomspace(1000, 100_000, 7).astype(int)
    marks = {"tiled": (VERMILION, "s", 20_000), "pruned": (PURPLE, "^", 100_000), "spectral": (BLUE, "o", 100_000)}
    for engine, (colour, mark, most) in marks.items():
        seconds = []
        for n in sizes[sizes <= most]:
            x, y = rng.uniform(0, 5, (n, 1)), rng.normal(size=n)
            took = []
            for _ in range(3):
                begin = perf_counter()
                regard.pool(x, x, y, Gaussian(w=100.0), engine=engine)
                took.append(perf_counter() - begin)
            seconds.append(min(took))
        times.loglog(sizes[sizes <= most], seconds, color=colour, marker=mark, markersize=5, label=engine)
    times.set(xlabel="queries and keys, one column, h = 0.01", ylabel="seconds", title="float64, tol 1e-9")
    times.grid(color=HAIRLINE, linewidth=0.6)
    times.legend()
    return fig


def how_adjoint() -> Figure:
    """The weights of a query, and how each key's score changes the answer."""
    data = regard.data.notes(28, seed=2)
    x, query = data.x_train[:, None], np.array([[2.6]])
    weight = regard.attention_weights(query, x, Gaussian(1 / 0.7))[0]
    f = weight @ data.y_train
    fig, (forward, backward) = plt.subplots(1, 2, figsize=(10, 3.9), sharex=True, sharey=True, layout="constrained")
    size = 30 + 2200 * weight
    forward.scatter(data.x_train, data.y_train, s=size, color=BLUE, alpha=0.45, linewidth=0)
    forward.set(title="forward: f = Σ α v, areas are the weights α", xlabel="x", ylabel="y")
    pull = weight * (data.y_train - f)
    backward.scatter(data.x_train, data.y_train, s=size, color=HAIRLINE, linewidth=0)
    longest = np.abs(pull).max()
    for at, value, part in zip(data.x_train, data.y_train, pull, strict=True):
        if abs(part) > 0.02 * longest:
            colour = VERMILION if part > 0 else GREEN
            backward.annotate(
                "",
                (at, value),
                (at, f),
                arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 0.5 + 3.5 * abs(part) / longest},
            )
    backward.set(title="backward: α (v − f) per key, the same tiles again", xlabel="x")
    for ax in (forward, backward):
        ax.axhline(f, color=MUTED, linewidth=1, linestyle=":")
        ax.plot(query[0, 0], f, marker="X", color=INK, markersize=10)
    return fig


def how_gauss_newton() -> Figure:
    """Two descents on the left-out error of means with two bandwidths."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, (150, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=150)
    square = (X[:, None] - X[None]) ** 2
    seen: list[tuple[Array, float]] = []

    def at(log_w: Array) -> Curved:
        w2 = np.exp(2.0 * np.asarray(log_w))
        K = np.exp(-0.5 * square @ w2)
        np.fill_diagonal(K, 0.0)
        alpha = K / K.sum(axis=1, keepdims=True)
        f = alpha @ y
        J = -np.einsum("ik,ikj->ij", alpha * (y[None] - f[:, None]), square) * w2
        r = f - y
        error = float(r @ r)
        seen.append((np.array(log_w), error / 150))
        return Curved(float(np.log(error)), 2 / error * (J.T @ r), 2 / error * (J.T @ J))

    start = np.array([-1.0, 1.4])
    minimise(at, start, np.full(2, -2.0), np.full(2, 3.5), evaluations=60, gain=1e-7)
    ours, seen = seen, []
    minimize(lambda v: at(v)[:2], start, jac=True, method="L-BFGS-B", bounds=[(-2, 3.5)] * 2, tol=1e-9)
    theirs, seen = seen, []
    a, b = np.meshgrid(np.linspace(-1.5, 3, 60), np.linspace(-1.8, 2, 60))
    level = np.array([at(np.array([p, q])).value for p, q in zip(a.ravel(), b.ravel(), strict=True)]).reshape(a.shape)
    fig, (contours, falls) = plt.subplots(1, 2, figsize=(10, 4.1), layout="constrained")
    contours.contourf(a, b, level, levels=24, cmap="Blues_r")
    for path, colour, dash, name in ((theirs, VERMILION, "--", "L-BFGS"), (ours, INK, "-", "Gauss–Newton")):
        points = np.array([point for point, _ in path])
        contours.plot(*points.T, color=colour, linestyle=dash, marker="o", markersize=4, linewidth=1.3, label=name)
        falls.semilogy([value for _, value in path], color=colour, linestyle=dash, marker="o", markersize=4, label=name)
    contours.set(
        xlabel="log w of column 0", ylabel="log w of column 1", title="left-out error", xlim=(-1.5, 3), ylim=(-1.8, 2)
    )
    contours.legend(loc="lower left")
    falls.set(xlabel="evaluation", ylabel="mean squared left-out error")
    falls.grid(color=HAIRLINE, linewidth=0.6)
    falls.legend()
    return fig


def how_heads() -> Figure:
    """The attention of single heads around a query, and of their mix."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = np.sin(1.5 * X.sum(axis=1)) + 0.1 * rng.normal(size=400)
    model = regard.KernelRegressor().fit(X, y)
    query = np.array([[0.4, -0.2]])
    kinds: dict[tuple[object, ...], LearnedHead] = {}
    for head in sorted(model.heads_, key=lambda head: -head.weight):
        # Lines with a large ridge are means, and a tiny w is one line for all rows.
        kinds.setdefault((head.w.ndim, float(head.share[0]), head.ridge > 100, np.abs(head.w).max() < 1e-3), head)
    names = {1: "one w per column", 2: "a full matrix w"}
    scales = {1.0: "standard scores", 0.5: "half ranks", 0.0: "ranks"}
    shown = list(kinds.values())[:4]
    fig, axes = plt.subplots(1, len(shown) + 1, figsize=(2.4 * (len(shown) + 1), 3), layout="constrained")
    for ax, head in zip(axes, [*shown, None], strict=True):
        if head is None:
            weight, title = model.attend(query)[0], "the mix of all heads"
        else:
            scaled = [model.scaling_(rows, head.share) for rows in (query, X)]
            weight = regard.attention_weights(*scaled, Gaussian(head.w))[0]
            kind = "local means" if head.ridge > 100 else names[head.w.ndim]
            title = f"{kind}\n{scales[float(head.share[0])]}"
        ax.scatter(*X.T, s=5, color=HAIRLINE, linewidth=0)
        ax.scatter(*X.T, s=2600 * weight, color=GREEN if head is None else BLUE, alpha=0.6, linewidth=0)
        ax.plot(*query[0], marker="x", color=VERMILION, markersize=9, markeredgewidth=2)
        ax.set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), xticks=[], yticks=[], aspect="equal")
        ax.set_title(title, fontsize=9)
    return fig


PICTURES: dict[str, Callable[[], Figure]] = {
    "choose": choose,
    "choose.zh": lambda: choose("zh"),
    "start-torch": start_torch,
    "start-learn": start_learn,
    "how-state": how_state,
    "how-engines": how_engines,
    "how-adjoint": how_adjoint,
    "how-gauss-newton": how_gauss_newton,
    "how-heads": how_heads,
}


def main(names: list[str]) -> None:
    for name in names or PICTURES:
        figure = PICTURES[name]()
        figure.savefig(IMAGES / f"{name}.png", dpi=110, facecolor="white")
        plt.close(figure)
        print(f"wrote docs/images/{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])

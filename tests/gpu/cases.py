"""Which calls are tried on a GPU: paths × scores × options × sizes × widths × dtypes, thinned out by a seed.

Every value of every factor is covered on every path that takes it, and so are the pairs (size, width) and
(score, option); all else is drawn. ``plan()`` is the same list on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle, product
from random import Random

from regard.core.kernels import KERNELS

SIZES = (1, 2, 3, 15, 17, 31, 33, 63, 65, 127, 129, 255, 257, 1000, 8191, 8192, 8193, 65537, 300001)
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64)
COLUMNS = (1, 2, 3, 4, 5, 8, 17, 64)
HIDDEN = (1, 5, 16, 17, 40, 64)
WANTS = ("all", "nothing", "query", "key", "value", "w")
RADIAL = tuple(f"{kernel}{kind}" for kernel in KERNELS for kind in ("", "-feature", "-matrix"))
SCORES = (*RADIAL, "dot", "additive")
OPTIONS = (
    "plain", "mask", "bias", "lengths", "query lengths", "exclude", "leave-one-out", "weights", "repetitions",
    "everything", "shared", "garbage",
)  # fmt: skip
# Options that hold a (query, key) matrix.
MATRICES = ("mask", "bias", "everything", "garbage")
# Pairs up to which a matrix is made, and times features up to which plain torch is asked for all of them.
MANY = 1 << 27
DENSE = 1 << 26
# Keys up to which rows with a key on the very edge of a compact kernel are rare enough to be left out.
FEW_KEYS = 257


@dataclass(frozen=True)
class Path:
    """One way through the package, and what it takes."""

    name: str
    scores: tuple[str, ...] = SCORES
    options: tuple[str, ...] = OPTIONS
    widths: tuple[int, ...] = WIDTHS
    sizes: tuple[int, ...] = SIZES
    dtypes: tuple[str, ...] = ("float32", "float64", "float16", "bfloat16")
    wants: tuple[str, ...] = WANTS


LAYER = ("gaussian", "gaussian-feature", "dot", "additive")
PATHS = (
    # Programs for rows that are laid out, at sizes where they would not be chosen too.
    Path("programs"),
    # One program for a whole layer.
    Path(
        "layer", LAYER, ("plain", "mask", "lengths", "query lengths", "garbage"),
        dtypes=("float32", "float16", "bfloat16"),
    ),
    # Scores from matrix products.
    Path(
        "products", ("gaussian", "gaussian-feature", "dot"),
        ("plain", "mask", "lengths", "exclude", "leave-one-out", "weights", "everything"),
        tuple(d for d in WIDTHS if d >= 8), dtypes=("float32",),
    ),
    # Dot products of halves: by rows, and torch's own attention.
    Path(
        "half products", ("dot",), ("plain", "mask", "bias", "weights"), (16, 17, 31, 32, 33, 63, 64),
        dtypes=("float16", "bfloat16"),
    ),
    Path("flash", ("dot",), ("plain",), (8, 16, 32, 64), dtypes=("float16", "bfloat16"), wants=WANTS[:-1]),
    # Plain torch on the device.
    Path("plain", sizes=SIZES[:14], widths=(1, 2, 3, 8, 17, 64)),
    # As users call it.
    Path("pool"),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One call; ``seed`` draws its numbers."""

    path: str
    score: str
    option: str
    B: int
    Q: int
    K: int
    d: int
    P: int
    hidden: int
    dtype: str
    want: str
    seed: int

    def __str__(self) -> str:
        hidden = f" h={self.hidden}" if self.score == "additive" else ""
        return (
            f"{self.path}: {self.score}, {self.option}, {self.B}×{self.Q}×{self.K} d={self.d} P={self.P}{hidden} "
            f"{self.dtype}, gradient of {self.want}, seed {self.seed}"
        )


def is_compact(score: str) -> bool:
    return score in RADIAL and KERNELS[score.partition("-")[0]].compact


def on_edge(score: str) -> bool:
    """Whether a key on the edge of reach may be in reach at one precision and not at another."""
    return is_compact(score) and score.endswith("matrix")


def cases() -> list[Case]:
    """Calls of ``fused_pool`` and the paths below it."""
    random = Random(0)
    out: list[Case] = []
    for path in PATHS:
        out += _covering(path, random, len(out))
    # Both sides large: many tiles in both directions, and shares of the stream.
    large = (
        ("gaussian", 65537, 65537, 1), ("gaussian-feature", 65537, 8193, 3), ("gaussian", 300001, 65537, 2),
        ("gaussian", 300001, 300001, 3), ("gaussian", 65537, 65537, 8), ("gaussian", 65537, 300001, 64),
        ("laplace", 65537, 65537, 2), ("tricube", 65537, 65537, 3), ("boxcar", 300001, 65537, 1),
        ("dot", 65537, 65537, 33), ("additive", 65537, 8193, 5), ("additive", 8191, 65537, 16),
    )  # fmt: skip
    for number, (score, Q, K, d) in enumerate(large):
        option = ("plain", "weights", "exclude")[number % 3]
        out.append(Case("pool", score, option, 1, Q, K, d, 1 + number % 2, 16, "float32", "all", len(out)))
    random.shuffle(out)
    return out


def _covering(path: Path, random: Random, first: int) -> list[Case]:
    def shuffled(pairs: Iterable[tuple]) -> list[tuple]:
        return random.sample(pairs := list(pairs), len(pairs))

    shapes, kinds = shuffled(product(path.sizes, path.widths)), shuffled(product(path.scores, path.options))
    others = {
        name: cycle(random.sample(values, len(values)))
        for name, values in (("P", COLUMNS), ("hidden", HIDDEN), ("dtype", path.dtypes), ("want", path.wants))
    }
    out: list[Case] = []
    while shapes or kinds:
        score, option = kinds.pop() if kinds else (random.choice(path.scores), random.choice(path.options))
        P, hidden, dtype, want = (next(others[name]) for name in ("P", "hidden", "dtype", "want"))
        # The next shape that goes with this score and option, and one of the same width for the other side.
        size, d = next((s for s in shapes if s[0] <= _most(path, score, option)), (33, random.choice(path.widths)))
        P = d if path.name == "flash" else P
        fitting = [n for n in path.sizes if n <= _other(path, score, option, size, max(d, hidden, P))]
        other = next((n for n, width in shapes if width == d and n in fitting and n != size), random.choice(fitting))
        Q, K = (size, size) if option == "leave-one-out" else (size, other) if random.random() < 0.5 else (other, size)
        if on_edge(score):
            Q, K = max(Q, K), min(Q, K, FEW_KEYS)
        shapes = [shape for shape in shapes if shape not in ((Q, d), (K, d))]
        B = random.choice((1, 2, 3)) if Q * K <= 1 << 16 else 1
        B = max(B, 2) if option == "shared" else B
        out.append(Case(path.name, score, option, B, Q, K, d, P, hidden, dtype, want, first + len(out)))
    return out


def _most(path: Path, score: str, option: str) -> int:
    """The largest size that a score and an option are tried at."""
    if option != "leave-one-out":
        return SIZES[-1]
    return FEW_KEYS if on_edge(score) else 1000 if path.name == "plain" else 8193


def _other(path: Path, score: str, option: str, size: int, width: int) -> int:
    """The largest size of the other side that keeps a call affordable."""
    most = min(1000, MANY // size) if option in MATRICES or size > 1000 else 8193
    if path.name == "plain":
        most = min(most, max(1, DENSE // (3 * size * width)))
    return min(most, FEW_KEYS) if on_edge(score) else most

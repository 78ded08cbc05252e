"""Timing of several methods that compute the same averages, in turns. ``regard bench`` and the benchmarks share it.

The problem: keys and queries uniform on [0, 5)^d, values Σ(2 sin x + x^0.8) + N(0, 0.5²), as in the study notes.
Slow methods answer fewer queries, always from all keys, and their time is scaled up in proportion. Every method is
timed in every round, so that other load on the machine affects all of them, and medians are compared.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter, sleep
from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array
from regard.data.synthetic import NOISE, notes_truth

Answer = Callable[[Array], Array]  # queries (q, d) → answers (q,)

# Pause between methods: threads of BLAS and OpenMP spin a while after their work.
PAUSE_SECONDS = 0.1
# Shorter calls are repeated until one timing takes this long.
MIN_TIMING_SECONDS = 0.03
# Queries whose errors are measured.
MIN_CHECKED_QUERIES = 16
MAX_CHECKED_QUERIES = 500


class RaceProblem(NamedTuple):
    """As many queries as keys."""

    query: Array  # (n, d)
    key: Array  # (n, d)
    value: Array  # (n,)


@dataclass
class Contestant:
    """A method that answers the first ``queries`` of ``of`` queries, and its time in each round."""

    name: str
    run: Callable[[], Array]
    answers: Array  # (queries,)
    of: int
    calls: int = 1  # in one timing
    seconds: list[float] = field(default_factory=list)  # of one call
    error: float = float("inf")  # largest, in units of the range of the values; inf until measured

    @property
    def queries(self) -> int:
        return len(self.answers)

    @property
    def part(self) -> bool:
        """Whether its time for the whole problem is scaled up from fewer queries."""
        return self.queries < self.of

    @property
    def time(self) -> float:
        """Seconds for the whole problem, median of the rounds."""
        return median(self.seconds) * self.of / self.queries


def rows(n: int, d: int, seed: int = 0) -> RaceProblem:
    """The problem with n keys and n queries in d features, float64.

    >>> [array.shape for array in rows(5, 2)]
    [(5, 2), (5, 2), (5,)]
    """
    rng = np.random.default_rng(seed)
    query, key = rng.uniform(0.0, 5.0, (n, d)), rng.uniform(0.0, 5.0, (n, d))
    return RaceProblem(query, key, valued(key, rng))


def valued(key: Array, rng: np.random.Generator) -> Array:
    """Noisy values (n,) of the keys: the notes' curve summed over the features."""
    return np.asarray(notes_truth(key).sum(axis=1) + rng.normal(0.0, NOISE, len(key)))


def entered(name: str, answer: Answer, query: Array, seconds: float, least: int | None = None) -> Contestant:
    """A method, warmed up, with as many queries as take about ``seconds``, and at least ``least`` (None: all)."""
    of = len(query)
    count = of if least is None else min(of, least)
    answer(query[:count])
    while True:
        started = perf_counter()
        answers = answer(query[:count])
        spent = perf_counter() - started
        if count == of or spent >= 0.6 * seconds:
            break
        # In steps, since the first few queries often cost more than the rest.
        count = min(of, max(count + 1, round(count * min(8.0, seconds / spent))))
    return Contestant(
        name, partial(answer, query[:count]), answers, of, calls=max(1, round(MIN_TIMING_SECONDS / spent))
    )


def race(contestants: Sequence[Contestant], rounds: int, rest: float = PAUSE_SECONDS) -> None:
    """Time every method in every round, each round in another order, with a pause before each."""
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            start = turn % len(contestants)
            for one in [*contestants[start:], *contestants[:start]]:
                sleep(rest)
                if one.calls > 1:
                    # The first of many short calls would pay for what the others left in the cache.
                    one.run()
                one.seconds.append(clock(one.run, one.calls))
    finally:
        gc.enable()


def judge(contestants: Sequence[Contestant], given: RaceProblem, w: float, pairs: int) -> None:
    """Measure each method's error against direct differences in float64, on about ``pairs`` pairs."""
    count = min(len(given.query), max(MIN_CHECKED_QUERIES, min(MAX_CHECKED_QUERIES, pairs // len(given.key))))
    truth = exact(given.query[:count], given.key, given.value, w)
    scale = float(np.ptp(given.value))
    for one in contestants:
        answer = one.answers[:count]
        worst = float(np.abs(answer - truth[: len(answer)]).max()) / scale
        # NaN counts as an infinite error.
        one.error = worst if worst == worst else float("inf")


def exact(query: Array, key: Array, value: Array, w: float) -> Array:
    """Gaussian averages (q,) by direct differences, one query at a time. *Cost*: O(q·K·d) time, O(K) memory."""
    out = np.empty(len(query))
    for row, one in enumerate(query):
        score = -0.5 * (((one - key) * w) ** 2).sum(axis=1)
        weight = np.exp(score - score.max())
        out[row] = weight @ value / weight.sum()
    return out


def clock(run: Callable[[], Any], calls: int = 1) -> float:
    """Seconds of one call, the mean of ``calls``."""
    started = perf_counter()
    for _ in range(calls):
        run()
    return (perf_counter() - started) / calls


def span(seconds: float) -> str:
    """A duration with three significant digits.

    >>> span(0.00012), span(3.14159), span(90000.0)
    ('0.12 ms', '3.14 s', '25 h')
    """
    for unit, size in (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0)):
        limit = {"µs": 1e-4, "ms": 1.0, "s": 300.0, "min": 18000.0}[unit]
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    hours = seconds / 3600.0
    return f"{hours:.3g} h" if hours < 72.0 else f"{hours / 24.0:.3g} days"

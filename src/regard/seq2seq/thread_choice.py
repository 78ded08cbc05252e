"""How many threads torch computes a task with: a few steps are measured with each number.

Products of small matrices gain little from a second thread, and lose much where other processes use the cores.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from regard.nn.loo_training import torch_threads

# Steps measured with each number of threads, in turns; the median counts.
STEPS_PER_THREAD_COUNT = 3
# A number of threads whose step takes longer than this many times the shortest one is not measured again.
MAX_SLOWDOWN_TO_MEASURE_AGAIN = 2.0
# Fewer threads are preferred if their steps take at most this many times the shortest: others use the cores too.
MAX_SLOWDOWN_TO_PREFER = 1.1


def fastest_threads(step: Callable[[], object]) -> int:
    """The smallest number of threads, of 1, 2, 4, … up to the present one, that is about as fast as the fastest.

    Parameters
    ----------
    step : computes a typical step, the same at every call.

    *Cost*: at most three steps with each number, and one more.
    """
    largest = int(torch.get_num_threads())
    seconds: dict[int, list[float]] = {2**power: [] for power in range(largest.bit_length()) if 2**power < largest}
    seconds[largest] = []
    if len(seconds) == 1:
        return largest
    with torch_threads(1):
        step()
    # Taking turns spreads the load of other processes over all numbers.
    for _ in range(STEPS_PER_THREAD_COUNT):
        for count, measured in seconds.items():
            with torch_threads(count):
                began = perf_counter()
                step()
                measured.append(perf_counter() - began)
        shortest = min(measured[-1] for measured in seconds.values())
        seconds = {
            count: measured
            for count, measured in seconds.items()
            if measured[-1] <= MAX_SLOWDOWN_TO_MEASURE_AGAIN * shortest
        }
    medians = {count: median(measured) for count, measured in seconds.items()}
    return next(count for count in sorted(medians) if medians[count] <= MAX_SLOWDOWN_TO_PREFER * min(medians.values()))

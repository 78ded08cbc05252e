"""How many threads torch computes a task with: a few steps are measured with each number.

Products of small matrices gain little from a second thread, and lose much where other processes want the cores.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from regard.nn.loo_training import torch_threads

# Steps measured with each number of threads, in turns; the median counts.
STEPS = 3
# More threads must be this much faster: they take cores from others.
LEAST_GAIN = 0.9


def fastest_threads(step: Callable[[], object], largest: int | None = None) -> int:
    """The smallest number of threads, of 1, 2, 4, … and ``largest``, that is about as fast as the fastest.

    Parameters
    ----------
    step : computes a typical step, the same at every call.
    largest : by default the number of threads of torch at present.

    *Cost*: four steps with each number.
    """
    largest = int(torch.get_num_threads()) if largest is None else largest
    candidates = [count for count in (2**power for power in range(largest.bit_length())) if count < largest]
    candidates.append(largest)
    if len(candidates) == 1:
        return largest
    seconds: dict[int, list[float]] = {count: [] for count in candidates}
    step()
    # Taking turns spreads the load of other processes over all candidates.
    for _ in range(STEPS):
        for count in candidates:
            with torch_threads(count):
                began = perf_counter()
                step()
                seconds[count].append(perf_counter() - began)
    chosen = candidates[0]
    for count in candidates[1:]:
        if median(seconds[count]) < LEAST_GAIN * median(seconds[chosen]):
            chosen = count
    return int(chosen)

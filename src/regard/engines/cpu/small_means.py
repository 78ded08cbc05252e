"""Gaussian means of so few rows that building a ``Problem`` and a plan would take longer than computing them.

A hundred queries over a hundred keys take ten microseconds; a ``Problem``, its plan and a ``Partial`` take twenty times
as long. Here three programs run on bare arrays: one packs the rows and checks every number, one is the loop of the
``tiled`` engine, one divides. The result is either identical to that of ``tiled``, to the last bit, or None; the
caller then takes the general path, which also reports invalid numbers.

*Cost*: O(Q·K·d) time, O(Q + K) memory.
"""

from __future__ import annotations

import numpy as np

from regard.core.arrays import Array
from regard.core.bounds import LARGEST, room
from regard.core.plan import Step
from regard.core.scores import Gaussian
from regard.engines.cpu.program_inputs import MIN_QUERIES_TO_FUSE, gaussian_inputs, least_mass, read_only, squares_fit
from regard.engines.cpu.pruning import EVERY_TILE
from regard.engines.cpu.worker_threads import query_jobs, run_jobs
from regard.programs.cpu.gaussian_sums import gaussian_sums
from regard.programs.cpu.lanes import block_lanes
from regard.programs.cpu.small_sums import finish_means, pack_rows


def gaussian_mean(query: Array, key: Array, value: Array, score: Gaussian, step: Step) -> tuple[Array, Array] | None:
    """Output (Q, 1) and logsumexp (Q,), both float64, of query (Q, d), key (K, d) and value (K, 1) of one dtype.

    Returns None if a number is not finite or extreme, or if a query is so far away that it needs a finer precision.
    """
    dtype, (keys, width), w = query.dtype, key.shape, score.w
    low_w, high_w = (w, w) if w.ndim == 0 else (w.min(initial=1.0), w.max(initial=1.0))
    if not (low_w > 1e-6 and high_w < 1e6) or len(query) < MIN_QUERIES_TO_FUSE or step.key_shard < keys:
        return None
    lanes = block_lanes(dtype.itemsize)
    count = -(-len(query) // lanes)
    queries, columns = np.empty((count, width, lanes), dtype), np.empty((2, keys), dtype)
    key = read_only(key)
    size, low, high = pack_rows(read_only(query), key, read_only(value), queries, columns)
    # If a number is not finite these are NaN, and both comparisons fail.
    if not squares_fit(float(high_w), size, width, dtype) or not max(-low, high) <= min(room(keys, dtype), LARGEST):
        return None
    queries, columns, sums = read_only(queries), read_only(columns), np.zeros((count, 2, 2, lanes))
    inputs = gaussian_inputs(score, width, dtype)

    def run(rows: slice) -> None:
        where = 0, keys, step.key_tile, EVERY_TILE
        gaussian_sums(queries[rows], None, key, None, inputs.w, columns, inputs.c, inputs.cutoff, *where, sums[rows])

    run_jobs(run, query_jobs(queries, step), step.threads)
    output, mass = np.empty((len(query), 1)), np.empty(len(query))
    if not finish_means(sums, low, high, output, mass) >= least_mass(keys, width, dtype):
        return None
    return output, np.log(mass)

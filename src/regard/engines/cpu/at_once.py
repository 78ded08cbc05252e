"""The tiled engine without the ceremony: plain Gaussian means of so few rows that describing them would take longer.

A hundred queries over a hundred keys are ten microseconds of sums; a ``Problem``, its plan and a ``Partial`` are twenty
times that. Here three programs follow each other on bare arrays: one lays out the rows and looks at every number, one
is the tiled engine's own loop, one divides. The answer is vouched for as a whole: it is what the tiled engine gives,
to the last bit, or None, and then the usual way answers, or says what is wrong with the numbers.

*Cost*: O(Q·K·d) time, O(Q + K) memory.
"""

from __future__ import annotations

import numpy as np

from regard.core.arrays import Array
from regard.core.bounds import LARGEST, room
from regard.core.plan import Step
from regard.core.scores import Gaussian
from regard.engines.cpu.jobs import each, query_jobs
from regard.engines.cpu.reach import EVERY_TILE
from regard.engines.cpu.words import FEWEST_FUSED, frozen, gaussian_words, least_mass, squares_fit
from regard.programs.cpu.at_once import lay, settle
from regard.programs.cpu.fused import gaussian_sums
from regard.programs.cpu.lanes import block_lanes


def averages(query: Array, key: Array, value: Array, score: Gaussian, step: Step) -> tuple[Array, Array] | None:
    """Output (Q, 1) and logsumexp (Q,), both float64, of query (Q, d), key (K, d) and value (K, 1) of one dtype.

    None where a number is not finite or out of the ordinary, or a query so far away that it needs a finer look.
    """
    dtype, (keys, width), w = query.dtype, key.shape, score.w
    low_w, high_w = (w, w) if w.ndim == 0 else (w.min(initial=1.0), w.max(initial=1.0))
    if not (low_w > 1e-6 and high_w < 1e6) or len(query) < FEWEST_FUSED or step.key_shard < keys:
        return None
    lanes = block_lanes(dtype.itemsize)
    count = -(-len(query) // lanes)
    queries, columns = np.empty((count, width, lanes), dtype), np.empty((2, keys), dtype)
    key = frozen(key)
    size, low, high = lay(frozen(query), key, frozen(value), queries, columns)
    # Numbers that are not finite are NaN here, and fail both.
    if not squares_fit(float(high_w), size, width, dtype) or not max(-low, high) <= min(room(keys, dtype), LARGEST):
        return None
    queries, columns, sums = frozen(queries), frozen(columns), np.zeros((count, 2, 2, lanes))
    words = gaussian_words(score, width, dtype)

    def run(rows: slice) -> None:
        where = 0, keys, step.key_tile, EVERY_TILE
        gaussian_sums(queries[rows], None, key, None, words.w, columns, words.c, words.cap, *where, sums[rows])

    each(run, query_jobs(queries, step), step.threads)
    output, mass = np.empty((len(query), 1)), np.empty(len(query))
    if not settle(sums, low, high, output, mass) >= least_mass(keys, width, dtype):
        return None
    return output, np.log(mass)

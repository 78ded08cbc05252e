"""The problems of the speed benchmark: n queries over n keys, float64, at the bandwidth that leave-one-out finds.

d = 1, 2, 3: uniform on [0, 5)^d, values Σ(2 sin x + x^0.8) + N(0, 0.5²). d = 8: the same values on 100 tight clusters.
The bandwidth is learned (one for all features) from the rows themselves, up to ``learnable(d)`` of them; for more it is
learned from that many and shrunk by the usual (n/learnable)^(−1/(d + 4)), which in one feature leaves it too wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from regard import NadarayaWatsonRegressor
from regard.racing.race import RaceProblem, rows, valued

TOL = 1e-9
LEARN = 20_000  # rows; in one feature, where leave-one-out takes seconds, a million
CLUSTERS, SPREAD = 100, 0.05
CLUSTERED = 8  # features


@dataclass(frozen=True)
class Case:
    """n rows of d features."""

    d: int
    n: int

    @property
    def name(self) -> str:
        return f"{self.n:,} × {self.n:,}, d = {self.d}" + (", clusters" if self.d == CLUSTERED else "")

    @cached_property
    def rows(self) -> RaceProblem:
        return clustered(self.n) if self.d == CLUSTERED else rows(self.n, self.d)

    @property
    def bandwidth(self) -> float:
        """In the units of the features."""
        most = learnable(self.d)
        return learned(self.d, min(self.n, most)) * max(1.0, self.n / most) ** (-1 / (self.d + 4))

    @property
    def w(self) -> float:
        return 1.0 / self.bandwidth


def clustered(n: int, seed: int = 0) -> RaceProblem:
    """Queries and keys around the same ``CLUSTERS`` centres in ``CLUSTERED`` features, each within about ``SPREAD``."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0.5, 4.5, (CLUSTERS, CLUSTERED))  # so far inside that no feature becomes negative
    query, key = (centre[rng.integers(CLUSTERS, size=n)] + rng.normal(0.0, SPREAD, (n, CLUSTERED)) for _ in range(2))
    return RaceProblem(query, key, valued(key, rng))


def learnable(d: int) -> int:
    return 1_000_000 if d == 1 else LEARN


@cache
def learned(d: int, n: int) -> float:
    """The leave-one-out bandwidth of n rows, one for all features."""
    _, key, value = Case(d, n).rows
    model = NadarayaWatsonRegressor(bandwidth="loo", metric="scalar").fit(key, value)
    return float(np.max(model.bandwidth_))

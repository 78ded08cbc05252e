"""Who runs against regard, with what settings, and who stays out because one call would take too long.

Ranked peers do the same work: the same kernel, the same bandwidth, all keys. Regressors over nearest neighbours
leave keys out, so they are shown beside the others, with their errors, and never ranked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from peers import DIRECT, IN_PLACE, PLAIN, SDPA, keops, numpy_direct, numpy_gemm
from regard import pool
from regard.racing.peers import Array, Run, kdtree_ratio, numpy_in_place, statsmodels_kernel_reg, torch_sdpa
from regard.racing.race import Answer, Contestant, RaceProblem, clock, entered
from regard.scores import Gaussian, Score
from speed_cases import TOL, Case

REGARD, TILED = "regard", "regard, tiled"
NEIGHBOURS = 64
CELLS = 1 << 24  # doubles a tile of queries by keys may hold
LONGEST = 20.0  # seconds of one call, beyond which a peer is left out
RETRIED = 10_000  # rows up to which all settings are tried; above them the last best one is kept


class Peer(NamedTuple):
    """One way to compute the same answers, or nearly the same."""

    name: str
    prepare: Callable[[Array, Array, float], Run]
    settings: tuple[int, ...] = (0,)
    least: int = 16  # queries of the smallest call
    tiles: bool = False  # the settings are rows of queries handled at once
    ranked: bool = True


def k_neighbours(keys: Array, values: Array, w: float) -> Run:
    """KNeighborsRegressor with Gaussian weights over the ``NEIGHBOURS`` nearest keys."""
    from sklearn.neighbors import KNeighborsRegressor

    count = min(NEIGHBOURS, len(keys))
    model = KNeighborsRegressor(count, weights=_gaussian(w), n_jobs=-1).fit(keys, values)
    return lambda queries, _: np.asarray(model.predict(queries))


def radius_neighbours(keys: Array, values: Array, w: float) -> Run:
    """RadiusNeighborsRegressor with Gaussian weights, out to where n keys together weigh ``TOL`` of one nearby."""
    from sklearn.neighbors import RadiusNeighborsRegressor

    radius = float(np.sqrt(2.0 * np.log(len(keys) / TOL))) / w
    model = RadiusNeighborsRegressor(radius, weights=_gaussian(w), n_jobs=-1).fit(keys, values)
    return lambda queries, _: np.asarray(model.predict(queries))


def _gaussian(w: float) -> Callable[[Any], Any]:
    """Weights for scikit-learn: distances in one array, or in an array of arrays of any length."""

    def weigh(distance: Array) -> Array:
        if distance.dtype != object:
            return np.asarray(np.exp(-0.5 * (w * distance) ** 2))
        weighed = np.empty(len(distance), object)
        weighed[:] = [np.exp(-0.5 * (w * one) ** 2) for one in distance]
        return weighed

    return weigh


PEERS = (
    Peer(PLAIN, numpy_gemm, (8, 32, 128), tiles=True),
    Peer(IN_PLACE, numpy_in_place, (8, 32, 128), tiles=True),
    Peer(DIRECT, numpy_direct, (4, 16, 64), tiles=True),
    Peer(SDPA, torch_sdpa, (1, 8, 16), least=768),
    Peer("KeOps", keops, least=64),
    Peer("KDTree density ratio", kdtree_ratio),
    Peer("statsmodels KernelReg", statsmodels_kernel_reg, least=4),
    Peer(f"KNeighbors, {NEIGHBOURS} weighted", k_neighbours, ranked=False),
    Peer("RadiusNeighbors, weighted", radius_neighbours, ranked=False),
)
RANKED = frozenset(peer.name for peer in PEERS if peer.ranked)


def pooling(given: RaceProblem, score: Score, engine: str = "auto") -> Answer:
    """The whole public call, by one engine or by the planner's choice."""
    _, key, value = given
    return lambda query: np.asarray(pool(query, key, value, score, engine=engine, tol=TOL).output)


class Field:
    """All contestants of one case after another; remembers what was slow, and which settings were best."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._settings: dict[tuple[str, int], int] = {}
        self._slowest: dict[tuple[str, int], tuple[int, float]] = {}  # rows, seconds of the smallest call
        self.absent: dict[str, str] = {}

    def contestants(self, case: Case) -> list[Contestant]:
        """Regard first, then all peers that are installed and quick enough, all warm."""
        given, score = case.rows, Gaussian(case.w)
        found = [
            entered(REGARD, pooling(given, score), given.query, self._seconds),
            entered(TILED, pooling(given, score, "tiled"), given.query, self._seconds, 256),
        ]
        for peer in PEERS:
            if peer.name in self.absent or self._too_slow(peer, case):
                continue
            try:
                found.append(self._tuned(peer, case))
            except Exception as error:  # a peer that does not install or compile must not end the others' run
                self.absent[peer.name] = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return found

    def _too_slow(self, peer: Peer, case: Case) -> bool:
        n, seconds = self._slowest.get((peer.name, case.d), (1, 0.0))
        return seconds * case.n / n > LONGEST

    def _tuned(self, peer: Peer, case: Case) -> Contestant:
        """A peer at its fastest setting. What it does once with the keys is not in its time."""
        query, key, value = case.rows
        run = peer.prepare(key, value, case.w)
        few = query[: peer.least]
        settings = peer.settings
        if peer.tiles:
            settings = tuple(sorted({max(1, min(rows, CELLS // case.n)) for rows in settings}))
        known = self._settings.get((peer.name, case.d), settings[0])
        if case.n > RETRIED:
            settings = (min(known, settings[-1]),) if peer.tiles else (known,)
        if len(settings) > 1:
            some = query[: max(peer.least, 256)]
            best = min(settings, key=lambda setting: self._attempt(run, some, setting))
        else:
            best = settings[0]
        self._settings[peer.name, case.d] = best
        run(few, best)
        self._slowest[peer.name, case.d] = case.n, clock(lambda: run(few, best))
        return entered(peer.name, lambda queries: run(queries, best), query, self._seconds, peer.least)

    @staticmethod
    def _attempt(run: Run, queries: Array, setting: int) -> float:
        """Seconds of the better of two calls, once warm."""
        run(queries, setting)
        return min(clock(lambda: run(queries, setting)) for _ in range(2))

"""The plan of a problem: which engine, which tiles, and why; decided before any loop runs."""

from __future__ import annotations

from dataclasses import dataclass

from regard.core.scores import Score


@dataclass(frozen=True)
class Step:
    """One engine, for the queries that earlier steps did not certify."""

    engine: str
    score: Score
    query_tile: int
    key_tile: int
    key_shard: int
    threads: int  # 0: torch or a GPU decides, also about tiles
    reason: str

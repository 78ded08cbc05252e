"""The planner: a Sketch of the problem in, a Plan out. Pure; nothing here looks at data or at the machine.

which engine?
  a name was given            → that engine, and no other (a named engine never falls back)
  at most ``SMALL`` pairs,
    fewer for lines           → reference   plain numpy beats waking the compiled programs
  ``MANY`` keys, radial,
    no mask                   → pruned      skips tiles that hold less than ``tol`` of the attention
  otherwise                   → tiled       exact, compiled, threaded

then, for a Gaussian or Laplace score, a second step: queries so far away that every score overflows take
the softmax limit, ``Nearest`` (see docs/decisions/0003).
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.problem import Sketch, moment_count
from regard.scores import Nearest, Radial, Score

ENGINES = ("reference", "tiled", "pruned", "fused")

# Up to here one numpy pass takes about a millisecond, and its gradient two.
SMALL = 1 << 13
# Fewer keys make too few tiles, and fewer queries too large blocks, for one to be far from another.
MANY = 1 << 11
SEVERAL = 1 << 8
# Sums of pairs that take as long as putting one row in order (0.3 µs); an order ten times cheaper than its pairs pays.
ORDER_SUMS = 1 << 11
# Features up to which boxes are worth looking at: in more, hardly any tile is far from any query.
WIDEST = 32
# Pairs one job of the tiled engine handles: long enough to hide the dispatch, short enough for Ctrl-C.
JOB_PAIRS = 1 << 25
# A tile of this many keys by one block of queries is 16 kB: two or three stay in the first-level cache.
KEY_TILE = 128
# With fewer blocks of queries than this, keys are cut into shards, down to this many keys.
JOBS_WANTED = 8
SHORTEST_SHARD = 1 << 15
# Pairs that are worth a thread.
SHORTEST_JOB = 1 << 18
# Doubles the reference engine may hold at once in its (tile, K, d) differences: 64 MB.
REFERENCE_CELLS = 1 << 23


@dataclass(frozen=True)
class Step:
    """One engine run over the queries that earlier steps could not vouch for."""

    engine: str
    score: Score
    query_tile: int
    key_tile: int
    key_shard: int
    threads: int
    reason: str


@dataclass(frozen=True)
class Plan:
    """What will run, in order, and why. ``print(plan)`` says it in words."""

    sketch: Sketch
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        s = self.sketch
        extras = [
            name for name, on in (("mask", s.masked), ("sample weights", s.weighted), ("exclusion", s.excluding)) if on
        ]
        values = "1 value column" if s.columns == 1 else f"{s.columns} value columns"
        lines = [
            f"{s.queries:,} queries × {s.keys:,} keys in {s.width}-D, {values}, {s.dtype}, "
            f"{type(s.score).__name__} score" + (f", with {', '.join(extras)}" if extras else "")
        ]
        for number, step in enumerate(self.steps, 1):
            tile = f"{min(step.query_tile, s.queries):,} queries × {min(step.key_tile, s.keys):,} keys"
            threads = "1 thread" if step.threads == 1 else f"{step.threads} threads"
            lines.append(
                f"  {number}. {step.engine}, {type(step.score).__name__}: {step.reason}; tiles of {tile}, {threads}"
            )
        skips = any(step.engine == "pruned" for step in self.steps) and s.tol > 0.0
        lines.append(
            f"  no query loses more than {s.tol:g} of its attention mass"
            if skips
            else "  exact to rounding: no query loses any of its attention mass"
        )
        return "\n".join(lines)


def plan(sketch: Sketch, engine: str = "auto", threads: int = 1) -> Plan:
    """Decide how to compute a problem of this shape."""
    if engine == "auto":
        name, reason = _choose(sketch)
    elif engine in ENGINES:
        name, reason = engine, "asked for by name"
    else:
        raise ValueError(f"engine must be one of {', '.join(['auto', *ENGINES])}, got {engine!r}")
    steps = [_step(sketch, name, sketch.score, threads, reason)]
    if _can_overflow(sketch.score):
        limit = Nearest(sketch.score.w)  # type: ignore[attr-defined]
        steps.append(_step(sketch, name, limit, threads, "only for queries where every score overflows"))
    return Plan(sketch, tuple(steps))


def _choose(sketch: Sketch) -> tuple[str, str]:
    if sketch.pairs * (1 + moment_count(1, sketch.width, sketch.degree)) <= 2 * SMALL:
        return "reference", f"{sketch.pairs:,} pairs are few enough for plain numpy"
    if _has_boxes(sketch) and _order_pays(sketch):
        return "pruned", f"{sketch.pairs:,} pairs, and tiles of keys too far away to matter are skipped"
    return "tiled", f"{sketch.pairs:,} pairs, exact and compiled"


def _has_boxes(sketch: Sketch) -> bool:
    score = sketch.score
    radial = isinstance(score, Radial) and not isinstance(score, Nearest) and bool(score.w.any())
    return radial and not sketch.masked and sketch.width <= WIDEST


def _order_pays(sketch: Sketch) -> bool:
    """Even where no tile is far, the order costs less than a tenth."""
    if sketch.queries < SEVERAL or sketch.keys < MANY:
        return False
    sums = 1 + moment_count(sketch.columns, sketch.width, sketch.degree)
    # Half the bytes, half the time.
    return sketch.pairs * sums * sketch.dtype.itemsize >= 80 * ORDER_SUMS * (sketch.queries + sketch.keys)


def _can_overflow(score: Score) -> bool:
    return isinstance(score, Radial) and not isinstance(score, Nearest) and not score.kernel.compact and score.w.any()


def _step(sketch: Sketch, engine: str, score: Score, threads: int, reason: str) -> Step:
    """Tiles by size alone, so that results do not depend on the number of threads."""
    keys = max(sketch.keys, 1)
    if engine == "reference":
        cells = keys * max(sketch.width, 1)
        return Step(engine, score, max(1, REFERENCE_CELLS // cells), keys, keys, 1, reason)
    key_tile = min(keys, KEY_TILE)
    shard = min(keys, JOB_PAIRS)
    # Blocks that skip different tiles take different times: shorter jobs share them out more evenly.
    longest = min(256 if engine == "pruned" else 1024, JOB_PAIRS // shard // 32 * 32)
    jobs = min(JOBS_WANTED, max(1, sketch.pairs // SHORTEST_JOB))
    query_tile = max(32, min(longest, -(-sketch.queries // (32 * jobs)) * 32))
    # Few queries over many keys: share the keys among jobs instead, so that every thread has work.
    blocks = -(-sketch.queries // query_tile)
    shard = max(min(shard, SHORTEST_SHARD), -(-shard * blocks // JOBS_WANTED)) if blocks < JOBS_WANTED else shard
    return Step(engine, score, query_tile, key_tile, shard, threads, reason)

"""The planner: a Sketch of the problem in, a Plan out. Pure: it reads neither the data nor the machine.

which engine?
  a name was given            → that engine, and no other (a named engine never falls back)
  at most ``SMALL`` pairs,
    fewer for lines           → reference   plain numpy beats waking the compiled programs
  ``AT_ONCE`` by tiled        → tiled       finished before other engines could be compared
  otherwise                   → the cheapest that takes the problem, by the estimates of ``regard.engines.costs``;
                                pruned instead of tiled if it costs at most a tenth more: rows may be clustered

then, for a Gaussian or Laplace score, a second step: queries so far away that every score overflows take
the softmax limit, ``Nearest`` (see docs/decisions/0003).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from regard.core.plan import Step
from regard.core.problem import Sketch, moment_count
from regard.core.scores import Nearest, Radial, Score
from regard.engines import check_engine
from regard.engines.costs import Candidate, candidates, order_cost, tiled_cost

# Number of pairs up to which plain numpy takes about a millisecond, and its gradient two.
SMALL = 1 << 13
# Seconds on one core up to which computing all pairs is faster than comparing engines.
AT_ONCE = 1.5e-3
# Share by which pruned may cost more than tiled if nothing can be skipped.
CLOSE = 0.1
# Pairs of one job of the tiled engine: long enough to hide the dispatch, short enough for Ctrl-C.
JOB_PAIRS = 1 << 25
# A tile of this many keys by one block of queries is 16 kB: two or three stay in the first-level cache.
KEY_TILE = 128
# Queries of one job at most: blocks that skip tiles take different times, and shorter jobs balance the threads better;
# "graded" forms the products of all keys once per job.
LONGEST_JOB = {"tiled": 1024, "pruned": 512, "graded": 2048}
# With fewer blocks of queries than this, keys are split into shards.
JOBS_WANTED = 8
# Smallest number of keys of a shard.
SHORTEST_SHARD = 1 << 15
# Pairs that are worth a thread: starting one takes as long as some hundred thousand pairs.
SHORTEST_JOB = 1 << 20
# Pairs of a block of queries that is sent to a worker: long enough to hide the transfer.
SENT_PAIRS = 1 << 27
# Doubles the reference engine may hold at once in its (tile, K, d) differences: 64 MB.
REFERENCE_CELLS = 1 << 23


@dataclass(frozen=True)
class Plan:
    """What will run, in order, and why. ``print(plan)`` says it in words."""

    sketch: Sketch
    steps: tuple[Step, ...]
    candidates: tuple[Candidate, ...] = ()  # cheapest first; none where an engine was named or no estimate was needed

    def __str__(self) -> str:
        s = self.sketch
        extras = [
            name for name, on in (("mask", s.masked), ("sample weights", s.weighted), ("exclusion", s.excluding)) if on
        ]
        values = "1 value column" if s.columns == 1 else f"{s.columns} value columns"
        lines = [
            (f"a batch of {' × '.join(map(str, s.batch))}, each " if s.batch else "")
            + f"{s.queries:,} queries × {s.keys:,} keys in {s.width}-D, {values}, {s.dtype}"
            + (f" on {s.device}" if s.device else "")
            + f", {type(s.score).__name__} score"
            + (f", with {', '.join(extras)}" if extras else "")
        ]
        for number, step in enumerate(self.steps, 1):
            tile = f"tiles of {min(step.query_tile, s.queries):,} queries × {min(step.key_tile, s.keys):,} keys, "
            tile = "" if step.engine in ("sorted", "spectral") else tile
            threads = "1 thread" if step.threads == 1 else f"{step.threads} threads"
            threads = "on dask workers" if step.engine == "dask" else threads
            # Torch and GPU programs choose tiles and threads themselves.
            how = f"; {tile}{threads}" if step.threads else ""
            lines.append(f"  {number}. {step.engine}, {type(step.score).__name__}: {step.reason}{how}")
        for candidate in self.candidates:
            cost = "does not apply" if candidate.seconds == inf else f"about {in_words(candidate.seconds)}"
            lines.append(f"     {candidate.engine}: {cost}: {candidate.why}")
        skips = s.tol > 0.0 and any(step.engine in ("pruned", "graded", "spectral") for step in self.steps)
        lines.append(
            f"  no query loses more than {s.tol:g} of its attention mass"
            if skips
            else "  exact to rounding: no query loses any of its attention mass"
        )
        return "\n".join(lines)


def in_words(seconds: float) -> str:
    """
    >>> [in_words(x) for x in (0.0004, 0.25, 90.0, 4e4)]
    ['0.4 ms', '250 ms', '90 s', '11 h']
    """
    for unit, name in ((3600.0, "h"), (1.0, "s")):
        if seconds >= unit:
            return f"{seconds / unit:.2g} {name}" if seconds < 100.0 * unit else f"{seconds / unit:,.0f} {name}"
    return f"{1e3 * seconds:.2g} ms" if seconds < 0.1 else f"{1e3 * seconds:.0f} ms"


def plan(sketch: Sketch, engine: str = "auto", threads: int = 1) -> Plan:
    """Decide how to compute a problem of this shape."""
    check_engine(engine)
    name, reason, considered = _choose(sketch) if engine == "auto" else (engine, "asked for by name", ())
    steps = [_step(sketch, name, sketch.score, threads, reason)]
    # A dask worker makes its own plan, with its own limit.
    if can_overflow(sketch.score) and name != "dask":
        limit = Nearest(sketch.score.w)  # type: ignore[attr-defined]
        steps.append(
            _step(sketch, engine_of_limits(name), limit, threads, "only for queries where every score overflows")
        )
    return Plan(sketch, tuple(steps), considered)


def engine_of_limits(engine: str) -> str:
    """The engine for what ``engine`` does not compute: the nearest key, the mean of all, and exact recomputation."""
    return "tiled" if engine in ("graded", "sorted", "spectral") else engine


def step_at_once(sketch: Sketch, threads: int) -> Step | None:
    """The first step if the tiled engine computes all pairs at once; None if the plan is another."""
    if _few(sketch) or tiled_cost(sketch) > AT_ONCE:
        return None
    return _step(
        sketch, "tiled", sketch.score, threads, f"{sketch.pairs:,} pairs, exact and compiled, are done at once"
    )


def _few(sketch: Sketch) -> bool:
    return sketch.pairs * (1 + moment_count(1, sketch.width, sketch.degree)) <= 2 * SMALL


def _choose(sketch: Sketch) -> tuple[str, str, tuple[Candidate, ...]]:
    if _few(sketch):
        return "reference", f"{sketch.pairs:,} pairs are few enough for plain numpy", ()
    if (at_once := step_at_once(sketch, 1)) is not None:
        return at_once.engine, at_once.reason, ()
    found = candidates(sketch)
    best, by_name = found[0], {one.engine: one for one in found}
    if best.engine == "tiled" and by_name["pruned"].seconds < inf and order_cost(sketch) <= CLOSE * best.seconds:
        best = by_name["pruned"]
        best = best._replace(why=f"{best.why}; at worst a tenth slower than tiled")
    return best.engine, best.why, tuple(found)


def can_overflow(score: Score) -> bool:
    """Whether queries far from all keys may have no finite score and take the softmax limit."""
    return isinstance(score, Radial) and not isinstance(score, Nearest) and not score.kernel.compact and score.w.any()


def _step(sketch: Sketch, engine: str, score: Score, threads: int, reason: str) -> Step:
    """Tiles by size alone, so that results do not depend on the number of threads."""
    keys = max(sketch.keys, 1)
    if engine == "reference":
        cells = keys * max(sketch.width, 1)
        return Step(engine, score, max(1, REFERENCE_CELLS // cells), keys, keys, 1, reason)
    if engine == "dask":
        return Step(engine, score, max(32, SENT_PAIRS // keys), keys, keys, 1, reason)
    key_tile = min(keys, KEY_TILE)
    shard = min(keys, JOB_PAIRS)
    longest = LONGEST_JOB.get(engine, LONGEST_JOB["tiled"])
    # The products that "graded" forms are worth a long job, however many keys there are.
    longest = longest if engine == "graded" else min(longest, JOB_PAIRS // shard // 32 * 32)
    # A power of two, because the number of threads is usually even.
    jobs = 1 << (min(JOBS_WANTED, max(1, sketch.pairs // SHORTEST_JOB)).bit_length() - 1)
    query_tile = max(32, min(longest, -(-sketch.queries // (32 * jobs)) * 32))
    # With few queries and many keys, split the keys among jobs, so that every thread has work.
    blocks = -(-sketch.queries // query_tile)
    shard = max(min(shard, SHORTEST_SHARD), -(-shard * blocks // JOBS_WANTED)) if blocks < JOBS_WANTED else shard
    return Step(engine, score, query_tile, key_tile, shard, threads, reason)

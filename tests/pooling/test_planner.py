"""A Sketch in, a Plan out: which engine, which steps, which tiles, and why. No data anywhere."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.core.plan import Step
from regard.core.problem import Sketch, build
from regard.engines import ENGINES, costs
from regard.pooling import planner
from regard.pooling.functions import explain_plan, pool
from regard.pooling.planner import Plan, plan
from regard.pooling.runner import available_threads
from regard.scores import RADIAL, Additive, Boxcar, DotProduct, Gaussian, Laplace, Nearest, Score, Tricube

GIVEN = {"queries": 1000, "keys": 1000, "width": 3, "columns": 1, "dtype": np.dtype(np.float64), "score": Gaussian()}
ADDITIVE = Additive(np.ones((2, 3)), np.ones((2, 3)), np.ones(2))


def sketch(**changes) -> Sketch:
    return Sketch(**(GIVEN | changes))


MANY = {"queries": 10**5, "keys": 10**5}
LINE = MANY | {"width": 1, "span": (100.0,), "tol": 1e-9}
PLANE = MANY | {"width": 2, "span": (60.0, 60.0), "tol": 1e-9}

#         what the sketch says                              engine       words of the reason
CHOICES = [
    ({"queries": 50, "keys": 50}, "reference", "few enough"),
    ({"queries": 1, "keys": planner.SMALL}, "reference", "few enough"),
    ({"queries": 0, "keys": 10**9}, "reference", "few enough"),
    ({"queries": 1, "keys": planner.SMALL + 1}, "tiled", "compiled"),
    ({"queries": 40, "keys": 40, "width": 3, "degree": 2}, "tiled", "compiled"),
    ({"queries": 30, "keys": 30, "width": 3, "degree": 2}, "reference", "few enough"),
    (MANY, "pruned", "out of reach are skipped; at worst a tenth slower"),
    (MANY | {"span": (1.0, 1.0, 1.0), "width": 3, "score": Gaussian(np.eye(3))}, "pruned", "at worst a tenth slower"),
    (MANY | {"span": (99.0, 99.0, 99.0), "score": Gaussian(np.eye(3))}, "pruned", "about 0.0"),
    (MANY | {"score": Tricube(np.eye(3)), "weighted": True}, "pruned", "skipped"),
    (MANY | {"score": Gaussian(0.0)}, "tiled", "compiled"),
    (MANY | {"score": Nearest()}, "tiled", "compiled"),
    (MANY | {"width": costs.MAX_FEATURES_TO_PRUNE + 1}, "tiled", "compiled"),
    ({"queries": costs.MIN_QUERIES_TO_PRUNE - 1, "keys": 10**6, "degree": 2}, "tiled", "compiled"),
    ({"queries": 10**6, "keys": costs.MIN_KEYS_TO_PRUNE - 1, "degree": 2}, "graded", "products"),
    ({"queries": 10**6, "keys": costs.MIN_ROWS_TO_GRADE - 1, "degree": 2}, "tiled", "compiled"),
    ({"queries": 10**6, "keys": 10**4, "degree": 2, "masked": True}, "tiled", "compiled"),
    (
        {
            "queries": costs.MIN_KEYS_TO_PRUNE,
            "keys": costs.MIN_KEYS_TO_PRUNE,
            "width": 8,
            "degree": 2,
            "excluding": True,
        },
        "graded",
        "far ones in single precision",
    ),
    ({"queries": costs.MIN_KEYS_TO_PRUNE, "keys": costs.MIN_KEYS_TO_PRUNE, "width": 8}, "tiled", "compiled"),
    (MANY | {"score": ADDITIVE}, "tiled", "compiled"),
    (LINE | {"masked": True, "weighted": True, "excluding": True}, "tiled", "compiled"),
    ({"queries": 10**3, "keys": 10**3, "degree": 2, "columns": 7}, "graded", "products"),
    # One feature: sums along the line, or waves.
    (LINE, "spectral", "Fourier modes"),
    (LINE | {"excluding": True}, "spectral", "Fourier modes"),
    (LINE | {"excluding": True, "others": "some"}, "pruned", "within reach"),
    (LINE | {"tol": 0.0}, "pruned", "within reach"),
    (LINE | {"score": Tricube()}, "sorted", "along the sorted line"),
    (LINE | {"score": Laplace(), "degree": 2, "tol": 0.0}, "sorted", "along the sorted line"),
    (LINE | {"score": Tricube(), "excluding": True, "others": "some"}, "pruned", "within reach"),
    (LINE | {"score": Tricube(), "weighted": True, "lightest": 1e-200}, "pruned", "within reach"),
    (LINE | {"queries": 200, "keys": 200}, "tiled", "compiled"),
    (LINE | {"span": (1e9,)}, "pruned", "within reach"),
    (LINE | {"span": (1.7e308,)}, "pruned", "within reach"),
    # Two and three: waves while enough of the attention stays above their noise.
    (PLANE, "spectral", "Fourier modes"),
    (PLANE | {"tol": 1e-14}, "pruned", "within reach"),
    (PLANE | {"width": 3, "span": (400.0, 400.0, 400.0)}, "pruned", "within reach"),
    (PLANE | {"width": 3, "span": (20.0, 20.0, 20.0)}, "spectral", "Fourier modes"),
]


@pytest.mark.parametrize(("given_", "engine", "words"), CHOICES)
def test_the_choice(given_, engine, words):
    first = plan(sketch(**given_)).steps[0]
    assert first.engine == engine
    assert words in first.reason


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [1, 10**3, 10**6])
def test_a_named_engine_is_never_replaced(engine, size):
    for score in (Gaussian(), Boxcar(), Nearest(), DotProduct(), ADDITIVE):
        made = plan(sketch(queries=size, keys=size, score=score), engine)
        # Fast engines say in the plan who answers for queries beyond every score.
        others = {"tiled"} if engine in ("graded", "sorted", "spectral") else set()
        assert made.steps[0].engine == engine
        assert {step.engine for step in made.steps[1:]} <= {engine} | others
        assert not made.candidates
        assert made.steps[0].reason == "asked for by name"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_engine_of_the_second_step_takes_its_score(engine):
    """The softmax limit of far queries is a score of its own, which not every engine takes."""
    made = plan(sketch(queries=1000, keys=1000, width=1, degree=2), engine)
    for step in made.steps[1:]:
        assert costs.refusal(step.engine, replace(made.sketch, score=step.score)) is None


@pytest.mark.parametrize("engine", ["", "Tiled", "numpy", None, 3])
def test_an_unknown_engine_is_an_error_with_the_choices(engine):
    choices = ", ".join(["auto", *ENGINES])
    with pytest.raises(ValueError, match=f"engine must be one of {choices}, got {engine!r}"):
        plan(sketch(), engine)


@pytest.mark.parametrize("w", [0.5, np.array([1.0, 0.0, 2.0]), np.eye(3)])
@pytest.mark.parametrize("score", [Gaussian, Laplace])
def test_far_queries_have_a_second_step(score, w):
    made = plan(sketch(score=score(w)))
    assert [type(step.score) for step in made.steps] == [score, Nearest]
    far = made.steps[1]
    assert np.allclose(far.score.w, np.asarray(w) / np.abs(w).max())
    assert "overflow" in far.reason


@pytest.mark.parametrize(
    "score",
    [
        *(kernel() for name, kernel in RADIAL.items() if name not in ("gaussian", "laplace")),
        Nearest(),
        DotProduct(),
        ADDITIVE,
        Gaussian(0.0),
        Laplace([0.0, 0.0, 0.0]),
    ],
    ids=lambda score: type(score).__name__,
)
def test_other_scores_have_one_step(score):
    assert [step.score for step in plan(sketch(score=score)).steps] == [score]


SIZES = st.integers(0, 10**7)


@given(
    queries=SIZES,
    keys=SIZES,
    width=st.integers(0, 100),
    columns=st.integers(0, 9),
    single=st.booleans(),
    engine=st.sampled_from(["auto", *ENGINES]),
)
def test_tiles_for_any_size(queries, keys, width, columns, single, engine):
    dtype = np.dtype(np.float32 if single else np.float64)
    given_ = sketch(queries=queries, keys=keys, width=width, columns=columns, dtype=dtype, score=Gaussian())
    for step in plan(given_, engine).steps:
        assert step.query_tile >= 1
        assert 1 <= step.key_tile <= max(keys, 1)
        assert step.key_tile <= max(step.key_shard, 256)
        assert 1 <= step.key_shard <= max(keys, 1)
        if step.engine == "reference":
            # A tile of differences in float64, or a single query where one alone is larger.
            assert step.query_tile == 1 or step.query_tile * max(keys, 1) * max(width, 1) <= planner.REFERENCE_CELLS
        elif step.engine == "dask":
            # A block of queries that is worth sending, unless a single block of lanes is longer.
            assert step.query_tile == 32 or step.query_tile * step.key_shard <= planner.SENT_PAIRS
        else:
            # Short enough for Ctrl-C, unless a single block of lanes is longer.
            assert step.query_tile == 32 or step.query_tile * step.key_shard <= planner.JOB_PAIRS
            assert step.query_tile % 32 == 0


# The tiles of one step, by hand: queries in multiples of 32, as many jobs as the pairs are worth (a power of two), none
# longer than 2^25 pairs; where there are fewer than 8 blocks of queries, keys are cut into shards of at least 2^15.
#      engine      queries   keys      query tile  key tile  key shard
TILES = [
    ("tiled", 0, 0, 32, 1, 1),
    ("tiled", 33, 100, 64, 100, 100),  # 33 queries fill two times 32
    ("tiled", 1000, 1000, 1024, 128, 1000),  # not worth a second job
    ("tiled", 1000, 3000, 512, 128, 3000),  # 2 jobs
    ("tiled", 1025, 5000, 288, 128, 5000),  # 4 jobs, of 257 queries each rounded up
    ("tiled", 2000, 5000, 256, 128, 5000),  # 9.5 jobs: 8
    ("tiled", 5000, 1000, 1024, 128, 1000),  # never longer than 1024
    ("pruned", 5000, 1000, 512, 128, 1000),  # or 512, where tiles are skipped
    ("tiled", 10**5, 10**5, 320, 128, 10**5),  # 335 queries by 10^5 keys are 2^25 pairs
    ("tiled", 10**6, 10**6, 32, 128, 10**6),
    ("tiled", 64, 10**6, 32, 128, 250_000),  # 2 blocks share 8 jobs: 4 shards each
    ("tiled", 100, 10**5, 32, 128, 50_000),  # 4 blocks: 2 shards each
    ("tiled", 32 * 7, 10**6, 32, 128, 875_000),  # 7 blocks, still fewer than 8
    ("tiled", 32 * 8, 10**6, 32, 128, 10**6),
    ("tiled", 10, 40_000, 32, 128, 1 << 15),  # no shorter shard
    ("reference", 10, 10**4, 279, 10**4, 10**4),  # 279 · 10^4 · 3 differences are 2^23
    ("reference", 10, 10**8, 1, 10**8, 10**8),
    ("reference", 10, 0, 2_796_202, 1, 1),
    ("dask", 10**5, 10**5, 1342, 10**5, 10**5),  # 2^27 pairs to a worker
    ("dask", 10**5, 10**9, 32, 10**9, 10**9),
]


@pytest.mark.parametrize(("engine", "queries", "keys", "query_tile", "key_tile", "key_shard"), TILES)
def test_tiles_of_a_step(engine, queries, keys, query_tile, key_tile, key_shard):
    step = plan(sketch(queries=queries, keys=keys), engine).steps[0]
    assert (step.query_tile, step.key_tile, step.key_shard) == (query_tile, key_tile, key_shard)


@pytest.mark.parametrize("queries", [1, 40, 1000])
def test_few_queries_over_many_keys_are_cut_into_shards(queries):
    step = plan(sketch(queries=queries, keys=10**7)).steps[0]
    blocks = -(-queries // step.query_tile)
    assert blocks * -(-(10**7) // step.key_shard) >= planner.JOBS_WANTED
    assert step.key_shard >= planner.SHORTEST_SHARD


def test_short_problems_are_not_cut():
    assert plan(sketch(queries=300, keys=300)).steps[0].key_shard == 300


def test_threads_decide_nothing_but_themselves():
    one, many = plan(sketch(queries=10**5, keys=10**5), threads=1), plan(sketch(queries=10**5, keys=10**5), threads=64)
    for a, b in zip(one.steps, many.steps, strict=True):
        assert a.threads == 1
        assert b.threads == 64
        same = [
            getattr(a, field.name) == getattr(b, field.name)
            for field in fields(Step)
            if field.name not in ("threads", "score")
        ]
        assert all(same)


def test_the_reference_engine_uses_one_thread():
    assert plan(sketch(), "reference", threads=8).steps[0].threads == 1


def test_plans_are_values():
    one, two = plan(sketch(score=Tricube())), plan(sketch(score=Tricube()))
    assert str(one) == str(two)
    with pytest.raises(FrozenInstanceError):
        one.steps = ()
    assert isinstance(one.steps, tuple)


# ---- in words


def test_a_plan_reads_as_sentences():
    text = str(plan(sketch(queries=12_345, keys=678_901, masked=True, weighted=True, excluding=True), threads=2))
    lines = text.splitlines()
    assert "12,345 queries × 678,901 keys in 3-D" in lines[0]
    assert "float64" in lines[0]
    assert "Gaussian score" in lines[0]
    assert "with mask, sample weights, exclusion" in lines[0]
    assert lines[1].startswith("  1. tiled")
    assert "2 threads" in lines[1]
    assert lines[2].startswith("  2. tiled")
    assert "Nearest" in lines[2]
    assert "only for queries where" in lines[2]
    assert "exact to rounding" in lines[-1]
    assert max(map(len, lines)) < 160


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0004, "0.4 ms"),
        (0.099, "99 ms"),
        (0.1, "100 ms"),
        (0.256, "256 ms"),
        (1.0, "1 s"),
        (99.0, "99 s"),
        (100.0, "100 s"),
        (3600.0, "1 h"),
        (40_000.0, "11 h"),
        (3600.0 * 1234.0, "1,234 h"),
    ],
)
def test_durations_in_words(seconds, words):
    assert planner.in_words(seconds) == words


def test_the_first_line_names_sizes_batch_and_device():
    assert "1 value column, float64, Gaussian" in str(plan(sketch()))
    text = str(plan(sketch(columns=2, batch=(4, 8), device="cuda:0"), "tiled"))
    assert text.startswith(
        "a batch of 4 × 8, each 1,000 queries × 1,000 keys in 3-D, 2 value columns, float64 on cuda:0"
    )


@pytest.mark.parametrize("engine", ["reference", "tiled", "pruned", "sorted", "spectral"])
def test_tiles_are_shown_where_there_are_tiles(engine):
    text = str(plan(sketch(width=1), engine)).splitlines()[1]
    assert ("tiles of " in text) == (engine not in ("sorted", "spectral"))


@pytest.mark.parametrize(
    ("engine", "tol", "loses"),
    [
        ("tiled", 1e-9, False),
        ("pruned", 1e-9, True),
        ("spectral", 1e-9, True),
        ("pruned", 0.0, False),
        ("sorted", 1e-9, False),
    ],
)
def test_the_last_line_is_the_certificate(engine, tol, loses):
    last = str(plan(sketch(width=1, tol=tol), engine)).splitlines()[-1]
    assert ("no query loses more than 1e-09" in last) == loses
    assert ("exact to rounding" in last) != loses


def test_candidates_are_shown_with_their_cost_and_why_they_do_not_apply():
    made = plan(sketch(**LINE), threads=2)
    text = str(made)
    assert [one.seconds for one in made.candidates] == sorted(one.seconds for one in made.candidates)
    assert made.candidates[0].engine == made.steps[0].engine == "spectral"
    assert {one.engine for one in made.candidates} == set(ENGINES) - {"fused", "dask"}
    assert "spectral: about " in text
    assert "tiled: about 7.1 s: 10,000,000,000 pairs, exact and compiled" in text
    assert "sorted: does not apply: takes compact kernels and Laplace, got Gaussian" in text


def test_reach_shrinks_with_the_span_and_the_tolerance():
    shares = [
        costs.fraction_in_reach(sketch(**MANY, span=(s, s, s), tol=tol))
        for s in (1, 30, 100, 1000)
        for tol in (1e-12, 1e-3)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert costs.fraction_in_reach(sketch(**MANY, score=Tricube(), span=(50.0,), width=1)) < 0.05


def test_a_problem_has_its_span_in_bandwidths():
    x = np.array([[0.0, 1.0], [4.0, 3.0]] * 600)
    far = x + np.array([0.0, 2.0])
    spans = [build(x, far, x[:, :1], Gaussian(w)).sketch().span for w in (0.5, [1.0, 3.0], np.array([[1.0], [1.0]]))]
    assert spans == [(2.0, 2.0), (4.0, 12.0), (8.0,)]
    assert build(x, far, x[:, :1], DotProduct()).sketch().span == ()
    assert build(x[:9], x[:9], x[:9, :1], Gaussian()).sketch().span == ()


def test_a_plain_plan_names_no_options():
    text = str(plan(sketch(queries=3, keys=4, score=Boxcar())))
    assert "with" not in text
    assert "12 pairs are few enough for plain numpy" in text
    assert len(text.splitlines()) == 3


def test_explain_plan_is_what_pool_would_do():
    x = np.zeros((300, 2), np.float32)
    made = explain_plan(
        x,
        x,
        np.zeros((300, 4)),
        Gaussian(),
        mask=np.ones((300, 300), bool),
        sample_weight=np.ones(300),
        exclude=(np.zeros(300, int), np.ones(300, int)),
        tol=0.0,
    )
    assert isinstance(made, Plan)
    assert made.sketch == sketch(
        queries=300, keys=300, width=2, columns=4, score=made.sketch.score, masked=True, weighted=True, excluding=True,
        lightest=0.5,
    )  # fmt: skip
    assert made.steps[0].threads == available_threads()
    assert explain_plan(x, x, x, Gaussian(), engine="reference").steps[0].engine == "reference"
    with pytest.raises(ValueError, match="engine must be one of"):
        explain_plan(x, x, x, Gaussian(), engine="fast")


def test_explain_plan_refuses_what_pool_refuses():
    for bad in ({"key": [[0.0, 1.0]]}, {"mask": np.ones((1, 1), int)}, {"tol": -1.0}):
        arguments = {"query": [0.0], "key": [0.0], "value": [1.0], "score": Gaussian()} | bad
        errors = []
        for function in (pool, explain_plan):
            with pytest.raises((ValueError, TypeError)) as caught:
                function(**arguments)
            errors.append(str(caught.value))
        assert errors[0] == errors[1]


def test_planning_reads_no_data():
    """A Sketch holds sizes, kinds and widths; the score's parameters are the only arrays in it."""
    for field in fields(Sketch):
        value = getattr(sketch(), field.name)
        assert isinstance(value, (int, float, bool, str, tuple, np.dtype, Score)), field.name


# ---- how many threads


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 6),
        ({"NUMBA_NUM_THREADS": "2"}, 2),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"NUMBA_NUM_THREADS": "4", "OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "99"}, 6),
        ({"OMP_NUM_THREADS": "0"}, 6),
        ({"OMP_NUM_THREADS": "many"}, 6),
    ],
)
def test_available_threads(environment, expected, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)), raising=False)
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert available_threads() == expected

"""``regard bench``: its table, its JSON, who is left out, and the fairness of the race behind it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.cli import bench_command
from regard.engines import costs
from regard.racing import peers, race
from support.command import files, ok, refused

GIVEN, W = race.rows(300, 2), 3.0
TRUTH = race.exact(GIVEN.query, GIVEN.key, GIVEN.value, W)


@pytest.fixture
def small(monkeypatch) -> None:
    monkeypatch.setattr(bench_command, "SIZES", (60, 400))
    monkeypatch.setattr(bench_command, "WIDTHS", {2: 0.1})
    monkeypatch.setattr(bench_command, "SECONDS", 1e-3)
    monkeypatch.setattr(bench_command, "REST", 0.0)
    monkeypatch.setattr(race, "MIN_TIMING_SECONDS", 1e-3)


def contestant(answers: Any, of: int, seconds: list[float]) -> race.Contestant:
    return race.Contestant("peer", lambda: answers, answers, of, seconds=seconds)


def test_help_says_what_it_does(capfd) -> None:
    printed = " ".join(ok(capfd, "bench", "--help")[0].split())
    assert "--out" in printed
    assert "141 the output pipe" in printed


def test_table_and_json_say_the_same(here: Path, small, capfd) -> None:
    out, err = ok(capfd, "bench", "--out", "b.json")
    assert err == "wrote b.json\n"
    found = json.loads(Path("b.json").read_text(encoding="utf-8"))["results"]
    lines = out.splitlines()[3:]
    assert len(lines) == len(found)
    for line, one in zip(lines, found, strict=True):
        assert line.startswith(f"{one['rows']}")
        assert one["contestant"] in line
        assert race.span(one["seconds"]) in line
        assert ("≈" in line) == (one["queries"] < one["rows"])
        assert one["error"] <= bench_command.TOL
    for rows in bench_command.SIZES:
        names = [one["contestant"] for one in found if one["rows"] == rows]
        assert names[0].startswith("regard (")
        assert {"numpy", "scikit-learn KDTree ratio"} < set(names)


def test_without_out_nothing_is_written(here: Path, small, capfd) -> None:
    before = files(here)
    ok(capfd, "bench")
    assert files(here) == before


def test_a_place_that_is_taken_is_refused_before_anything_runs(here: Path, capfd, monkeypatch) -> None:
    monkeypatch.setattr(bench_command, "_timed", None)
    assert "houses.csv: already exists" in refused(capfd, "bench", "--out", "houses.csv")
    assert "there is no folder" in refused(capfd, "bench", "--out", "nowhere/b.json")


def test_who_is_not_installed_is_left_out(small, monkeypatch) -> None:
    present = {name for name, *_ in bench_command._peers(GIVEN, W)}
    monkeypatch.setattr(bench_command, "find_spec", lambda module: None if module == "torch" else object())
    monkeypatch.setattr(costs, "_has_finufft", lambda: False)
    monkeypatch.setattr(peers, "statsmodels_kernel_reg", lambda *_: None)
    left = {name for name, *_ in bench_command._peers(GIVEN, W)}
    assert left == (present | {"statsmodels KernelReg"}) - {"torch SDPA"}
    assert "engine spectral" not in {name for name, *_ in bench_command._engines(GIVEN, W)}


@pytest.mark.parametrize(
    ("peer", "module", "setting"),
    [
        ("numpy_in_place", "numpy", 7),
        ("kdtree_ratio", "sklearn", 0),
        ("torch_sdpa", "torch", 8),
        ("statsmodels_kernel_reg", "statsmodels", 0),
    ],
)
def test_every_peer_does_the_same_work(peer: str, module: str, setting: int) -> None:
    pytest.importorskip(module)
    answers = getattr(peers, peer)(GIVEN.key, GIVEN.value, W)(GIVEN.query, setting)
    assert np.abs(answers - TRUTH).max() <= bench_command.TOL * np.ptp(GIVEN.value)


def test_the_truth_is_the_reference_engines() -> None:
    from regard import pool
    from regard.scores import Gaussian

    expected = pool(*GIVEN, Gaussian(W), engine="reference", tol=0.0).output
    np.testing.assert_allclose(TRUTH, expected, rtol=1e-13)


def test_a_slow_contestant_takes_fewer_queries(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(race, "perf_counter", lambda: now[0])

    def answer(query: Any, each: float) -> Any:
        now[0] += each * len(query)
        return query[:, 0]

    enter = partial(race.entered, query=GIVEN.query, seconds=1.0, least=4)
    slow, quick = (enter("peer", partial(answer, each=each)) for each in (0.05, 1e-6))
    assert (slow.queries, slow.part, slow.calls) == (20, True, 1)
    assert (quick.queries, quick.part) == (300, False)
    # So short a call is repeated until it is long enough to time.
    assert quick.calls == 100
    slowest = enter("peer", partial(answer, each=9.0))
    race.race([slowest, slow], 3, rest=0.0)
    assert slowest.queries == 4
    assert slowest.time == pytest.approx(9.0 * 300)
    assert slow.time == pytest.approx(0.05 * 300)


def test_everybody_takes_a_turn_in_every_round_and_starts_in_turn() -> None:
    turns: list[str] = []
    field = [race.Contestant(name, partial(turns.append, name), np.zeros(1), 1) for name in "abc"]  # type: ignore[arg-type]
    race.race(field, 4, rest=0.0)
    assert "".join(turns) == "abcbcacababc"
    assert all(len(one.seconds) == 4 for one in field)


def test_times_are_medians_extended_to_all_queries() -> None:
    assert contestant(np.zeros(10), 40, [1.0, 2.0, 90.0]).time == 8.0


def test_errors_are_in_units_of_the_range_and_no_number_is_the_worst() -> None:
    scale = np.ptp(GIVEN.value)
    off = TRUTH[:90].copy()
    off[70] += 0.25 * scale
    nothing = TRUTH.copy()
    nothing[0] = np.nan
    field = [contestant(answers, 300, [1.0]) for answers in (TRUTH, off, nothing)]
    race.judge(field, GIVEN, W, pairs=300 * 80)
    assert [one.error for one in field] == [0.0, pytest.approx(0.25), np.inf]
    # Only the first queries are checked.
    race.judge(field, GIVEN, W, pairs=300 * 50)
    assert field[1].error == 0.0


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(2e-6, "2 µs"), (0.0123, "12.3 ms"), (1.0, "1 s"), (299.0, "299 s"), (600.0, "10 min"), (1e6, "11.6 days")],
)
def test_spans_of_time(seconds: float, said: str) -> None:
    assert race.span(seconds) == said

"""docs/performance.md and its charts are those of the results; every result is on it."""

from __future__ import annotations

import re

import pytest

import others_ahead
import performance_page
from read_results import data_of


def test_the_page_is_up_to_date():
    """Where this fails: python tools/performance_page.py."""
    assert performance_page.PAGE.read_text(encoding="utf-8") == performance_page.page()


@pytest.mark.parametrize("name", performance_page.TABLES)
def test_tables_of_other_pages_are_up_to_date(name):
    assert (performance_page.ROOT / name).read_text(encoding="utf-8") == performance_page.with_tables(name)


@pytest.mark.parametrize("name", performance_page.CHARTS)
def test_a_chart_is_drawn_from_the_results(name):
    assert performance_page.drawn_from(name) == performance_page.digest(performance_page.CHARTS[name][0]())


def test_every_result_has_a_section():
    found = {path.stem for path in performance_page.RESULTS.glob("*.md")}
    assert found <= {result.name for result in performance_page.REPORTS}


def test_every_section_has_machine_date_and_command():
    text = performance_page.PAGE.read_text(encoding="utf-8")
    for part in text.split("\n## ")[2:]:
        title = part.splitlines()[0]
        assert "`python benchmarks/" in part or "`PYTHONPATH=src python benchmarks/" in part, title
        assert any(word in part for word in ("Intel", "AMD", "NVIDIA")), title


def test_others_ahead_are_listed():
    """The lines follow the results: a set on which a peer is better has one."""
    text = performance_page.PAGE.read_text(encoding="utf-8").split("## Where others are ahead")[1].split("\n## ")[0]
    lines = [line.strip(" -") for line in text.splitlines()]
    for table in (performance_page.errors(), performance_page.log_losses()):
        for name, found in table.items():
            best = min(found, key=found.get)
            if best != performance_page.OURS:
                assert any(line.startswith(f"{name}: {best} ") for line in lines)


def test_others_ahead_are_counted():
    text = performance_page.PAGE.read_text(encoding="utf-8")
    rows = data_of("layers")["rows"]
    for layer in {row["layer"] for row in rows}:
        ratios = [row["ratio"] for row in rows if row["layer"] == layer and row["ratio"]]
        behind = sum(ratio > 1 for ratio in ratios)
        assert (f"  - {layer}: " in text) == bool(behind)
        assert not behind or re.search(rf"  - {layer}: .* in {behind} of {len(ratios)} cases, by at most", text)


def test_what_was_asked_and_missed_is_found():
    rows = [
        {"what": "memory", "asked": "≤ 10 MB", "measured": "12 MB", "verdict": "SHORT"},
        {"what": "time", "measured": "19.0 ms", "asked for": "≤ 15 ms"},
        {"what": "error", "measured": "1e-7", "asked for": "torch 2e-7"},
        {"d": "64", "w": "1", "T pairs/s": "2", "floor": "≥ 1", "verdict": "pass", "ratio": "4.7 > 4.5"},
    ]
    assert [line for row in rows for line in others_ahead.short_of(row)] == [
        "memory: 12 MB, asked ≤ 10 MB",
        "time: 19.0 ms, asked ≤ 15 ms",
        "d 64, w 1, ratio: 4.7, asked ≤ 4.5",
    ]

"""The suite itself: tests that share something slow run in one worker."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("together")
def test_groups_reach_the_scheduler(request: pytest.FixtureRequest) -> None:
    """Versions of pytest and pytest-xdist that do not fit lose the groups silently, and the tour runs twice."""
    expected = "@together" if getattr(request.config.option, "loadgroup", False) else ""
    assert request.node.nodeid.removeprefix("tests/test_suite.py::test_groups_reach_the_scheduler") == expected

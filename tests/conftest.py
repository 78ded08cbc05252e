"""What the whole suite shares: profiles for fuzzing, and a word on how long the compiler took."""

from __future__ import annotations

import os
import sys
from typing import Any

# scipy reads this once, when it is first imported; scikit-learn's array-API checks need it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
from hypothesis import settings

from regard.bandwidth import walks
from support.generators import takes
from support.soak import FULL

settings.register_profile("tenth", max_examples=40, derandomize=True, deadline=None, database=None)
settings.register_profile("full", max_examples=400, derandomize=True, deadline=None, database=None)
settings.load_profile("full" if FULL else "tenth")

# Tests with a mask, or with a score that is not radial, inside: engine "pruned" refuses both, and says so.
NOT_FOR_PRUNED = {
    "test_38_enormous_projections_that_fit_are_computed",
    "test_38_scores_that_overflow_single_precision",
    "test_46_a_light_key_is_seen_where_it_is_alone",
    "test_47_a_fully_masked_row_is_zeros",
    "test_48_nan_and_inf_behind_a_mask_have_no_effect",
    "test_49_a_finite_mask_is_obeyed_however_low",
    "test_49_a_masked_key_gets_nothing_from_a_far_query",
    "test_a_light_key_has_the_gradient_where_it_is_alone",
    "test_a_mask_is_deletion_whatever_it_covers",
    "test_a_mask_row_by_row_is_deletion_row_by_row",
    "test_additive_attention_as_torch_layers",
    "test_against_finite_differences",
    "test_dot_product_is_torch_attention",
    "test_empty_rows_pull_nowhere",
    "test_layouts_are_equal_and_untouched",
    "test_linear_in_the_values",
    "test_no_features_at_all_is_the_mean",
    "test_rows_nobody_may_attend_to",
    "test_single_precision_is_no_worse_than_torch",
    "test_softmax_and_logsumexp_of_scipy",
    "test_the_batch_of_queries_does_not_matter",
    "test_weights_are_a_distribution_and_make_the_output",
    "test_weights_times_values_is_the_output",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Rows of the sweeps that an engine does not take are left out."""

    def wanted(item: pytest.Item) -> bool:
        given = getattr(getattr(item, "callspec", None), "params", {})
        if given.get("engine") != "pruned":
            return True
        score, option = (str(given.get(name, "")) for name in ("score", "option"))
        return takes("pruned", score, option) and getattr(item, "originalname", "") not in NOT_FOR_PRUNED

    kept, left = [], []
    for item in items:
        (kept if wanted(item) else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


_workers: list[float] = []


def _compile_seconds() -> float:
    module = sys.modules.get("regard.programs.cpu.compiled")
    return float(module.notice.seconds) if module is not None else 0.0


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its seconds to the process that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["compile_seconds"] = _compile_seconds()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _workers.append(float(getattr(node, "workeroutput", {}).get("compile_seconds", 0.0)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    seconds = _compile_seconds() + sum(_workers)
    where = f" in {len(_workers)} workers" if _workers else ""
    terminalreporter.write_line(f"compiling programs took {seconds:.1f} s{where}")


@pytest.fixture
def light_search(monkeypatch):
    """Fewer places to look for a deeper valley, for tests of something else; soak runs keep all."""
    if not FULL:
        for name, value in {"SCATTERED": 4, "PROMISING": 2, "BLIND": 0, "TO_THE_END": 1, "ROUNDS": 1}.items():
            monkeypatch.setattr(f"regard.bandwidth.valleys.{name}", value)


@pytest.fixture
def brief_learning(monkeypatch, light_search):
    """Walks of a few steps, of one head or several, for tests of manners, not minima; soak runs walk to the end."""
    if not FULL:
        for name, value in {"FEW_STEPS": 2, "STEPS": 4, "FULL_STEPS": 4}.items():
            monkeypatch.setattr(f"regard.bandwidth.heads.{name}", value)
        monkeypatch.setattr("regard.bandwidth.valleys.WALKS", 1)
        for options in (walks.LONG, walks.ALONG_JUMPS):
            monkeypatch.setitem(options, "maxiter", 4)
            monkeypatch.setitem(options, "maxfun", 12)

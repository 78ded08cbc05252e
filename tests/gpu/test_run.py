"""The tests for a GPU, on a machine without one: what they cover, whether their oracle is right and they can fail."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from gpu import paths, run
from gpu.cases import COLUMNS, PATHS, Case, cases

CASES = cases()
TINY = [case for case in CASES if case.path == "plain" and run.is_tiny(case)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_every_value_and_the_pairs_that_matter_are_covered(path):
    mine = [case for case in CASES if case.path == path.name]
    assert {(n, case.d) for case in mine for n in (case.Q, case.K)} >= set(product(path.sizes, path.widths))
    assert {(case.score, case.option) for case in mine} == set(product(path.scores, path.options))
    assert {case.dtype for case in mine} == set(path.dtypes)
    assert {case.want for case in mine} == set(path.wants)
    assert path.name == "flash" or {case.P for case in mine} == set(COLUMNS)


def test_the_plan_is_always_the_same():
    assert cases() == CASES


def test_the_oracle_agrees_with_plain_torch():
    assert len(TINY) > 20
    for case in TINY:
        ratios, ran = paths.check(case, "cpu")
        assert ran == "plain"
        assert max(ratios.values()) <= 1.0, case


@pytest.mark.parametrize("wrong", ["output", "logsumexp", "gradient of value"])
def test_an_error_of_a_thousandth_is_found(wrong, monkeypatch):
    case = Case("plain", "gaussian", "plain", 1, 17, 15, 3, 2, 1, "float32", "all", 0)
    right = paths.PATHS["plain"]

    def off(query, key, value, score, options):
        output, logsumexp = right(query, key, value, score, options)
        if wrong == "gradient of value":
            return output + 1e-3 * (value - value.detach()).sum(), logsumexp
        return output + 1e-3 * (wrong == "output"), logsumexp + 1e-3 * (wrong == "logsumexp")

    monkeypatch.setitem(paths.PATHS, "plain", off)
    record = run.tried(str(case), case, "cpu")
    assert record["ratios"][wrong] > 1.0
    text, holds = run.report([record], [(str(case), case)], ["machine"], 1.0)
    assert not holds
    assert f"FAILED: {case}" in text


def test_a_path_on_which_nothing_ran_is_a_failure():
    text, holds = run.report([], [("flash: dot", None)], [], 0.0)
    assert not holds
    assert "nothing ran on flash" in text


def test_without_a_device(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    assert run.main([]) == 2
    assert capsys.readouterr().out == "needs CUDA; none here\n"

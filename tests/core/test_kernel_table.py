"""Every place that writes the kernels' formulas again, against the table in ``regard.core.kernels``.

The places: the scores and the reference engine (numpy), the tiled and pruned engines (loops compiled by numba), the
sorted engine (sums over sorted keys), the fused engine (Triton, here interpreted on a CPU), torch without programs,
exported ONNX graphs, and the JavaScript of the pages. Each must give the table's K, and where it has gradients the
table's dK/d(u²); a kernel that is added to the table but not to one of them fails here.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import playwright
import pytest
import torch

import regard
from regard import engines
from regard.core import kernels
from regard.core.arrays import as_numpy
from regard.core.kernels import KERNELS
from regard.core.problem import build, mean_adjoint
from regard.core.scores import RADIAL
from regard.core.state import finish
from regard.pooling.planner import plan
from regard.programs.cpu import pair_scores

# Read when the Triton programs are first imported.
os.environ["TRITON_INTERPRET"] = "1"

every_kernel = pytest.mark.parametrize("name", KERNELS)
COMPACT = [name for name, kernel in KERNELS.items() if kernel.compact]
W = 1.7
# Queries at the place of a key, among the keys, and where only some kernels reach one.
KEY = np.random.default_rng(0).uniform(0.0, 3.0, 40)
QUERY = np.r_[KEY[:3], np.linspace(-0.3, 3.3, 20)]
VALUE = np.sin(4.0 * KEY)
U2 = np.r_[0.0, 1e-12, np.linspace(0.01, 1.2, 25) ** 2, 1.0, 4.0]


def table(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of the values, logsumexp, and d(Σ logsumexp)/dw, straight from the table."""
    difference = QUERY[:, None] - KEY
    u2 = (W * difference) ** 2
    K, rate = KERNELS[name].value(u2), KERNELS[name].rate(u2)
    mass = K.sum(axis=1)
    return K @ VALUE / mass, np.log(mass), np.sum((rate * 2.0 * W * difference**2).sum(axis=1) / mass)


def close(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(as_numpy(found), expected, rtol=tolerance, atol=tolerance)


# ---- codes


@every_kernel
def test_codes_are_declared_by_name(name):
    assert getattr(kernels, name.upper()) == KERNELS[name].code


def test_codes_number_the_rows_and_compact_kernels_come_last():
    assert [kernel.code for kernel in KERNELS.values()] == list(range(len(KERNELS)))
    assert [name for name in KERNELS if KERNELS[name].code >= kernels.BOXCAR] == COMPACT
    assert [score.kernel for score in RADIAL.values()] == list(KERNELS.values())


@every_kernel
def test_codes_of_the_programs(name):
    # Programs import nothing but programs: a change elsewhere must not leave compiled ones behind.
    assert getattr(pair_scores, name.upper()) == KERNELS[name].code
    math = pytest.importorskip("regard.programs.triton.triton_math")
    if name != "gaussian":  # what remains when every other branch is not taken
        assert getattr(math, name.upper()).value == KERNELS[name].code


# ---- values and gradients


@every_kernel
def test_scores(name):
    u = np.sqrt(U2)[:, None]
    close(np.exp(RADIAL[name]()(u, np.zeros((1, 1)))[:, 0]), KERNELS[name].value(u[:, 0] ** 2))


@pytest.fixture
def interpreted_on_a_cpu(monkeypatch):
    """The fused engine without a GPU."""
    pytest.importorskip("triton")
    from regard.engines.gpu import fused, placement

    for module in (fused, placement):
        monkeypatch.setattr(module, "device", lambda: torch.device("cpu"))


@pytest.mark.parametrize("engine", ["reference", "tiled", "pruned", "sorted", "fused"])
@every_kernel
def test_engines(name, engine, request):
    if engine == "fused":
        request.getfixturevalue("interpreted_on_a_cpu")
    problem = build(QUERY[:, None], KEY[:, None], VALUE[:, None], RADIAL[name](W), tol=0.0)
    step = plan(problem.sketch(), engine).steps[0]
    run = engines.load(engine)
    if engine == "sorted" and name == "gaussian":
        with pytest.raises(ValueError, match="sorted"):
            run.moments(problem, step)
        return
    output, logsumexp, slope = table(name)
    with np.errstate(all="ignore"):  # the interpreter computes rows that only fill a tile
        partial = run.moments(problem, step).partial
        found = finish(partial._replace(moments=as_numpy(partial.moments)))
        adjoint = mean_adjoint(partial, found.output, np.zeros((len(QUERY), 1)), np.ones(len(QUERY)))
        gradient = run.pullback(problem, step, partial, adjoint, frozenset({"w"})).w
    close(found.output[:, 0], output)
    close(found.logsumexp, logsumexp)
    close(gradient, slope, 1e-11)


@every_kernel
def test_torch(name):
    w = torch.tensor(W, dtype=torch.float64, requires_grad=True)
    sides = (torch.from_numpy(part) for part in (QUERY[:, None], KEY[:, None], VALUE))
    found = regard.pool(*sides, RADIAL[name](w))
    output, logsumexp, slope = table(name)
    close(found.output.detach(), output)
    close(found.logsumexp.detach(), logsumexp)
    if KERNELS[name].staircase:
        assert not found.logsumexp.requires_grad
        return
    (gradient,) = torch.autograd.grad(found.logsumexp.sum(), w)
    close(gradient, slope, 1e-11)


@every_kernel
def test_onnx(name, tmp_path):
    reference = pytest.importorskip("onnx.reference")
    model = regard.NadarayaWatsonRegressor(name, bandwidth=1.0 / W).fit(KEY[:, None], VALUE)
    regard.export_onnx(model, tmp_path / "model.onnx")
    with np.errstate(divide="ignore"):
        found = reference.ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, {"X": QUERY[:, None]})[0]
    close(np.ravel(found), table(name)[0], 1e-11)


# ---- the page


@pytest.fixture(scope="module")
def page() -> Callable[[str], Any]:
    """Runs an expression of the page's table of kernels, ``KERNELS``, in the node that comes with playwright."""
    node = Path(playwright.__file__).parent / "driver" / "node"
    source = Path(regard.__file__).parent / "plot" / "scripts" / "kernels.js"

    def run(expression: str) -> Any:
        module = base64.b64encode(source.read_bytes()).decode()
        code = (
            f"import {{ KERNELS }} from 'data:text/javascript;base64,{module}';"
            f"console.log(JSON.stringify({expression}))"
        )
        done = subprocess.run(
            [node, "--input-type=module", "-e", code], capture_output=True, text=True, timeout=60, check=True
        )
        return json.loads(done.stdout)

    return run


def test_javascript_has_every_kernel_and_two_more_scores(page):
    assert page("Object.keys(KERNELS)") == [*KERNELS, "dot", "additive"]


@every_kernel
def test_javascript(name, page):
    row = f"KERNELS.{name}"
    value, score, staircase = page(
        f"[{U2.tolist()}.map({row}.value), {row}.score ? {U2.tolist()}.map({row}.score) : null, !!{row}.staircase]"
    )
    close(value, KERNELS[name].value(U2), 1e-14)
    assert staircase == KERNELS[name].staircase
    assert (score is None) == KERNELS[name].compact
    if score is not None:
        close(np.exp(score), KERNELS[name].value(U2), 1e-14)

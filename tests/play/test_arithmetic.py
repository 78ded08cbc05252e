"""The page's own arithmetic against the library's, to 1e-6, in a real browser."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from regard import NadarayaWatsonRegressor, attention_weights, pool
from regard.bandwidth import loo_objective
from regard.core.kernels import KERNELS
from regard.data import notes
from regard.model.jackknife import jackknife_interval
from regard.scores import RADIAL, Additive, DotProduct, Nearest

pytestmark = pytest.mark.xdist_group("browser")
TOLERANCE = 1e-6
WIDTHS = [0.05, 0.7, 3.0, 40.0, 500.0]
QUERIES = np.r_[np.linspace(0.0, 5.0, 41), -3.0, 9.0]
SCORES = [*KERNELS, "dot", "additive"]


def library(kernel: str, w: float, query, key):
    """Queries, keys and score as the library takes them."""
    if kernel == "dot":
        return query[:, None], key[:, None], DotProduct(w)
    if kernel == "additive":
        score = Additive(W_q=[[w, 1.0], [w, -1.0]], W_k=[[-w], [-w]], w_v=[4.0, -4.0])
        return np.c_[query, np.ones(len(query))], key[:, None], score
    return query[:, None], key[:, None], RADIAL[kernel](w)


def weights_of(kernel: str, w: float, query, key, leave: bool):
    """Weights of the library; of empty rows, those of the nearest keys."""
    asked, keys, score = library(kernel, w, query, key)
    exclude = (np.arange(len(query)), np.arange(len(key))) if leave else None
    weights = attention_weights(asked, keys, score, exclude=exclude)
    empty = ~weights.any(axis=1)
    if empty.any():
        weights[empty] = attention_weights(query[:, None], keys, Nearest(1.0), exclude=exclude)[empty]
    return weights


@pytest.fixture(scope="module")
def arithmetic(playground, chromium):
    """The page's modules: `run(code, given)` runs an async function body that may import them."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(playground.new_url())
    yield lambda code, given: page.evaluate(
        f"async (given) => {{ const p = await import('/pooling.js'), d = await import('/diagnosis.js'), "
        f"l = await import('/query_details.js'); {code} }}",
        given,
    )
    context.close()


def points(seed: int, n: int):
    """Points with a tie in x, a pair at one place, and one far from all others."""
    x, y = notes(n, seed)[:2]
    return np.r_[x, x[3], x[5], 5.0], np.r_[y, y[3] + 1.0, y[5], -2.0]


def close(found, right) -> None:
    scale = max(1.0, np.abs(right).max())
    np.testing.assert_allclose(np.array(found), right, rtol=0, atol=TOLERANCE * scale)


def test_the_table_of_kernels_is_the_librarys(arithmetic):
    assert arithmetic("return Object.keys((await import('/kernels.js')).KERNELS)", {}) == SCORES


@pytest.mark.parametrize("kernel", SCORES)
def test_curve_weights_and_left_out(arithmetic, kernel):
    code = """
    const x = Float64Array.from(given.x), y = Float64Array.from(given.y), q = Float64Array.from(given.q);
    return given.widths.map((w) => {
      const found = p.attention(given.kernel, w, x, y), n = x.length;
      const weights = Array.from(x, (_, i) => Array.from(x, (_, j) => found.weights[i * n + j] / found.mass[i]));
      const [answer, leftOut, neighbours] = [found.answer, found.leftOut, found.neighbours].map((each) => [...each]);
      return { curve: [...p.curve(given.kernel, w, q, x, y)], weights, answer, leftOut, neighbours,
        loss: p.error(p.leftOut(given.kernel, w, x, y), y) };
    });"""
    x, y = points(1, 30)
    given = {"x": x.tolist(), "y": y.tolist(), "q": QUERIES.tolist(), "widths": WIDTHS, "kernel": kernel}
    for w, found in zip(WIDTHS, arithmetic(code, given), strict=True):
        weights = weights_of(kernel, w, x, x, leave=False)
        close(found["weights"], weights)
        close(found["answer"], weights @ y)
        close(found["neighbours"], 1.0 / (weights**2).sum(axis=1))
        left_out = weights_of(kernel, w, x, x, leave=True) @ y
        close(found["leftOut"], left_out)
        close(found["curve"], weights_of(kernel, w, QUERIES, x, leave=False) @ y)
        if kernel in KERNELS:
            close(found["loss"], loo_objective(x[:, None], y, RADIAL[kernel](w)))
        else:
            asked, keys, score = library(kernel, w, QUERIES, x)
            close(found["curve"], pool(asked, keys, y, score).output)
            close(found["loss"], np.mean((left_out - y) ** 2))


@pytest.mark.parametrize("kernel", SCORES)
def test_intervals_are_jackknife_plus(arithmetic, kernel):
    """As ``predict_interval(method="jackknife")`` has them; for scores, by leaving every point out of every query."""
    code = """const x = Float64Array.from(given.x), y = Float64Array.from(given.y);
    return given.widths.map((w) => l.intervals(given.kernel, w, given.q, x, y, p.leftOut(given.kernel, w, x, y))
      .map((ends) => [...ends]));"""
    x, y = points(1, 30)
    given = {"x": x.tolist(), "y": y.tolist(), "q": QUERIES.tolist(), "widths": WIDTHS, "kernel": kernel}
    for w, found in zip(WIDTHS, arithmetic(code, given), strict=True):
        if kernel in KERNELS:
            model = NadarayaWatsonRegressor(kernel=kernel, bandwidth=1 / w).fit(x[:, None], y)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a row is empty, and takes the nearest key
                right = model.predict_interval(QUERIES[:, None], 0.9, "jackknife")
        else:
            size = np.abs(y - weights_of(kernel, w, x, x, leave=True) @ y)
            every = np.arange(len(x))
            without = [
                weights_of(kernel, w, QUERIES, x[every != i], leave=False) @ y[every != i] for i in range(len(x))
            ]
            right = jackknife_interval(np.stack(without, 1), size, np.ones(len(x)), 0.9)
        close(found, right.T)


def test_too_few_points_for_an_interval(arithmetic):
    code = """const x = Float64Array.from(given.x);
    return l.intervals("gaussian", 1, [0.5], x, x, p.leftOut("gaussian", 1, x, x)).map(([end]) => String(end));"""
    assert arithmetic(code, {"x": list(range(8))}) == ["-Infinity", "Infinity"]
    assert arithmetic(code, {"x": list(range(9))}) != ["-Infinity", "Infinity"]


@pytest.mark.parametrize("kernel", SCORES)
@pytest.mark.parametrize("n", [5, 60, 300])
def test_far_is_what_the_library_calls_far(arithmetic, kernel, n):
    rng = np.random.default_rng(n)
    x = np.r_[rng.random(n - 2), 2.0, 2.01]
    asked = np.r_[QUERIES, x[:3]]
    code = """const x = Float64Array.from(given.x);
    return given.widths.map((w) => given.q.map((q) => l.isFar(given.kernel, w, q, x)));"""
    given = {"x": x.tolist(), "q": asked.tolist(), "widths": WIDTHS, "kernel": kernel}
    seen = set()
    for w, found in zip(WIDTHS, arithmetic(code, given), strict=True):
        if kernel not in KERNELS:
            assert not any(found)
            continue
        model = NadarayaWatsonRegressor(kernel=kernel, bandwidth=1 / w, empty="nan").fit(x[:, None], x)
        assert found == model.explain(asked[:, None], top=1).far.tolist()
        seen |= set(found)
    assert seen == ({True, False} if kernel in KERNELS else set())


def test_nearest_and_mean(arithmetic):
    x, y = points(2, 25)
    code = """const x = Float64Array.from(given.x), y = Float64Array.from(given.y);
    return [[...p.nearest(given.q, x, y)], p.mean(y), p.meanError(y)];"""
    nearest, mean, error = arithmetic(code, {"x": x.tolist(), "y": y.tolist(), "q": QUERIES.tolist()})
    close(nearest, pool(QUERIES, x, y, Nearest()).output)
    close(mean, y.mean())
    close(error, np.mean((y - (y.sum() - y) / (len(y) - 1)) ** 2))


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "epanechnikov", "boxcar"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_diagnosis_is_the_librarys(arithmetic, kernel, seed):
    """The same verdict at every w, and factors and losses that agree as far as the library refines them."""
    x, y = notes(40, seed)[:2]
    code = """const x = Float64Array.from(given.x), y = Float64Array.from(given.y), swept = d.sweep(given.kernel, x, y);
    return given.widths.map((w) => {
      const loss = p.error(p.leftOut(given.kernel, w, x, y), y), found = p.attention(given.kernel, w, x, y);
      return { ...d.diagnose(w, loss, x.length, swept), loss, best: swept.bestLoss, mean: swept.meanLoss,
        training: p.error(found.answer, y), neighbours: d.median(found.neighbours) };
    });"""
    widths = [0.1, 0.4, 0.9, 2.0, 3.0, 5.0, 20.0, 200.0]
    verdicts = {"thin": "too thin", "thick": "too thick", "right": "about right"}
    given = {"x": x.tolist(), "y": y.tolist(), "widths": widths, "kernel": kernel}
    seen = set()
    for w, found in zip(widths, arithmetic(code, given), strict=True):
        right = NadarayaWatsonRegressor(kernel=kernel, bandwidth=1 / w).fit(x[:, None], y).diagnose()
        assert verdicts[found["verdict"]] == right.verdict, (w, found, right)
        seen.add(right.verdict)
        close(found["loss"], right.loo_loss)
        close(found["training"], right.training_loss)
        close(found["mean"], right.mean_loss)
        close(found["neighbours"], right.neighbours)
        assert found["excess"] == pytest.approx(right.excess, abs=0.02)
    assert seen == set(verdicts.values())


def test_noise_alone_is_reported_as_such(arithmetic):
    rng = np.random.default_rng(0)
    x, y = rng.random(40) * 5, rng.standard_normal(40)
    code = """const x = Float64Array.from(given.x), y = Float64Array.from(given.y), swept = d.sweep("gaussian", x, y);
    return given.widths.map((w) => d.diagnose(w, p.error(p.leftOut("gaussian", w, x, y), y), x.length, swept));"""
    widths = [0.05, 30.0]
    for w, found in zip(widths, arithmetic(code, {"x": x.tolist(), "y": y.tolist(), "widths": widths}), strict=True):
        right = NadarayaWatsonRegressor(bandwidth=1 / w).fit(x[:, None], y).diagnose()
        assert found["nothing"] == right.says_nothing
        assert (found["verdict"] == "right") == (right.verdict == "about right")

"""Left-out lines by products of matrices: the answers of the exact engines, and derivatives of finite differences."""

import numpy as np
import pytest

from regard.bandwidth import Objective, host_lines, left_out_lines
from regard.bandwidth.fitted_lines import MIN_WIDTH_FOR_LAPACK, solve_positive
from regard.bandwidth.host_lines import leaf_order
from regard.bandwidth.left_out_lines import LeftOutLines

RNG = np.random.default_rng(23)
N, D = 150, 3
X = RNG.normal(size=(N, D))
Y = np.stack([np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2], X[:, 0] ** 2], axis=1) + 0.1 * RNG.normal(size=(N, 2))
W = np.diag([1.2, 0.6, 2.0]) + 0.2 * RNG.normal(size=(D, D))
CASES = {
    "one output": (Y[:, 0], {}),
    "two outputs": (Y, {}),
    "importances": (Y[:, 0], {"sample_weight": RNG.uniform(0.1, 3.0, N)}),
    "repetitions": (Y[:, 0], {"sample_weight": RNG.integers(1, 4, N)}),
    "groups": (Y[:, 0], {"groups": RNG.integers(0, 20, N)}),
}


def lines_of(case, X=X, **options):
    y, more = CASES[case]
    objective = Objective.of(X, y, degree=1, **more, **options)
    return objective, LeftOutLines.of(objective, objective.key)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("factor", [0.01, 1.0, 30.0, 3000.0])
def test_answers_are_those_of_the_engines(case, factor):
    objective, lines = lines_of(case)
    expected = objective(factor * W, 0.05).answer
    np.testing.assert_allclose(
        objective.loss.in_units_of_y(lines(factor * W, 0.05).answer), expected, rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_the_engines(case):
    objective, lines = lines_of(case)
    found, expected = lines(W, 0.05, metric="full"), objective(W, 0.05, gradient=True)
    share = objective.counts / objective.counts.sum()
    pull = 2.0 * share[:, None] * (found.answer - objective.loss.columns) / found.answer.shape[1]
    by_w = np.linalg.inv(W).T @ np.einsum("qp,qpab->ab", pull, found.by_metric)
    np.testing.assert_allclose(by_w, expected.w, rtol=1e-9, atol=1e-12)
    assert (pull * found.by_log_ridge).sum() == pytest.approx(expected.log_ridge, rel=1e-9)
    by_feature = lines(W, 0.05, metric="feature").by_metric
    np.testing.assert_allclose(by_feature, np.einsum("qpaa->qpa", found.by_metric), rtol=1e-12, atol=1e-14)


def test_every_entry_of_the_jacobian_is_a_finite_difference():
    _, lines = lines_of("two outputs")
    found, step = lines(W, 0.05, metric="full"), 1e-5
    for a, b in ((0, 0), (0, 2), (2, 0), (1, 2)):
        away = np.zeros((D, D))
        away[a, b] = step
        up, down = (lines(W @ (np.eye(D) + sign * away), 0.05).answer for sign in (1.0, -1.0))
        np.testing.assert_allclose(found.by_metric[:, :, a, b], (up - down) / (2.0 * step), atol=1e-7)


def test_a_row_without_itself_is_literally_deleted():
    objective, lines = lines_of("one output")
    for row in (0, 7):
        others = np.delete(np.arange(N), row)
        z, at = X[others] @ W, X[row] @ W
        weight = np.exp(-0.5 * ((z - at) ** 2).sum(axis=1))
        weight /= weight.sum()
        value = objective.loss.columns[others, 0]
        mean, height = weight @ (z - at), weight @ value
        cross = (weight * (value - height)) @ (z - at - mean)
        cov = ((z - at - mean) * weight[:, None]).T @ (z - at - mean) + 0.05 * (1.0 + mean @ mean) * np.eye(D)
        expected = height - mean @ np.linalg.solve(cov, cross)
        assert lines(W, 0.05).answer[row, 0] == pytest.approx(expected, abs=1e-12)


def test_rows_far_from_all_others_have_an_answer():
    far = X.copy()
    far[0] += 1e3
    objective, lines = lines_of("one output", far)
    np.testing.assert_allclose(
        objective.loss.in_units_of_y(lines(W, 0.1).answer), objective(W, 0.1).answer, rtol=0, atol=1e-9
    )
    assert np.isfinite(lines(W, 0.1, metric="full").by_metric).all()
    assert np.isfinite(lines(W, 0.1, metric="full", single=True).by_metric).all()


def test_single_precision_is_close():
    _, lines = lines_of("two outputs")
    exact, rough = (lines(W, 0.05, metric="full", single=single) for single in (False, True))
    assert 0.0 < np.abs(exact.answer - rough.answer).max() < 1e-4
    np.testing.assert_allclose(rough.by_metric, exact.by_metric, atol=1e-3)


@pytest.mark.parametrize("kept", [0, 40, 1 << 20])
@pytest.mark.parametrize("tile", [7, 16])
def test_tiles_change_nothing(tile, kept, monkeypatch):
    """In an order of space far tiles are skipped, and weights that are not kept are computed twice."""
    _, lines = lines_of("repetitions")
    some = np.array([3, 77, 140])
    sharp = 4.0 * W
    whole, part = lines(sharp, 0.05, metric="full"), lines(sharp, 0.05, some)
    np.testing.assert_allclose(part.answer, whole.answer[some], rtol=0, atol=1e-12)
    for name, value in (("TILE_KEYS", tile), ("BLOCK_ROWS", 5), ("CELLS_KEPT", kept * 13)):
        monkeypatch.setattr(host_lines, name, value)
    monkeypatch.setattr(left_out_lines, "MAX_ROWS_AT_ONCE", 13)
    monkeypatch.setattr(left_out_lines, "MIN_KEYS_TO_SKIP", 1)
    in_order, place = lines.ordered(sharp)
    computed, add = [], host_lines._Block._add
    monkeypatch.setattr(host_lines._Block, "_add", lambda block, tile: computed.append(1) or add(block, tile))
    tiled = in_order(sharp, 0.05, metric="full")
    assert len(computed) < (-(-N // 13) * 3) * -(-N // tile)
    np.testing.assert_allclose(tiled.answer[place], whole.answer, rtol=0, atol=1e-11)
    np.testing.assert_allclose(tiled.by_metric[place], whole.by_metric, rtol=0, atol=1e-10)
    np.testing.assert_allclose(lines(sharp, 0.05, metric="full").by_metric, whole.by_metric, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        in_order(sharp, 0.05, np.sort(place[some])).answer[np.argsort(np.argsort(place[some]))],
        part.answer,
        rtol=0,
        atol=1e-11,
    )


def test_leaves_of_a_kd_tree_are_runs(monkeypatch):
    monkeypatch.setattr(host_lines, "TILE_KEYS", 50)
    points = RNG.uniform(size=(1000, 2))
    order = leaf_order(points)
    assert np.array_equal(np.sort(order), np.arange(1000))
    spans = [np.ptp(points[order[start : start + 50]], axis=0).max() for start in range(0, 1000, 50)]
    assert max(spans) < 0.5


@pytest.mark.parametrize("width", [1, 4, MIN_WIDTH_FOR_LAPACK - 1, MIN_WIDTH_FOR_LAPACK, 40])
def test_systems_of_any_width_are_solved(width):
    root, solution = RNG.normal(size=(20, width, 2 * width)), RNG.normal(size=(20, 2, width))
    matrix = root @ root.mT + 0.1 * np.eye(width)
    np.testing.assert_allclose(solve_positive(matrix, (matrix @ solution.mT).mT), solution, rtol=1e-8, atol=1e-10)


@pytest.fixture
def gpu_on_cpu(monkeypatch):
    """What runs on a GPU runs on the CPU."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("regard.engines.gpu.placement.device", lambda: torch.device("cpu"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("factor", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("block_cells", [7 * N, 1 << 20])
def test_a_gpu_takes_the_same_products(gpu_on_cpu, monkeypatch, case, factor, block_cells):
    from regard.bandwidth import device_lines

    monkeypatch.setattr(device_lines, "CELLS_AT_ONCE", block_cells)
    (_, here), (_, there) = lines_of(case), lines_of(case, engine="fused")
    assert there.gpu
    assert not here.gpu
    rows = np.arange(3, N, 2)
    for metric in ("feature", "full"):
        found, expected = (lines(factor * W, 0.05, rows, metric=metric) for lines in (there, here))
        for one, other in zip(found, expected, strict=True):
            # Derivatives are differences of squares of coordinates.
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12 * max(1.0, factor**2))

"""Heads of local lines: Gauss–Newton descents, and answers that the search has not used."""

from dataclasses import replace

import numpy as np
import pytest

from regard import KernelRegressor
from regard.bandwidth import Objective, line_heads
from regard.bandwidth.gauss_newton import Curved, minimise
from regard.bandwidth.learned_heads import HeadSearchLog
from regard.bandwidth.line_heads import LINES, SIMPLE, HeadKind
from regard.bandwidth.losses import SquaredError
from regard.bandwidth.scaling import Scaling

RNG = np.random.default_rng(31)
X = RNG.normal(size=(120, 3))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=120)


def search_of(X=X, y=Y, **options):
    objective = Objective.of(X, y, degree=1, **options)
    return line_heads._Search(objective, Scaling.of(objective.key, objective.counts), 0, HeadSearchLog(None))


def test_a_descent_finds_the_minimum_of_rosenbrock():
    """A sum of squares with a curved, narrow minimum, and one parameter at its bound on the way."""

    def at(x, derivatives):
        residual = np.array([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])
        jacobian = np.array([[-20.0 * x[0], 10.0], [-1.0, 0.0]])
        return Curved(float(residual @ residual), 2.0 * jacobian.T @ residual, 2.0 * jacobian.T @ jacobian)

    low, high = np.full(2, -1.2), np.full(2, 5.0)
    found, value = minimise(at, np.array([-1.2, 1.0]), low, high, evaluations=80, gain=1e-14)
    np.testing.assert_allclose(found, 1.0, atol=1e-4)
    assert value < 1e-8


def test_parameters_stay_within_bounds():
    def at(x, derivatives):
        assert (x >= -1.0).all()
        assert (x <= 1.0).all()
        return Curved(float(((x - 3.0) ** 2).sum()), 2.0 * (x - 3.0), 2.0 * np.eye(2))

    found, _ = minimise(at, np.zeros(2), np.full(2, -1.0), np.ones(2), evaluations=20, gain=1e-12)
    np.testing.assert_array_equal(found, 1.0)


@pytest.mark.parametrize("evaluations", [2, 3, 5])
def test_derivatives_are_not_asked_for_at_the_last_point(evaluations):
    """No step follows it. What is found is the best of all points evaluated."""
    asked, values = [], []

    def at(x, derivatives):
        asked.append(derivatives)
        values.append(float(np.cosh(2.0 * x[0])))
        return (
            Curved(values[-1], 2.0 * np.sinh(2.0 * x), np.array([[1.0]])) if derivatives else Curved.flat(values[-1], 1)
        )

    found, value = minimise(at, np.array([2.0]), np.full(1, -9.0), np.full(1, 9.0), evaluations=evaluations, gain=1e-12)
    assert asked == [True] * (evaluations - 1) + [False]
    assert value == min(values) == np.cosh(2.0 * found[0])


@pytest.mark.parametrize("kind", [LINES[0], LINES[2], *SIMPLE], ids=lambda kind: f"{kind.metric} {kind.ridge}")
def test_gradients_of_the_criterion(kind):
    criterion = search_of().criterion(kind)
    low, _ = criterion.bounds
    x = np.zeros(len(low)) + 0.3 * RNG.normal(size=len(low))
    if kind.metric == "global":
        x[:] = np.log(1e-8)
    _, curved = criterion(x, None, False)
    for i in range(len(x)):
        step = np.zeros(len(x))
        step[i] = 1e-5
        up, down = (criterion(x + sign * step, None, False)[1].value for sign in (1.0, -1.0))
        assert curved.gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-6)
    assert np.linalg.eigvalsh(curved.curvature).min() > -1e-10


def test_a_global_line_is_ridge_regression():
    criterion = search_of().criterion(HeadKind(1.0, "global"))
    ridge = 0.03
    answer = criterion.answer(np.array([np.log(line_heads.GLOBAL_W**2 * ridge)]))[:, 0]
    z, y = criterion.lines.position, criterion.lines.columns[:, 0]
    for row in (0, 50):
        others = np.delete(np.arange(len(y)), row)
        centre = z[others] - z[others].mean(axis=0)
        slope = np.linalg.solve(centre.T @ centre / len(others) + ridge * np.eye(3), centre.T @ y[others] / len(others))
        expected = y[others].mean() + (z[row] - z[others].mean(axis=0)) @ slope
        assert answer[row] == pytest.approx(expected, abs=1e-3)


def test_no_answer_depends_on_its_own_value():
    """Another y of a row changes its left-out answer only through the mix and the unit of y."""
    search = search_of()
    kind = LINES[0]
    fold = search.folds()
    criterion = search.criterion(kind)
    start = np.zeros(len(criterion.bounds[0]))
    _, answer = search.cross_fitted(kind, criterion, start, fold)
    columns = criterion.lines.columns.copy()
    columns[17] += 5.0
    changed = replace(criterion, lines=replace(criterion.lines, columns=columns))
    _, other = search.cross_fitted(kind, changed, start, fold)
    assert other[17] == pytest.approx(answer[17], abs=1e-12)
    assert np.abs(other - answer).max() > 1e-3


def test_groups_and_copies_stay_in_one_fold():
    groups = RNG.integers(0, 30, 120)
    fold = search_of(groups=groups).folds()
    assert all(len(set(fold[groups == group])) == 1 for group in np.unique(groups))


def test_left_out_errors_of_a_small_table_are_those_of_new_rows():
    """They are those of new rows, though each head has searched a dozen numbers or more."""
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, new = rng.normal(size=(200, 6)), rng.normal(size=(400, 6))
        y, y_new = (part[:, 0] + np.sin(part[:, 1]) for part in (x, new))
        model = KernelRegressor().fit(x, y + 0.5 * rng.normal(size=200))
        left_out = np.mean((model.loo_predictions_ - model.value_) ** 2)
        ratios.append(left_out / np.mean((model.predict(new) - y_new - 0.5 * rng.normal(size=400)) ** 2))
    assert 0.88 < np.mean(ratios) < 1.15


def test_a_straight_line_with_few_rows():
    """The ridge line is one of the heads: what is linear is found from forty rows of ten features."""
    x = RNG.normal(size=(40, 10))
    model = KernelRegressor().fit(x, x @ np.arange(10.0))
    new = RNG.normal(size=(100, 10))
    assert np.sqrt(np.mean((model.predict(new) - new @ np.arange(10.0)) ** 2)) < 2.0


def test_a_far_worse_head_does_not_pull_the_mix_to_equal_shares():
    """However large its errors are, it has next to no weight, and the good heads share theirs as without it."""
    rng = np.random.default_rng(3)
    counts = np.ones(200)
    loss = SquaredError.of(rng.normal(size=200), counts)
    good = loss.columns + np.array([0.1, 0.3])[:, None, None] * rng.normal(size=(2, 200, 1))
    alone = loss.mix(good, counts)
    for size in (3.0, 30.0):
        poor = loss.columns + size * rng.normal(size=(1, 200, 1))
        weights = loss.mix(np.concatenate([good, poor]), counts)
        assert weights[2] < 0.01
        np.testing.assert_allclose(weights[:2], alone, atol=0.01)


def test_a_smooth_function_without_noise():
    """Local means and other poor heads have no weight: the error is that of lines, curvature·distance²/2."""
    x = np.linspace(0.0, 3.0, 30)[:, None]
    new = np.linspace(0.0, 3.0, 301)[:, None]
    error = KernelRegressor().fit(x, np.sin(x[:, 0])).predict(new) - np.sin(new[:, 0])
    assert np.abs(error).max() < 4e-3


def test_heads_of_many_rows_are_learned_from_a_part(monkeypatch):
    for name, value in {"MAX_ROWS_CROSS_FITTED": 100, "SUBSAMPLE_KEYS": 80, "SUBSAMPLE_ROWS": 40}.items():
        monkeypatch.setattr(line_heads, name, value)
    monkeypatch.setattr(line_heads, "MAX_ROWS_ANSWERED", 110)
    monkeypatch.setattr(line_heads, "MIN_ROWS_ANSWERED", 90)
    monkeypatch.setattr(line_heads, "ANSWERED_PAIRS", 1.0)
    done = []
    found = line_heads.learn_line_heads(
        search_of().objective, search_of().scaling, 0, lambda number, value, share: done.append(share)
    )
    assert int(np.isnan(found.answer[:, 0]).sum()) == 30
    assert found.score > 0.8
    assert done == sorted(done)
    assert 0.0 < done[0] < 0.2
    assert done[-1] <= 1.0


def test_ctrl_c_while_folds_are_left_out_keeps_what_was_learned(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(line_heads._Search, "cross_fitted", interrupt)
    model = KernelRegressor().fit(X, Y)
    assert model.search_.interrupted
    assert model.loo_score_ > 0.8

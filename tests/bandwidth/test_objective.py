"""The objective's values: criteria from hat matrices, losses, empty rows, and errors that say what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from regard.bandwidth.loo import loo_objective
from regard.bandwidth.losses import LogLoss, SquaredError
from regard.bandwidth.objective import CRITERIA, Objective
from regard.scores import RADIAL, Boxcar, DotProduct, Gaussian, Nearest, Tricube
from support.engines import every_engine

every_criterion = pytest.mark.parametrize("criterion", CRITERIA)


def example(n=20, d=2, P=None, seed=0):
    rng = np.random.default_rng([seed, n, d])
    X = rng.normal(size=(n, d))
    noise = rng.normal(size=n if P is None else (n, P))
    return X, (np.sin(X[:, 0]) if P is None else np.sin(X[:, :1])) + 0.3 * noise + 5.0


def hat_matrix(X, score, degree):
    """f = H y, row by row from weighted least squares."""
    H = np.empty((len(X), len(X)))
    for i, x in enumerate(X):
        root = np.sqrt(np.exp(score(x[None], X)[0]))
        design = np.concatenate([np.ones((len(X), 1)), X - x], axis=1)[:, : 1 + degree * X.shape[1]]
        H[i] = np.linalg.pinv(design * root[:, None])[0] * root
    return H


@every_engine
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", ["gaussian", "laplace", "epanechnikov", "boxcar"])
def test_gcv_and_aicc_from_the_hat_matrix(name, degree, engine):
    X, y = example()
    score = RADIAL[name](0.6 if name in ("gaussian", "laplace") else 0.35)
    H = hat_matrix(X, score, degree)
    n, freedom, error = len(y), np.trace(H), ((y - H @ y) ** 2).mean()
    expected = {
        "gcv": error / (1.0 - freedom / n) ** 2,
        "aicc": np.log(error) + (1.0 + freedom / n) / (1.0 - (freedom + 2.0) / n),
    }
    for criterion, value in expected.items():
        objective = Objective.of(X, y, kernel=name, degree=degree, criterion=criterion, engine=engine)
        found = objective(score.w)
        assert np.isclose(objective.in_units_of_y(found.value), value, rtol=1e-10)
        assert np.allclose(found.answer[:, 0], H @ y, rtol=1e-10)


@pytest.mark.parametrize("criterion", ["gcv", "aicc"])
@pytest.mark.parametrize("degree", [0, 1])
def test_penalised_criteria_of_repetitions_are_those_of_copies(degree, criterion):
    X, y = example()
    counts = np.random.default_rng(1).integers(0, 4, len(y))
    weighted = Objective.of(X, y, degree=degree, criterion=criterion, sample_weight=counts)
    copied = Objective.of(X.repeat(counts, axis=0), y.repeat(counts), degree=degree, criterion=criterion)
    for w in (0.3, np.array([1.0, 0.5])):
        a, b = weighted(w, gradient=True), copied(w, gradient=True)
        assert np.isclose(a.value, b.value, rtol=1e-11)
        assert np.allclose(a.w, b.w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weight", [None, "repetitions", "importances"])
@pytest.mark.parametrize("criterion", ["gcv", "aicc"])
@pytest.mark.parametrize("degree", [0, 1])
def test_penalised_criteria_of_some_of_the_rows(degree, criterion, weight):
    """Degrees of freedom are those of n rows as the evaluated rows have them; the gradient is that of the value."""
    X, y = example()
    given = {None: None, "repetitions": np.arange(20) % 3 + 1, "importances": np.arange(20) / 7.0 + 0.5}[weight]
    whole = Objective.of(X, y, degree=degree, criterion=criterion, sample_weight=given)
    w, order = np.array([0.9, 0.6]), np.random.default_rng(0).permutation(20)
    assert whole.evaluated_at(order)(w).value == pytest.approx(whole(w).value, rel=1e-12)
    some = whole.evaluated_at(order[:13])
    if weight is None:
        H, rows = hat_matrix(X, Gaussian(w), degree), order[:13]
        share, error = np.diagonal(H)[rows].mean(), ((y - H @ y)[rows] ** 2).mean()
        aicc = np.log(error) + (1.0 + share) / (1.0 - share - 2.0 / 20)
        expected = error / (1.0 - share) ** 2 if criterion == "gcv" else aicc
        assert some.in_units_of_y(some(w).value) == pytest.approx(expected, rel=1e-10)
    for j in range(2):
        step = 1e-5 * (np.arange(2) == j)
        slope = (some(w + step).value - some(w - step).value) / 2e-5
        assert some(w, gradient=True).w[j] == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("degree", [0, 1])
def test_no_room_left_is_infinite(degree):
    """Where every row keeps to itself, each has a degree of freedom of its own."""
    X, y = example()
    for criterion in ("gcv", "aicc"):
        found = Objective.of(X, y, degree=degree, criterion=criterion)(1e4, gradient=True)
        assert found.value == np.inf
        assert np.isfinite(found.w).all()


def test_several_outputs_count_by_their_variance():
    X, y = example(P=2)
    y = y * [1.0, 1e3]
    objective = Objective.of(X, y)
    alone = [Objective.of(X, column)(0.8).value for column in y.T]
    assert np.isclose(objective(0.8).value, np.mean(alone), rtol=1e-12)
    assert objective.in_units_of_y(2.5) == 2.5
    assert np.allclose(objective(0.8).answer, np.stack([Objective.of(X, c)(0.8).answer[:, 0] for c in y.T], 1))


def test_the_units_of_y():
    X, y = example()
    for criterion in CRITERIA:
        a, b = (Objective.of(X, z, criterion=criterion) for z in (y, 7.0 - 3.0 * y))
        assert np.isclose(a(0.8).value, b(0.8).value, rtol=1e-12)
        plain = a.in_units_of_y(a(0.8).value)
        expected = plain + np.log(9.0) if criterion == "aicc" else 9.0 * plain
        assert np.isclose(b.in_units_of_y(b(0.8).value), expected, rtol=1e-12)


def test_losses_and_their_gradients():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 4, 6).astype(float)
    rows = np.array([4, 0, 2])
    p = rng.dirichlet(np.ones(3), 3)
    for loss in (SquaredError.of(rng.normal(size=(6, 3)), counts), LogLoss.of(np.array([0, 1, 2, 1, 0, 0]), 3, counts)):
        found = loss(p, rows, counts[rows])
        for index in np.ndindex(p.shape):
            bump = np.zeros_like(p)
            bump[index] = 1e-6
            slope = (loss(p + bump, rows, counts[rows]).value - loss(p - bump, rows, counts[rows]).value) / 2e-6
            assert np.isclose(found.gradient[index], slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("value", [0.1, 3.0, 1e9, -1e-9, 0.0])
def test_equal_numbers_have_no_error(value):
    X, _ = example()
    for criterion in ("loo", "gcv"):
        objective = Objective.of(X, np.full(len(X), value), criterion=criterion)
        found = objective(0.8, gradient=True)
        assert found.value == 0.0
        assert found.w == 0.0
        assert np.allclose(found.answer, value, rtol=1e-14)
    assert Objective.of(X, np.full(len(X), value), criterion="aicc")(0.8).value == -np.inf


def test_a_class_of_one_member_is_finite():
    X, _ = example()
    labels = np.zeros(len(X), int)
    labels[3] = 1
    for w in (0.0, 0.5, 1e6):
        found = Objective.of(X, labels, classes=2)(w, gradient=True)
        # The others give the lone member no chance: its smoothed probability is frequency/(n + 1).
        n = len(X)
        lone = -np.log(1 / n / (n + 1))
        assert np.isfinite(found.value)
        assert np.isfinite(found.w).all()
        assert lone / n <= found.value <= lone
    assert np.isfinite(Objective.of(X, np.zeros(len(X), int), classes=1)(0.5).value)


@every_engine
@pytest.mark.parametrize("name", ["boxcar", "triangular", "epanechnikov", "tricube", "cosine"])
@pytest.mark.parametrize("degree", [0, 1])
def test_empty_rows_take_the_nearest_other(name, degree, engine):
    X = np.array([[0.0], [0.5], [1.0], [10.0], [14.0], [30.0]])
    y = np.array([0.0, 2.0, 4.0, 7.0, 8.0, 5.0])
    found = Objective.of(X, y, kernel=name, degree=degree, engine=engine)(1.0, gradient=True)
    assert found.empty == 3
    assert np.allclose(found.answer[3:, 0], [8.0, 7.0, 8.0])
    assert np.isfinite(found.w).all()
    all_empty = Objective.of(X, y, kernel=name, degree=degree, engine=engine)(100.0, gradient=True)
    assert all_empty.empty == 6
    assert np.allclose(all_empty.answer[:, 0], [2.0, 2.0, 2.0, 8.0, 7.0, 8.0])  # the middle row's neighbours tie: 0, 4
    assert not np.any(all_empty.w)


def test_empty_rows_and_groups():
    X = np.array([[0.0], [0.1], [5.0], [9.0]])
    found = Objective.of(X, [1.0, 2.0, 3.0, 4.0], kernel="tricube", groups=[0, 0, 1, 2])(1.0)
    assert found.empty == 4
    assert np.allclose(found.answer[:, 0], [3.0, 3.0, 4.0, 3.0])


def test_a_feature_without_influence_leaves_ties_to_all():
    """With w = 0 no row is empty; w = 0 in every feature is the mean of the others."""
    X, y = example()
    for name in RADIAL:
        found = Objective.of(X, y, kernel=name)(np.zeros(2), gradient=True)
        assert found.empty == 0
        assert np.allclose(found.answer[:, 0], (y.sum() - y) / (len(y) - 1))
        assert not found.w.any()


@every_engine
@pytest.mark.parametrize("degree", [0, 1])
def test_isolated_rows_are_finite(degree, engine):
    X, y = example(d=1)
    X[0], X[1] = 1e6, -1e9
    for w in (1e-9, 1.0, 1e6, 1e100):
        for ridge in (0.0, 0.1)[: 1 + degree]:
            found = Objective.of(X, y, degree=degree, engine=engine)(w, ridge, gradient=True)
            assert np.isfinite(found.value)
            assert np.isfinite(found.w).all()
            assert np.isfinite(found.answer).all()


def test_keys_that_share_a_place_far_away_give_their_mean():
    """A line next to a small λ must not take rounding for a slope."""
    X = np.array([[0.1, 0.7]] * 3 + [[0.3, -0.6]])
    y = np.array([2.1, 3.3, 5.7, 4.0])
    for w in (1.0, 10.0, 1e3, 1e5):
        for ridge in (0.0, 1e-6, 1e-2):
            found = Objective.of(X, y, degree=1)(w, ridge)
            assert np.isclose(found.answer[3, 0], y[:3].mean(), rtol=1e-14)


def test_the_public_function():
    X, y = example()
    expected = np.mean(
        [(y[i] - np.delete(y, i) @ softmax(Gaussian(0.7)(X[i : i + 1], np.delete(X, i, 0))[0])) ** 2 for i in range(20)]
    )
    assert np.isclose(loo_objective(X, y, Gaussian(0.7)), expected, rtol=1e-13)
    assert loo_objective(X, y, Gaussian([0.7, 0.7])) == pytest.approx(expected, rel=1e-13)
    assert loo_objective(X, y, Gaussian(0.7 * np.eye(2))) == pytest.approx(expected, rel=1e-13)
    assert loo_objective(X, y, Gaussian(-0.7)) == pytest.approx(expected, rel=1e-13)
    assert np.isfinite(loo_objective(X, y, Tricube(3.0)))
    assert np.isfinite(loo_objective(X, y, Boxcar(3.0), groups=np.arange(20) % 3))


def softmax(s):
    return np.exp(s) / np.exp(s).sum()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(3)}, "X has 4 rows but y has 3"),
        ({"y": np.array([1.0, np.nan, 0.0, 0.0])}, "finite"),
        ({"X": np.array([[1.0], [np.inf], [0.0], [0.0]])}, "finite"),
        ({"X": np.array([[1.0], [1e308], [0.0], [0.0]])}, "X holds numbers beyond"),
        ({"criterion": "aic"}, "criterion must be one of 'loo', 'gcv', 'aicc', got 'aic'"),
        ({"X": np.zeros((1, 1)), "y": np.zeros(1)}, "got 1 row"),
        ({"X": np.zeros((0, 1)), "y": np.zeros(0)}, "got 0 rows"),
        ({"groups": np.zeros(4)}, "got one group"),
        ({"groups": np.zeros(3)}, r"groups must have one entry per row of X, shape \(4,\), got shape \(3,\)"),
        ({"sample_weight": np.zeros(4)}, "weight"),
        ({"sample_weight": np.array([1.0, -1.0, 1.0, 1.0])}, "weight"),
        ({"sample_weight": np.array([1.0, np.nan, 1.0, 1.0])}, "weight"),
        ({"sample_weight": np.array([1.0, 0.0, 0.0, 0.0])}, "got 1 row"),
        ({"kernel": "gauss"}, "kernel"),
        ({"degree": 2}, "degree must be 0 .* or 1 .*, got 2"),
        ({"X": np.arange(4.0)[:, None] * 1e200, "degree": 1}, "rescale X"),
        ({"X": np.arange(4.0)[:, None] * 1e-200, "degree": 1}, "rescale X"),
        ({"y": np.arange(4.0), "classes": 4}, "integers"),
        ({"y": np.array([0, 1, -1, 2]), "classes": 3}, "got -1 to 2"),
        ({"y": np.array([0, 1, 2, 5]), "classes": 3}, "classes"),
        ({"y": np.array([0, 1, 2, 3]), "classes": 3}, r"y must lie in 0 … 2, got 0 to 3"),
    ],
)
def test_errors_name_what_is_wrong(change, message):
    given = {"X": np.arange(4.0)[:, None], "y": np.arange(4.0), **change}
    with pytest.raises(ValueError, match=message):
        Objective.of(given.pop("X"), given.pop("y"), **given)


def test_errors_of_the_public_function():
    for score in (DotProduct(), Nearest(), "gaussian"):
        with pytest.raises(TypeError, match="score must be a radial score"):
            loo_objective([[0.0], [1.0]], [0.0, 1.0], score)
    with pytest.raises(ValueError, match="w is for 2 features but key has 1"):
        loo_objective([[0.0], [1.0]], [0.0, 1.0], Gaussian([1.0, 1.0]))


def test_inputs_are_never_written_to():
    X, y = example()
    counts = np.arange(1, 21)
    copies = X.copy(), y.copy(), counts.copy()
    for array in (X, y, counts):
        array.setflags(write=False)
    Objective.of(X, y, degree=1, sample_weight=counts)(0.5, 0.1, gradient=True)
    assert all(np.array_equal(a, b) for a, b in zip((X, y, counts), copies, strict=True))


@pytest.mark.parametrize("weights", [None, "repetitions", "importances"])
def test_among_some_rows_is_the_objective_of_those_rows(weights):
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    weight = {None: None, "repetitions": rng.integers(1, 4, 40), "importances": rng.uniform(0.5, 2.0, 40)}[weights]
    rows = np.sort(rng.choice(40, 25, replace=False))
    some = Objective.of(X, y, sample_weight=weight).among(rows)
    alone = Objective.of(X[rows], y[rows], sample_weight=None if weight is None else weight[rows])
    w = np.array([1.3, 0.8])
    assert some.in_units_of_y(some(w).value) == pytest.approx(alone.in_units_of_y(alone(w).value), rel=1e-12)
    np.testing.assert_allclose(some(w).answer, alone(w).answer, rtol=1e-12)

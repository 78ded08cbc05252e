"""The objective's values: criteria from hat matrices, losses, empty rows, and errors that say what is wrong."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from regard.bandwidth import learn_from_subsamples
from regard.bandwidth.loo import loo_objective
from regard.bandwidth.losses import LogLoss, SquaredError
from regard.bandwidth.objective import CRITERIA, Objective
from regard.data.columns import CATEGORIES, NUMBER, WANG_VAN_RYZIN, Coding, Part
from regard.engines.cpu.prepared import FewLines, FewMeans
from regard.engines.cpu.prepared_tiles import TiledMeans
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
        ({"X": np.zeros((1, 1)), "y": np.zeros(1)}, r"got 1 row \(n_samples=1\)"),
        ({"X": np.zeros((0, 1)), "y": np.zeros(0)}, r"got 0 rows \(n_samples=0\)"),
        ({"X": np.zeros((0, 1)), "y": np.zeros(0, int), "classes": 2}, "got 0 rows"),
        ({"groups": np.zeros(4)}, "got one group"),
        ({"X": np.zeros((2, 1)), "y": np.zeros(2), "groups": np.zeros(2)}, "got one group"),
        ({"groups": np.zeros(3)}, r"groups must have one entry per row of X, shape \(4,\), got shape \(3,\)"),
        ({"sample_weight": np.zeros(4)}, "weight"),
        ({"sample_weight": np.array([1.0, -1.0, 1.0, 1.0])}, "weight"),
        ({"sample_weight": np.array([1.0, np.nan, 1.0, 1.0])}, "weight"),
        ({"sample_weight": np.array([1.0, 0.0, 0.0, 0.0])}, "got 1 row"),
        ({"sample_weight": np.array([1, 0, 0, 0])}, "got 1 row"),
        ({"kernel": "gauss"}, "kernel"),
        ({"degree": 2}, "degree must be 0 .* or 1 .*, got 2"),
        ({"X": np.arange(4.0)[:, None] * 1e200, "degree": 1}, "rescale X"),
        ({"X": np.arange(4.0)[:, None] * 1e-200, "degree": 1}, "rescale X"),
        ({"y": np.arange(4.0), "classes": 4}, "integers"),
        ({"y": np.zeros((4, 2), int), "classes": 4}, r"y must be \(n,\) integers, got .* shape \(4, 2\)"),
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


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("degree", [0, 1])
def test_among_some_rows_groups_are_theirs(degree, criterion):
    X, y = example(n=40)
    groups, rows = np.arange(40) // 3, np.arange(5, 38, 2)
    some = Objective.of(X, y, groups=groups, degree=degree, criterion=criterion).among(rows)
    alone = Objective.of(X[rows], y[rows], groups=groups[rows], degree=degree, criterion=criterion)
    w = np.array([0.7, 0.4])
    assert some.in_units_of_y(some(w).value) == pytest.approx(alone.in_units_of_y(alone(w).value), rel=1e-11)


def test_among_rows_of_one_group_each_is_empty():
    """No other row may answer for them: they get the mean of y, at any w."""
    X, y = example()
    some = Objective.of(X, y, groups=np.arange(20) < 4).among(np.arange(4))
    for w in (0.0, 0.8):
        found = some(w, gradient=True)
        assert found.empty == 4
        assert np.allclose(found.answer, y.mean(), rtol=1e-12)
        assert found.w == 0.0


def left_out_means(X, y, w, mass, copies):
    """Gaussian means with all of a row's mass left out, or one copy of it, relative to the largest weight."""
    answers = np.empty(len(y))
    for i, x in enumerate(X):
        stays = mass.copy()
        stays[i] = mass[i] - 1.0 if copies else 0.0
        score = np.where(stays > 0.0, -0.5 * ((w * (X - x)) ** 2).sum(axis=1), -np.inf)
        e = stays * np.exp(score - score.max())
        answers[i] = e @ y / e.sum()
    return answers


@pytest.mark.parametrize("engine", ["auto", "tiled"])
@pytest.mark.parametrize("weight", [None, "repetitions", "importances"])
def test_rows_far_from_all_others_count_like_the_rest(weight, engine):
    """Their weights underflow; relative to the largest they are as good as those of any row."""
    X, y = example()
    # For the first row two others are nearest by a hair, so that its answer depends on w.
    X[0], X[1], X[2], X[3] = (100.0, 0.0), (-90.0, 7.0), (3.0, 0.0), (3.005, 0.3)
    mass = {None: np.ones(20), "repetitions": np.arange(20) % 3 + 1.0, "importances": np.linspace(0.5, 3.0, 20)}[weight]
    given = {None: None, "repetitions": mass.astype(int), "importances": mass}[weight]
    objective = Objective.of(X, y, sample_weight=given, engine=engine)

    def value(w):
        return np.average((y - left_out_means(X, y, w, mass, weight == "repetitions")) ** 2, weights=mass)

    w = np.array([0.9, 0.6])
    found = objective(w, gradient=True)
    assert found.empty == 0
    assert found.log_ridge == 0.0
    assert np.allclose(found.answer[:, 0], left_out_means(X, y, w, mass, weight == "repetitions"), rtol=1e-11)
    assert objective.in_units_of_y(found.value) == pytest.approx(value(w), rel=1e-11)
    slopes = [(value(w + step) - value(w - step)) / 2e-5 for step in 1e-5 * np.eye(2)]
    assert np.allclose(objective.in_units_of_y(1.0) * found.w, slopes, rtol=1e-6)


@pytest.mark.parametrize(("name", "degree", "ridge"), [("laplace", 0, 0.0), ("laplace", 1, 0.1), ("gaussian", 1, 0.1)])
def test_a_far_row_without_copies_beside_one_with_copies(name, degree, ridge):
    X, y = example()
    X[0], X[1] = (5e3, 0.0), (-5e3, 7.0)
    counts = np.where(np.arange(20) == 1, 2, 1)
    repeated = Objective.of(X, y, kernel=name, degree=degree, sample_weight=counts)(0.8, ridge, gradient=True)
    copied = Objective.of(X.repeat(counts, axis=0), y.repeat(counts), kernel=name, degree=degree)
    found = copied(0.8, ridge, gradient=True)
    assert repeated.empty == found.empty == 0
    assert np.allclose(repeated.answer.repeat(counts, axis=0), found.answer, rtol=1e-9)
    assert np.isclose(repeated.value, found.value, rtol=1e-10)
    assert np.isclose(repeated.w, found.w, rtol=1e-8)


def test_pairs_of_rows_at_one_place():
    """Far from each other they have half a degree of freedom per row: as GCV charges for it, it is leave-one-out.

    AICc of four rows has no room left.
    """
    X, y = np.array([[0.0], [0.0], [1e3], [1e3]]), np.array([1.0, 2.0, 5.0, 9.0])
    loo, gcv, aicc = (Objective.of(X, y, criterion=criterion)(1.0, gradient=True) for criterion in CRITERIA)
    assert gcv.value == pytest.approx(loo.value, rel=1e-15)
    assert aicc.value == np.inf
    assert gcv.w == aicc.w == 0.0


def test_without_a_gradient_there_is_none():
    X, y = example()
    for options in ({}, {"degree": 1}, {"criterion": "gcv"}, {"kernel": "laplace"}):
        found = Objective.of(X, y, **options)(0.5)
        assert found.w is None
        assert found.log_ridge == 0.0


def test_an_objective_is_itself_and_does_not_change():
    X, y = example()
    a, b = Objective.of(X, y), Objective.of(X, y)
    assert a != b
    assert len({a, b, a}) == 2
    with pytest.raises(FrozenInstanceError):
        a.degree = 1


def test_a_few_rows_in_memory_are_searched_with_all_of_them():
    X, y = example()
    found = learn_from_subsamples(Objective.of(X, y), "scalar")
    assert found.looked_at is None
    assert np.isfinite(found.answer).all()


def test_what_a_search_prepares():
    """Means and lines of few rows, and compiled means; nothing where w is not all that changes, or keys may be lost."""
    X, y = example()
    assert isinstance(Objective.of(X, y)._prepared, FewMeans)
    assert isinstance(Objective.of(X, y, engine="tiled")._prepared, TiledMeans)
    for criterion in CRITERIA:
        assert isinstance(Objective.of(X, y, degree=1, criterion=criterion)._prepared, FewLines)
    for options in (
        {"criterion": "gcv"},
        {"loss": "absolute"},
        {"kernel": "laplace"},
        {"kernel": "tricube", "degree": 1},
    ):
        assert Objective.of(X, y, **options)._prepared is None
    assert replace(Objective.of(X, y), tol=1e-6)._prepared is None


def test_absolute_errors_are_rounded_off_at_a_tenth_of_their_median():
    X, y = example()
    corner = 0.1 * np.median(np.abs(y - np.median(y)))
    objective = Objective.of(X, y, loss="absolute")

    def value(w):
        error = y - left_out_means(X, y, w, np.ones(20), copies=False)
        return np.mean(np.sqrt(error**2 + corner**2) - corner)

    found = objective(0.9, gradient=True)
    assert objective.in_units_of_y(found.value) == pytest.approx(value(0.9), rel=1e-12)
    slope = (value(0.9 + 1e-5) - value(0.9 - 1e-5)) / 2e-5
    assert objective.in_units_of_y(float(found.w)) == pytest.approx(slope, rel=1e-7)


@pytest.mark.parametrize("degree", [0, 1])
def test_answers_to_some_rows_leave_the_others_open(degree):
    X, y = example(P=2)
    objective, rows = Objective.of(X, y, degree=degree), np.array([7, 2, 11])
    found, answer = objective.answered(0.6, 0.1 * degree, rows)
    whole = objective(0.6, 0.1 * degree).answer
    assert answer.shape == (20, 2)
    assert np.allclose(answer[rows], whole[rows], rtol=1e-12)
    assert np.isnan(np.delete(answer, rows, axis=0)).all()
    assert found.value == pytest.approx(((whole - y)[rows] ** 2 / y.var(axis=0)).mean(), rel=1e-10)


@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_the_score_of_numbers_is_r_squared_where_there_is_a_prediction(loss):
    X, y = example(P=2)
    counts, order = np.arange(20) % 3 + 1, np.random.default_rng(5).permutation(20)
    answer = y + np.random.default_rng(6).normal(size=y.shape) * [0.1, 2.0]
    expected = []
    answer[3, 0], answer[7] = np.nan, np.nan
    known = np.delete(np.arange(20), [3, 7])
    for truth, found in zip(y.T, answer.T, strict=True):
        residual = np.average((truth - found)[known] ** 2, weights=counts[known])
        expected.append(1.0 - residual / np.cov(truth, fweights=counts, bias=True))
    objective = Objective.of(X, y, sample_weight=counts, loss=loss)
    assert objective.score(answer) == pytest.approx(np.mean(expected), rel=1e-12)
    assert objective.evaluated_at(order).score(answer[order]) == pytest.approx(np.mean(expected), rel=1e-12)
    assert objective.score(np.where(np.isnan(answer), np.nan, y)) == pytest.approx(1.0, abs=1e-15)


def test_the_score_of_classes_is_minus_the_smoothed_log_loss():
    X, _ = example()
    labels, counts = np.arange(20) % 3, np.arange(20) % 4 + 1
    p = np.random.default_rng(7).dirichlet(np.ones(3), 20)
    n, frequency = counts.sum(), np.bincount(labels, counts) / counts.sum()
    chance = (n * p[np.arange(20), labels] + frequency[labels]) / (n + 1)
    p[4] = np.nan
    known = np.arange(20) != 4
    expected = np.average(np.log(chance[known]), weights=counts[known])
    assert Objective.of(X, labels, classes=3, sample_weight=counts).score(p) == pytest.approx(expected, rel=1e-12)


def mixed_table(n=20):
    """Codes of a number, a colour of three, and a size of three steps with Wang and van Ryzin's kernel."""
    colours, sizes = ("blue", "green", "red"), ("large", "medium", "small")
    coding = Coding(
        (
            Part(NUMBER, (0,), ("x",)),
            Part(CATEGORIES, (1,), ("colour",), colours),
            Part(WANG_VAN_RYZIN, (2,), ("size",), sizes),
        )
    )
    rng = np.random.default_rng(8)
    table = [rng.normal(size=n), rng.choice(colours, n).astype(object), rng.choice(sizes, n).astype(object)]
    return coding, coding.coded(table), np.sin(table[0]) + (table[1] == "red") + 0.2 * rng.normal(size=n)


@pytest.mark.parametrize("degree", [0, 1])
def test_a_mixed_table_has_one_w_per_part(degree):
    """A number, three features of colour, two of size, and three whose w is 1."""
    coding, X, y = mixed_table()
    sloped = coding.numbers if degree else None
    mixed = Objective.of(X, y, degree=degree, coding=coding, sloped=sloped)
    plain = Objective.of(X, y, degree=degree, sloped=sloped)

    def spread(w):
        return np.concatenate([w[[0, 1, 1, 1, 2, 2]], np.ones(3)])

    for w in (np.array([0.8, 0.6, 0.3]), np.array(0.7)):
        each, ridge = np.broadcast_to(w, 3), 0.1 * degree
        found = mixed(w, ridge, gradient=True)
        assert mixed(w, ridge).w is None
        assert mixed(w, ridge).value == pytest.approx(plain(spread(each), ridge).value, rel=1e-13)
        slopes = [
            (plain(spread(each + step), ridge).value - plain(spread(each - step), ridge).value) / 2e-5
            for step in 1e-5 * np.eye(3)
        ]
        assert found.w.shape == w.shape
        assert np.allclose(found.w, slopes if w.ndim else np.sum(slopes), rtol=1e-6, atol=1e-9)


def test_the_scale_of_what_w_multiplies():
    """The standard deviation of a feature, and the root mean square distance of a part from its mean."""
    coding, X, y = mixed_table()
    counts = np.arange(20) % 3 + 1
    copies = X.repeat(counts, axis=0)
    plain = Objective.of(X, y, sample_weight=counts)
    assert np.allclose(plain.feature_scale, copies.std(axis=0), rtol=1e-12)
    mixed = replace(plain, coding=coding).feature_scale
    for scale, features in zip(mixed, ([0], [1, 2, 3], [4, 5]), strict=True):
        distance = np.linalg.norm(copies[:, features] - copies[:, features].mean(axis=0), axis=1)
        assert scale == pytest.approx(np.sqrt(np.mean(distance**2)), rel=1e-12)


def test_estimated_seconds_grow_with_the_work():
    X, y = example(n=40)
    for engine in ("auto", "tiled"):
        means, lines = (Objective.of(X, y, degree=degree, engine=engine) for degree in (0, 1))
        for objective in (means, lines):
            assert 0.0 < objective.evaluated_at(np.arange(10)).seconds(1.0) < objective.seconds(1.0) < np.inf
        assert means.seconds(1.0) < lines.seconds(1.0)
    coding, X, y = mixed_table()
    mixed, w = Objective.of(X, y, coding=coding), np.array([0.8, 0.6, 0.3])
    assert mixed.seconds(w) == Objective.of(X, y).seconds(np.ones(X.shape[1]))


def test_only_a_tolerance_that_is_given_lets_rows_lose_mass():
    """Here a share of 1e-11 of the weights has all of the answer: less than what ``pool`` may leave out by default."""
    rng = np.random.default_rng(9)
    X = np.concatenate([rng.uniform(0.0, 0.5, 256), rng.uniform(7.5, 8.0, 256)])[:, None]
    y, near = np.where(X[:, 0] < 5.0, 0.0, 1e8), np.arange(256)
    expected = left_out_means(X, y, 1.0, np.ones(512), copies=False)[near]
    exact = Objective.of(X, y, engine="pruned").evaluated_at(near)
    for w in (np.array(1.0), np.array([[1.0]])):
        assert np.allclose(exact(w).answer[:, 0], expected, rtol=1e-3, atol=1e-7)
        assert np.abs(replace(exact, tol=1e-3)(w).answer[:, 0]).max() < 0.01 * expected.min()


def test_the_spectral_engine_has_the_tolerance_of_pool():
    """And leaves w = 0, which has no Fourier modes, to another engine."""
    pytest.importorskip("finufft")
    X, y = example(n=200)
    for w in (0.0, np.array([2.0, 1.0])):
        found, exact = (Objective.of(X, y, engine=engine)(w, gradient=True) for engine in ("spectral", "reference"))
        assert np.allclose(found.answer, exact.answer, rtol=1e-7)
        assert np.allclose(found.w, exact.w, rtol=1e-5, atol=1e-9)

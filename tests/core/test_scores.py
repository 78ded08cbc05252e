"""The table of kernels against its definitions, and what a score accepts."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad

from regard.core.scores import LIMIT, at_limit, far_below, power_and_stretch
from regard.scores import KERNELS, RADIAL, Additive, DotProduct, Gaussian, Laplace, Nearest, Radial
from support import oracle
from support.generators import dyadic

every_kernel = pytest.mark.parametrize("name", KERNELS)
every_compact = pytest.mark.parametrize("name", [name for name, row in KERNELS.items() if row.compact])
U = np.concatenate([[0.0, 1e-160, 1e-8, 1 - 1e-9, 1.0, 1 + 1e-9, 1.5, 3.0, 30.0], np.linspace(0.01, 0.99, 25)])
EPS = np.finfo(float).eps

rng = np.random.default_rng(7)
QUERY, KEY = dyadic(rng.normal(size=(9, 3))), dyadic(rng.normal(size=(11, 3)))


def slope(name: str, u2: float) -> mpmath.mpf:
    """dK/d(u²) in 60 digits."""
    with mpmath.workdps(60):
        return mpmath.diff(
            lambda x: mpmath.exp(oracle.exact_log_kernel(name, x)), mpmath.mpf(u2), h=mpmath.mpf("1e-20")
        )


# ---- the table


@every_kernel
def test_value(name):
    for u in U:
        expected = float(mpmath.exp(oracle.exact_log_kernel(name, mpmath.mpf(u * u))))
        # What an ulp of u² may move: near the edge of a compact kernel 1 − … cancels.
        condition = expected + u * u * abs(float(KERNELS[name].rate(np.array(u * u))))
        assert abs(KERNELS[name].value(np.array(u * u)) - expected) <= 8 * EPS * condition, u


@every_kernel
def test_rate_is_the_derivative_in_u_squared(name):
    for u in np.concatenate([np.linspace(0.05, 0.95, 19), [1.05, 2.0, 5.0]]):
        assert np.isclose(KERNELS[name].rate(np.array(u * u)), float(slope(name, u * u)), rtol=1e-12, atol=1e-15), u


@every_kernel
def test_rate_is_finite_everywhere(name):
    u2 = np.array([0.0, 5e-324, 1e-300, 1.0, np.nextafter(1.0, 2.0), 1e300])
    assert np.isfinite(KERNELS[name].rate(u2)).all()
    assert (KERNELS[name].rate(u2) <= 0.0).all()


@every_kernel
def test_moments_by_quadrature(name):
    row = KERNELS[name]
    end = 1.0 if row.compact else np.inf

    def integral(f):
        return 2.0 * quad(f, 0.0, end, epsabs=1e-13, epsrel=1e-13)[0]

    def K(u):
        return float(row.value(np.array(u * u)))

    mass = integral(K)
    assert np.isclose(row.roughness, integral(lambda u: K(u) ** 2) / mass**2, rtol=1e-10)
    assert np.isclose(row.variance, integral(lambda u: u * u * K(u)) / mass, rtol=1e-10)


def test_canonical_widths():
    """The factors of Marron and Nolan: a Gaussian bandwidth and these smooth alike."""
    known = {"gaussian": 0.7764, "boxcar": 1.3510, "epanechnikov": 1.7188, "biweight": 2.0362, "triweight": 2.3122}
    assert {name: round(KERNELS[name].canonical, 4) for name in known} == known


@every_kernel
def test_compact_means_zero_beyond_one(name):
    beyond = KERNELS[name].value(np.array([np.nextafter(1.0, 2.0), 1.1, 7.0, 1e4]))
    assert not beyond[1:].any() if KERNELS[name].compact else (beyond > 0.0).any()
    assert not beyond[0] or not KERNELS[name].compact


@every_kernel
def test_staircase_means_no_slope(name):
    slopes = KERNELS[name].rate(np.linspace(0.01, 2.0, 50))
    assert KERNELS[name].staircase == (not slopes.any())


def test_boxcar_edges_are_inclusive():
    at = RADIAL["boxcar"](0.5)(np.array([[0.0]]), np.array([[-2.0], [2.0], [2.0000001], [0.0]]))
    assert at.tolist() == [[0.0, 0.0, -np.inf, 0.0]]


@every_kernel
def test_values_at_enormous_distances_raise_nothing(name):
    huge = np.array([1e200, np.finfo(float).max])
    assert not KERNELS[name].value(huge).any()
    assert not KERNELS[name].rate(huge).any()


# ---- the scores


@every_kernel
def test_score_is_the_log_of_the_kernel(name):
    score = RADIAL[name](np.array([0.5, 0.25, 0.75]))
    got = score(QUERY, KEY)
    u = np.sqrt((((QUERY[:, None] - KEY[None]) * score.w) ** 2).sum(-1))
    with np.errstate(divide="ignore"):
        expected = np.log(oracle.kernel(name, u))
    assert np.array_equal(np.isneginf(got), np.isneginf(expected))
    assert np.isneginf(got).any() == KERNELS[name].compact
    seen = np.isfinite(got)
    assert np.allclose(got[seen], expected[seen], rtol=1e-12, atol=1e-12)


@every_kernel
def test_a_diagonal_matrix_is_a_vector(name):
    w = np.array([0.5, 0.25, 0.75])
    assert np.array_equal(RADIAL[name](np.diag(w))(QUERY, KEY), RADIAL[name](w)(QUERY, KEY))
    assert np.array_equal(RADIAL[name](np.full(3, 0.5))(QUERY, KEY), RADIAL[name](0.5)(QUERY, KEY))


@every_kernel
def test_only_the_size_of_w_counts(name):
    for w in (0.5, np.array([0.5, 0.25, 0.75])):
        flipped = RADIAL[name](-w)
        assert (flipped.w >= 0.0).all()
        assert np.array_equal(flipped(QUERY, KEY), RADIAL[name](w)(QUERY, KEY))
    matrix = rng.normal(size=(3, 2))
    assert np.array_equal(RADIAL[name](-matrix)(QUERY, KEY), RADIAL[name](matrix)(QUERY, KEY))


def test_a_rotation_of_a_matrix_w_changes_nothing():
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    w = rng.normal(size=(3, 3))
    assert np.allclose(Gaussian(w @ turn)(QUERY, KEY), Gaussian(w)(QUERY, KEY), rtol=1e-12)


def test_far_distances_saturate_instead_of_overflowing():
    far = Gaussian(1e200)(np.array([[0.0]]), np.array([[1.0]]))
    assert far[0, 0] == -0.5 * np.finfo(float).max
    assert np.isfinite(Laplace(1e200)(np.array([[0.0]]), np.array([[1.0]]))).all()


@pytest.mark.parametrize("score", [Gaussian, Nearest])
def test_w_is_kept_apart_from_the_caller_and_read_only(score):
    w = np.array([1.0, 2.0])
    made = score(w)
    w[0] = 99.0
    assert made.w[0] != 99.0
    with pytest.raises(ValueError, match="read-only"):
        made.w[0] = 5.0
    with pytest.raises(AttributeError):
        made.w = 3.0


def test_bandwidth_is_one_over_w():
    assert Gaussian(-4.0).bandwidth == 0.25
    assert Gaussian([2.0, 0.0]).bandwidth.tolist() == [0.5, np.inf]
    with pytest.raises(ValueError, match="matrix w"):
        _ = Gaussian(np.eye(2)).bandwidth


def test_nearest_marks_the_nearest_and_its_ties():
    at = Nearest(3.0)(np.array([[0.0], [1.9]]), np.array([[-1.0], [1.0], [3.0]]))
    assert at.tolist() == [[0.0, 0.0, -np.inf], [-np.inf, 0.0, -np.inf]]


def test_nearest_shares_ties_of_an_integer_lattice():
    for group in ((1, 2, 3), (1, 6, 8), (3, 5, 7), (5, 7, 9), (7, 9, 11), (3, 10, 11)):
        turns = np.array([np.roll(group, shift) for shift in range(3)], float)
        assert (Nearest()(np.zeros((1, 3)), turns) == 0.0).all(), group


def test_nearest_goes_by_direction_of_w_alone():
    for size in (1e-300, 1.0, 1e300):
        assert np.array_equal(
            Nearest(size * np.array([1.0, 0.5, 0.25]))(QUERY, KEY), Nearest([1.0, 0.5, 0.25])(QUERY, KEY)
        )


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1.0, 1e150, 1e300])
def test_nearest_distance_at_every_scale(scale):
    got = Nearest().distance(np.array([[3.0 * scale, 0.0]]), np.array([[0.0, 4.0 * scale], [0.0, 0.0]]))
    assert np.allclose(got / scale, [[5.0, 3.0]], rtol=1e-12)


def test_dot_product_is_scaled_by_the_root_of_the_width():
    assert np.allclose(DotProduct(1.5)(QUERY, KEY), 1.5 * QUERY @ KEY.T / np.sqrt(3.0), rtol=1e-15)


def test_additive_is_its_formula_and_takes_two_widths():
    W_q, W_k, w_v = rng.normal(size=(4, 3)), rng.normal(size=(4, 2)), rng.normal(size=4)
    got = Additive(W_q, W_k, w_v)(QUERY, KEY[:, :2])
    for i, q in enumerate(QUERY):
        for j, k in enumerate(KEY[:, :2]):
            assert np.isclose(got[i, j], w_v @ np.tanh(W_q @ q + W_k @ k), rtol=1e-13)


# ---- what is refused

BAD_W = [
    (np.nan, "finite"),
    (np.inf, "finite"),
    ([1.0, -np.inf], "finite"),
    (np.ones((2, 2, 2)), "dimensions"),
]


@pytest.mark.parametrize("score", [*RADIAL.values(), Nearest], ids=lambda s: s.__name__)
@pytest.mark.parametrize(("w", "word"), BAD_W)
def test_bad_w_is_named(score, w, word):
    with pytest.raises(ValueError, match=f"w must .*{word}"):
        score(w)


@pytest.mark.parametrize(("w", "word"), [(np.nan, "finite"), ([1.0], "dimensions")])
def test_bad_w_of_a_dot_product_is_named(w, word):
    with pytest.raises(ValueError, match=f"w must .*{word}"):
        DotProduct(w)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("W_q", (np.ones(3), np.ones((4, 3)), np.ones(4))),
        ("W_k", (np.ones((4, 3)), [[np.nan]], np.ones(4))),
        ("w_v", (np.ones((4, 3)), np.ones((4, 3)), np.ones((4, 1)))),
        ("W_q .* W_k .* w_v", (np.ones((4, 3)), np.ones((5, 3)), np.ones(4))),
    ],
)
def test_bad_parts_of_an_additive_score_are_named(name, parts):
    with pytest.raises(ValueError, match=name):
        Additive(*parts)


@pytest.mark.parametrize(
    ("score", "widths", "word"),
    [
        (Gaussian(), (2, 3), "query has 2 features and key has 3"),
        (Gaussian([1.0, 2.0]), (3, 3), "w is for 2 features"),
        (Gaussian(np.ones((2, 5))), (3, 3), "w is for 2 features"),
        (Nearest([1.0, 2.0]), (3, 3), "w is for 2 features"),
        (DotProduct(), (2, 3), "query has 2 features and key has 3"),
        (Additive(np.ones((4, 2)), np.ones((4, 3)), np.ones(4)), (3, 3), "W_q and W_k are for widths 2 and 3"),
    ],
)
def test_wrong_widths_are_named(score, widths, word):
    with pytest.raises(ValueError, match=word):
        score.check(*widths)


def test_nearest_needs_a_direction():
    with pytest.raises(ValueError, match="w of Nearest must not be all zero"):
        Nearest(0.0)
    assert issubclass(Nearest, Radial)


# ---- scores that are very low


@pytest.mark.parametrize("w", [0.0, 5e-324, 0.3, 1.0, 3.0, 1e300, 2.0**1022, 2.0**1023, 1.7e308])
def test_w_is_a_power_of_two_and_a_stretch(w):
    power, stretch = power_and_stretch(w)
    assert power == 0.0 or np.frexp(power)[0] == 0.5
    with mpmath.workdps(60):
        square = mpmath.mpf(w) ** 2
        assert abs(mpmath.mpf(power) ** 2 * mpmath.mpf(stretch) - square) <= EPS * square
    # Differences are multiplied by the power alone: w = 0 must ignore those of any size.
    assert (power == 0.0) == (w == 0.0)
    assert 0.0 <= stretch < 4.0


LARGEST = float(np.finfo(np.float64).max)


@pytest.mark.parametrize(
    ("laplace", "additive", "beyond", "short_of"),
    [
        (False, False, LIMIT, np.nextafter(LIMIT, 0.0)),
        (False, True, -0.5 * LARGEST, -0.4 * LARGEST),
        (True, False, LIMIT, np.nextafter(LIMIT, 0.0)),
        (True, True, -np.sqrt(LARGEST), -0.9 * np.sqrt(LARGEST)),
    ],
)
def test_the_limit_begins_where_squares_overflow(laplace, additive, beyond, short_of):
    peak = np.array([beyond, short_of, 0.0, -np.inf])
    assert at_limit(peak, LARGEST, laplace, additive).tolist() == [True, False, False, False]


def test_in_single_precision_the_limit_begins_where_its_own_squares_overflow():
    largest = float(np.finfo(np.float32).max)
    assert at_limit(np.array([-0.5 * largest, -0.4 * largest]), largest, False, False).tolist() == [True, False]
    root = np.sqrt(largest)
    assert at_limit(np.array([-root, -0.9 * root]), largest, True, False).tolist() == [True, False]


def test_a_score_is_far_below_where_its_rounding_exceeds_that_of_the_sum():
    assert far_below(100, 2) == 106 / 8
    peak = np.array([-106 / 8, -13.5, LIMIT, -np.inf])
    assert Gaussian().is_far(peak, 100, 2).tolist() == [False, True, False, False]
    assert Laplace().is_far(peak, 100, 2).tolist() == [False, True, False, False]
    assert not RADIAL["tricube"]().is_far(peak, 100, 2).any()
    assert not Nearest().is_far(peak, 100, 2).any()


@pytest.mark.parametrize("score", [Gaussian, Laplace])
@pytest.mark.parametrize("w", [0.7, np.array([0.7, 0.0, 2.5]), np.array([[0.7, -1.0], [0.2, 0.0], [1.1, 3.0]])])
def test_rises_are_rounded_relative_to_themselves(score, w):
    """Far away, differences of scores are exact to rounding where scores themselves have lost all their digits."""
    made, far = score(w), QUERY + np.array([3e7, -1e8, 5e7])
    exact = [[_exact_score(made, q, k) for k in KEY] for q in far]
    height = made(far, KEY).max(axis=1)
    with mpmath.workdps(60):
        for row, q in enumerate(made.rises(far, KEY, height)):
            for column, found in enumerate(q):
                rise = exact[row][column] - mpmath.mpf(float(height[row]))
                assert abs(found - rise) <= 8.0 * EPS * abs(rise) + 32.0 * EPS**2 * abs(exact[row][column])


def _exact_score(score: Radial, q: np.ndarray, k: np.ndarray) -> mpmath.mpf:
    """A Gaussian or Laplace score in 60 digits."""
    w = score.w if score.w.ndim == 2 else np.diag(np.broadcast_to(score.w, q.size))
    with mpmath.workdps(60):
        delta = [mpmath.mpf(float(a)) - mpmath.mpf(float(b)) for a, b in zip(q, k, strict=True)]
        z = [sum(mpmath.mpf(float(w[f, r])) * delta[f] for f in range(q.size)) for r in range(w.shape[1])]
        u2 = sum(one**2 for one in z)
        return -u2 / 2 if isinstance(score, Gaussian) else -mpmath.sqrt(u2)


def test_rises_saturate_where_squares_overflow():
    assert Gaussian().rises(np.array([[1e200]]), np.array([[0.0]]), np.array([-1e300])).tolist() == [[-1e300]]


@pytest.mark.parametrize("w", [-3.0, 0.2, 2.0])
def test_bounds_of_scores(w):
    """No score of features within the bounds exceeds them in size."""
    query, key = np.abs(QUERY).max(axis=0), np.abs(KEY).max(axis=0)
    bound = DotProduct(w).bound(query, key)
    assert np.abs(DotProduct(w)(QUERY, KEY)).max() <= bound
    assert bound == max(1.0, abs(w)) * (query @ key)
    assert Gaussian(w).bound(query, key) == 0.0


PARTS = (np.array([[1.0, -2.0], [0.5, 0.0]]), np.array([[0.5, 0.25, -1.0], [2.0, 0.0, 1.0]]), np.array([3.0, -0.5]))
SCORES = [Gaussian, Laplace, Nearest, DotProduct, lambda: Additive(*PARTS)]


@pytest.mark.parametrize("make", SCORES)
def test_scores_are_frozen_and_compare_by_identity(make):
    score = make()
    with pytest.raises(FrozenInstanceError):
        score.w = 2.0
    assert score != make()
    assert {score: 1}[score] == 1


def test_the_arrays_of_a_score_are_copies_that_cannot_be_written_to():
    score = Additive(*PARTS)
    for name, given in zip(("W_q", "W_k", "w_v"), PARTS, strict=True):
        assert not np.shares_memory(getattr(score, name), given)
        with pytest.raises(ValueError, match="read-only"):
            getattr(score, name)[...] = 0.0


@pytest.mark.parametrize("score", [Gaussian, Laplace, DotProduct])
def test_w_is_1_unless_given(score):
    np.testing.assert_array_equal(score()(QUERY, KEY), score(1.0)(QUERY, KEY))


def test_one_w_is_for_any_number_of_features():
    for width in (1, 3):
        Gaussian(2.0).check(width, width)


def test_tensors_of_a_score_are_checked():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="w must be finite"):
        Gaussian(torch.tensor([1.0, float("nan")]))
    with pytest.raises(ValueError, match=r"w must have 0 or 1 or 2 dimensions, got shape \(1, 1, 1\)"):
        Gaussian(torch.ones(1, 1, 1))
    assert Gaussian(torch.ones(2)).w.shape == (2,)


def test_bound_of_additive_scores_is_that_of_its_sums():
    """No sum on the way to a score exceeds it: hidden sums before tanh, and the score after."""
    score, rng_ = Additive(*PARTS), np.random.default_rng(3)
    query, key = rng_.normal(size=(20, 2)), rng_.normal(size=(30, 3))
    bound = score.bound(np.abs(query).max(axis=0), np.abs(key).max(axis=0))
    hidden = (query @ PARTS[0].T)[:, None] + (key @ PARTS[1].T)[None]
    assert max(np.abs(hidden).max(), np.abs(score(query, key)).max()) <= bound
    # By hand: |W_q|·(1, 1) + |W_k|·(1, 1, 1) is (4.75, 3.5), beside Σ|w_v| = 3.5; without features Σ|w_v| alone.
    assert score.bound(np.ones(2), np.ones(3)) == 4.75
    assert score.bound(np.zeros(2), np.zeros(3)) == 3.5
    assert Additive(*PARTS[:2], np.array([0.25, 0.25])).bound(np.zeros(2), np.zeros(3)) == 0.5

"""Diagnosis: attention made too sharp and too blurred on purpose is named so, and the numbers are what they say."""

from __future__ import annotations

import copy
import tracemalloc
from functools import cache
from typing import Any

import numpy as np
import pytest

import regard
from regard.bandwidth import loo_objective
from regard.model.attention_summary import straightness
from regard.model.diagnosis import Diagnosis
from regard.model.residuals import left_out_answers
from regard.scores import Gaussian

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

rng = np.random.default_rng(7)
CURVE = np.sort(rng.uniform(0.0, 5.0, 150))[:, None]
WAVE = 2.0 * np.sin(CURVE[:, 0]) + CURVE[:, 0] ** 0.8
NOISY = WAVE + rng.normal(0.0, 0.5, len(CURVE))
TABLE = rng.normal(size=(120, 3)) * [1.0, 100.0, 0.01] + [0.0, 1e4, 0.0]
PRICE = np.sin(2.0 * TABLE[:, 0]) + (TABLE[:, 1] - 1e4) / 100.0 + rng.normal(0.0, 0.3, len(TABLE))

SETS: dict[str, tuple[Any, Any]] = {
    "noisy curve": (CURVE, NOISY),
    "clean curve": (CURVE, WAVE),
    "table": (TABLE, PRICE),
    "two outputs": (TABLE, np.column_stack([PRICE, PRICE**2])),
    "two classes": (TABLE, PRICE > 0.0),
    "three classes": (CURVE, np.digitize(NOISY, [1.5, 3.0])),
}
CASES = [
    (regard.NadarayaWatsonRegressor, {}, "noisy curve"),
    (regard.NadarayaWatsonRegressor, {}, "clean curve"),
    (regard.NadarayaWatsonRegressor, {}, "table"),
    (regard.NadarayaWatsonRegressor, {}, "two outputs"),
    (regard.NadarayaWatsonRegressor, {"kernel": "epanechnikov"}, "noisy curve"),
    (regard.NadarayaWatsonRegressor, {"kernel": "laplace"}, "table"),
    (regard.NadarayaWatsonRegressor, {"metric": "full"}, "noisy curve"),
    (regard.LocalLinearRegressor, {}, "noisy curve"),
    (regard.LocalLinearRegressor, {}, "clean curve"),
    (regard.LocalLinearRegressor, {"ridge": "loo"}, "table"),
    (regard.NadarayaWatsonClassifier, {}, "two classes"),
    (regard.NadarayaWatsonClassifier, {}, "three classes"),
    (regard.KernelRegressor, {}, "noisy curve"),
    (regard.KernelRegressor, {}, "table"),
    (regard.KernelClassifier, {}, "three classes"),
]


@cache
def learned(case: int) -> Any:
    kind, options, data = CASES[case]
    return kind(**options).fit(*SETS[data])


@cache
def at_best(case: int) -> Diagnosis:
    return learned(case).diagnose()


def sharpened(model: Any, factor: float) -> Any:
    """The same model with every w times a factor."""
    other = copy.deepcopy(model)
    if hasattr(model, "heads_"):
        other.heads_ = tuple(head._replace(w=head.w * factor) for head in model.heads_)
    else:
        other.w_ = np.asarray(model.w_) * factor
    return other


def named(case: int) -> str:
    kind, options, data = CASES[case]
    return " ".join([kind.__name__, *map(str, options.values()), data])


# ---- verdicts


@pytest.mark.parametrize("case", range(len(CASES)), ids=named)
def test_the_learned_width_is_about_right(case: int) -> None:
    found = at_best(case)
    assert found.verdict == "about right"
    assert not found.says_nothing
    assert "neither wider nor narrower" in found.advice


@pytest.mark.parametrize("factor", [4.0, 10.0])
@pytest.mark.parametrize("case", range(len(CASES)), ids=named)
def test_too_sharp_on_purpose(case: int, factor: float) -> None:
    found = sharpened(learned(case), factor).diagnose()
    assert found.verdict == "too thin"
    assert found.factor * factor == pytest.approx(1.0, rel=0.35)
    assert found.advice.startswith("Widen the bandwidth by a factor of")
    assert found.neighbours < at_best(case).neighbours


@pytest.mark.parametrize("factor", [4.0, 10.0])
@pytest.mark.parametrize("case", range(len(CASES)), ids=named)
def test_too_blurred_on_purpose(case: int, factor: float) -> None:
    found = sharpened(learned(case), 1.0 / factor).diagnose()
    assert found.verdict == "too thick"
    assert found.factor / factor == pytest.approx(1.0, rel=0.35)
    assert found.advice.startswith("Narrow the bandwidth by a factor of")
    assert found.neighbours > at_best(case).neighbours


@pytest.mark.parametrize("bandwidth", [1e-8, 1e-3, 1e3, 1e8, np.inf])
def test_extreme_widths(bandwidth: float) -> None:
    found = regard.NadarayaWatsonRegressor(bandwidth=bandwidth).fit(CURVE, NOISY).diagnose()
    assert found.verdict == ("too thin" if bandwidth < 1.0 else "too thick")
    assert found.best_loss == pytest.approx(at_best(0).best_loss, rel=1e-3)
    assert ("100 or more" in found.advice) == (np.isfinite(bandwidth))
    assert np.isinf(found.factor) == np.isinf(bandwidth)


PLAIN = Diagnosis(
    neighbours=5.0, neighbours_low=3.0, neighbours_high=9.0, entropy=1.5, straightness=1.0, feature="x", freedom=20.0,
    rows=100.0, rows_looked_at=100.0, training_loss=0.5, loo_loss=1.0, best_loss=1.0, mean_loss=4.0, factor=1.0,
    classifier=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("factor", "excess", "verdict"),
    [
        (1.0, 0.0, "about right"),
        (0.1, 0.019, "about right"),  # as good as the best, however far from it
        (10.0, 0.019, "about right"),
        (0.68, 0.5, "about right"),  # near the best, however steep the way there
        (1.49, 0.5, "about right"),
        (0.66, 0.021, "too thin"),
        (1.51, 0.021, "too thick"),
        (0.1, 3.0, "too thin"),
        (np.inf, 3.0, "too thick"),
    ],
)
def test_thresholds(factor: float, excess: float, verdict: str) -> None:
    found = PLAIN._replace(factor=factor, loo_loss=1.0 + excess)
    assert found.verdict == verdict
    assert found.excess == pytest.approx(excess)
    assert found.gap == pytest.approx(0.5 + excess)


def test_where_only_chance_gains_the_mean_is_right() -> None:
    found = PLAIN._replace(factor=50.0, loo_loss=1.03, mean_loss=1.01)
    assert found.says_nothing
    assert found.verdict == "about right"
    assert "X says nothing about y" in found.why
    assert found._replace(mean_loss=2.0).verdict == "too thick"


@pytest.mark.parametrize("size", [1e160, 1e300, 1e-200, 1e-300])
@pytest.mark.parametrize(("bandwidth", "verdict"), [(0.01, "too thin"), (0.2, "about right"), (30.0, "too thick")])
def test_the_verdict_does_not_depend_on_the_unit_of_y(size: float, bandwidth: float, verdict: str) -> None:
    """Squares of such targets leave float64."""
    model = regard.NadarayaWatsonRegressor(bandwidth=bandwidth)
    plain, found = (model.fit(CURVE, unit * NOISY).diagnose() for unit in (1.0, size))
    assert found.verdict == plain.verdict == verdict
    assert found.excess == pytest.approx(plain.excess, rel=1e-9)
    assert (found.why, found.advice) == (plain.why, plain.advice)


# ---- nothing to find


def test_noise() -> None:
    noise = np.random.default_rng(3).normal(size=len(CURVE))
    for bandwidth, verdict in (("loo", "about right"), (0.01, "too thin"), (100.0, "about right")):
        found = regard.NadarayaWatsonRegressor(bandwidth=bandwidth).fit(CURVE, noise).diagnose()
        assert found.verdict == verdict
        assert found.says_nothing
        assert "No bandwidth helps" in found.advice


@pytest.mark.parametrize("kind", [regard.NadarayaWatsonRegressor, regard.LocalLinearRegressor, regard.KernelRegressor])
def test_constant_y(kind: Any) -> None:
    found = kind().fit(CURVE, np.full(len(CURVE), 3.0)).diagnose()
    assert (found.verdict, found.loo_loss, found.training_loss, found.excess) == ("about right", 0.0, 0.0, 0.0)
    assert "y does not vary" in found.why
    assert "nothing to learn" in found.advice


def test_one_class() -> None:
    found = regard.NadarayaWatsonClassifier(bandwidth=0.01).fit(CURVE, ["a"] * len(CURVE)).diagnose()
    assert found.verdict == "about right"
    assert found.loo_loss == pytest.approx(0.0, abs=1e-12)
    assert "y does not vary" in found.why


def test_constant_X() -> None:
    found = regard.NadarayaWatsonRegressor(bandwidth=1.0).fit(np.ones((20, 2)), NOISY[:20]).diagnose()
    assert (found.verdict, found.factor, found.straightness) == ("about right", 1.0, 0.0)
    assert found.neighbours == pytest.approx(20.0)
    assert found.entropy == pytest.approx(np.log(20.0))


@pytest.mark.parametrize(
    "model",
    [
        regard.NadarayaWatsonRegressor(bandwidth=1.0),
        regard.NadarayaWatsonRegressor(),
        regard.LocalLinearRegressor(bandwidth=1.0),
        regard.NadarayaWatsonClassifier(bandwidth=1.0),
        regard.KernelRegressor(),
    ],
)
def test_two_rows(model: Any) -> None:
    found = model.fit([[0.0], [1.0]], [1, 3]).diagnose()
    assert found.verdict == "about right"
    assert "too few rows" in found.why
    assert np.isfinite([value for value in found if not isinstance(value, str)]).all()
    if not found.classifier:
        assert found.loo_loss == pytest.approx(4.0)


def test_one_row_is_too_few() -> None:
    model = regard.NadarayaWatsonRegressor(bandwidth=1.0)
    with pytest.raises(ValueError, match="needs at least 2 training rows, but this model has 1"):
        model.fit([[0.0]], [1.0]).diagnose()
    with pytest.raises(ValueError, match="needs at least 2 training rows"):
        model.fit([[0.0], [1.0]], [1.0, 2.0], sample_weight=[1.0, 0.0]).diagnose()
    assert model.fit([[0.0]], [1.0], sample_weight=[3]).diagnose().verdict == "about right"


def test_before_fit() -> None:
    from sklearn.exceptions import NotFittedError

    for model in (regard.NadarayaWatsonRegressor(), regard.KernelRegressor()):
        with pytest.raises(NotFittedError):
            model.diagnose()


# ---- the numbers


@pytest.mark.parametrize("case", [0, 2, 4, 7, 9, 12, 13], ids=named)
def test_numbers_are_those_of_the_weights(case: int) -> None:
    model = learned(case)
    X, y = SETS[CASES[case][2]]
    found = model.diagnose()
    weights, effective = model.attend(X), model.effective_weights(X)
    neighbours = 1.0 / (weights**2).sum(axis=1)
    expected = np.quantile(neighbours, [0.1, 0.5, 0.9], method="inverted_cdf")
    assert [found.neighbours_low, found.neighbours, found.neighbours_high] == pytest.approx(expected)
    assert found.entropy == pytest.approx(-(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=1).mean())
    assert found.freedom == pytest.approx(np.trace(effective))
    assert found.training_loss == pytest.approx(((model.predict(X) - y) ** 2).mean())
    left_out = model.loo_predictions_
    if isinstance(model, regard.KernelRegressor):
        # Those are cross-fitted: here the heads stay as they are, and only the row is left out.
        left_out = left_out_answers(model._smoother.objectives())[:, 0]
        assert found.loo_loss < ((model.loo_predictions_ - y) ** 2).mean()
    assert found.loo_loss == pytest.approx(((left_out - y) ** 2).mean(), rel=1e-6)
    others = (y.sum() - y) / (len(y) - 1)
    assert found.mean_loss == pytest.approx(((others - y) ** 2).mean())
    assert (found.rows, found.rows_looked_at, found.classifier) == (len(X), len(X), False)


def test_losses_of_a_classifier() -> None:
    model = learned(10)
    X, y = SETS["two classes"]
    found = model.diagnose()
    assert found.classifier
    assert found.loo_loss == pytest.approx(-model.loo_score_, rel=1e-6)
    n, frequency = len(y), np.bincount(y.astype(int)) / len(y)
    right = model.predict_proba(X)[np.arange(n), y.astype(int)]
    assert found.training_loss == pytest.approx(-np.log((n * right + frequency[y.astype(int)]) / (n + 1.0)).mean())


def test_loo_loss_is_the_public_objective() -> None:
    found = regard.NadarayaWatsonRegressor(bandwidth=0.3).fit(CURVE, NOISY).diagnose()
    assert found.loo_loss == pytest.approx(loo_objective(CURVE, NOISY, Gaussian(1.0 / 0.3)))
    at_best = loo_objective(CURVE, NOISY, Gaussian(found.factor / 0.3))
    assert found.best_loss == pytest.approx(at_best)
    assert found.best_loss <= min(loo_objective(CURVE, NOISY, Gaussian(w)) for w in np.geomspace(0.5, 50.0, 60)) * 1.001


@pytest.mark.parametrize("kind", [regard.NadarayaWatsonRegressor, regard.LocalLinearRegressor])
def test_weight_k_is_k_copies(kind: Any) -> None:
    k = np.random.default_rng(1).integers(0, 4, len(CURVE))
    weighted = kind(bandwidth=0.1).fit(CURVE, NOISY, sample_weight=k).diagnose()
    copied = kind(bandwidth=0.1).fit(np.repeat(CURVE, k, axis=0), np.repeat(NOISY, k)).diagnose()
    for name, one, other in zip(Diagnosis._fields, weighted, copied, strict=True):
        # The search sees copies in another order, and stops within a hundredth.
        assert one == other if isinstance(one, str) else one == pytest.approx(other, rel=0.02), name
    assert weighted[:5] == pytest.approx(copied[:5], rel=1e-9)


def test_importances_do_not_depend_on_their_unit() -> None:
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(CURVE))
    one, other = (
        regard.NadarayaWatsonRegressor(bandwidth=0.1).fit(CURVE, NOISY, sample_weight=weight * unit).diagnose()
        for unit in (1.0, 1e-200)
    )
    assert one._replace(feature="") == pytest.approx(other._replace(feature=""))


def test_many_rows_are_sampled_and_memory_is_a_tile() -> None:
    n = 8000
    x = np.random.default_rng(0).uniform(0.0, 5.0, (n, 1))
    y = np.sin(x[:, 0]) + np.random.default_rng(1).normal(0.0, 0.3, n)
    model = regard.NadarayaWatsonRegressor(bandwidth=0.002).fit(x, y)
    model.predict(x[:10])
    tracemalloc.start()
    found = model.diagnose()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6  # a quarter of the weights of the rows evaluated
    assert found.verdict == "too thin"
    assert (found.rows, found.rows_looked_at) == (n, 2000)
    assert found == model.diagnose()
    weights = model.attend(x[:2000])
    assert found.freedom == pytest.approx(n * np.diagonal(weights).mean(), rel=0.1)
    assert "random sample of 2,000 rows" in str(found)


# ---- the diagonal


def test_straightness() -> None:
    ones = np.ones(5)
    x = np.array([0.0, 1.0, 2.0, 5.0, 9.0])
    assert straightness(x, 3.0 + 0.1 * x, ones) == pytest.approx(1.0)
    assert straightness(x, -x, ones) == pytest.approx(-1.0)
    assert straightness(x, np.full(5, 4.0) + 1e-14 * x[::-1], ones) == 0.0
    assert straightness(ones, x, ones) == 0.0
    from scipy.stats import spearmanr

    a, b = np.random.default_rng(0).integers(0, 6, (2, 40)).astype(float)
    assert straightness(a, b, np.ones(40)) == pytest.approx(spearmanr(a, b).statistic)


def test_straightness_is_along_the_feature_that_matters() -> None:
    import pandas

    frame = pandas.DataFrame({"dull": TABLE[:, 2], "price of land": TABLE[:, 1]})
    found = regard.NadarayaWatsonRegressor().fit(frame, TABLE[:, 1]).diagnose()
    assert found.feature == "price of land"
    assert found.straightness > 0.99
    assert "price of land" in str(found)


# ---- the words


@pytest.mark.parametrize(
    ("factor", "words"),
    [(10.0, "too thin, like a needle: w is too large"), (1.0, "about right"), (0.1, "too thick, like a river")],
)
@pytest.mark.parametrize("case", [0, 11], ids=named)
def test_the_text_of_a_diagnosis(case: int, factor: float, words: str) -> None:
    found = sharpened(learned(case), factor).diagnose()
    text = str(found)
    lines = text.split("\n")
    assert lines[0].startswith(words)
    assert found.why in text
    assert f"What to do: {found.advice}" in text
    assert max(map(len, lines)) <= 120
    assert ("log-loss" in text) == found.classifier
    table = [line for line in lines if line.startswith("  ") and "  " in line.strip()]
    assert len({len(line) - len(line[34:].lstrip()) for line in table}) == 1, text

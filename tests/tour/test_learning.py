"""The stations that learn: every number is computed a second time here, in plain numpy."""

from __future__ import annotations

import re

import numpy as np
import pytest

from regard.data import houses, notes, notes_truth
from regard.tour.station import Visit
from regard.tour.stations import STATIONS, density, growth, scoring
from regard.tour.stations.shape_of_w import rippled
from support.story import NAMES, attention, error, left_out

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")

TRUE = str.maketrans("−", "-")


@pytest.fixture(scope="module")
def answers(tours):
    return dict(zip(NAMES, (row.answer for row in tours["en"].rows), strict=True))


def _findings(name, data, seed=0):
    return STATIONS[NAMES.index(name)].compute(Visit(data, seed, "en"))


def _squares(data, w):
    """Summed squared error of the left-out predictions."""
    return float(((data.y_train - left_out(data.x_train[:, None], data.y_train, w)) ** 2).sum())


def _by_the_notes(data):
    """Five steps down the summed error with rate 0.5, by the plain derivative: losses before each, and w after."""
    gap = (data.x_train[:, None] - data.x_train[None, :]) ** 2
    w, losses = np.random.RandomState(0).random_sample(), []
    for _ in range(5):
        e = np.exp(-0.5 * w**2 * gap) * (1 - np.eye(len(gap)))
        alpha = e / e.sum(axis=1, keepdims=True)
        miss = data.y_train - alpha @ data.y_train
        mean_gap = (alpha * gap).sum(axis=1, keepdims=True)
        moved = -w * (alpha * (gap - mean_gap)) @ data.y_train  # ∂f₋ᵢ(xᵢ)/∂w
        losses.append((miss**2).sum())
        w -= 0.5 * (-2 * miss * moved).sum()
    return losses, abs(w)


def _best(data):
    """The w of least left-out error, from a fine grid and a finer one around its best."""
    grid = np.geomspace(0.05, 500, 1500)
    coarse = grid[np.argmin([_squares(data, w) for w in grid])]
    fine = coarse * np.geomspace(0.99, 1.01, 401)
    return fine[np.argmin([_squares(data, w) for w in fine])]


@pytest.fixture(scope="module")
def widths(data):
    return 1.0, _by_the_notes(data)[1], _best(data)


def _predicted(data, w):
    return attention(data.x_test, data.x_train, w) @ data.y_train


def test_the_notes_recipe(answers, data, widths):
    losses, w = _by_the_notes(data)
    said = answers["learned"]
    start = np.random.RandomState(0).random_sample()
    assert f"from {start:.3f} to {w:.3g} and" in said
    assert f"squared error from {losses[0]:.1f} to {_squares(data, w):.1f}." in said
    rough = [(np.diff(f, 2) ** 2).sum() for f in (_predicted(data, w), _predicted(data, 1.0), data.y_truth)]
    assert f"is {rough[0]:.3g} against {rough[1]:.3g} at w = 1 (the truth’s: {rough[2]:.3g})" in said
    assert rough[0] > 100 * rough[1], "the learned curve is less smooth"
    assert f"stops at w = {widths[2]:.3g} with {_squares(data, widths[2]):.1f}" in said


def test_the_losses_drawn_are_those_of_every_epoch(data, widths):
    findings = _findings("learned", data)
    line, least = findings.drawings[0].figure.axes[0].lines
    assert line.get_xdata().tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(line.get_ydata(), _by_the_notes(data)[0], rtol=1e-9)
    np.testing.assert_allclose(least.get_ydata(), _squares(data, widths[2]), rtol=1e-6)
    truth, predicted, circles, before = findings.drawings[1].figure.axes[0].lines
    np.testing.assert_allclose(truth.get_ydata(), data.y_truth)
    np.testing.assert_allclose(predicted.get_ydata(), _predicted(data, widths[1]), rtol=1e-7)
    np.testing.assert_allclose(before.get_ydata(), _predicted(data, 1.0), rtol=1e-10)
    np.testing.assert_allclose(circles.get_ydata(), data.y_train)


def test_what_w_is_worth(answers, data, widths):
    said = answers["sharper"]
    keys = [np.median(1 / (attention(data.x_test, data.x_train, w) ** 2).sum(axis=1)) for w in widths]
    left = [np.sqrt(_squares(data, w) / 50) for w in widths]
    errors = [error(_predicted(data, w), data.y_truth) for w in widths]
    assert f"averages over {keys[1]:.1f} keys instead of {keys[0]:.1f} " in said
    assert f"left-out error goes from {left[0]:.3f} to {left[1]:.3f} and" in said
    assert f"against the truth from {errors[0]:.3f} to {errors[1]:.3f}." in said
    assert f"best w, {widths[2]:.3g}, they are {left[2]:.3f} and {errors[2]:.3f}, with {keys[2]:.1f} keys" in said
    assert left[2] < left[1] < left[0]


def test_the_sharper_heatmap_is_beside_the_nonparametric_one(data, widths):
    panels = _findings("sharper", data).drawings[0].figure.axes[:2]
    for ax, w in zip(panels, widths, strict=False):
        weights = attention(data.x_test, data.x_train, w)
        np.testing.assert_allclose(ax.images[0].get_array(), weights / weights.max(), rtol=1e-6, atol=1e-12)
        assert f"{weights.max():.3f}" in ax.get_title()


def test_three_diagnoses(answers, data, widths):
    said = answers["diagnosis"]
    for factor, verdict in ((8.0, "too thin"), (1.0, "about right"), (1 / 8, "too thick")):
        w = factor * widths[2]
        alpha = attention(data.x_train, data.x_train, w)
        # The median as the diagnosis takes it: the lower one of an even number.
        heard = np.quantile(1 / (alpha**2).sum(axis=1), 0.5, method="inverted_cdf")
        seen, left = np.mean((alpha @ data.y_train - data.y_train) ** 2), _squares(data, w) / 50
        sentence = (
            f"w = {w:.3g} is {verdict}: {heard:.3g} neighbours, squared error {seen:.3f} with itself and {left:.3f}"
        )
        assert sentence in said
    back = [float(f) for f in re.search(r"first w by ([\d.]+) and the last by ([\d.]+)\.$", said).groups()]
    np.testing.assert_allclose(back, [1 / 8, 8], rtol=0.06)


def test_diagnoses_in_chinese(tours):
    said = tours["zh"].rows[NAMES.index("diagnosis")].answer
    assert [said.index(word) for word in ("太细", "适中", "太粗")] == sorted(
        said.index(word) for word in ("太细", "适中", "太粗")
    )


def _fine(data, w):
    return attention(np.linspace(0, 5, 501), data.x_train, w)


def test_dense_and_sparse_regions(answers, data, widths):
    said, w = answers["density"], widths[2]
    keys = 1 / (attention(data.x_test, data.x_train, w) ** 2).sum(axis=1)
    assert f"At w = {w:.3g} a row has between {keys.min():.1f} and {keys.max():.1f} effective keys, " in said
    ends, middle = keys[[0, 1, 48, 49]].mean(), keys[15:35].mean()
    assert f"{ends:.1f} at the two ends and {middle:.1f} in the middle" in said
    assert ends < middle
    keys = 1 / (attention(data.x_test, data.x_train, 1.0) ** 2).sum(axis=1)
    ends, middle = keys[[0, 1, 48, 49]].mean(), keys[15:35].mean()
    assert f"At w = 1 a row has {ends:.1f} effective keys at the two ends and {middle:.1f} in the middle" in said
    assert ends < 0.6 * middle, "the corners are dark"
    # Noise of 0.5 in every y, and the slope of the weights from their closed form.
    weights, x = _fine(data, w), np.linspace(0, 5, 501)
    gap = data.x_train - x[:, None]
    slopes = weights * w**2 * (gap - (weights * gap).sum(axis=1, keepdims=True))
    wobble, largest = 0.5 * np.sqrt((slopes**2).sum(axis=1)), weights.max(axis=1)
    dark = largest > np.median(largest)
    ratio = np.sqrt(np.mean(wobble[dark] ** 2) / np.mean(wobble[~dark] ** 2))
    assert abs(float(re.search(r"curve ([\d.]+) times as steep", said).group(1)) - ratio) < 0.011
    assert ratio > 1.1
    assert "With y shuffled, the weights change by 0." in said


def test_an_adaptive_bandwidth_is_better_on_uneven_samples(answers):
    from regard import NadarayaWatsonRegressor

    x, errors = np.linspace(0, 5, 501), []
    for seed in range(density.DRAWS):
        rng = np.random.default_rng(seed)
        keys = np.sort(5 * rng.random(50) ** 3)
        y = notes_truth(keys) + 0.5 * rng.standard_normal(50)
        w = float(NadarayaWatsonRegressor(metric="scalar").fit(keys[:, None], y).w_)
        k = NadarayaWatsonRegressor(bandwidth="adaptive").fit(keys[:, None], y).neighbours_
        # A third of the distance to the k-th nearest key, one of eight widths per doubling.
        own = 3 / np.sort(np.abs(x[:, None] - keys), axis=1)[:, k - 1]
        errors.append([error(attention(x, keys, h) @ y, notes_truth(x)) for h in (w, own[:, None])])
    fixed, adaptive = np.sqrt(np.mean(np.square(errors), axis=0))
    said = re.search(r'adaptive" misses the truth by ([\d.]+), one bandwidth by ([\d.]+)', answers["density"]).groups()
    assert said[1] == f"{fixed:.3f}"
    assert abs(float(said[0]) - adaptive) < 0.01, "the widths are rounded"
    assert float(said[0]) < float(said[1])


def test_the_diagonal_is_drawn_where_keys_equal_queries(data, widths):
    *maps, right = _findings("density", data).drawings[0].figure.axes[:3]
    place = [np.sum(data.x_train < x) - 0.5 for x in data.x_test]
    for each, w in zip(maps, (1.0, widths[2]), strict=True):
        # The grid finds w to a few digits.
        np.testing.assert_allclose(each.images[0].get_array(), attention(data.x_test, data.x_train, w), atol=1e-4)
        np.testing.assert_array_equal(each.lines[0].get_xdata(), place)
    keys = 1 / (attention(data.x_test, data.x_train, widths[2]) ** 2).sum(axis=1)
    np.testing.assert_allclose(right.lines[0].get_xdata(), keys, rtol=1e-3)


def _lines(data, x, w):
    """What every y counts in the height at x of the line fitted around it."""
    weight = np.exp(-0.5 * (w * (data.x_train - x)) ** 2)
    design = np.column_stack([np.ones(50), data.x_train - x])
    return np.linalg.solve(design.T @ (weight[:, None] * design), design.T * weight)[0]


def test_bias_at_the_edges(answers, data, widths):
    said, w = answers["edges"], widths[2]
    bias = {}
    for x in (0.0, 5.0):
        mean = attention(np.array([x]), data.x_train, w)[0] @ notes_truth(data.x_train) - notes_truth(x)
        line = _lines(data, x, w) @ notes_truth(data.x_train) - notes_truth(x)
        bias[x] = [f"{b:.3f}".replace("-", "−") for b in (mean, line)]
        assert abs(line) < 0.3 * abs(mean)
    assert f"at x = 0 it is {bias[0.0][1]} instead of {bias[0.0][0]}, " in said
    assert f"at x = 5 {bias[5.0][1]} instead of {bias[5.0][0]}, with the same h = {1 / w:.3f}" in said
    line = error(np.array([_lines(data, x, w) @ data.y_train for x in data.x_test]), data.y_truth)
    mean = error(_predicted(data, w), data.y_truth)
    assert f"are {mean:.3f} (mean) and {line:.3f} (line)" in said
    assert ("more variance" in said) == (line > mean)


def test_edges_do_not_speak_of_a_price_where_there_is_none():
    findings = _findings("edges", notes(seed=1), seed=1)
    mean, line = map(float, re.search(r"are ([\d.]+) \(mean\) and ([\d.]+) \(line\)", findings.answer.en).groups())
    assert line < mean, "choose another seed for this test"
    assert "variance" not in findings.answer.en
    assert "方差" not in findings.answer.zh


def test_the_learned_w_grows_with_n_and_the_error_falls(answers, monkeypatch):
    said = answers["growth"]
    grows, falls = (float(s.translate(TRUE)) for s in re.findall(r"slope ([−\d.]+\d)", said))
    # The n^(1/5) of the inside, the n^(1/4) of the whole, and two standard errors.
    assert growth.REPEATS >= 20
    assert 0.16 < grows < 0.29
    assert -0.44 < falls < -0.36
    # The first size once more, by a grid.
    samples = [notes(n_train=growth.SIZES[0], seed=draw) for draw in range(growth.REPEATS)]
    best = [_best(sample) for sample in samples]
    errors = [error(_predicted(sample, w), sample.y_truth) for sample, w in zip(samples, best, strict=True)]
    assert f"learned w goes from {np.exp(np.mean(np.log(best))):.1f} to" in said
    assert f"the error from {np.sqrt(np.mean(np.square(errors))):.3f} to" in said
    # The slopes and their spread from what was drawn.
    monkeypatch.setattr(growth, "SIZES", (50, 100))
    monkeypatch.setattr(growth, "REPEATS", 2)
    findings, spread = _findings("growth", notes()), []
    for ax, said in zip(findings.drawings[0].figure.axes, findings.number.en.splitlines(), strict=True):
        *single, (low, high), _ = (line.get_ydata() for line in ax.lines)
        assert said.startswith(f"{np.log2(high / low):.2f} | ".replace("-", "−"))
        assert len(single) == 2
        spread.append(np.std([np.log2(last / first) for first, last in single], ddof=1))
    assert f"standard deviations of {spread[0]:.2f} and {spread[1]:.2f}." in findings.answer.en


def test_shapes_of_w(answers):
    from regard import NadarayaWatsonRegressor

    X, y = rippled(0)
    said = []
    for metric, shape in (("scalar", ()), ("feature", (2,)), ("full", (2, 2))):
        w = np.asarray(NadarayaWatsonRegressor(metric=metric).fit(X, y).w_)
        assert w.shape == shape
        loss = error(left_out(X, y, w), y)
        for direction in np.eye(w.size).reshape(w.size, *shape):
            for step in (-0.02, 0.02):
                assert error(left_out(X, y, w * (1 + step * direction)), y) > loss - 1e-9, "w is a minimum"
        said.append(f"{loss:.3f}")
    assert f"{said[0]} with a scalar w (1 free number), {said[1]} with a vector (2) and {said[2]}" in answers["shapes"]
    assert "with a matrix (3)" in answers["shapes"]
    assert float(said[2]) < float(said[1]) < float(said[0])


def test_three_scoring_functions(answers, data):
    from regard import AttentionRegressor

    said = answers["scoring"]
    model = AttentionRegressor(max_iter=10, learning_rate=0.03, random_state=0)
    w = float(model.fit(data.x_train[:, None], data.y_train).w_[0])
    mean, gaussian = error(data.y_train.mean(), data.y_truth), error(_predicted(data, w), data.y_truth)
    additive, dot = map(float, re.search(r"([\d.]+) \(additive\) and ([\d.]+) \(dot", said).groups())
    assert f"miss the truth by {gaussian:.3f} (Gaussian), {additive:.3f} (additive)" in said
    loss = _squares(data, w) / 50 / data.y_train.var()
    assert f"the mean misses by {mean:.3f}. Their left-out losses end at {loss:.3f}, " in said
    assert gaussian < additive < dot < mean
    assert float(re.search(r"the dot product misses by ([\d.]+)\.$", said).group(1)) < 0.5 * dot


def test_without_torch_the_station_says_so(data, monkeypatch):
    def missing(*_):
        raise ModuleNotFoundError("no torch", name="torch")

    monkeypatch.setattr(scoring, "learned", missing)
    findings = _findings("scoring", data)
    assert findings.drawings == ()
    assert "torch, which is not installed here. pip install 'regard[nn]'" in findings.answer.en
    assert "没有安装" in findings.answer.zh


def test_house_prices(answers):
    from regard import NadarayaWatsonRegressor

    X, y, names, _ = houses(seed=0)
    each, one = (np.asarray(NadarayaWatsonRegressor(metric=metric).fit(X, y).w_) for metric in ("feature", "scalar"))
    scott = 1 / (X.std(axis=0, ddof=1) * len(X) ** (-1 / (X.shape[1] + 4)))
    losses = [error(left_out(X, y, w), y) for w in (each, one, scott)]
    said = answers["homes"]
    assert f"missed by {losses[0]:.1f} thousand with one learned w per feature, {losses[1]:.1f} with one" in said
    assert f"and {losses[2]:.1f} by Scott’s rule" in said
    reach = (each * X.std(axis=0)) ** 2
    share = reach / reach.sum()
    assert f"Most of all the {names[share.argmax()]} ({100 * share.max():.0f}%)" in said
    assert [name for name, w in zip(names, each, strict=True) if w == 0] == ["door_number"]
    assert "smoothed out: door number." in said


def test_house_features_are_drawn_in_order(tours):
    figure = _findings("homes", notes()).drawings[0].figure
    ax = figure.axes[0]
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == sorted(widths)
    assert abs(sum(widths) - 100) < 1e-9
    assert ax.get_yticklabels()[0].get_text() == "door number"
    assert ax.texts[0].get_text() == "smoothed out"

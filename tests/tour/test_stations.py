"""Every number of the tour is computed a second time here, in plain numpy."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from regard.data import notes, notes_truth
from regard.tour import TourResult
from regard.tour.station import Visit
from regard.tour.stations import STATIONS
from regard.tour.stations.moredata import REPEATS, SIZES
from support.story import NAMES, attention, error

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")


@pytest.fixture(scope="module")
def answers(tours):
    return dict(zip(NAMES, (row.answer for row in tours["en"].rows), strict=True))


def test_stations_come_in_the_order_of_the_story():
    assert [station.name for station in STATIONS] == NAMES


def test_rows_are_the_stations(tours):
    for lang, tour in tours.items():
        assert isinstance(tour, TourResult)
        assert [(r.station, r.question) for r in tour.rows] == [
            (s.texts["title"].said(lang), s.texts["question"].said(lang)) for s in STATIONS
        ]
    assert tours["en"].columns == ("Station", "Question", "Answer")


def test_cues(answers):
    keys, words = np.array([[3, 0], [2, 0.5], [1, 2], [0.5, 3]]), np.array([0, 40, 150, 300])
    glance, wish = (np.exp(keys @ q) / np.exp(keys @ q).sum() for q in ([1, 0], [0, 1]))
    assert f"from {100 * glance[3]:.0f}% to {100 * wish[3]:.0f}%" in answers["cues"]
    assert f"from {glance @ words:.0f} to {wish @ words:.0f} words" in answers["cues"]


def test_average_pooling(answers, data):
    mean = data.y_train.mean()
    assert f"the mean is {mean:.3f} everywhere" in answers["average"]
    assert f"misses the truth by {error(mean, data.y_truth):.3f}" in answers["average"]


def _nearest(data, queries):
    return data.y_train[np.abs(queries[:, None] - data.x_train[None, :]).argmin(axis=1)]


def test_hard_attention(answers, data):
    fine = np.linspace(0, 5, 1001)
    turns = []
    for curve in (_nearest(data, fine), notes_truth(fine)):
        steps = [step for step in np.sign(np.diff(curve)) if step]
        turns.append(sum(a != b for a, b in pairwise(steps)))
    assert f"RMSE is {error(_nearest(data, data.x_test), data.y_truth):.3f}." in answers["hard"]
    assert f"turns {turns[0]} times between 0 and 5, the truth only {turns[1]} times" in answers["hard"]


def test_soft_attention(answers, data):
    soft = error(attention(data.x_test, data.x_train) @ data.y_train, data.y_truth)
    mean, hard = error(data.y_train.mean(), data.y_truth), error(_nearest(data, data.x_test), data.y_truth)
    assert f"RMSE is {soft:.3f}, {100 - 100 * soft / mean:.0f}% less than the mean’s {mean:.3f}" in answers["soft"]
    assert f"({hard:.3f})" in answers["soft"]
    assert ("beats hard attention" in answers["soft"]) == (soft < hard)


def test_soft_attention_says_so_when_hard_attention_is_nearer():
    data = notes(seed=1)
    soft = error(attention(data.x_test, data.x_train) @ data.y_train, data.y_truth)
    assert soft > error(_nearest(data, data.x_test), data.y_truth), "choose another seed for this test"
    findings = STATIONS[NAMES.index("soft")].compute(Visit(data, 1, "en"))
    assert "Hard attention is nearer still" in findings.answer.en
    assert "硬注意力还要更近一些" in findings.answer.zh


def test_kernel_widths(answers, data):
    heard = [1 / (attention(np.array([2.5]), data.x_train, w) ** 2).sum() for w in (1.0, 4.0)]
    assert f"{heard[0]:.1f} of 50 keys for w = 1 and {heard[1]:.1f} for w = 4" in answers["kernel"]


def test_kernel_curves_are_gaussian(data):
    figure = STATIONS[NAMES.index("kernel")].compute(Visit(data, 0, "en")).drawings[0].figure
    for line, w in zip(figure.axes[0].lines, (0.5, 1.0, 2.0, 4.0), strict=True):
        u = line.get_xdata()
        np.testing.assert_allclose(line.get_ydata(), np.exp(-((w * u) ** 2) / 2) / np.sqrt(2 * np.pi), rtol=1e-12)


def test_heatmap_ranks(answers, data):
    from scipy.stats import rankdata

    def agree(a, b):
        return np.corrcoef(rankdata(a), rankdata(b))[0, 1]

    rng = np.random.default_rng(0)
    keys, queries = rng.permutation(data.x_train), rng.permutation(data.x_test)
    tidy, mixed = attention(data.x_test, data.x_train).argmax(axis=1), attention(queries, keys).argmax(axis=1)
    sorted_, shuffled, numbers = (
        f"{value:.3f}".replace("-", "−")
        for value in (agree(np.arange(50), tidy), agree(np.arange(50), mixed), agree(queries, keys[mixed]))
    )
    assert f"is {sorted_} sorted and {shuffled} shuffled" in answers["heatmap"]
    assert f"it is {numbers}, shuffled or not" in answers["heatmap"]
    assert float(sorted_) > 0.98
    assert abs(float(shuffled.replace("−", "-"))) < 0.4


def test_heatmap_panels_hold_the_same_weights(data):
    figure = STATIONS[NAMES.index("heatmap")].compute(Visit(data, 0, "en")).drawings[0].figure
    tidy, mixed = (ax.images[0] for ax in figure.axes[:2])
    np.testing.assert_allclose(tidy.get_array(), attention(data.x_test, data.x_train), rtol=1e-12)
    np.testing.assert_allclose(np.sort(tidy.get_array(), axis=None), np.sort(mixed.get_array(), axis=None), rtol=1e-12)
    assert tidy.get_clim() == mixed.get_clim()


def _small(answer):
    """The tiny number an answer ends with."""
    if answer.endswith(" 0."):
        return 0.0
    digits, power = re.search(r"([\d.]+)\s×\s10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", answer).groups()
    return float(digits) * 10.0 ** int(power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))


def test_batch_multiplication(answers):
    assert np.matmul(np.ones((2, 1, 4)), np.ones((2, 4, 6))).shape == (2, 1, 6)
    assert "shapes (2, 1, 4) and (2, 4, 6) give (2, 1, 6), with every entry 4 for ones" in answers["batch"]
    assert "4.5 and 14.5" in answers["batch"]
    assert _small(answers["batch"]) < 1e-13


def test_softmax_is_the_kernel_ratio(answers):
    assert "2,500 weights" in answers["softmax"]
    assert _small(answers["softmax"]) < 1e-14


def test_more_data(answers):
    errors = np.empty((3, len(SIZES)))
    for column, n in enumerate(SIZES):
        squares = np.zeros(3)
        for draw in range(REPEATS):
            d = notes(n_train=n, seed=draw)
            fixed, shrinking = (attention(d.x_test, d.x_train, 1 / h) @ d.y_train - d.y_truth for h in (1.0, n**-0.2))
            squares += [np.mean(e**2) for e in (fixed, shrinking, shrinking[(d.x_test > 0.99) & (d.x_test < 4.01)])]
        errors[:, column] = np.sqrt(squares / REPEATS)
    slopes = [f"{np.polyfit(np.log(SIZES), np.log(e), 1)[0]:.2f}".replace("-", "−") for e in errors]
    said = answers["moredata"]
    assert f"from {errors[0, 0]:.3f} to {errors[0, -1]:.3f} at h = 1 (slope {slopes[0]};" in said
    assert f"from {errors[1, 0]:.3f} to {errors[1, -1]:.3f} with" in said
    assert f"(slope {slopes[1]}, and {slopes[2]} away from the edges)" in said
    # The story's claims: the fixed bandwidth stays at its bias, the other falls like n^(−2/5) inside.
    bias = float(re.search(r"the bias is ([\d.]+)", said).group(1))
    assert abs(errors[0, -1] - bias) < 0.02
    assert errors[1, -1] < 0.3 * errors[1, 0]
    assert -0.5 < float(slopes[2].replace("−", "-")) < -0.33


def test_the_root_of_d(answers):
    rng, found = np.random.default_rng(0), {}
    for d in (2, 8, 32, 128, 512):
        query, key = rng.standard_normal((400, d)), rng.standard_normal((400, d))
        for name, scores in (("plain", query @ key.T), ("scaled", query @ key.T / np.sqrt(d))):
            weights = np.exp(scores[:, :10] - scores[:, :10].max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            derivative = [np.linalg.norm(np.diag(a) - np.outer(a, a)) for a in weights]
            found[d, name] = scores.var(), np.median(weights.max(axis=1)), np.median(derivative)
        assert abs(found[d, "plain"][0] / d - 1) < 0.1
    said = answers["root_d"]
    assert f"it is {found[2, 'plain'][0]:.2f} at d = 2 and {found[512, 'plain'][0]:.0f} at d = 512" in said
    assert f"it is {found[2, 'scaled'][0]:.2f} and {found[512, 'scaled'][0]:.2f}. At d = 512" in said
    (_, plain, vanished), (_, scaled, remains) = found[512, "plain"], found[512, "scaled"]
    assert f"the largest of 10 weights is {plain:.4f} without the division and {scaled:.2f} with it" in said
    np.testing.assert_allclose(_small(said), vanished, rtol=0.05)
    assert f"against {remains:.2f}." in said
    assert vanished < 1e-3 * remains
    assert "an additive score gives 10 scores" in said


def test_stages_hold_the_numbers_of_the_cues(data):
    ax = STATIONS[0].compute(Visit(data, 0, "en")).drawings[1].figure.axes[0]
    words = [text.get_text() for text in ax.texts]
    weights = np.exp([0, 0.5, 2, 3]) / np.exp([0, 0.5, 2, 3]).sum()
    for score, weight in zip(("0", "0.5", "2", "3"), weights, strict=True):
        assert words.index(f"{weight:.2f}") == words.index(score) + 1 or score in words
    assert f"{weights @ [0, 40, 150, 300]:.0f}" in words

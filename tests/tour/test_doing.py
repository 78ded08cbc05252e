"""What a student does at a stop: the code prints the stop's numbers, and the exercises have right solutions."""

from __future__ import annotations

import code
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest

from regard import LocalLinearRegressor, NadarayaWatsonRegressor
from regard.data import houses, notes, notes_truth
from regard.data.text import LANGUAGES
from regard.seq2seq import date_model
from regard.tour.stations import STATIONS
from support.story import CJK, NAMES, attention, error, left_out

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")

SUPERSCRIPTS = str.maketrans("−⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789")
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def numbers(text: str) -> list[str]:
    """Numbers in a text, as Python prints them."""
    plain = re.sub(r"\s×\s10(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹])", "e", text).translate(SUPERSCRIPTS)
    return [found.rstrip(",").replace(",", "").replace("e-0", "e-") for found in NUMBER.findall(plain)]


def rounds_to(found: str, short: str) -> bool:
    """Whether a printed number is this shorter one, give or take the digits that were not printed."""
    digits, _, power = short.partition("e")
    places = len(digits.partition(".")[2]) - int(power or 0)
    more = len(found.partition("e")[0].partition(".")[2]) - int(found.partition("e")[2] or 0)
    return abs(float(found) - float(short)) <= 0.5 * 10.0**-places + (0.5 * 10.0**-more if more > places else 0.0)


def pasted(lines: str) -> str:
    """What a Python session prints when these lines are pasted into it."""
    console, printed, errors = code.InteractiveConsole(), StringIO(), []
    console.write = errors.append
    with redirect_stdout(printed):
        unfinished = False
        for line in [*lines.splitlines(), ""]:
            unfinished = console.push(line)
        assert not unfinished
    assert errors == []
    return printed.getvalue()


@pytest.mark.parametrize("station", STATIONS, ids=NAMES)
def test_the_code_runs_as_pasted_and_prints_the_numbers_of_the_stop(station, tours, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = numbers(pasted(station.code()))
    assert said
    answer = numbers(tours["en"].rows[NAMES.index(station.name)].answer)
    assert [each for each in said if each not in answer] == []
    page = tours["en"].page.read_text(encoding="utf-8")
    section = page[page.index(f'<section id="{station.name}">') :]
    (headline,) = re.findall(r'<p class="number">(.*?)</p>', section.partition("</section>")[0], re.S)
    values = numbers(" ".join(re.findall(r"<b>(.*?)</b>", headline)))
    assert values
    assert [value for value in values if not any(rounds_to(each, value) for each in said)] == []


@pytest.mark.parametrize("name", ["soft", "edges"])
def test_the_code_runs_in_a_fresh_session(name, tmp_path):
    lines = STATIONS[NAMES.index(name)].code()
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == pasted(lines)


@pytest.mark.parametrize("station", STATIONS, ids=NAMES)
def test_the_code_fits_the_column_of_the_page(station):
    assert max(len(line) for line in station.code().splitlines()) <= 83


def test_the_code_takes_the_seed_of_the_page():
    station = STATIONS[NAMES.index("learned")]
    assert "notes(seed=7)" in station.code(7)
    assert "random_state=7" in station.code(7)
    assert "=0" not in station.code(7).replace(" ", "")


# ---------------------------------------------------------------- headline numbers


@pytest.mark.parametrize("station", STATIONS, ids=NAMES)
def test_every_headline_number_has_words_in_both_languages(station):
    lines = [station.texts["number"].said(lang).splitlines() for lang in LANGUAGES]
    assert len(lines[0]) == len(lines[1])
    for en, zh in zip(*lines, strict=True):
        (value, words), (same, translated) = en.split(" | "), zh.split(" | ")
        assert value == same
        assert re.search(r"[a-z]{4}", words)
        assert CJK.search(translated)


# ---------------------------------------------------------------- exercises


def _cues():
    e = np.exp([3, 2.5, 3, 3.5])
    return [f"{100 * e[3] / e.sum():.0f}%", f"{100 * e[0] / e.sum():.0f}%", f"{e @ [0, 40, 150, 300] / e.sum():.0f}"]


def _hard(data):
    nearest = np.abs(data.x_test[:, None] - data.x_train).argmin(axis=1)
    return [str(len(set(nearest))), str(50 - len(set(nearest)))]


def _soft(data):
    far = NadarayaWatsonRegressor(bandwidth=1.0).fit(data.x_train[:, None], data.y_train).predict([[100.0]])
    assert far[0] == pytest.approx(data.y_train[-1], abs=1e-3)
    lead = -0.5 * np.diff((100 - data.x_train[-2:]) ** 2)
    assert lead == pytest.approx(7.8, abs=0.2)
    return [f"{far[0]:.3f}"]


def _kernel(data):
    from scipy.optimize import brentq

    def keys(w):
        return 1 / (attention(np.array([2.5]), data.x_train, w) ** 2).sum()

    assert keys(1e-6) == pytest.approx(50)
    assert keys(200.0) == pytest.approx(1)
    return [f"{brentq(lambda w: keys(w) - 20, 0.5, 8):.2f}"]


def _heatmap(data):
    order = np.random.default_rng(1).permutation(50)
    mixed = attention(data.x_test, data.x_train[order]) @ data.y_train[order]
    return [f"{error(mixed, data.y_truth):.3f}"]


def _batch():
    assert np.all(0.25 * np.ones((2, 1, 4)) @ np.ones((2, 4, 6)) == 1)
    return ["0.25", str((np.ones((50, 1, 50)) @ np.ones((50, 50, 1))).shape)]


def _softmax(data):
    score = -0.5 * (data.x_test[:, None] - data.x_train) ** 2
    scaled = np.exp(4 * score) / np.exp(4 * score).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(scaled, attention(data.x_test, data.x_train, 2.0), rtol=1e-10)
    return ["<i>w</i> = 2"]


def _learned(data):
    best = NadarayaWatsonRegressor(metric="scalar").fit(data.x_train[:, None], data.y_train)
    assert error(attention(data.x_train, data.x_train, 1e6) @ data.y_train, data.y_train) < 1e-12
    return [f"{50 * best.search_.value:.1f}", f"{best.w_:.2f}"]


def _sharper():
    shares = [0.6**power / (0.6**power + 0.4**power) for power in (4, 0.25)]
    return [f"{100 * share:.1f}" for one in shares for share in (one, 1 - one)]


def _diagnosis(data):
    x, y = data.x_train, data.y_train
    apart = np.abs(x[:, None] - x) + np.diag(np.full(50, np.inf))
    needle = np.mean((y - y[apart.argmin(axis=1)]) ** 2)
    river = np.mean((y - left_out(x[:, None], y, 0.0)) ** 2)
    assert river == pytest.approx((50 / 49) ** 2 * y.var())
    return [f"{needle:.3f}", f"{y.var():.3f}", f"{river:.3f}"]


def _edges(data):
    x, y = data.x_train, 3 + 2 * data.x_train
    line = LocalLinearRegressor(bandwidth=1.0).fit(x[:, None], y).predict([[0.0]])[0]
    return [f"{line:.12g}", f"{(attention(np.array([0.0]), x) @ y)[0]:.2f}"]


def _scoring():
    from regard.nn import AdditiveScore

    sizes = [sum(each.numel() for each in AdditiveScore(q, k, 32).parameters()) for q, k in ((1, 1), (20, 2))]
    return [str(size) for size in sizes]


def _density():
    keys = np.arange(0, 20.01, 0.1)
    asked = ((keys, 10.0), (keys, 0.0), (keys[::2], 10.0))
    heard = [1 / (attention(np.array([x]), each, 2.0) ** 2).sum() for each, x in asked]
    assert heard[0] == pytest.approx(2 * np.sqrt(np.pi) * 0.5 / 0.1)
    return [f"{each:.1f}" for each in heard]


def _root_d():
    found = []
    for score, digits in ((8.0, 5), (1.0, 3)):
        alpha = np.exp(score) / (np.exp(score) + 1)
        found += [f"{each:.{digits}f}" for each in (alpha, 1 - alpha, alpha * (1 - alpha))]
    assert float(found[5]) / float(found[2]) == pytest.approx(580, rel=0.02)
    return found


def _reinforcement():
    cost = np.array([1.0, 1.0, 1.0, 0.0])
    above = cost - (cost.sum() - cost) / 3  # the baseline of each draw: the mean cost of the others
    return [f"{1 - 1 / 8:g}", f"{above[0]:.2f}", f"{above[3]:g}".replace("-", "−")]


def _homes():
    X, y, names, _ = houses(seed=0)
    assert names[0] == "area"
    smaller = X / np.array([1000, *np.ones(X.shape[1] - 1)])
    vectors = [NadarayaWatsonRegressor().fit(given, y) for given in (X, smaller)]
    scalars = [NadarayaWatsonRegressor(metric="scalar").fit(given, y) for given in (X, smaller)]
    assert vectors[1].w_[0] == pytest.approx(1000 * vectors[0].w_[0], rel=1e-3)
    assert vectors[1].search_.value == pytest.approx(vectors[0].search_.value, rel=1e-6)
    return ["1000", *(f"{model.search_.value**0.5:.1f}" for model in (vectors[1], *scalars))]


def _seq2seq():
    (found,) = date_model.learn_dates(0).translator.align(["le 3 mai 2021"], ["2021-05-03"])
    rows, columns = found.weights.shape
    return [str(columns), str(rows), str(rows * columns)]


SOLVED = {
    "cues": lambda data: _cues(),
    "average": lambda data: [f"{data.y_truth.mean():.3f}", f"{data.y_truth.std():.3f}"],
    "hard": _hard,
    "soft": _soft,
    "kernel": _kernel,
    "heatmap": _heatmap,
    "batch": lambda data: _batch(),
    "softmax": _softmax,
    "moredata": lambda data: [f"{2**2.5:.2f}", f"{2**2}"],
    "learned": _learned,
    "sharper": lambda data: _sharper(),
    "diagnosis": _diagnosis,
    "density": lambda data: _density(),
    "edges": _edges,
    "growth": lambda data: [f"{2**5}", f"{32**-0.4:.2f}", f"{1000**0.2:.2f}"],
    "shapes": lambda data: ["1", "10", "100", f"{10 * 11 // 2}", f"{100 - 55}"],
    "scoring": lambda data: _scoring(),
    "root_d": lambda data: _root_d(),
    "reinforcement": lambda data: _reinforcement(),
    "homes": lambda data: _homes(),
    "seq2seq": lambda data: _seq2seq(),
}


@pytest.mark.parametrize("station", STATIONS, ids=NAMES)
def test_every_stop_has_an_exercise_whose_solution_is_right(station, tours):
    for lang in LANGUAGES:
        exercise, solution = (station.texts[name].said(lang) for name in ("exercise", "solution"))
        assert min(len(exercise), len(solution)) > 30
        for expected in SOLVED[station.name](notes(seed=0)):
            assert re.search(rf"(?<![\d.]){re.escape(expected)}(?!\.?\d)", solution), (lang, expected)
        html = tours[lang].page.read_text(encoding="utf-8")
        section = html[html.index(f'<section id="{station.name}">') :].partition("</section>")[0]
        hidden = re.search(
            r'<div class="exercise">.*<details><summary>\w+</summary>(.*)</details></div>', section, re.S
        )
        shown = solution.replace(" = ", "&nbsp;=&nbsp;")
        assert shown in hidden[1]
        assert shown not in section.replace(hidden[0], "")


def test_the_truth_is_what_the_exercise_of_the_mean_takes():
    data = notes(seed=0)
    np.testing.assert_array_equal(data.y_truth, notes_truth(data.x_test))

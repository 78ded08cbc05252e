"""The report: one page that anybody can read, with the numbers of the library."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.neighbors import KNeighborsRegressor

import regard
from regard.data import houses, notes
from regard.data.text import LANGUAGES
from regard.reporting.report_facts import facts_of
from regard.reporting.report_sentences import cell, number
from support.html_page import read

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

DATA = houses(120)
FRAME = pd.DataFrame(DATA.X, columns=list(DATA.feature_names))
KINDS = np.where(DATA.y > 200.0, "dear", np.where(DATA.y > 150.0, "fair", "cheap"))


@pytest.fixture(scope="module")
def model():
    return regard.KernelRegressor().fit(FRAME, DATA.y)


def test_the_report_prints_what_the_library_returns(model, tmp_path):
    page = read(regard.report(model, FRAME, DATA.y, tmp_path / "page.html", target="price"))
    error = np.sqrt(np.mean((model.loo_predictions_ - DATA.y) ** 2))
    assert "What was learned about price" in page.text
    assert f"typically off by {number(error)}" in page.text
    share = model.feature_relevance_.max()
    assert f"{DATA.feature_names[int(model.feature_relevance_.argmax())]} {share:.0%}" in page.text
    assert model.diagnose().why in page.text
    assert page.tags.count("img") == 4
    assert page.tags.count("h1") == 1


@pytest.mark.parametrize("lang", LANGUAGES)
def test_it_needs_nothing_else(model, lang, tmp_path):
    page = read(regard.report(model, FRAME, DATA.y, tmp_path / "page.html", lang=lang))
    assert all(address.startswith("data:image/svg+xml;base64,") for address in page.addresses)
    assert not {"script", "link", "iframe"} & set(page.tags)
    chinese = bool(re.search("[\u4e00-\u9fff]", page.text))
    assert chinese == (lang == "zh")


def test_the_same_twice(model, tmp_path):
    pages = [regard.report(model, FRAME, DATA.y, tmp_path / name).read_bytes() for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]


def test_baselines_are_the_mean_and_the_nearest_of_the_others(model):
    methods = {one.name: one for one in facts_of(model, FRAME, DATA.y).methods}
    n = len(DATA.y)
    mean = (DATA.y.sum() - DATA.y) / (n - 1)
    assert methods["mean"].error == pytest.approx(np.sqrt(np.mean((mean - DATA.y) ** 2)))
    Z = DATA.X / DATA.X.std(axis=0)
    nearest = [
        KNeighborsRegressor(1).fit(np.delete(Z, i, 0), np.delete(DATA.y, i)).predict(Z[i : i + 1])[0] for i in range(n)
    ]
    assert methods["nearest"].error == pytest.approx(np.sqrt(np.mean((np.array(nearest) - DATA.y) ** 2)))
    assert methods["model"].error < methods["nearest"].error < methods["mean"].error


MODELS = {
    "fixed": regard.NadarayaWatsonRegressor(bandwidth=20.0),
    "line": regard.LocalLinearRegressor(bandwidth=40.0, ridge=0.01),
    "compact": regard.NadarayaWatsonRegressor(kernel="tricube", bandwidth=300.0),
    "adaptive": regard.NadarayaWatsonRegressor(bandwidth="adaptive"),
    "average": regard.AveragePoolingRegressor(),
    "nearest": regard.NearestKeyRegressor(),
    "additive": regard.AttentionRegressor("additive", hidden_size=4, max_iter=1, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_left_out_answers_are_those_of_deletion(name, tmp_path):
    model = MODELS[name].fit(DATA.X, DATA.y)
    facts = facts_of(model, DATA.X, DATA.y)
    assert facts.left_out
    if name not in ("adaptive", "additive"):
        without = np.arange(len(DATA.y)) != 7
        again = type(model)(**model.get_params()).fit(DATA.X[without], DATA.y[without])
        assert facts.answer[7] == pytest.approx(again.predict(DATA.X[7:8])[0], rel=1e-9)
    assert "<h1>" in regard.report(model, DATA.X, DATA.y, tmp_path / "page.html").read_text(encoding="utf-8")


def test_new_rows(model, tmp_path):
    more = houses(50, seed=3)
    frame = pd.DataFrame(more.X, columns=list(more.feature_names))
    facts = facts_of(model, frame, more.y)
    assert not facts.left_out
    assert np.array_equal(facts.answer, model.predict(frame))
    page = read(regard.report(model, frame, more.y, tmp_path / "page.html"))
    assert "the model has not seen them" in page.text


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_classes_and_dataframes(library, tmp_path):
    frame = library({name: DATA.X[:, i] for i, name in enumerate(DATA.feature_names)})
    model = regard.KernelClassifier().fit(frame, KINDS)
    page = read(regard.report(model, frame, KINDS, tmp_path / "page.html", target="kind"))
    right = np.mean(model.classes_[model.loo_predictions_.argmax(axis=1)] == KINDS)
    assert f"assigns {right:.0%} of the rows to the correct one of 3 classes" in page.text


def test_names_are_only_text(tmp_path):
    frame = pd.DataFrame(DATA.X[:, :2], columns=["<script>alert(1)</script>", "a & b"])
    model = regard.NadarayaWatsonRegressor(bandwidth=10.0).fit(frame, DATA.y)
    page = read(regard.report(model, frame, DATA.y, tmp_path / "page.html", target="<b>y</b>"))
    assert not {"script", "b"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.text


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_chinese_names_are_drawn_in_either_language(lang, tmp_path):
    """A letter missing from a figure's font would be a warning, hence an error."""
    frame = pd.DataFrame(DATA.X[:, :2], columns=["年龄（岁）", "血压"])
    model = regard.NadarayaWatsonRegressor(bandwidth=10.0).fit(frame, DATA.y)
    regard.report(model, frame, DATA.y, tmp_path / "page.html", target="病情", lang=lang)


def test_too_thin_is_said(tmp_path):
    data = notes()
    model = regard.NadarayaWatsonRegressor(bandwidth=0.02).fit(data.x_train[:, None], data.y_train)
    page = read(regard.report(model, data.x_train[:, None], data.y_train, tmp_path / "page.html"))
    assert "like a needle" in page.text
    chinese = read(regard.report(model, data.x_train[:, None], data.y_train, tmp_path / "zh.html", lang="zh"))
    assert "像一根针" in chinese.text


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows(rows, tmp_path):
    X, y = np.arange(rows, dtype=float)[:, None], np.arange(rows, dtype=float)
    model = regard.NadarayaWatsonRegressor(bandwidth=1.0).fit(X, y)
    if rows == 1:
        with pytest.raises(ValueError, match="needs at least two training rows, got 1"):
            regard.report(model, X, y, tmp_path / "page.html")
        return
    assert regard.report(model, X, y, tmp_path / "page.html").exists()


def test_words_where_it_cannot(model, tmp_path):
    page = tmp_path / "page.html"
    with pytest.raises(ValueError, match="lang must be one of en, zh, got 'fr'"):
        regard.report(model, FRAME, DATA.y, page, lang="fr")
    with pytest.raises(ValueError, match="X has 120 rows but y has 119"):
        regard.report(model, FRAME, DATA.y[1:], page)
    with pytest.raises(ValueError, match=r"y must have shape \(120,\), got \(120, 2\)"):
        regard.report(model, FRAME, np.column_stack([DATA.y, DATA.y]), page)
    both = regard.NadarayaWatsonRegressor(bandwidth=10.0).fit(FRAME, np.column_stack([DATA.y, DATA.y]))
    with pytest.raises(ValueError, match="a model with a single target, got one with 2"):
        regard.report(both, FRAME, DATA.y, page)
    with pytest.raises(ValueError, match="y must be finite"):
        regard.report(model, FRAME, np.where(DATA.y > 100, DATA.y, np.nan), page)
    page.write_text("mine")
    with pytest.raises(ValueError, match="already exists"):
        regard.report(model, FRAME, DATA.y, page)
    assert page.read_text() == "mine"
    classifier = regard.NadarayaWatsonClassifier(bandwidth=10.0).fit(FRAME, KINDS)
    with pytest.raises(ValueError, match="y contains 'free', which is not one of the model's classes"):
        regard.report(classifier, FRAME, np.where(KINDS == "fair", "free", KINDS), tmp_path / "other.html")


@pytest.mark.parametrize("size", [1e160, 1e307, 1e-200, 1e-300])
def test_errors_and_scores_of_targets_whose_squares_leave_float64(size, tmp_path):
    y = DATA.y / DATA.y.max()
    pages = []
    for unit in (1.0, size):
        model = regard.NadarayaWatsonRegressor(bandwidth=30.0).fit(DATA.X, unit * y)
        methods = facts_of(model, DATA.X, unit * y).methods
        pages.append((model, [one.error / unit for one in methods], [one.score for one in methods]))
    np.testing.assert_allclose(pages[1][1:], pages[0][1:], rtol=1e-9)
    page = read(regard.report(pages[1][0], DATA.X, size * y, tmp_path / "page.html"))
    assert f"typically off by {number(size * pages[0][1][0])}" in page.text
    assert "∞" not in page.text
    assert pages[0][0].diagnose().why in page.text


def test_numbers():
    assert [number(x) for x in (1234567.0, 12.345, 0.00123, np.inf)] == ["1,234,567", "12.3", "0.00123", "∞"]
    assert [number(x) for x in (1e9, -2.5e160)] == ["1e+09", "-2.5e+160"]
    column = np.array([30.1, 30.4])
    assert cell(30.27412, column) == "30.274"
    assert cell(5.0, np.array([5.0, 5.0])) == "5"
    rooms = np.array([1.0, 3.0, 2000.0])
    assert [cell(x, rooms[:2]) for x in (3.0, 2.5, 12345.0)] == ["3", "2.50", "12,345"]
    assert [cell(x, rooms) for x in (3.0, 2000.0)] == ["3", "2,000"]
    assert cell(3.0, np.array([1.5, 3.0])) == "3.00"
    assert cell(3.0, np.array([3.0, 1e300])) == "3"


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_whole_numbers_are_shown_as_whole_numbers(library, tmp_path):
    x = np.linspace(10.3, 11.7, 40)
    frame = library({"rooms": np.arange(40) % 4 + 1, "far": x})
    y = np.sin(4.0 * x) + 10.0 * (np.arange(40) % 4)
    model = regard.NadarayaWatsonRegressor(bandwidth=[1.0, 0.1]).fit(frame, y)
    page = regard.report(model, frame, y, tmp_path / "page.html").read_text(encoding="utf-8")
    cells = set(re.findall(r"<td class=n>([^<]*)</td>", page[page.index("Why this prediction?") :]))
    assert {"1", "2", "3", "4"} <= cells
    assert not {"1.00", "2.00", "3.00", "4.00"} & cells

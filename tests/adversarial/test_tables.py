"""Bad tables of words, numbers and gaps given to the estimators that take them, lines 1 to 18 and 38 of the list."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier

import regard
from support.adversaries import asking, count

rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"size": rng.normal(size=24), "colour": np.resize(["red", "blue", "green"], 24), "age": rng.normal(size=24)}
)
Y = FRAME["size"].to_numpy() + (FRAME["colour"] == "red")
WIDTHS = [0.5, 0.3, 0.5]
TAKERS = {
    "NadarayaWatsonRegressor": regard.NadarayaWatsonRegressor(bandwidth=WIDTHS),
    "LocalLinearRegressor": regard.LocalLinearRegressor(bandwidth=WIDTHS, ridge=0.1),
    "KernelRegressor": regard.KernelRegressor(),
    "NadarayaWatsonClassifier": regard.NadarayaWatsonClassifier(bandwidth=WIDTHS),
    "KernelClassifier": regard.KernelClassifier(),
}
every_taker = pytest.mark.parametrize("name", TAKERS)
every_rule = pytest.mark.parametrize("missing", ["refuse", "ignore"])
ERRORS = (ValueError, TypeError)
pytestmark = pytest.mark.usefixtures("brief_learning")


def target(model):
    return np.where(Y > 0.0, "up", "down") if is_classifier(model) else Y


@lru_cache
def fitted(name, missing, numbers=False):
    model = clone(TAKERS[name]).set_params(missing=missing)
    if numbers and "bandwidth" in model.get_params():
        model.set_params(bandwidth=0.5)
    return model.fit(FRAME[["size", "age"]].to_numpy() if numbers else FRAME, target(model))


def spoiled(column, cell):
    """The table with one cell changed."""
    cells = FRAME[column].astype(object if isinstance(cell, str | None) else float)
    cells[3] = cell
    return FRAME.assign(**{column: cells})


DATES = np.full((24, 3), "2020-01-01", "datetime64[s]")
# line, X, what the message says: in fit and in every question.
BAD = [
    (1, FRAME[:0], "X must have at least one row"),
    (1, pl.DataFrame(FRAME)[:0], "X must have at least one row"),
    (8, spoiled("size", np.inf), "X column 'size' must be finite, got infinity in row 3"),
    (9, FRAME.assign(age=1j), "X column 'age' must hold numbers or text, got complex128"),
    (10, FRAME.assign(age=[[1.0]] * 24), "X column 'age' must hold numbers or text, got"),
    (
        11,
        FRAME.assign(age=pd.Timestamp("2020-01-01")),
        "'age' must hold numbers or text, got datetime64.*; convert it to numbers of days",
    ),
    (11, FRAME.assign(age=pd.Timedelta(1, "D")), "X column 'age' must hold numbers or text, got timedelta64"),
    (11, FRAME.assign(age=[pd.Timestamp("2020-01-01").date()] * 24), "X column 'age' must hold numbers or text, got"),
    (17, FRAME.set_axis(["size", "colour", "colour"], axis=1), "X must have distinct column names"),
    (18, pl.DataFrame(FRAME).lazy(), "X is a lazy frame"),
    (18, np.ma.array(FRAME.to_numpy()), "X is a masked array"),
    (38, FRAME.assign(size=1.5e307), r"X holds numbers beyond ±1e\+307; rescale it"),
]
# The same, in questions only: fit takes a table of such columns, or says that it takes no words outside a dataframe.
ASKED = [
    (2, FRAME.to_numpy()[:0], "X must have at least one row"),
    (4, FRAME["size"], "X .*features"),
    (5, FRAME.to_numpy()[None], "X has .*|X must have two axes"),
    (6, FRAME[["size", "colour"]], "feature names should match"),
    (10, FRAME.assign(age="old"), "X column 'age' must hold numbers, got the text 'old'"),
    (16, sparse.csr_array(np.zeros((4, 3))), r"X is sparse.*X\.toarray"),
    (17, FRAME[["colour", "size", "age"]], "same order"),
]
GAPS = [
    (7, spoiled("size", np.nan), "X column 'size' has no entry in row 3; missing='ignore'"),
    (7, spoiled("colour", None), "X column 'colour' has no entry in row 3; missing='ignore'"),
    (18, FRAME.assign(size=FRAME["size"].astype("Float64").mask(FRAME.index == 3)), "X column 'size' has no entry in"),
    (18, spoiled("colour", None).astype({"colour": "category"}), "X column 'colour' has no entry in row 3"),
]


@every_rule
@every_taker
@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
def test_tables_that_are_an_error(name, missing):
    model = fitted(name, missing)
    refused = BAD + (GAPS if missing == "refuse" else [])
    for line, bad, match in refused:
        with pytest.raises(ERRORS, match=match):
            print(f"line {line} got past fit:", clone(model).fit(bad, np.resize(target(model), count(bad))))
    for question, ask in asking(model):
        for line, bad, match in refused + ASKED:
            with pytest.raises(ERRORS, match=match):
                print(f"line {line} got past {question}:", ask(bad))


# Questions about how answers move, which rows with gaps have no answer to.
MOVES = ("marginal_effects",)


@every_taker
def test_7_gaps_are_taken_where_they_are_asked_for(name):
    model = fitted(name, "ignore")
    for question, ask in asking(model):
        for line, given, _ in GAPS:
            if question in MOVES:
                with pytest.raises(ValueError, match="missing entries"):
                    ask(given)
            else:
                assert ask(given) is not None, line
    predict = model.predict_proba if is_classifier(model) else model.predict
    assert np.isfinite(predict(GAPS[0][1])).all()
    rest = np.arange(24) != 3
    assert np.allclose(predict(GAPS[0][1])[rest], predict(FRAME)[rest], rtol=1e-10, atol=1e-12)
    for line, given, _ in GAPS:
        assert np.isfinite(getattr(clone(model).fit(given, target(model)), predict.__name__)(FRAME)).all(), line


@every_taker
def test_7_rows_that_have_nothing(name):
    """A row without a single entry is as near to one row as to any other: an error that says which."""
    empty = FRAME.assign(size=np.nan, age=np.nan, colour=None)
    with pytest.raises(ValueError, match="row 0 of X has no column in common with any training row"):
        fitted(name, "ignore").predict(empty[:2])


@every_taker
def test_10_a_category_that_did_not_occur_in_fit_is_a_warning(name):
    with pytest.warns(UserWarning, match="X column 'colour' has the category 'pink', which did not occur in fit"):
        answer = fitted(name, "refuse").predict(spoiled("colour", "pink"))
    assert len(answer) == 24


NUMBERS = FRAME[["size", "age"]].to_numpy()


@every_taker
def test_8_to_11_numbers_with_gaps(name):
    """Where NaN is allowed in a plain array, nothing else is."""
    model = fitted(name, "ignore", numbers=True)
    bad = [
        (8, np.where(NUMBERS > 1.0, -np.inf, NUMBERS), "X contains infinity"),
        (9, NUMBERS + 1j, "X must hold real numbers. Complex"),
        (10, NUMBERS.astype(str), "X must hold real numbers"),
        (11, DATES[:, :2], "X must hold real numbers, got dtype datetime64"),
        (18, np.ma.array(NUMBERS, mask=NUMBERS > 1), "X is a masked array"),
        (38, np.full((2, 2), 1.5e307), "X holds numbers beyond"),
    ]
    for line, given, match in bad:
        with pytest.raises(ERRORS, match=match):
            print(f"line {line} got past fit:", clone(model).fit(given, np.resize(target(model), len(given))))
        for question, ask in asking(model):
            with pytest.raises(ERRORS, match=match):
                print(f"line {line} got past {question}:", ask(given))

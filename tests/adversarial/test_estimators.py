"""Bad input to every estimator, lines 1 to 29 and 44 to 45: each is an error that names the argument."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier

from support.adversaries import (
    ALL,
    CLASSIFIERS,
    FRAME,
    GIVEN,
    LABELS,
    NAMES,
    REGRESSORS,
    X,
    Y,
    answer,
    asking,
    count,
    every_estimator,
    fitted,
    target,
)

DATES = np.array(["2020-01-01"] * 24, "datetime64[D]").reshape(12, 2)
HOLE = np.arange(24).reshape(12, 2) == 0  # one entry to go missing
ERRORS = (ValueError, TypeError)
# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")


def spoiled(array, entry, at=(1, 1)):
    array = np.array(array, dtype=object if isinstance(entry, str) else None)
    array[at[: array.ndim]] = entry
    return array


# line, X, what the message says
BAD_X = [
    (1, X[:0], "X must have at least one row"),
    (1, FRAME[:0], "X must have at least one row"),
    (4, X[:, 0], r"X must have two axes.*got shape \(12,\).*X\.reshape\(-1, 1\)"),
    (4, pd.Series(X[:, 0]), r"X must have two axes.*X\.reshape\(-1, 1\)"),
    (4, pl.Series(X[:, 0]), r"X must have two axes.*X\.reshape\(-1, 1\)"),
    (4, 3.0, "X must have two axes"),
    (5, X[None], r"X must have two axes.*got shape \(1, 12, 2\)"),
    (7, spoiled(X, np.nan), "X contains NaN"),
    (7, FRAME.mask(HOLE), "X contains NaN"),
    (7, pl.DataFrame({"a": [None, 1.0], "b": [1, 2]}), "X contains NaN"),
    (7, pa.table({"a": [None, 1.0], "b": [1, 2]}), "X contains NaN"),
    (7, spoiled(X.astype(object), None), "X contains NaN"),
    (8, spoiled(X, np.inf), "X contains infinity"),
    (8, spoiled(X, -np.inf), "X contains infinity"),
    (9, X + 1j, "X must hold real numbers. Complex"),
    (10, X.astype(str), "X must hold real numbers"),
    (10, X.astype("S"), "X must hold real numbers"),
    (10, spoiled(X, "1.5"), "X must hold real numbers, got the text '1.5'"),
    (10, [["a", "b"], ["c", "d"]], "X must hold real numbers"),
    (10, [[{}, 1.0]], "X must hold real numbers"),
    (10, [[1.0, 2.0], [3.0]], "X must hold real numbers in rows of one length"),
    (11, DATES, "X must hold real numbers, got dtype datetime64"),
    (11, DATES - DATES, "X must hold real numbers, got dtype timedelta64"),
    (11, DATES.astype(object), "X must hold real numbers.*date"),
    (
        11,
        pd.DataFrame(DATES.astype("datetime64[s]"), columns=NAMES),
        "X column 'a' must hold real numbers, got Datetime",
    ),
    (11, pl.DataFrame({"a": [datetime.date(2020, 1, 1)], "b": [1]}), "X column 'a' must hold real numbers, got Date"),
    (11, pa.table({"a": [datetime.date(2020, 1, 1)], "b": [1]}), "X column 'a' must hold real numbers, got Date"),
    (16, sparse.csr_array(X), "(?i)sparse.*X.*toarray"),
    (16, sparse.coo_matrix(X), "(?i)sparse.*X.*toarray"),
    (17, pd.DataFrame(X, columns=["a", "a"]), "X must have distinct column names"),
    (18, np.ma.array(X, mask=X > 1), "X is a masked array"),
    (18, FRAME.astype("Float64").mask(HOLE), "X contains NaN"),
    (18, FRAME.astype(object).mask(HOLE, pd.NA), "X column 'a' must hold real numbers.*NA"),
    (18, pl.DataFrame(X, schema=NAMES).lazy(), "X is a lazy frame"),
    (38, np.sign(X) * 1e308, r"X holds numbers beyond ±1e\+307; rescale it"),
    (38, np.array([[1.5e307, 0.0]]), r"X holds numbers beyond ±1e\+307; rescale it"),
]


@every_estimator
@pytest.mark.parametrize(("line", "bad", "match"), BAD_X)
@pytest.mark.filterwarnings("ignore:X (has feature names|does not have valid):UserWarning")
def test_x_that_is_an_error_in_fit_and_in_predict(name, line, bad, match):
    y = np.resize(target(ALL[name]), count(bad))
    with pytest.raises(ERRORS, match=match):
        clone(ALL[name]).fit(bad, y)
    with pytest.raises(ERRORS, match=match):
        fitted(name).predict(bad)


# One row of the table for every line, asked of every method that takes X; lines 2 and 6 are of such questions only.
ASKED = {
    2: (X[:0], "X must have at least one row"),
    6: (X[:, :1], "X has 1 features, but .* is expecting 2"),
    **{line: (bad, match) for line, bad, match in reversed(BAD_X) if line > 1},
}


@every_estimator
@pytest.mark.filterwarnings("ignore:X (has feature names|does not have valid):UserWarning")
def test_x_that_is_an_error_in_every_question(name):
    model = fitted(name)
    for question, ask in asking(model):
        for line, (bad, match) in ASKED.items():
            with pytest.raises(ERRORS, match=match):
                print(f"{question} of line {line} got past:", ask(bad))


# line, names of the columns asked about, what the message says
NAMED = [(6, ["a"], "feature names"), (17, ["b", "a"], "same order"), (17, ["a", "c"], "feature names")]


@every_estimator
def test_columns_that_are_not_those_of_fit(name):
    model = clone(ALL[name]).fit(FRAME, target(ALL[name]))
    wide = FRAME.assign(c=0.0)
    for question, ask in asking(model):
        for line, columns, match in NAMED:
            with pytest.raises(ValueError, match=match):
                print(f"{question} of line {line} got past:", ask(wide[columns]))


# --- y that is an error ------------------------------------------------------------------------------------------

# line, y, what the message says
BAD_NUMBERS = [
    (7, spoiled(Y, np.nan), "y contains NaN"),
    (7, pd.Series(Y).astype("Float64").mask(Y > 0), "y contains NaN"),
    (8, spoiled(Y, np.inf), "y contains infinity"),
    (9, Y + 1j, "y must hold real numbers. Complex"),
    (10, LABELS, "y must hold real numbers, got .* take a classifier"),
    (10, Y.astype(str).astype(object), "y must hold real numbers, got the text"),
    (11, DATES[:, 0], "y must hold real numbers, got dtype datetime64"),
    (16, sparse.csr_array(Y[:, None]), "y is sparse"),
    (18, np.ma.array(Y, mask=Y > 0), "y is a masked array"),
    (22, Y[:5], "X has 12 rows but y has 5"),
    (22, None, "requires y"),
    (38, np.resize([1.5e308, -1.5e308, -1.5e308], 12), "y holds numbers beyond"),
]
BAD_LABELS = [
    (7, spoiled(np.arange(12.0), np.nan), "y contains NaN"),
    (7, [*LABELS[1:], None], "y must have a label in every row"),
    (7, pl.Series([*LABELS[1:], None]), "y must have a label"),
    (10, np.array([*LABELS[1:], 1], object), "y must hold labels of one"),
    (16, sparse.csr_array(Y[:, None]), "y is sparse"),
    (18, np.ma.array(LABELS, mask=Y > 0), "y is a masked array"),
    (18, pd.Series([*LABELS[1:], pd.NA], dtype="string"), "y must have a label"),
    (21, np.column_stack([LABELS, LABELS]), "y should be a 1d array"),
    (21, pd.DataFrame({"a": LABELS, "b": LABELS}), "y must be one column"),
    (22, LABELS[:5], "X has 12 rows but y has 5"),
    (22, None, "requires y"),
    (22, Y, "Unknown label type: continuous"),
]
BAD_Y = [
    (name, *row)
    for names, rows in ((REGRESSORS, BAD_NUMBERS), (CLASSIFIERS, BAD_LABELS))
    for name in names
    for row in rows
]


def names_only_public_arguments(caught):
    """Users know X, y and their parameters, and nothing of queries, keys and values."""
    message = str(caught.value)
    assert not any(word in message for word in ("query", "key ", "value must", "value has")), message


@pytest.mark.parametrize(("name", "line", "y", "match"), BAD_Y)
def test_y_that_is_an_error(name, line, y, match):
    with pytest.raises(ERRORS, match=match) as caught:
        clone(ALL[name]).fit(X, y)
    names_only_public_arguments(caught)


@pytest.mark.parametrize("name", REGRESSORS)
def test_8_numbers_too_large_for_the_dtype_of_x(name):
    with pytest.raises(ValueError, match="y has values too large for float32"):
        clone(ALL[name]).fit(X.astype(np.float32), Y * 1e100)


# --- weights and parameters --------------------------------------------------------------------------------------

# line, sample_weight, what the message says
BAD_WEIGHTS = [
    (44, np.zeros(12), "all sample weights are zero"),
    (44, [0] * 12, "all sample weights are zero"),
    (44, np.zeros(12, bool), "all sample weights are zero"),
    (45, spoiled(np.ones(12), -1.0), "sample_weight must .* got -1.0 in row 1"),
    (45, spoiled(np.ones(12), np.nan), "sample_weight must .* got nan in row 1"),
    (45, spoiled(np.ones(12), np.inf), "sample_weight must be"),
    (45, np.ones(3), "sample_weight must have one entry per row of X"),
    (45, np.ones((12, 1)), "sample_weight must have one entry per row of X"),
    (45, 2.0, "sample_weight must have one entry per row of X"),
    (45, ["1"] * 12, "sample_weight must hold real numbers"),
    (45, np.ma.ones(12), "sample_weight is a masked array"),
]


@every_estimator
@pytest.mark.parametrize(("line", "weight", "match"), BAD_WEIGHTS)
def test_weights_that_are_an_error(name, line, weight, match):
    with pytest.raises(ERRORS, match=match) as caught:
        clone(ALL[name]).fit(X, target(ALL[name]), sample_weight=weight)
    names_only_public_arguments(caught)


# line, bandwidth, what the message says
BAD_WIDTHS = [
    (23, 0.0, "bandwidth must be finite and not zero"),
    (23, -0.5, "bandwidth must be above 0, or inf to ignore a feature; got -0.5"),
    (23, [1.0, -1.0], "bandwidth must be above 0"),
    (27, np.nan, "bandwidth must be finite and not zero"),
    (27, [1.0, np.nan], "bandwidth must be finite and not zero"),
    (27, 1e-309, "bandwidth is too small"),
    (29, [1.0, 2.0, 3.0], "bandwidth has 3 numbers but X has 2 features"),
    (29, [1.0], "bandwidth has 1 numbers but X has 2 features"),
]


@pytest.mark.parametrize("name", [name for name, model in GIVEN.items() if "bandwidth" in model.get_params()])
@pytest.mark.parametrize(("line", "width", "match"), BAD_WIDTHS)
def test_bandwidths_that_are_an_error(name, line, width, match):
    with pytest.raises(ERRORS, match=match):
        clone(GIVEN[name]).set_params(bandwidth=width).fit(X, target(GIVEN[name]))


# --- more rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in GIVEN if hasattr(GIVEN[name], "partial_fit")])
def test_rows_to_add_that_are_an_error_leave_the_model_as_it_was(name):
    """Lines 1 to 11, 16, 18, 21, 22, 38 and 45 of a fitted model that is given more."""
    model, y = clone(GIVEN[name]), target(GIVEN[name])
    before = answer(model.fit(X, y))
    rows = [(line, bad, np.resize(y, count(bad)), None, match) for line, (bad, match) in ASKED.items()]
    rows += [(line, X, bad, None, match) for line, bad, match in (BAD_LABELS if is_classifier(model) else BAD_NUMBERS)]
    rows += [(line, X, y, bad, match) for line, bad, match in BAD_WEIGHTS if line == 45]
    for line, given, targets, weight, match in rows:
        with pytest.raises(ERRORS, match=match):
            print(f"line {line} got past:", model.partial_fit(given, targets, sample_weight=weight))
    assert np.array_equal(answer(model), before)

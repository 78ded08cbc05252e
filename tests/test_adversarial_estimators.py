"""Bad and extreme input to the estimators, lines 1 to 46: each is an error that names the argument, or a value."""

from __future__ import annotations

import datetime
import tracemalloc
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier

from regard.estimators import (
    AveragePoolingRegressor,
    NadarayaWatsonClassifier,
    NadarayaWatsonRegressor,
    NearestKeyRegressor,
)
from regard.pooling import pool
from regard.scores import KERNELS, Gaussian

rng = np.random.default_rng(5)
X = rng.normal(size=(12, 2))
Y = X[:, 0] - X[:, 1] ** 2
LABELS = np.where(Y.argsort().argsort() > 5, "above", "below")
Q = rng.normal(size=(7, 2))
DATES = np.array(["2020-01-01"] * 24, "datetime64[D]").reshape(12, 2)
NAMES = ["a", "b"]
FRAME = pd.DataFrame(X, columns=NAMES)
HOLE = np.arange(24).reshape(12, 2) == 0  # one entry to go missing
ERRORS = (ValueError, TypeError)

ALL = [AveragePoolingRegressor(), NearestKeyRegressor(), NadarayaWatsonRegressor(), NadarayaWatsonClassifier()]
every_estimator = pytest.mark.parametrize("estimator", ALL, ids=lambda e: type(e).__name__)
NW, NWC = NadarayaWatsonRegressor, NadarayaWatsonClassifier

# Lines that are no table row here, and where they are.
ELSEWHERE = {
    15: "test_layouts_are_equal_and_untouched",
    20: "test_refitting_leaves_nothing_stale",
    40: "test_an_isolated_row_left_out_is_finite",
    42: "test_memory_stays_below_the_weights",
}


def spoiled(array, entry, at=(1, 1)):
    array = np.array(array, dtype=object if isinstance(entry, str) else None)
    array[at[: array.ndim]] = entry
    return array


def target(estimator):
    return LABELS if is_classifier(estimator) else Y


def answer(model, Q=Q):
    return model.predict_proba(Q) if is_classifier(model) else model.predict(Q)


# --- X that is an error, in fit and in predict ---------------------------------------------------------------------

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
def test_x_that_is_an_error(estimator, line, bad, match):
    rows = bad.shape[0] if hasattr(bad, "shape") else len(bad) if isinstance(bad, list) else 1
    y = np.resize(target(estimator), rows)
    with pytest.raises(ERRORS, match=match):
        clone(estimator).fit(bad, y)
    fitted = clone(estimator).fit(X, target(estimator))
    for call in (fitted.predict, fitted.attend):
        with pytest.raises(ERRORS, match=match):
            call(bad)


# line, estimator, what to do with it, what the message says
BAD_CALLS = [
    (2, NW(), lambda m: m.fit(X, Y).predict(X[:0]), "X must have at least one row"),
    (6, NW(), lambda m: m.fit(X, Y).predict(X[:, :1]), "X has 1 features, but NadarayaWatsonRegressor is expecting 2"),
    (6, NW(), lambda m: m.fit(FRAME, Y).predict(FRAME[["a"]]), "feature names"),
    (7, NW(), lambda m: m.fit(X, spoiled(Y, np.nan)), "y contains NaN"),
    (7, NW(), lambda m: m.fit(X, pd.Series(Y).astype("Float64").mask(Y > 0)), "y contains NaN"),
    (7, NWC(), lambda m: m.fit(X, spoiled(np.arange(12.0), np.nan)), "y contains NaN"),
    (7, NWC(), lambda m: m.fit(X, [*LABELS[1:], None]), "y must hold a label in every row"),
    (7, NWC(), lambda m: m.fit(X, pl.Series([*LABELS[1:], None])), "y must hold a label"),
    (8, NW(), lambda m: m.fit(X, spoiled(Y, np.inf)), "y contains infinity"),
    (8, NW(), lambda m: m.fit(X.astype(np.float32), Y * 1e100), "y holds numbers too large for float32"),
    (9, NW(), lambda m: m.fit(X, Y + 1j), "y must hold real numbers. Complex"),
    (10, NW(), lambda m: m.fit(X, LABELS), "y must hold real numbers"),
    (10, NW(), lambda m: m.fit(X, Y.astype(str).astype(object)), "y must hold real numbers, got the text"),
    (10, NWC(), lambda m: m.fit(X, np.array([*LABELS[1:], 1], object)), "y must hold labels of one"),
    (11, NW(), lambda m: m.fit(X, DATES[:, 0]), "y must hold real numbers, got dtype datetime64"),
    (16, NW(), lambda m: m.fit(X, sparse.csr_array(Y[:, None])), "y is sparse"),
    (16, NWC(), lambda m: m.fit(X, sparse.csr_array(Y[:, None])), "y is sparse"),
    (17, NW(), lambda m: m.fit(FRAME, Y).predict(FRAME[["b", "a"]]), "same order"),
    (18, NW(), lambda m: m.fit(X, np.ma.array(Y, mask=Y > 0)), "y is a masked array"),
    (18, NWC(), lambda m: m.fit(X, np.ma.array(LABELS, mask=Y > 0)), "y is a masked array"),
    (18, NWC(), lambda m: m.fit(X, pd.Series([*LABELS[1:], pd.NA], dtype="string")), "y must hold a"),
    (21, NWC(), lambda m: m.fit(X, np.column_stack([LABELS, LABELS])), "y should be a 1d array"),
    (21, NWC(), lambda m: m.fit(X, pd.DataFrame({"a": LABELS, "b": LABELS})), "y must be one column"),
    (22, NW(), lambda m: m.fit(X, Y[:5]), "X has 12 rows but y has 5"),
    (22, NW(), lambda m: m.fit(X, None), "requires y"),
    (22, NWC(), lambda m: m.fit(X, Y), "Unknown label type: continuous"),
    (23, NW(bandwidth=0.0), lambda m: m.fit(X, Y), "bandwidth must be finite and not zero"),
    (27, NW(bandwidth=np.nan), lambda m: m.fit(X, Y), "bandwidth must be finite and not zero"),
    (27, NW(bandwidth=[1.0, np.nan]), lambda m: m.fit(X, Y), "bandwidth must be finite and not zero"),
    (27, NW(bandwidth=1e-309), lambda m: m.fit(X, Y), "bandwidth is too small"),
    (29, NW(bandwidth=[1.0, 2.0, 3.0]), lambda m: m.fit(X, Y), "bandwidth has 3 numbers but X has 2 features"),
    (29, NW(bandwidth=[1.0]), lambda m: m.fit(X, Y), "bandwidth has 1 numbers but X has 2 features"),
    (38, NW(), lambda m: m.fit(X, np.resize([1.5e308, -1.5e308, -1.5e308], 12)), "y holds numbers beyond"),
    (44, NW(), lambda m: m.fit(X, Y, sample_weight=np.zeros(12)), "sample_weight is zero"),
    (44, NWC(), lambda m: m.fit(X, LABELS, sample_weight=[0] * 12), "sample_weight is zero"),
    (44, AveragePoolingRegressor(), lambda m: m.fit(X, Y, sample_weight=np.zeros(12, bool)), "sample_weight is zero"),
    (
        45,
        NW(),
        lambda m: m.fit(X, Y, sample_weight=spoiled(np.ones(12), -1.0)),
        "sample_weight must .* got -1.0 in row 1",
    ),
    (
        45,
        NW(),
        lambda m: m.fit(X, Y, sample_weight=spoiled(np.ones(12), np.nan)),
        "sample_weight must .* got nan in row 1",
    ),
    (
        45,
        NearestKeyRegressor(),
        lambda m: m.fit(X, Y, sample_weight=spoiled(np.ones(12), np.inf)),
        "sample_weight must be",
    ),
    (45, NW(), lambda m: m.fit(X, Y, sample_weight=np.ones(3)), "sample_weight must have one entry per row of X"),
    (45, NW(), lambda m: m.fit(X, Y, sample_weight=np.ones((12, 1))), "sample_weight must have one entry per row of X"),
    (45, NW(), lambda m: m.fit(X, Y, sample_weight=2.0), "sample_weight must have one entry per row of X"),
    (45, NW(), lambda m: m.fit(X, Y, sample_weight=["1"] * 12), "sample_weight must hold real numbers"),
    (45, NW(), lambda m: m.fit(X, Y, sample_weight=np.ma.ones(12)), "sample_weight is a masked array"),
]


@pytest.mark.parametrize(("line", "estimator", "call", "match"), BAD_CALLS)
def test_calls_that_are_an_error(line, estimator, call, match):
    with pytest.raises(ERRORS, match=match) as caught:
        call(clone(estimator))
    message = str(caught.value)
    assert not any(word in message for word in ("query", "key ", "value must", "value has")), message


# --- input with a defined answer -----------------------------------------------------------------------------------

SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


def same_as_double(convert):
    """Predictions from converted whole numbers equal those from the same numbers as float64."""
    whole, at = np.arange(24).reshape(12, 2) * 9, np.arange(14).reshape(7, 2) * 11
    y = np.arange(12) * 20
    plain = NW(bandwidth=15.0).fit(whole.astype(float), y.astype(float)).predict(at.astype(float))
    return NW(bandwidth=15.0).fit(convert(whole), convert(y)).predict(convert(at)), plain


def nearest(X=X, Y=Y, Q=Q):
    return NearestKeyRegressor().fit(X, Y).predict(Q)


def fit_predict(X=X, Y=Y, Q=Q, sample_weight=None, **parameters):
    return NW(**parameters).fit(X, Y, sample_weight=sample_weight).predict(Q)


MEAN = np.full(7, Y.mean())
FAR = np.outer(np.logspace(6, 150, 7), [1.0, -0.5])
WEIGHT = rng.uniform(0.1, 2.0, 12)

# line, a function giving (what we got, what it should be), relative tolerance
VALUES = [
    (3, lambda: (fit_predict(X[:1], Y[:1]), np.full(7, Y[0])), 0),
    (3, lambda: (fit_predict(X[:1], Y[:1], bandwidth="silverman", kernel="boxcar"), np.full(7, Y[0])), 0),
    (3, lambda: (nearest(X[:1], Y[:1]), np.full(7, Y[0])), 0),
    (10, lambda: (fit_predict(X.astype(object), Y.astype(object)), fit_predict()), 0),
    (10, lambda: same_as_double(lambda a: np.vectorize(Fraction, otypes=[object])(a.astype(object)))),
    (12, lambda: same_as_double(lambda a: a.astype(np.int64))),
    (12, lambda: same_as_double(lambda a: a.astype(np.uint8))),
    (12, lambda: (fit_predict(SQUARE > 0, [0, 1, 2, 3], SQUARE > 0), fit_predict(SQUARE, [0, 1, 2, 3.0], SQUARE)), 0),
    (13, lambda: same_as_double(lambda a: a.astype(np.float16)), 1e-5),
    (14, lambda: same_as_double(lambda a: a.astype(np.float32)), 1e-5),
    (19, lambda: (NWC().fit(X, ["only"] * 12).predict_proba(Q), np.ones((7, 1))), 0),
    (21, lambda: (fit_predict(Y=np.column_stack([Y, -Y])), np.column_stack([fit_predict(), -fit_predict()])), 1e-14),
    (22, lambda: (NWC(bandwidth=1e-8).fit(X, LABELS).predict(X) == LABELS, np.ones(12, bool)), 0),
    (23, lambda: (fit_predict(bandwidth=np.inf), MEAN), 1e-14),
    (23, lambda: (fit_predict(bandwidth=[np.inf, -np.inf], kernel="boxcar"), MEAN), 1e-14),
    (24, lambda: (fit_predict(bandwidth=1e300), MEAN), 1e-14),
    (24, lambda: (fit_predict(bandwidth=1e300, kernel="laplace"), MEAN), 1e-14),
    (25, lambda: (fit_predict(bandwidth=1e-8), nearest()), 0),
    (25, lambda: (fit_predict(bandwidth=1e-100), nearest()), 0),
    (25, lambda: (fit_predict(bandwidth=1e-100, kernel="laplace"), nearest()), 0),
    (26, lambda: (fit_predict(bandwidth=1e-200), nearest()), 0),
    (26, lambda: (fit_predict(bandwidth=1e-300), nearest()), 0),
    (26, lambda: (fit_predict(bandwidth=1e-308), nearest()), 0),
    (26, lambda: (fit_predict(bandwidth=[1e-308, 1e-308], kernel="laplace"), nearest()), 0),
    (28, lambda: (fit_predict(bandwidth=-0.7), fit_predict(bandwidth=0.7)), 0),
    (28, lambda: (fit_predict(bandwidth=[-0.7, 2.0]), fit_predict(bandwidth=[0.7, 2.0])), 0),
    (30, lambda: (fit_predict(bandwidth=[0.7, np.inf]), fit_predict(X[:, :1], Q=Q[:, :1], bandwidth=0.7)), 1e-14),
    (32, lambda: (offset(1e6), offset(0.0)), 1e-9),
    (33, lambda: (fit_predict(np.full((12, 2), 0.3)), MEAN), 1e-14),
    (33, lambda: (fit_predict(np.full((12, 2), 0.3), bandwidth=1e-3), MEAN), 1e-14),
    (33, lambda: (nearest(np.full((12, 2), 0.3)), MEAN), 1e-14),
    (34, lambda: (fit_predict([[0.0], [0.0], [9.0]], [1.0, 3.0, 50.0], [[0.0]], bandwidth=1e-3), [2.0]), 0),
    (34, lambda: (nearest([[0.0], [0.0], [9.0]], [1.0, 3.0, 50.0], [[1.0]]), [2.0]), 0),
    (35, lambda: (fit_predict(np.c_[X, np.full(12, 0.1)], Q=np.c_[Q, Q[:, 0]]), fit_predict(Q=Q)), 1e-13),
    (36, lambda: (fit_predict(Y=np.full(12, 0.1)), np.full(7, 0.1)), 0),
    (36, lambda: (AveragePoolingRegressor().fit(X, np.full(12, 0.1)).predict(Q), np.full(7, 0.1)), 0),
    (37, lambda: (nearest(X * 1e-310, Y, X * 1e-310), Y), 0),
    (37, lambda: (fit_predict(X, Y * 1e-310), fit_predict(X, Y) * 1e-310), 1e-10),
    (37, lambda: (fit_predict(Q=np.full((1, 2), 5e-324)), fit_predict(Q=np.zeros((1, 2)))), 1e-14),
    (38, lambda: (fit_predict(X * 2e306, Q=Q * 2e306), fit_predict()), 1e-9),
    (38, lambda: (nearest(X * 2e306, Q=Q * 2e306), nearest()), 0),
    (38, lambda: (fit_predict(Y=Y / np.abs(Y).max() * 1e307), fit_predict() / np.abs(Y).max() * 1e307), 1e-12),
    (39, lambda: (fit_predict(SQUARE, [1, 2, 3, 6.0], [[0.5, 0.5], [0.5, 0.0]], bandwidth=1e-100), [3.0, 1.5]), 1e-14),
    (39, lambda: (nearest(SQUARE, [1, 2, 3, 6.0], [[0.5, 0.5], [0.5, 0.0]]), [3.0, 1.5]), 1e-14),
    (41, lambda: (a_million_tenths(NW(bandwidth=np.inf, engine="reference")), [0.1]), 1e-5),
    (41, lambda: (a_million_tenths(NW(bandwidth=0.5)), [0.1]), 1e-5),
    (41, lambda: (a_million_tenths(AveragePoolingRegressor()), [0.1]), 1e-5),
    (41, lambda: (a_million_tenths(NearestKeyRegressor()), [0.1]), 1e-5),
    (43, lambda: (fit_predict(sample_weight=(Y > 0) * 1), fit_predict(X[Y > 0], Y[Y > 0])), 1e-12),
    (43, lambda: (fit_predict(sample_weight=(Y > 0) * 2.5), fit_predict(X[Y > 0], Y[Y > 0])), 1e-12),
    (43, lambda: (fit_predict(sample_weight=Y > 0), fit_predict(X[Y > 0], Y[Y > 0])), 1e-12),
    *(
        (46, lambda c=c: tuple(fit_predict(sample_weight=WEIGHT * k, bandwidth=0.7) for k in (c, 1.0)), 1e-11)
        for c in (1e290, 1e-290)
    ),
    # Where a criterion is least is known to half its digits: so is what a learned bandwidth answers.
    (46, lambda: (fit_predict(sample_weight=WEIGHT * 1e290), fit_predict(sample_weight=WEIGHT)), 1e-6),
    (46, lambda: (fit_predict(sample_weight=WEIGHT * 1e-290), fit_predict(sample_weight=WEIGHT)), 1e-6),
]


def offset(by):
    grid, at = np.round(X * 2**12) / 2**12, np.round(Q * 2**12) / 2**12
    return fit_predict(grid + by, Q=at + by)


def a_million_tenths(model):
    tenths = np.full(1_000_000, 0.1, np.float32)
    return model.fit(np.zeros((1_000_000, 1), np.float32), tenths).predict(np.zeros((1, 1), np.float32))


@pytest.mark.parametrize(("line", "compute", "rtol"), [(*row, 0)[:3] for row in VALUES])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
def test_input_with_a_defined_answer(line, compute, rtol):
    got, expected = compute()
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("kernel", [*KERNELS, "nearest"])
def test_far_queries_stay_inside_the_hull(kernel):  # line 31
    model = NearestKeyRegressor() if kernel == "nearest" else NW(kernel, bandwidth=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = model.fit(X, Y).predict(FAR)
    assert ((Y.min() <= got) & (got <= Y.max())).all()
    if kernel != "laplace":  # whose weights far away follow the direction of the query, not the nearest key
        assert np.allclose(got[0], nearest(Q=FAR[:1]))


def as_memmap(array, folder):
    path = folder / f"{len(list(folder.iterdir()))}.bin"
    array.tofile(path)
    return np.memmap(path, array.dtype, "r", shape=array.shape)


LAYOUTS = {
    "fortran": lambda a, _: np.asfortranarray(a),
    "strided": lambda a, _: np.repeat(a, 2, axis=0)[::2],
    "column strided": lambda a, _: np.repeat(a, 3, axis=-1)[..., ::3],
    "reversed": lambda a, _: a[::-1].copy()[::-1],
    "read-only": lambda a, _: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "big-endian": lambda a, _: a.astype(a.dtype.newbyteorder(">")),
    "memmap": as_memmap,
    "list": lambda a, _: a.tolist(),
}


@every_estimator
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_equal_and_untouched(estimator, layout, tmp_path):
    y, convert = target(estimator), LAYOUTS[layout]
    arrays = [convert(array, tmp_path) for array in (X, Q)]
    weight = convert(np.arange(12.0), tmp_path)
    plain = clone(estimator).fit(X, y, sample_weight=np.arange(12.0))
    model = clone(estimator).fit(
        arrays[0], y if is_classifier(estimator) else convert(Y, tmp_path), sample_weight=weight
    )
    assert np.array_equal(answer(model, arrays[1]), answer(plain, Q))
    assert np.array_equal(model.attend(arrays[1]), plain.attend(Q))
    assert all(np.array_equal(a, b) for a, b in zip(arrays, (X, Q), strict=True))
    single = convert(X.astype(np.float32), tmp_path)
    if layout != "list":
        assert clone(estimator).fit(single, y).key_.dtype == np.dtype(np.float32)


@every_estimator
def test_refitting_leaves_nothing_stale(estimator):
    model, y = clone(estimator), target(estimator)
    model.fit(pd.DataFrame(np.c_[X, X], columns=list("abcd")), y, sample_weight=np.arange(12))
    other = (np.where(Y > 0, "plus", "minus") if is_classifier(model) else -Y)[:8]
    model.fit(X[:8, :1], other)
    fresh = clone(estimator).fit(X[:8, :1], other)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 1
    assert vars(model).keys() == vars(fresh).keys()
    assert np.array_equal(answer(model, Q[:, :1]), answer(fresh, Q[:, :1]))


def test_an_isolated_row_left_out_is_finite():
    x, rows = np.array([[0.0], [0.1], [1e6]]), np.arange(3)
    left = pool(x, x, [1.0, 2.0, 9.0], Gaussian(10.0), exclude=(rows, rows))
    assert left.output.tolist() == [2.0, 1.0, 2.0]


def test_memory_stays_below_the_weights():
    n = 6_000  # all weights would be 288 MB
    x, y = np.linspace(0.0, 1.0, n)[:, None], np.linspace(0.0, 1.0, n)
    model = NW(bandwidth=0.01).fit(x, y)
    model.predict(x[:100])  # whatever is compiled, is compiled before we measure
    tracemalloc.start()
    try:
        predicted, shown = model.predict(x), model.attend(x, top=3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 150e6
    assert np.allclose(predicted[n // 2], y[n // 2], rtol=1e-3)
    assert np.array_equal(shown.index[:, 0], np.arange(n))


def test_every_line_has_a_row():
    lines = {row[0] for table in (BAD_X, BAD_CALLS, VALUES) for row in table} | {31} | set(ELSEWHERE)
    assert lines >= set(range(1, 47))
    assert all(name in globals() for name in ELSEWHERE.values())

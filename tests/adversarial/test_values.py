"""Extreme input that has an answer, for every estimator: lines 3 to 46 of the list."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import regard
from support.adversaries import ALL, CLASSIFIERS, GIVEN, LABELS, REGRESSORS, Q, X, Y, answer, every_estimator, target

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")
every_given = pytest.mark.parametrize("name", GIVEN)
WEIGHT = np.random.default_rng(0).uniform(0.1, 2.0, 12)
FAR = np.outer(np.logspace(6, 150, 7), [1.0, -0.5])
DEEP = [name for name in ALL if "Attention" in name]  # they learn in single precision
# Nothing but learning: one row is not enough.
LEARNERS = [*DEEP, "KernelRegressor", "KernelClassifier"]


def fit(name, rows=X, y=None, table=GIVEN, **given):
    """An estimator fitted to some rows, and to their y or labels unless others are given."""
    return clone(table[name]).fit(rows, target(table[name])[: len(rows)] if y is None else y, **given)


def close(name, got, expected, rtol=1e-12):
    """Equal to rounding or, for learned parameters, to the precision of a minimum."""
    rtol = 1e-3 if name in DEEP else 1e-6 if name in LEARNERS else rtol
    return np.allclose(got, expected, rtol=rtol, atol=rtol)


# --- kinds of numbers ----------------------------------------------------------------------------------------------


@every_estimator
@pytest.mark.parametrize("table", [ALL, GIVEN], ids=["learned", "given"])
def test_3_one_row_is_the_answer_everywhere(name, table):
    if name in LEARNERS:
        needed = "(rows to leave out and others to predict them from,|at least 2 rows, in different groups;)"
        with pytest.raises(ValueError, match=f"needs {needed} got 1 row"):
            fit(name, X[:1])
    else:
        got = answer(fit(name, X[:1], table=ALL | table))
        assert np.array_equal(got, np.ones((7, 1)) if name in CLASSIFIERS else np.full(7, Y[0]))


def test_3_a_width_is_not_learned_from_one_row():
    with pytest.raises(ValueError, match="needs rows to leave out and others to predict them from, got 1 row"):
        regard.bandwidth.loo_objective(X[:1], Y[:1], regard.scores.Gaussian())


WHOLE, AT = np.arange(24).reshape(12, 2) * 9 % 100, np.arange(14).reshape(7, 2) * 9
KINDS = {
    "object": lambda a: a.astype(object),
    "fraction": lambda a: np.vectorize(Fraction, otypes=[object])(a.astype(object)),
    "int64": lambda a: a.astype(np.int64),
    "uint8": lambda a: a.astype(np.uint8),
    "int8": lambda a: a.astype(np.int8),
    "float16": lambda a: a.astype(np.float16),
    "float32": lambda a: a.astype(np.float32),
}


@every_given
def test_10_12_13_14_kinds_of_numbers(name):
    """Whole numbers are whole numbers; half and single precision are computed in at least that, and answered in it."""
    y = np.arange(12) * 5
    plain = answer(fit(name, WHOLE.astype(float), LABELS if name in CLASSIFIERS else y.astype(float)), AT.astype(float))
    for kind, convert in KINDS.items():
        if name in LEARNERS and kind not in ("uint8", "float32"):
            continue
        model = fit(name, convert(WHOLE), LABELS if name in CLASSIFIERS else convert(y))
        got, single = answer(model, convert(AT)), kind.startswith("float")
        assert got.dtype == (np.float32 if single else np.float64), kind
        # What was learned from rounded numbers is known to half of single precision.
        rtol = 0.0 if not single else 1e-2 if name in LEARNERS else 1e-5
        assert np.allclose(got, plain, rtol=rtol, atol=rtol), kind


@every_given
def test_12_booleans_are_numbers(name):
    square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    y = LABELS[:4] if name in CLASSIFIERS else [0.0, 1.0, 2.0, 3.0]
    assert np.array_equal(answer(fit(name, square > 0.0, y), square > 0.0), answer(fit(name, square, y), square))


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


@every_given
def test_15_layouts_are_equal_and_untouched(name, tmp_path):
    weight = np.arange(12.0)
    plain = fit(name, sample_weight=weight)
    expected, seen = answer(plain), plain.attend(Q)
    for layout, convert in LAYOUTS.items():
        if name in LEARNERS and layout not in ("fortran", "read-only", "big-endian"):
            continue
        arrays = [convert(array, tmp_path) for array in (X, Q, Y, weight)]
        model = fit(name, arrays[0], LABELS if name in CLASSIFIERS else arrays[2], sample_weight=arrays[3])
        assert np.array_equal(answer(model, arrays[1]), expected), layout
        assert np.array_equal(model.attend(arrays[1]), seen), layout
        assert all(np.array_equal(a, b) for a, b in zip(arrays, (X, Q, Y, weight), strict=True)), layout
        if layout != "list" and name not in LEARNERS:
            assert fit(name, convert(X.astype(np.float32), tmp_path)).key_.dtype == np.dtype(np.float32), layout


# --- kinds of answers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_19_22_classes(name):
    only = fit(name, y=["only"] * 12, table=ALL)
    assert np.array_equal(only.predict_proba(Q), np.ones((7, 1)))
    assert only.predict(Q).tolist() == ["only"] * 7
    predicted = fit(name, table=ALL).predict(X)
    assert set(predicted) == set(LABELS)
    assert (predicted == LABELS).mean() > 0.7


@every_estimator
def test_20_refitting_leaves_nothing_stale(name):
    model, y = clone(ALL[name]), target(ALL[name])
    wide, at = (pd.DataFrame(np.c_[rows, rows], columns=list("abcd")) for rows in (X, Q))
    model.fit(wide, y, sample_weight=np.arange(12))
    for ask in ("predict_interval", "predict_set", "explain"):
        if hasattr(model, ask):
            getattr(model, ask)(at)
    other = (np.where(Y > 0, "plus", "minus") if name in CLASSIFIERS else -Y)[:8]
    model.fit(X[:8, :1], other)
    fresh = fit(name, X[:8, :1], other, table=ALL)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 1
    assert vars(model).keys() == vars(fresh).keys()
    for ask in ("predict", "predict_proba", "predict_interval", "attend"):
        if hasattr(model, ask):
            assert np.array_equal(*(getattr(one, ask)(Q[:, :1]) for one in (model, fresh))), ask


@pytest.mark.parametrize("name", [name for name in GIVEN if name in REGRESSORS and name not in LEARNERS])
def test_21_two_columns_of_y(name):
    one, both = fit(name).predict(Q), fit(name, y=np.column_stack([Y, -Y])).predict(Q)
    assert np.allclose(both, np.column_stack([one, -one]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in LEARNERS if name in REGRESSORS])
def test_21_two_columns_are_learned_together(name):
    both = fit(name, y=np.column_stack([Y, 1.0 - Y])).predict(Q)
    assert both.shape == (7, 2)
    assert np.allclose(both.sum(axis=1), 1.0, rtol=1e-5)


# --- geometry ------------------------------------------------------------------------------------------------------


@every_estimator
def test_31_far_queries_stay_inside_the_hull(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = answer(fit(name, table=ALL), FAR)
    low, high = (0.0, 1.0) if name in CLASSIFIERS else (Y.min(), Y.max())
    room = 1e-6 if name in DEEP else 1e-12
    assert ((low - room <= got) & (got <= high + room)).all()


@every_given
def test_32_an_offset_of_a_million(name):
    grid, at = np.round(X * 2**12) / 2**12, np.round(Q * 2**12) / 2**12
    here, there = (answer(fit(name, grid + by), at + by) for by in (0.0, 1e6))
    assert close(name, there, here, rtol=1e-9)


@every_estimator
def test_33_equal_rows_give_the_mean(name):
    y = target(ALL[name])
    mean = [(y == label).mean() for label in np.unique(y)] if name in CLASSIFIERS else y.mean()
    assert np.allclose(answer(fit(name, np.full((12, 2), 0.3), table=ALL)), mean, rtol=1e-12)


@every_given
def test_34_duplicates_with_conflicting_y_are_averaged(name):
    """Wherever keys are distinguished, duplicates count as one row with their mean."""
    rows = np.repeat(X, 2, axis=0)
    if name in CLASSIFIERS:
        probability = answer(fit(name, rows, np.tile(["a", "b"], 12)))
        assert np.allclose(probability, 0.5, atol=1e-6)
        return
    pairs = np.column_stack([Y, -3.0 * Y]).ravel()
    twice = fit(name, rows, pairs)
    if name in LEARNERS:
        # Another w is learned, and with it the weights of all rows: they are still those of pairs.
        weights = twice.attend(Q)
        assert np.allclose(weights[:, ::2], weights[:, 1::2], rtol=1e-6, atol=1e-12)
    else:
        assert np.allclose(twice.predict(Q), fit(name, X, -Y).predict(Q), rtol=1e-10, atol=1e-12)


@every_estimator
def test_35_a_constant_feature_is_ignored(name):
    wide = fit(name, np.c_[X, np.full(12, 0.1)], table=ALL)
    got = answer(wide, np.c_[Q, np.full(7, 0.1)])
    if name in DEEP:
        # Their start has more random numbers, so that only where the feature goes can be seen.
        assert np.array_equal(got, answer(wide, np.c_[Q, Q[:, 0]]))
    else:
        assert np.allclose(got, answer(fit(name, table=ALL)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", REGRESSORS)
def test_36_constant_y_is_reproduced(name):
    model = fit(name, y=np.full(12, 0.1), table=ALL)
    assert np.allclose(model.predict(Q), 0.1, rtol=1e-14, atol=0.0)
    if hasattr(model, "predict_interval"):
        assert np.isfinite(model.predict_interval(Q, 0.5)).all()


def refuses(name, scale):
    """1/bandwidth, and for lines squares of differences, have to be finite numbers."""
    if "Linear" in name or name == "KernelRegressor":
        return not 1e-150 < scale < 1e150
    return scale < 1e-300 and ("NadarayaWatson" in name or name == "KernelClassifier")


@every_estimator
@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e-100, 1e100, 1e200, 2e306])
def test_37_38_tiny_and_enormous_data(name, scale):
    """The answer of data of ordinary size, or an error that says what to do about it."""
    if refuses(name, scale):
        with pytest.raises(ValueError, match="rescale X"):
            fit(name, X * scale, table=ALL)
        return
    got = answer(fit(name, X * scale, table=ALL), Q * scale)
    assert np.isfinite(got).all()
    if name not in DEEP:
        assert np.allclose(got, answer(fit(name, table=ALL)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e200, 1e306])
def test_37_38_tiny_and_enormous_y(name, scale):
    got = fit(name, y=Y * scale, table=ALL).predict(Q)
    assert np.allclose(got / scale, fit(name, table=ALL).predict(Q), rtol=1e-3, atol=1e-3)


# --- weights -------------------------------------------------------------------------------------------------------


@every_given
@pytest.mark.parametrize("kind", [int, float, bool])
def test_43_zero_weight_is_deletion(name, kind):
    kept = np.arange(12) % 4 > 0
    rest = fit(name, X[kept], target(GIVEN[name])[kept])
    assert close(name, answer(fit(name, sample_weight=kept.astype(kind))), answer(rest))


@every_given
@pytest.mark.parametrize("scale", [1e-290, 1e290])
def test_46_the_size_of_weights_cancels(name, scale):
    plain, scaled = (answer(fit(name, sample_weight=WEIGHT * by)) for by in (1.0, scale))
    assert close(name, scaled, plain, rtol=1e-11)

"""scikit-learn's own checks on every estimator, none skipped, and the conventions they do not check."""

from __future__ import annotations

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # some of scikit-learn's checks skip in silence without it

import pickle
from unittest import SkipTest

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from regard.estimators import (
    AttentionRegressor,
    AveragePoolingRegressor,
    KernelClassifier,
    KernelRegressor,
    LocalLinearRegressor,
    NadarayaWatsonClassifier,
    NadarayaWatsonRegressor,
    NearestKeyRegressor,
)
from regard.model import smoother
from support.engines import sparse

ESTIMATORS = [
    AveragePoolingRegressor(),
    NearestKeyRegressor(),
    NadarayaWatsonRegressor(),
    NadarayaWatsonClassifier(),
    LocalLinearRegressor(),
    KernelRegressor(),
    KernelClassifier(),
    AttentionRegressor(max_iter=2, random_state=0),
    AttentionRegressor("dot", "mlp", hidden_size=8, embed_size=2, max_iter=2, learning_rate=0.02, early_stopping=True),
    NadarayaWatsonRegressor(kernel="laplace", bandwidth="silverman", engine="reference"),
    NadarayaWatsonRegressor(kernel="triweight", bandwidth=5.0, empty="raise"),
    NadarayaWatsonClassifier(kernel="triweight", bandwidth=5.0, empty="prior"),
]
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS[:8], ids=lambda e: type(e).__name__)

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

X = np.random.default_rng(0).normal(size=(40, 3))
Y = np.sin(X[:, 0]) + X[:, 1]


def target(estimator):
    return Y > 0 if is_classifier(estimator) else Y


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    try:
        check(estimator)
    except (SkipTest, pytest.skip.Exception) as reason:
        pytest.fail(f"skipped: {reason}")


@every_estimator
def test_no_check_is_missing(estimator):
    """The checks that run are those that run on scikit-learn's own estimator of the same kind."""

    def names(of):
        return {getattr(check, "func", check).__name__ for _, check in estimator_checks_generator(of)}

    # What theirs claim and ours do not: sparse matrices, and arrays other than numpy's.
    beyond = {
        "check_sample_weight_equivalence_on_sparse_data",
        "check_array_api_same_namespace",
        "check_array_api_mixed_inputs",
    }
    assert names(GaussianNB() if is_classifier(estimator) else KernelRidge()) - beyond == names(estimator)


@every_estimator
def test_tags_and_repr(estimator):
    tags = get_tags(estimator)
    assert is_regressor(estimator) != is_classifier(estimator)
    assert not tags.input_tags.sparse
    assert not tags.input_tags.allow_nan
    assert tags.target_tags.multi_output == is_regressor(estimator)
    assert not hasattr(estimator, "set_output")
    assert type(estimator).__name__ in estimator._repr_html_()
    assert type(estimator).__name__ in clone(estimator).fit(X, target(estimator))._repr_html_()


@every_estimator
def test_clone_and_pickle(estimator):
    fitted = clone(estimator).fit(X, target(estimator), sample_weight=np.arange(40))
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(X), fitted.predict(X))
    assert again.get_params() == estimator.get_params()
    with pytest.raises(NotFittedError):
        clone(fitted).predict(X)
    with pytest.raises(NotFittedError):
        clone(fitted).attend(X)
    assert not hasattr(clone(fitted), "attention_score_")


FRAMES = {
    "pandas": lambda: pd.DataFrame(X, columns=list("abc")),
    "pandas-nullable": lambda: pd.DataFrame(X, columns=list("abc")).astype("Float64"),
    "pandas-pyarrow": lambda: pd.DataFrame(X, columns=list("abc")).astype("float64[pyarrow]"),
    "pandas-object": lambda: pd.DataFrame(X, columns=list("abc")).astype(object),
    "polars": lambda: pl.DataFrame(X, schema=list("abc")),
    "pyarrow": lambda: pa.table(dict(zip("abc", X.T, strict=True))),
}


def select(frame, columns):
    return frame[columns] if isinstance(frame, pd.DataFrame) else frame.select(columns)


# What a frame is made into does not depend on the estimator: each library with one of them, and each with a library.
@sparse("place", range(8), [2], ("library", FRAMES))
def test_dataframes(place, library):
    estimator = ESTIMATORS[place]
    frame, y = FRAMES[library](), target(estimator)
    plain, named = clone(estimator).fit(X, y), clone(estimator).fit(frame, y)
    assert named.feature_names_in_.tolist() == ["a", "b", "c"]
    assert not hasattr(plain, "feature_names_in_")
    assert np.array_equal(named.key_, X)
    assert np.array_equal(named.predict(frame), plain.predict(X))
    assert np.array_equal(named.attend(frame), plain.attend(X))
    with pytest.raises(ValueError, match="same order"):
        named.predict(select(frame, ["b", "a", "c"]))
    with pytest.raises(ValueError, match="feature names"):
        named.predict(select(frame, ["a", "b"]))
    with pytest.warns(UserWarning, match="feature names"):
        named.predict(X)
    with pytest.warns(UserWarning, match="feature names"):
        plain.predict(frame)


def test_mixed_columns_and_single_precision():
    mixed = {"whole": [1, 2, 3], "flag": [True, False, True], "half": [0.5, 1.5, 2.5]}
    expected = np.array([[1, 1, 0.5], [2, 0, 1.5], [3, 1, 2.5]])
    for frame in (pd.DataFrame(mixed), pl.DataFrame(mixed), pa.table(mixed)):
        key = AveragePoolingRegressor().fit(frame, [1, 2, 3]).key_
        assert key.dtype == np.float64
        assert np.array_equal(key, expected)
    single = pl.DataFrame({"a": [1.0, 2.0]}, schema={"a": pl.Float32})
    assert AveragePoolingRegressor().fit(single, [1.0, 2.0]).predict(single).dtype == np.float32


@pytest.mark.parametrize(
    "make",
    [
        lambda y: pd.Series(y, index=range(7, 7 + len(y))),
        pl.Series,
        pa.array,
        list,
        lambda y: pd.Series(y).astype("Float64"),
    ],
)
def test_one_column_of_y(make):
    assert np.array_equal(NadarayaWatsonRegressor().fit(X, make(Y)).value_, Y)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_of_y(make):
    two = make({"first": Y, "second": 2 * Y})
    assert np.array_equal(NadarayaWatsonRegressor().fit(X, two).value_, np.column_stack([Y, 2 * Y]))
    labels = NadarayaWatsonClassifier().fit(X, make({"label": ["a", "b"] * 20}))
    assert labels.classes_.tolist() == ["a", "b"]


@pytest.mark.parametrize("make", [pd.Series, pl.Series, pa.array, list, lambda y: pd.Series(y, dtype="category")])
def test_labels_of_any_library(make):
    y = np.where(Y > 0, "up", "down").tolist()
    model = NadarayaWatsonClassifier().fit(X, make(y))
    assert model.classes_.tolist() == ["down", "up"]
    assert np.array_equal(model.predict(X), NadarayaWatsonClassifier().fit(X, np.array(y)).predict(X))


def test_it_works_inside_scikit_learn():
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor(bandwidth=0.3))
    search = GridSearchCV(pipeline, {"nadarayawatsonregressor__bandwidth": [0.1, 0.5, 50.0]}).fit(X, Y)
    assert search.best_params_["nadarayawatsonregressor__bandwidth"] == 0.5
    frame = FRAMES["pandas"]()
    assert cross_val_predict(NadarayaWatsonClassifier(), frame, Y > 0, method="predict_proba").shape == (40, 2)


def test_sample_weight_can_be_routed():
    model = NadarayaWatsonRegressor()
    assert "sample_weight" in model.get_metadata_routing()._serialize()["fit"]
    assert np.isfinite(model.fit(X, Y).score(X, Y, sample_weight=np.arange(40)))


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        (NadarayaWatsonRegressor(kernel="unknown"), "kernel must be one of 'gaussian', .*got 'unknown'"),
        (NadarayaWatsonRegressor(kernel=None), "kernel must be"),
        (NadarayaWatsonRegressor(empty="prior"), "empty must be one of 'nearest', 'nan', 'raise', got 'prior'"),
        (NadarayaWatsonClassifier(empty="mean"), "empty must be one of 'nearest', 'prior', 'nan', 'raise'"),
        (NadarayaWatsonRegressor(engine="quick"), "engine must be one of auto, reference.* got 'quick'"),
        (NearestKeyRegressor(engine=None), "engine must be"),
        (NearestKeyRegressor(tol=1.0), "tol must be None or a number"),
        (NadarayaWatsonClassifier(tol="small"), "tol must be"),
        (NadarayaWatsonRegressor(bandwidth="loud"), "bandwidth must be"),
    ],
)
def test_bad_parameters_are_named_in_fit(estimator, match):
    with pytest.raises(ValueError, match=match):
        estimator.fit(X, target(estimator))


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_engine_and_tol_are_passed_on(engine, monkeypatch):
    asked = []

    def watched(*args, **kwargs):
        asked.append((kwargs["engine"], kwargs["tol"]))
        return pool(*args, **kwargs)

    pool = smoother.pool
    monkeypatch.setattr(smoother, "pool", watched)
    NadarayaWatsonRegressor(engine=engine, tol=1e-3).fit(X, Y).predict(X)
    NearestKeyRegressor(engine=engine).fit(X, Y).predict(X)
    assert asked == [(engine, 1e-3), (engine, None)]


def test_fitted_attributes():
    two, labels = np.column_stack([Y, -Y]), np.where(Y > 0, "up", "down")
    weight = np.arange(1, 41, dtype=np.int16)
    model = NadarayaWatsonRegressor(bandwidth=2).fit(X, two, sample_weight=weight)
    assert np.array_equal(model.key_, X)
    assert np.array_equal(model.value_, two)
    assert (model.bandwidth_, model.w_) == (2.0, 0.5)
    assert isinstance(model.w_, float)
    assert model.sample_weight_.dtype == np.int16
    assert model.n_features_in_ == 3
    assert NadarayaWatsonRegressor().fit(X, Y).sample_weight_ is None
    assert NadarayaWatsonRegressor().fit(X, Y, sample_weight=[1.0] * 40).sample_weight_.dtype == np.float64
    assert NadarayaWatsonRegressor().fit(X, Y).w_.shape == (3,)
    classifier = NadarayaWatsonClassifier().fit(X, labels)
    assert np.array_equal(classifier.classes_[classifier.value_], labels)


def test_shapes_follow_y():
    assert NadarayaWatsonRegressor().fit(X, Y).predict(X).shape == (40,)
    assert NadarayaWatsonRegressor().fit(X, Y[:, None]).predict(X).shape == (40, 1)
    assert NadarayaWatsonRegressor().fit(X, np.column_stack([Y, -Y])).predict(X).shape == (40, 2)
    assert AveragePoolingRegressor().fit(X, np.column_stack([Y, -Y])).predict(X).shape == (40, 2)


def test_a_failed_refit_leaves_the_old_model():
    model = NadarayaWatsonRegressor(bandwidth=1.0).fit(X, Y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="bandwidth"):
        model.set_params(bandwidth=0.0).fit(X + 1.0, Y)
    assert np.array_equal(model.predict(X), before)


def test_half_and_single_precision_come_out_as_single():
    for dtype in (np.float16, np.float32):
        model = NadarayaWatsonRegressor(bandwidth=1.0).fit(X.astype(dtype), Y.astype(dtype))
        assert model.key_.dtype == np.float32
        assert model.predict(X.astype(dtype)).dtype == np.float32
    # Half precision ends at 65504; sums and answers do not.
    big = AveragePoolingRegressor().fit(X.astype(np.float16), np.full(40, 60000.0, np.float16))
    assert big.predict(X.astype(np.float16)).tolist() == [60000.0] * 40

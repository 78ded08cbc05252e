"""Probabilities lie in [0, 1] and each row of them sums to 1 to rounding, wherever they leave a classifier."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score

import regard
from regard import KernelClassifier, NadarayaWatsonClassifier
from regard.engines import ENGINES

RNG = np.random.default_rng(20)
X = RNG.normal(size=(300, 2))
Y = np.array(["a", "b", "c", "d", "e", "f", "g"])[(np.abs(X[:, 0]) * 3 + RNG.uniform(size=300)).astype(int) % 7]
AT = RNG.normal(size=(500, 2)) * 1.5

CASES = {
    "heads": (KernelClassifier, {}),
    **{f"learned {name}": (NadarayaWatsonClassifier, {"bandwidth": name}) for name in ("loo", "adaptive", "scott")},
    **{
        f"given {engine}": (NadarayaWatsonClassifier, {"bandwidth": 0.4, "engine": engine})
        for engine in ENGINES
        if engine not in ("fused", "dask", "sorted")  # of a GPU, of a cluster, and of one feature
    },
    **{
        f"empty {empty}": (NadarayaWatsonClassifier, {"kernel": "tricube", "bandwidth": 0.9, "empty": empty})
        for empty in ("nearest", "prior", "nan")
    },
}


def check(probability, dtype):
    known = probability[~np.isnan(probability).any(axis=1)]
    assert len(known)
    assert probability.dtype == dtype
    assert known.min() >= 0.0
    assert known.max() <= 1.0
    assert np.abs(known.sum(axis=1) - 1.0).max() <= 4.0 * np.finfo(dtype).eps


@pytest.mark.usefixtures("brief_learning")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("calibrate", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_probabilities_are_a_distribution(name, calibrate, dtype):
    kind, options = CASES[name]
    model = kind(calibrate=calibrate, **options).fit(X.astype(dtype), Y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* have no training row within the bandwidth")
        check(model.predict_proba(AT.astype(dtype)), dtype)
        model.predict_set(AT[:2].astype(dtype))
    left_out = getattr(model, "loo_predictions_", getattr(model, "left_out_probabilities_", None))
    check(left_out, np.float64)


@pytest.mark.usefixtures("brief_learning")
@pytest.mark.parametrize("model", [KernelClassifier(), NadarayaWatsonClassifier()], ids=["heads", "means"])
def test_scikit_learn_takes_them_for_its_log_loss(model):
    """Its ``log_loss`` refuses a probability of 1.0000000000000002."""
    score = cross_val_score(model, *load_iris(return_X_y=True), scoring="neg_log_loss", error_score="raise")
    assert np.isfinite(score).all()


def test_those_of_an_exported_graph_too(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = NadarayaWatsonClassifier(bandwidth=0.4).fit(X, Y)
    regard.export_onnx(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    check(session.run(["probabilities"], {"X": AT})[0], np.float64)

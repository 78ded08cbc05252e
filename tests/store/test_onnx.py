"""Exported graphs answer as the models do, in another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import onnxruntime
import pytest

import regard
from regard.core.kernels import KERNELS
from regard.store.onnx import export_onnx
from support.soak import FULL

BANDWIDTHS = [(1.5, 2.5, 2.0), 2.0] if FULL else [(1.5, 2.5, 2.0)]
WIDTHS = [1.0, 1e-100, 1e-300, 1e200] if FULL else [1.0, 1e-300]

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
# Among the rows: elsewhere a line is as good as the rounding of its moments, and the graph's are rounded less.
NEAR = np.concatenate([rng.uniform(-1.5, 1.5, size=(20, 3)), X[:3]])
FAR = np.array([[1e6, 0.0, 0.0], [0.0, -1e6, 3.0], [1e6, 1e6, -2e6], [-1e9, 1.0, 2.0]])
NUMBERS = np.sin(X[:, 0]) + X[:, 1]
PAIRS = np.column_stack([NUMBERS, 5.0 + NUMBERS**2])
LABELS = np.where(NUMBERS > 0.5, "up", np.where(NUMBERS > -0.5, "数", "down"))
COUNTS = np.arange(60) % 4
SQUARE = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])

# Rows without a training row in reach are part of these tests, and predict warns of them.
pytestmark = pytest.mark.filterwarnings("ignore:.* have no training row within the bandwidth")


def ran(model: Any, query: Any, path: Path) -> list[Any]:
    """What onnxruntime makes of the exported model."""
    export_onnx(model, path, force=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": np.asarray(query, model.key_.dtype)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


@pytest.fixture
def agree(path: Path) -> Any:
    def agree(model: Any, query: Any, tol: float = 1e-10) -> None:
        """Prediction and weights are those of the model, to ``tol`` of the largest."""
        *answer, weights = ran(model, query, path)
        expected = np.asarray(model.attend(query))
        assert weights.shape == expected.shape
        assert weights.dtype == model.key_.dtype
        assert np.abs(weights - expected).max() <= tol
        if hasattr(model, "classes_"):
            label, probability = answer
            assert np.abs(probability - model.predict_proba(query)).max() <= tol
            assert np.asarray(label).tolist() == model.predict(query).tolist()
        else:
            expected = model.predict(query)
            assert answer[0].shape == expected.shape
            assert answer[0].dtype == model.key_.dtype
            assert np.abs(answer[0] - expected).max() <= tol * max(1.0, np.abs(expected).max())

    return agree


def kernel_regressors(kernel: str, bandwidth: Any) -> dict[str, Any]:
    options = {"kernel": kernel, "bandwidth": bandwidth}
    return {
        "mean": regard.NadarayaWatsonRegressor(**options).fit(X, NUMBERS),
        "line": regard.LocalLinearRegressor(**options).fit(X, PAIRS),
        "line with a ridge": regard.LocalLinearRegressor(**options, ridge=0.01).fit(X, NUMBERS),
        "counts": regard.NadarayaWatsonRegressor(**options).fit(X, PAIRS, sample_weight=COUNTS),
        "importances": regard.LocalLinearRegressor(**options, ridge=0.1).fit(X, NUMBERS, sample_weight=COUNTS / 7),
        "classes": regard.NadarayaWatsonClassifier(**options).fit(X, LABELS),
        "calibrated": regard.NadarayaWatsonClassifier(**options, calibrate=True).fit(X, LABELS),
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bandwidth", BANDWIDTHS, ids=str)
def test_every_kernel_and_estimator(kernel: str, bandwidth: Any, agree: Any) -> None:
    for model in kernel_regressors(kernel, bandwidth).values():
        agree(model, NEAR)


@pytest.mark.parametrize("kernel", KERNELS)
def test_far_queries_get_the_nearest_key(kernel: str, agree: Any, path: Path) -> None:
    models = kernel_regressors(kernel, 0.7)
    for name in ("mean", "counts", "classes", "line with a ridge"):
        agree(models[name], FAR)
    if kernel != "laplace":  # far away, its scores tell keys apart by no more than their distance from each other
        nearest = regard.NearestKeyRegressor().fit(X, NUMBERS).attend(FAR)
        assert np.array_equal(ran(models["mean"], FAR, path)[1], nearest)


KINDS = {
    "average": lambda: regard.AveragePoolingRegressor().fit(X, NUMBERS),
    "average of counts": lambda: regard.AveragePoolingRegressor().fit(X, PAIRS, sample_weight=COUNTS),
    "nearest": lambda: regard.NearestKeyRegressor().fit(X, NUMBERS),
    "nearest of counts": lambda: regard.NearestKeyRegressor().fit(
        np.repeat(X, 2, axis=0), np.arange(120.0), sample_weight=np.arange(120)
    ),
    "heads": lambda: regard.KernelRegressor().fit(X, NUMBERS),
    "heads, one feature": lambda: regard.KernelRegressor().fit(X[:, :1], NUMBERS),
    "heads, constant feature": lambda: regard.KernelRegressor().fit(X * [1.0, 0.0, 1.0], NUMBERS),
    "heads, weights": lambda: regard.KernelRegressor().fit(X, PAIRS, sample_weight=COUNTS),
    "head classes": lambda: regard.KernelClassifier().fit(X, LABELS),
    "head classes, calibrated": lambda: regard.KernelClassifier(calibrate=True).fit(X, NUMBERS > 0),
    "matrix": lambda: regard.NadarayaWatsonRegressor(metric="full").fit(X, NUMBERS),
    "matrix, line": lambda: regard.LocalLinearRegressor(metric="full", ridge="loo").fit(X, NUMBERS),
    "matrix, compact": lambda: regard.LocalLinearRegressor("epanechnikov", metric="full").fit(X, NUMBERS),
    "a feature ignored": lambda: regard.LocalLinearRegressor(bandwidth=(0.9, np.inf, 2.0)).fit(X, NUMBERS),
    "all features ignored": lambda: regard.LocalLinearRegressor(bandwidth=np.inf).fit(X, NUMBERS),
    "whole numbers": lambda: regard.NadarayaWatsonClassifier(bandwidth=0.5).fit(X, np.arange(60, dtype=np.uint8) % 3),
    "float classes": lambda: regard.NadarayaWatsonClassifier(bandwidth=0.5).fit(
        X, (np.arange(60) % 3).astype(np.float32)
    ),
    "numbers with kernels": lambda: regard.LocalLinearRegressor(["gaussian"] * 3, bandwidth=1.0).fit(X, NUMBERS),
    **{
        f"{score}, {embed}": lambda score=score, embed=embed: regard.AttentionRegressor(
            score, embed, hidden_size=8, max_iter=2, random_state=0
        ).fit(X, PAIRS, sample_weight=COUNTS)
        for score in ("gaussian", "additive", "dot")
        for embed in (None, "mlp")
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model(kind: str, agree: Any, light_search: None) -> None:
    model = KINDS[kind]()
    query = np.concatenate([NEAR, FAR]) if "line" not in kind and "heads" not in kind else NEAR
    if "ignored" in kind:
        query = NEAR  # a line through all rows goes on for ever
    agree(model, query[:, : model.n_features_in_])


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "tricube"])
def test_32_an_offset_of_a_million_costs_nothing(kernel: str, agree: Any, path: Path) -> None:
    shift = 2.0**20
    for make in (regard.NadarayaWatsonRegressor, regard.LocalLinearRegressor):
        here = make(kernel, 1.5).fit(np.ldexp(np.rint(X * 2**20), -20), NUMBERS)
        there = make(kernel, 1.5).fit(here.key_ + shift, NUMBERS)
        query = np.ldexp(np.rint(NEAR * 2**20), -20)
        agree(there, query + shift)
        for a, b in zip(ran(here, query, path), ran(there, query + shift, path), strict=True):
            assert np.allclose(a, b, rtol=0.0, atol=1e-12)
    if kernel == "gaussian":
        agree(regard.KernelRegressor().fit(X + 1e6, NUMBERS + 1e6), NEAR + 1e6)
    agree(regard.NadarayaWatsonRegressor(kernel, metric="full").fit(X + 1e6, NUMBERS), NEAR + 1e6)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "boxcar", "tricube"])
@pytest.mark.parametrize("w", [0.0, 1e-300, 1e8, 1e100, 1e300])
def test_39_limits_of_w_and_ties(kernel: str, w: float, agree: Any, path: Path) -> None:
    query = np.concatenate([SQUARE, [[0.0, 0.0], [0.5, 0.5], [3.0, 3.0], [1e6, 0.0], [1e6, 1e6], [1e-200, 0.0]]])
    model = regard.NadarayaWatsonRegressor(kernel, 1.0 / w if w else np.inf)
    agree(model.fit(SQUARE, [1.0, 2.0, 3.0, 4.0]), query, 1e-15)
    # With weights, ties are divided by them.
    limit = regard.NearestKeyRegressor() if w >= 1e100 else regard.AveragePoolingRegressor()
    if w != 1e8:
        weighted, expected = (
            one.fit(SQUARE, [1.0, 2.0, 3.0, 4.0], sample_weight=[1, 1, 2, 1]) for one in (model, limit)
        )
        tied = query[:-1]
        assert np.allclose(ran(weighted, tied, path)[1], expected.attend(tied), rtol=0.0, atol=1e-15)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("make", [regard.NadarayaWatsonRegressor, regard.LocalLinearRegressor])
def test_31_however_far_the_answer_is_a_number_within_y(make: Any, kernel: str, path: Path) -> None:
    for bandwidth in WIDTHS:
        model = make(kernel, bandwidth).fit(SQUARE, [1.0, 2.0, 3.0, 4.0])
        far = np.array([[1e150, 0.0], [-1e150, 1e150], [1e300, -1e300], [0.0, 1e307]])
        prediction, weights = ran(model, far, path)
        if make is regard.NadarayaWatsonRegressor or bandwidth <= 1.0:  # a line through all rows goes on for ever
            assert ((prediction >= 1.0 - 1e-12) & (prediction <= 4.0 + 1e-12)).all()
        assert np.isfinite(prediction).all()
        assert np.allclose(weights.sum(axis=1), 1.0, rtol=0.0, atol=1e-15)


@pytest.mark.parametrize(("kernel", "away"), [("gaussian", 1.0), ("laplace", 1.0), ("laplace", 300.0)])
def test_lines_against_fifty_digits(kernel: str, away: float, path: Path) -> None:
    queries = np.array([[3.0, 0.0, -2.0], [1.0, 0.5, 0.25]]) * away
    prediction, _ = ran(regard.LocalLinearRegressor(kernel, 0.5).fit(X, NUMBERS), queries, path)
    with mpmath.workdps(50):
        for query, found in zip(queries, prediction, strict=True):
            delta = [
                [mpmath.mpf(float(k)) - mpmath.mpf(float(q)) for k, q in zip(row, query, strict=True)] for row in X
            ]
            u = [mpmath.sqrt(sum((2 * part) ** 2 for part in row)) for row in delta]
            e = [mpmath.exp(-part if kernel == "laplace" else -(part**2) / 2) for part in u]
            rows = [[mpmath.mpf(1), *row] for row in delta]
            A = mpmath.matrix(4, 4)
            b = mpmath.matrix(4, 1)
            for weight, row, y in zip(e, rows, NUMBERS, strict=True):
                for i in range(4):
                    b[i] += weight * row[i] * mpmath.mpf(float(y))
                    for j in range(4):
                        A[i, j] += weight * row[i] * row[j]
            assert found == pytest.approx(float(mpmath.lu_solve(A, b)[0]), rel=1e-9)


@pytest.mark.parametrize("kind", ["nearest", "prior", "nan"])
def test_empty_rows(kind: str, path: Path, agree: Any) -> None:
    query = np.concatenate([NEAR, NEAR * 50.0])
    if kind != "nan":
        agree(regard.NadarayaWatsonClassifier("biweight", 0.5, empty=kind).fit(X, LABELS), query)
    if kind == "prior":
        return
    for make in (regard.NadarayaWatsonRegressor, regard.LocalLinearRegressor):
        model = make("biweight", 0.5, empty=kind).fit(X, NUMBERS)
        prediction, weights = ran(model, query, path)
        assert np.allclose(prediction, model.predict(query), rtol=0.0, atol=1e-10, equal_nan=True)
        assert np.allclose(weights, model.attend(query), rtol=0.0, atol=1e-10)
        assert np.isnan(prediction).any() == (kind == "nan")


@pytest.mark.parametrize("kind", ["average", "nearest", "heads", "matrix, line", "dot, None"])
def test_rows_that_are_not_finite_get_nan_and_the_others_their_answer(
    kind: str, path: Path, light_search: None
) -> None:
    model = KINDS[kind]()
    query = NEAR[:4].copy()
    query[1, 0], query[2, 2] = np.nan, -np.inf
    prediction, weights = ran(model, query, path)
    for found, expected in ((prediction, model.predict(NEAR[:4])), (weights, model.attend(NEAR[:4]))):
        assert np.isnan(found[1:3]).all()
        assert np.allclose(found[[0, 3]], expected[[0, 3]], rtol=0.0, atol=1e-10)


def test_one_row(agree: Any) -> None:
    for model in (
        regard.NadarayaWatsonRegressor(),
        regard.LocalLinearRegressor(bandwidth=1.0),
        regard.NearestKeyRegressor(),
        regard.AveragePoolingRegressor(),
    ):
        agree(model.fit(X[:1], NUMBERS[:1]), np.concatenate([NEAR, FAR]))
    agree(regard.NadarayaWatsonClassifier().fit(X[:1], LABELS[:1]), NEAR)
    agree(regard.NadarayaWatsonRegressor(bandwidth=0.5).fit(X, NUMBERS), NEAR[:1])


@pytest.mark.parametrize("kind", ["fitted", "saved"])
def test_single_precision_in_and_out(kind: str, agree: Any, tmp_path: Path) -> None:
    narrow, query = X.astype(np.float32), NEAR.astype(np.float32)
    for model, y in (
        (regard.NadarayaWatsonRegressor(bandwidth=0.5), NUMBERS),
        (regard.LocalLinearRegressor("tricube", 2.0), PAIRS),
        (regard.NearestKeyRegressor(), NUMBERS),
        (regard.KernelRegressor(), NUMBERS),
        (regard.KernelClassifier(calibrate=True), LABELS),
    ):
        model.fit(narrow if kind == "fitted" else X, y)
        if kind == "saved":
            regard.save(model, tmp_path / "m.regard", single=True, force=True)
            model = regard.load(tmp_path / "m.regard", mapped=True)
        agree(model, query, 1e-5)

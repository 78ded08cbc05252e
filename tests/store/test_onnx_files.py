"""Exported graphs as files: standard operators, the same bytes every time, whole or not at all; refusals by name."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas
import pytest
from onnx.reference import ReferenceEvaluator

import regard
from regard.store.onnx import ExportError, export_onnx
from support.models import NUMBERS, PAIRS, QUERIES, X

LABELS = np.where(NUMBERS > 0.5, "up", np.where(NUMBERS > -0.5, "数", "down"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def nodes(graph: Any) -> Any:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes(attribute.g)


def test_the_file_is_a_checked_graph_of_standard_operators(path: Path) -> None:
    frame = pandas.DataFrame(X, columns=["length", "width", "高"])
    for model in (
        regard.LocalLinearRegressor(bandwidth=1.0).fit(frame, NUMBERS),
        regard.NadarayaWatsonClassifier("cosine", 1.0, calibrate=True).fit(frame, LABELS),
    ):
        export_onnx(model, path, force=True)
        written = onnx.load(path)
        onnx.checker.check_model(written, full_check=True)
        assert [(one.domain, one.version) for one in written.opset_import] == [("", 18)]
        assert {node.domain for node in nodes(written.graph)} == {""}
        assert (written.producer_name, written.producer_version) == ("regard", regard.__version__)
        read = {name for node in nodes(written.graph) for name in node.input}
        assert {constant.name for constant in written.graph.initializer} <= read  # nothing idle
        facts = {entry.key: entry.value for entry in written.metadata_props}
        assert facts["kind"] == type(model).__name__
        assert json.loads(facts["features"]) == ["length", "width", "高"]
        assert "units" in facts
        (given,) = written.graph.input
        assert given.name == "X"
        assert "length, width, 高" in given.doc_string
        names = [output.name for output in written.graph.output]
        assert names == (
            ["label", "probabilities", "weights"] if hasattr(model, "classes_") else ["prediction", "weights"]
        )


def test_another_runtime_agrees(path: Path) -> None:
    model = regard.LocalLinearRegressor("epanechnikov", 6.0).fit(X, PAIRS)
    export_onnx(model, path)
    with np.errstate(divide="ignore"):
        prediction, weights = ReferenceEvaluator(str(path)).run(None, {"X": QUERIES})
    assert np.allclose(prediction, model.predict(QUERIES), rtol=0.0, atol=1e-10)
    assert np.allclose(weights, model.attend(QUERIES), rtol=0.0, atol=1e-10)


def test_the_same_model_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    model = regard.LocalLinearRegressor(bandwidth=1.0).fit(X, NUMBERS)
    regard.save(model, tmp_path / "m.regard")
    contents = set()
    for one in (model, model, regard.load(tmp_path / "m.regard"), regard.load(tmp_path / "m.regard", mapped=True)):
        export_onnx(one, path, force=True)
        contents.add(path.read_bytes())
    assert len(contents) == 1


def refused() -> dict[str, tuple[Any, str]]:
    torch = pytest.importorskip("torch")
    frame = pandas.DataFrame({"size": X[:, 0], "colour": LABELS, "hour": np.arange(40) % 24.0})
    gappy = X.copy()
    gappy[:, 0] = np.nan
    epanechnikov = {"kernel": "epanechnikov", "bandwidth": 1.0}

    class Mine(regard.NadarayaWatsonRegressor):
        pass

    return {
        "text": (
            regard.NadarayaWatsonRegressor(bandwidth=0.3).fit(frame, NUMBERS),
            "colour .aitchison-aitken.*get_dummies",
        ),
        "periodic": (
            regard.NadarayaWatsonRegressor({"hour": ("periodic", 24)}, 0.3).fit(frame[["size", "hour"]], NUMBERS),
            "hour .periodic.",
        ),
        "gaps": (
            regard.NadarayaWatsonRegressor(bandwidth=1.0, missing="ignore").fit(gappy, NUMBERS),
            "needs a training row without missing entries, but every row has one",
        ),
        "raise": (regard.NadarayaWatsonRegressor(**epanechnikov, empty="raise").fit(X, NUMBERS), "empty='raise'"),
        "nan classes": (regard.NadarayaWatsonClassifier(**epanechnikov, empty="nan").fit(X, LABELS), "empty='nan'"),
        "adaptive": (regard.NadarayaWatsonRegressor(bandwidth="adaptive").fit(X, NUMBERS), "bandwidth='adaptive'"),
        "module": (
            regard.AttentionRegressor(embed=torch.nn.Linear(3, 2), max_iter=1).fit(X, NUMBERS),
            "an embed that is a module",
        ),
        "not fitted": (regard.KernelRegressor(), "not fitted"),
        "a class of one's own": (Mine().fit(X, NUMBERS), "got .*Mine"),
        "something else": ({"a": 1}, "got dict"),
    }


@pytest.mark.parametrize("kind", [regard.KernelRegressor, regard.LocalLinearRegressor])
def test_training_rows_with_gaps_have_weight_zero_and_queries_with_gaps_are_nan(kind, path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    gappy = X.copy()
    gappy[::5, 0] = np.nan
    model = kind(missing="ignore").fit(gappy, NUMBERS)
    export_onnx(model, path)
    prediction, weights = onnxruntime.InferenceSession(str(path)).run(None, {"X": gappy})
    complete = ~np.isnan(gappy).any(axis=1)
    assert np.array_equal(np.isnan(prediction), ~complete)
    np.testing.assert_allclose(prediction[complete], model.predict(gappy)[complete], rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(weights[complete], model.attend(gappy)[complete], rtol=0.0, atol=1e-10)
    assert not weights[complete][:, ~complete].any()


def test_what_a_graph_cannot_do_is_refused_by_name(path: Path) -> None:
    for case, (model, words) in refused().items():
        with pytest.raises(ExportError, match=words):
            export_onnx(model, path)
        assert not path.exists(), case
    # Without a kernel that ends there are no empty rows, and nothing to raise.
    export_onnx(regard.NadarayaWatsonRegressor(bandwidth=1.0, empty="raise").fit(X, NUMBERS), path)


def test_places(path: Path, monkeypatch: Any) -> None:
    model = regard.AveragePoolingRegressor().fit(X, NUMBERS)
    path.write_text("precious")
    with pytest.raises(ExportError, match="already exists"):
        export_onnx(model, path)
    with pytest.raises(ExportError, match="there is no folder"):
        export_onnx(model, path.parent / "absent" / "model.onnx")
    monkeypatch.setattr(regard.store.onnx, "MAX_FILE_BYTES", 1000)
    with pytest.raises(ExportError, match="an ONNX file at most 2 GiB"):
        export_onnx(regard.NearestKeyRegressor().fit(X, NUMBERS), path, force=True)
    assert path.read_text() == "precious"
    assert os.listdir(path.parent) == [path.name]


def test_107_a_full_disk_leaves_the_old_graph(path: Path) -> None:
    model = regard.NearestKeyRegressor().fit(X, NUMBERS)
    export_onnx(model, path)
    old = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(ExportError, match="cannot be written"):
            export_onnx(model, path, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


def test_without_onnx_the_error_says_what_to_install(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["onnx"] = None
import regard
model = regard.AveragePoolingRegressor().fit([[0.0], [1.0]], [1.0, 2.0])
try:
    regard.export_onnx(model, sys.argv[1])
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "m.onnx")], capture_output=True, text=True)
    assert done.stdout.startswith("onnx export_onnx needs onnx"), done.stderr
    assert "pip install 'regard[onnx]'" in done.stdout
    assert not (tmp_path / "m.onnx").exists()

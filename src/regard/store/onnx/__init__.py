"""A fitted model as an ONNX graph of standard operators: prediction and attention without this package, or Python.

``session = onnxruntime.InferenceSession("model.onnx")`` reads it, and ``session.run(None, {"X": X})`` answers. Inside,
``onnx_graph`` writes nodes as formulas; ``onnx_weights`` has the weights of a score, ``onnx_lines`` local lines and
``onnx_predict`` the answers of a smoother.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.data.files import PathLike, atomic_write, check_output
from regard.store.model_schema import kind_of

__all__ = ["ExportError", "export_onnx"]

# The size limit of protobuf is 2 GiB.
MAX_FILE_BYTES = 2**31 - 2**20


class ExportError(ValueError):
    """A model that cannot be exported, or a path that cannot be written."""


def export_onnx(model: Any, path: PathLike, *, force: bool = False) -> None:
    """Write a fitted estimator as one ONNX file, whole or not at all.

    The graph takes "X" (n, features) and gives "prediction", (n,) or (n, P) as y was, and "weights" (n, rows), the
    attention of ``attend``. A classifier gives "label" (n,), "probabilities" (n, classes) and "weights".

    Input and outputs have the dtype of the training rows, float64 or float32; the computation is in float64. X has the
    units and the column order of ``fit``'s X. A graph cannot raise errors: rows that are not finite give NaN.

    Parameters
    ----------
    model : estimator
        A fitted estimator of one of ``store.model_schema.KINDS``, over columns of numbers. Not supported are text and
        other columns with kernels of their own, ``bandwidth="adaptive"``, an ``empty`` that raises errors, and an
        ``embed`` of your own.
    path : str or path
        The file; one that exists, or a link, is refused unless ``force``.
    force : bool, default=False
        Replace an existing file. If writing fails, the existing file is unchanged.

    Raises
    ------
    ExportError
        A ValueError: the model cannot be a graph, or the path cannot be written.
    ModuleNotFoundError
        Without onnx, which is in the extra ``onnx``.

    *Empty rows*: as ``empty`` says, without a warning. *Cost*: the file holds the training rows, and those of every
    head of a ``KernelRegressor``; running it takes O(n·rows·d) time, d² for lines, and O(n·rows) memory: predict a few
    hundred rows at a time.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import onnxruntime
    >>> from regard import NadarayaWatsonRegressor
    >>> model = NadarayaWatsonRegressor(bandwidth=1.0).fit([[-1.0], [1.0]], [2.0, 4.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(model, Path(folder) / "model.onnx")
    ...     session = onnxruntime.InferenceSession(Path(folder) / "model.onnx")
    >>> session.run(["prediction"], {"X": np.array([[0.0]])})[0].tolist()
    [3.0]
    """
    _check_supported(model)
    check_output(path, force, ExportError)
    content = _onnx_model(model).SerializeToString(deterministic=True)
    with atomic_write(path, force=force, error=ExportError) as file:
        file.write(content)


def _check_supported(model: Any) -> None:
    """Refuse what a graph cannot compute."""
    kind = kind_of(model, ExportError)
    if not hasattr(model, "key_"):
        raise ExportError(f"this {kind} is not fitted; call fit before export_onnx")
    parts = model.coding_.parts if hasattr(model, "coding_") else ()
    if named := [f"{' and '.join(part.names)} ({part.kernel})" for part in parts if part.kernel != "gaussian"]:
        raise ExportError(
            f"ONNX export supports columns of numbers only, got columns with kernels of their own: {', '.join(named)}; "
            "encode them as numbers before fit, text for example by pandas.get_dummies"
        )
    complete = ~np.isnan(model.key_).any(axis=1)
    if not (complete if model.sample_weight_ is None else complete & (model.sample_weight_ > 0)).any():
        raise ExportError("ONNX export needs a training row without missing entries, but every row has one")
    if hasattr(model, "neighbours_"):
        raise ExportError("ONNX export does not support bandwidth='adaptive'; fit with another, such as 'loo'")
    if not (getattr(model, "embed", None) is None or isinstance(model.embed, str)):
        raise ExportError("ONNX export does not support an embed that is a module; fit with embed=None or embed='mlp'")
    kernel = getattr(getattr(model, "attention_score_", None), "kernel", None)
    allowed = ("nearest", "prior") if hasattr(model, "classes_") else ("nearest", "nan")
    if kernel is not None and kernel.compact and model.empty not in allowed:
        raise ExportError(
            f"empty={model.empty!r} raises an error if no training row is in reach, which an ONNX graph cannot do; "
            f"use empty={' or '.join(map(repr, allowed))}"
        )


def _onnx_model(model: Any) -> Any:
    try:
        from regard.store.onnx.onnx_graph import Graph
        from regard.store.onnx.onnx_predict import predict
    except ModuleNotFoundError as missing:
        if missing.name != "onnx":
            raise
        raise ModuleNotFoundError(
            "export_onnx needs onnx, which is not installed; run pip install 'regard[onnx]'", name="onnx"
        ) from missing
    (K, d), dtype, kind = model.key_.shape, model.key_.dtype, type(model).__name__
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    metadata = {"kind": kind, "rows": str(K), "units": "X and prediction are in the units of fit's X and y"}
    if names:
        metadata["features"] = json.dumps(names, ensure_ascii=False)
    graph = Graph()
    columns = ", ".join(names) or f"{d} columns in its order"
    query = graph.input("X", dtype, ["n", d], f"(n, features): finite numbers in the units of fit; {columns}")
    output, weights = predict(model._configured_smoother, query.cast(np.float64))
    if model._IS_CLASSIFIER:
        classes, plain = _classes(model), _tempered(model, output / output.sum(1))
        probability = (_calibrated(model, plain) if model.calibrate else plain).cast(dtype)
        label = graph.constant(classes).take(probability.of("ArgMax", axis=1, keepdims=0), 0)
        graph.output("label", label, classes.dtype, ["n"], "(n,): the most probable class")
        graph.output("probabilities", probability, dtype, ["n", len(classes)], "(n, classes): rows sum to 1")
        metadata["classes"] = json.dumps(classes.tolist(), ensure_ascii=False)
    else:
        output = output.without_axis(1) if model.value_.ndim == 1 else output
        shape = ["n", *model.value_.shape[1:]]
        graph.output("prediction", output.cast(dtype), dtype, shape, "(n,) or (n, columns of y): in the units of y")
    description = "(n, rows): attention weight of each training row for each row of X; not negative, rows sum to 1"
    graph.output("weights", weights.cast(dtype), dtype, ["n", K], description)
    if graph.nbytes > MAX_FILE_BYTES:
        raise ExportError(f"the graph has {graph.nbytes:,} bytes, but an ONNX file at most 2 GiB; fit fewer rows")
    return graph.model(f"A {kind} of regard, fitted to {K:,} rows.", metadata)


def _classes(model: Any) -> Array:
    """Class labels in a dtype that ONNX has."""
    classes = np.asarray(model.classes_)
    if classes.dtype.kind == "U" or all(isinstance(label, str) for label in classes):
        return classes.astype(object)
    if classes.dtype.kind not in "biuf":
        raise ExportError(f"classes must be text, numbers or booleans to be exported, got {classes.dtype}")
    return classes.astype({"b": np.bool_, "f": np.float64}.get(classes.dtype.kind, np.int64))


def _tempered(model: Any, probability: Any) -> Any:
    """(1 − ε)·p^(1/T)/Σ p^(1/T) + ε·frequency, as ``Tempering`` computes it."""
    tempering = model._smoother.tempering
    if tempering is None:
        return probability
    sharp = (probability.of("Log") / tempering.temperature).of("Softmax", axis=1)
    return sharp * (1.0 - tempering.frequency_weight) + tempering.frequency_weight * tempering.frequency


def _calibrated(model: Any, probability: Any) -> Any:
    """((1 − ε)·p + ε·frequency)^(1/T), each row summing to 1, which a common factor does not change."""
    temperature, epsilon, frequency = model._calibration()
    mixed = (probability + epsilon / (1.0 - epsilon) * frequency).of("Log") / temperature
    return mixed.of("Softmax", axis=1)

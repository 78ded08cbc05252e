"""A fitted model as an ONNX graph of standard operators: prediction and attention without this package, or Python.

``session = onnxruntime.InferenceSession("model.onnx")`` reads it, and ``session.run(None, {"X": X})`` answers. Inside,
``graph`` writes nodes as formulas, ``looks`` has the weights of a score, ``lines`` local lines, ``answers`` estimators.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import regard
from regard.core.arrays import Array
from regard.data.files import PathLike, atomic_write, check_output
from regard.store.layout import KINDS

__all__ = ["ExportError", "export_onnx"]

# No protobuf file is larger than 2 GiB.
LARGEST = 2**31 - 2**20


class ExportError(ValueError):
    """A model that cannot be exported, or a place where it cannot go."""


def export_onnx(model: Any, path: PathLike, *, force: bool = False) -> None:
    """Write a fitted estimator as one ONNX file, whole or not at all.

    The graph takes "X" (n, features) and gives "prediction", (n,) or (n, P) as y was, and "weights" (n, rows), the
    attention of ``attend``. A classifier gives "label" (n,), "probabilities" (n, classes) and "weights".

    Input and outputs have the dtype of the training rows, float64 or float32; in between all is float64. X has the
    units and the order of columns that ``fit`` saw. A graph cannot refuse: rows that are not finite get NaN.

    Parameters
    ----------
    model : a fitted estimator of one of ``store.KINDS``, over columns of numbers. What a graph cannot do is refused:
        text and other columns with kernels of their own, ``missing="ignore"``, ``bandwidth="adaptive"``, errors where
        no training row is in reach, and an ``embed`` of your own.
    path : the file; one that exists, or a link, is refused unless ``force``.
    force : replace what is there. If writing fails, what was there stays.

    Raises ExportError; ModuleNotFoundError without onnx. *Empty rows*: as ``empty`` says, without a warning. *Cost*:
    the file holds the training rows, and those of every head of a ``KernelRegressor``; running it takes O(n·rows·d)
    time, d² for lines, and O(n·rows) memory: ask a few hundred rows at a time.
    """
    _check(model)
    check_output(path, force, ExportError)
    content = _made(model).SerializeToString(deterministic=True)
    with atomic_write(path, force=force, error=ExportError) as file:
        file.write(content)


def _check(model: Any) -> None:
    """Refuse what a graph cannot do."""
    kind = type(model).__name__
    if kind not in KINDS or type(model) is not getattr(regard, kind):
        raise ExportError(f"model must be one of {', '.join(KINDS)} of regard, got {type(model).__qualname__}")
    if not hasattr(model, "key_"):
        raise ExportError(f"this {kind} is not fitted; there is nothing to export")
    parts = model.coding_.parts if hasattr(model, "coding_") else ()
    if named := [f"{' and '.join(part.names)} ({part.kernel})" for part in parts if part.kernel != "gaussian"]:
        raise ExportError(
            f"columns with kernels of their own have no graph: {', '.join(named)}; fit columns of numbers"
        )
    if getattr(model, "missing", "refuse") != "refuse":
        raise ExportError(
            f"missing={model.missing!r} has no graph; fill or drop the gaps and fit with missing='refuse'"
        )
    if hasattr(model, "neighbours_"):
        raise ExportError("bandwidth='adaptive' has no graph; fit with another, such as bandwidth='loo'")
    if not (getattr(model, "embed", None) is None or isinstance(model.embed, str)):
        raise ExportError("embed is a module of your own, which has no graph; fit with embed=None or embed='mlp'")
    kernel = getattr(getattr(model, "attention_score_", None), "kernel", None)
    allowed = ("nearest", "prior") if hasattr(model, "classes_") else ("nearest", "nan")
    if kernel is not None and kernel.compact and model.empty not in allowed:
        raise ExportError(
            f"empty={model.empty!r} is an error where no training row is in reach, and a graph cannot raise one; "
            f"use empty={' or '.join(map(repr, allowed))}"
        )


def _made(model: Any) -> Any:
    """The ONNX model."""
    try:
        from regard.store.onnx.answers import answer
        from regard.store.onnx.graph import Graph
    except ModuleNotFoundError as missing:
        if missing.name != "onnx":
            raise
        raise ModuleNotFoundError(
            "export_onnx needs onnx, which is not installed; pip install 'regard[onnx]' brings it", name="onnx"
        ) from missing
    (K, d), dtype, kind = model.key_.shape, model.key_.dtype, type(model).__name__
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    facts = {"kind": kind, "rows": str(K), "units": "X and prediction are in the units of fit's X and y"}
    if names:
        facts["features"] = json.dumps(names, ensure_ascii=False)
    graph = Graph()
    told = f"(n, features): finite numbers in the units of fit; {', '.join(names) or f'{d} columns in its order'}"
    query = graph.input("X", dtype, ["n", d], told).cast(np.float64)
    output, weights = answer(model._asked, query)
    if model._LABELS:
        classes, shares = _classes(model), output / output.sum(1)
        probability = (_calibrated(model, shares) if model.calibrate else shares).cast(dtype)
        label = graph.constant(classes).take(probability.of("ArgMax", axis=1, keepdims=0), 0)
        graph.output("label", label, classes.dtype, ["n"], "(n,): the most probable class")
        graph.output("probabilities", probability, dtype, ["n", len(classes)], "(n, classes): rows sum to 1")
        facts["classes"] = json.dumps(classes.tolist(), ensure_ascii=False)
    else:
        output = output.without_axis(1) if model.value_.ndim == 1 else output
        shape = ["n", *model.value_.shape[1:]]
        graph.output("prediction", output.cast(dtype), dtype, shape, "(n,) or (n, columns of y): in the units of y")
    told = "(n, rows): how much each row of X looks at each training row; not negative, rows sum to 1"
    graph.output("weights", weights.cast(dtype), dtype, ["n", K], told)
    if graph.held > LARGEST:
        raise ExportError(f"the graph holds {graph.held:,} bytes, and an ONNX file at most 2 GiB; fit fewer rows")
    return graph.model(f"A {kind} of regard, fitted to {K:,} rows.", facts)


def _classes(model: Any) -> Array:
    """Labels as ONNX holds them."""
    classes = np.asarray(model.classes_)
    if classes.dtype.kind == "U" or all(isinstance(label, str) for label in classes):
        return classes.astype(object)
    if classes.dtype.kind not in "biuf":
        raise ExportError(f"classes must be text, numbers or booleans to be exported, got {classes.dtype}")
    return classes.astype({"b": np.bool_, "f": np.float64}.get(classes.dtype.kind, np.int64))


def _calibrated(model: Any, probability: Any) -> Any:
    """((1 − ε)·p + ε·frequency)^(1/T), each row summing to 1, which a common factor does not change."""
    temperature, share, frequency = model._calibration()
    mixed = (probability + share / (1.0 - share) * frequency).of("Log") / temperature
    return mixed.of("Softmax", axis=1)

"""The arrays of a fitted model of each kind, with their dtypes and shapes.

A shape names the sizes of its axes, so that arrays are checked against each other: an axis named ``rows`` must be as
long as that of ``key_``. A size follows from the columns of X (``features``), is stated by the file, or is that of the
first array that has it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np


class ArraySpec(NamedTuple):
    """The dtype and the shape of an array."""

    dtype: str  # a numpy dtype, a key of ``DTYPE_PATTERNS``, or one of the two constants below
    shape: str = ""  # names of sizes, one per axis; *name is an optional axis or, alone, any number of axes


NUMBER = "a number"  # no array
TUPLE = "tuple"  # its length is its shape

# Dtypes given as a pattern; the dtype found is the same wherever the key occurs.
DTYPE_PATTERNS = {
    "key": r"float32|float64",
    "weight": r"bool|u?int\d+|float\d+",
    "bandwidth": r"u?int\d+|float\d+",
    "name": r"str\d*|object",
    "any": r".*",
}


def _specs(table: Mapping[str, str]) -> dict[str, ArraySpec]:
    """The spec of each name, from "dtype, axes" → names."""
    return {name: ArraySpec(*spec.split(", ")) for spec, names in table.items() for name in names.split()}


COMMON_SPECS = _specs(
    {
        NUMBER: "n_features_in_ arrival_[1] loo_score_",
        "name, columns": "feature_names_in_",
        "key, rows features": "key_",
        "weight, rows": "sample_weight_",
        "tuple, 2": "arrival_",
        "int64, rows": "arrival_[0]",
        "key, sorted features": "shelves_.key",
        "weight, sorted": "shelves_.sample_weight",
        "int64, blocks": "shelves_.blocks.keys",
        "key, blocks features": "shelves_.blocks.low shelves_.blocks.high",
        "float64, blocks": "shelves_.blocks.lightest shelves_.blocks.heaviest",
    }
)
REGRESSOR_SPECS = COMMON_SPECS | _specs(
    {
        "key, rows *outputs": "value_",
        "float64, rows *outputs": "loo_predictions_ residuals_ standardised_residuals_",
        "tuple, 2": "spread_",
        NUMBER: "spread_[]",
        "float64, answered answers": "search_.answer",
        "key, sorted *outputs": "shelves_.value",
    }
)
CLASSIFIER_SPECS = COMMON_SPECS | _specs(
    {
        "int64, rows": "value_",
        "any labels, classes": "classes_",
        NUMBER: "classes_given_ calibration_[]",
        "float64, rows classes": "loo_predictions_ left_out_probabilities_",
        "tuple, 2": "calibration_",
        "float64, answered classes": "search_.answer",
        "int64, sorted": "shelves_.value",
    }
)
# One w for all features; one per feature or a matrix; one per column of a mixed table.
SCALAR_W_SPECS = _specs(
    {NUMBER: "w_", "float64, features": "bandwidth_", "float64": "search_.w", "bool, features": "search_.smoothed_out"}
)
VECTOR_W_SPECS = SCALAR_W_SPECS | _specs({"float64, features *rank": "w_ search_.w"})
MIXED_TABLE_SPECS = _specs(
    {
        "float64, features": "w_",
        "float64, columns": "bandwidth_",
        "float64, parts": "search_.w",
        "bool, parts": "search_.smoothed_out",
    }
)
KERNEL_SPECS = _specs(
    {
        "bandwidth, *bandwidth": "parameters.bandwidth",
        NUMBER: "ridge_ neighbours_",
        "float64, evaluations": "search_.path",
        "float64, evaluations places": "search_.places",
        "int64, evaluations": "search_.tried",
    }
)
HEAD_SPECS = _specs(
    {
        "tuple, heads": "heads_",
        NUMBER: "heads_[].weight heads_[].ridge",
        "float64, features": "heads_[].share",
        "float64, features *rank[]": "heads_[].w",
        "tuple, features": "scaling_.knots scaling_.standard scaling_.ranks",
        "float64, knots[]": "scaling_.knots[] scaling_.standard[] scaling_.ranks[]",
        "float64, evaluations": "search_.path",
    }
)
TEMPERING_SPECS = _specs(
    {NUMBER: "tempering_.temperature tempering_.frequency_weight", "float64, classes": "tempering_.frequency"}
)
SCORE_SPECS = _specs(
    {
        "float64, features": "mean_ scale_ w_ bandwidth_",
        "float64, rows embedded": "embedding_",
        NUMBER: "n_iter_",
        "float64, epochs": "history_.loss history_.validation",
        "float32, embedded": "parameters_.score.log_w",
        "float32, embedded embedded": "parameters_.score.W",
        "float32, hidden embedded": "parameters_.score.W_q.weight parameters_.score.W_k.weight",
        "float32, 1 hidden": "parameters_.score.w_v.weight",
    }
)
MLP_SPECS = _specs(
    {
        "float32, units features": "parameters_.embed.net.0.weight",
        "float32, units": "parameters_.embed.net.0.bias parameters_.embed.net.2.bias",
        "float32, units units": "parameters_.embed.net.2.weight",
        "float32, added units": "parameters_.embed.net.4.weight",
        "float32, added": "parameters_.embed.net.4.bias",
    }
)
# The arrays of each kind of model, and the attributes that it cannot predict without. No other class of ``regard`` is
# ever made from a file.
REQUIRED = ("n_features_in_", "key_", "value_", "sample_weight_")
KINDS = {
    "AttentionRegressor": (REGRESSOR_SPECS | SCORE_SPECS, (*REQUIRED, "mean_", "scale_", "embedding_", "parameters_")),
    "AveragePoolingRegressor": (REGRESSOR_SPECS, REQUIRED),
    "KernelClassifier": (
        CLASSIFIER_SPECS | HEAD_SPECS | TEMPERING_SPECS,
        (*REQUIRED, "classes_", "heads_", "scaling_"),
    ),
    "KernelRegressor": (REGRESSOR_SPECS | HEAD_SPECS, (*REQUIRED, "heads_", "scaling_")),
    "LocalLinearRegressor": (REGRESSOR_SPECS | KERNEL_SPECS, (*REQUIRED, "w_", "ridge_")),
    "NadarayaWatsonClassifier": (CLASSIFIER_SPECS | KERNEL_SPECS, (*REQUIRED, "classes_", "w_")),
    "NadarayaWatsonRegressor": (REGRESSOR_SPECS | KERNEL_SPECS, (*REQUIRED, "w_")),
    "NearestKeyRegressor": (REGRESSOR_SPECS, REQUIRED),
}
MAY_BE_NONE = ("sample_weight_", "shelves_.sample_weight", "history_.validation")
# Emptied by ``forget``: they describe rows that are gone.
CLEARED_BY_FORGET = ("search_.", "history_.")

Sizes = dict[str, Any]


def kind_of(model: Any, error: type[ValueError]) -> str:
    """The name of the estimator's class, which must be one of ``KINDS`` itself; raises ``error`` otherwise."""
    kind = type(model).__name__
    if kind not in KINDS or type(model) is not getattr(import_module("regard"), kind):
        raise error(f"model must be one of {', '.join(KINDS)} of regard, got {type(model).__qualname__}")
    return kind


def sizes_of(
    kind: str, parameters: Mapping[str, Any], fitted: Mapping[str, Any], stated: Mapping[str, Any] | None = None
) -> Sizes:
    """The sizes by name of the arrays of a model, checked against each other and against those ``stated``.

    Raises ValueError naming the first array that does not agree.
    """
    missing = [name for name in KINDS[kind][1] if name not in fitted]
    if missing:
        raise ValueError(f"a {kind} must have {missing[0]}, which is missing")
    table, known = _table(kind, parameters, fitted), _known(fitted)
    sizes: Sizes = {}
    found = [*leaves(fitted), *leaves(parameters, "parameters", "parameters")]
    # In the order of the table, so that sizes of rows are determined first.
    order = {pattern: number for number, pattern in enumerate(table)}
    for path, pattern, value in sorted(found, key=lambda leaf: order.get(leaf[1], len(order))):
        spec = table.get(path, table.get(pattern))
        if spec is None:
            # Of modules and attributes added by the user only the shapes that were saved are known.
            if not isinstance(value, np.ndarray):
                continue
            spec = ArraySpec(f"any {path}", f"*{path}")
        cleared = "arrival_" in fitted and path.startswith(CLEARED_BY_FORGET)
        _ArrayCheck(path, spec, sizes, known, stated).check(value, cleared=cleared)
    unused = [name for name in stated or () if name not in sizes]
    if unused:
        raise ValueError(f"the stated size {unused[0]} is not that of any array")
    return sizes


def check_classes(fitted: Mapping[str, Any]) -> None:
    """Raise ValueError for class numbers out of range; this reads all of ``value_``."""
    if "classes_" in fitted and not 0 <= fitted["value_"].min() <= fitted["value_"].max() < len(fitted["classes_"]):
        raise ValueError(f"value_ must hold class numbers below {len(fitted['classes_'])}, the length of classes_")


class _ArrayCheck(NamedTuple):
    """The check of one array; new sizes are added to ``sizes``."""

    path: str
    spec: ArraySpec
    sizes: Sizes
    known: Mapping[str, int]
    stated: Mapping[str, Any] | None

    def check(self, value: Any, *, cleared: bool) -> None:
        if self.spec.dtype == TUPLE:
            if not isinstance(value, tuple):
                raise self._error(f"a tuple, got a {type(value).__name__}")
            self._check_shape((len(value),), cleared=False)
        elif self.spec.dtype == NUMBER:
            if isinstance(value, np.ndarray):
                raise self._error(f"a number, got an array of shape {value.shape}")
        elif isinstance(value, np.ndarray):
            self._check_shape(value.shape, cleared=cleared and value.shape[:1] == (0,))
            self._check_dtype(value.dtype, cleared=not value.size)
        elif not (self.path in MAY_BE_NONE and value is None) and not self.path.startswith("parameters."):
            raise self._error(f"an array, got {str(value)[:40]!r}")

    def _check_shape(self, shape: tuple[int, ...], *, cleared: bool) -> None:
        # A size with [] is that of a single head or column.
        wanted = self.spec.shape.replace("[]", self.path[self.path.rfind("[") : self.path.rfind("]") + 1])
        axes = wanted.split()
        some = bool(axes) and axes[-1][0] == "*"
        if not len(axes) - some <= len(shape) <= (np.inf if some and len(axes) == 1 else len(axes)):
            raise self._error(f"of shape ({wanted}), got shape {shape}")
        # Of arrays cleared by forget only the length is known.
        for at, name in enumerate(axes[:1] if cleared else axes):
            size = list(shape[at:]) if name[0] == "*" else shape[at]
            if (stated := self._expected(name.removeprefix("*"), size)) != size:
                raise self._error(f"of shape ({wanted}), where {name} is {stated}, got shape {shape}")

    def _check_dtype(self, dtype: np.dtype[Any], *, cleared: bool) -> None:
        if cleared:
            return
        wanted = self.spec.dtype
        if (known := DTYPE_PATTERNS.get(wanted.split()[0])) is not None:
            fits = re.fullmatch(known, dtype.name) is not None
            wanted = self._expected(f"dtype of {wanted}", dtype.name) if fits else known
        if wanted != dtype.name:
            raise self._error(f"{wanted}, got {dtype.name}")

    def _expected(self, name: str, found: Any) -> Any:
        """A size by name: known, that of an earlier array, stated, or else the one found."""
        if name.isdigit():
            return int(name)
        if name in self.known:
            return self.known[name]
        default = found if self.stated is None else self.stated.get(name, "none")
        return self.sizes.setdefault(name, default)

    def _error(self, wanted: str) -> ValueError:
        return ValueError(f"{self.path} must be {wanted}")


def _table(kind: str, parameters: Mapping[str, Any], fitted: Mapping[str, Any]) -> dict[str, ArraySpec]:
    table, needed = KINDS[kind]
    if "w_" in needed:
        table |= (
            MIXED_TABLE_SPECS
            if "coding_" in fitted
            else VECTOR_W_SPECS
            if isinstance(fitted["w_"], np.ndarray)
            else SCALAR_W_SPECS
        )
        # A single bandwidth for all features, even if w is an array.
        one = not isinstance(fitted.get("bandwidth_"), np.ndarray)
        return table | {"bandwidth_": ArraySpec(NUMBER)} if one else table
    return table | MLP_SPECS if isinstance(parameters.get("embed"), str) else table


def _known(fitted: Mapping[str, Any]) -> dict[str, int]:
    """Sizes that follow from values that are no arrays, or from other sizes."""
    columns = fitted["n_features_in_"]
    known = {"columns": columns, "features": columns}
    if "coding_" in fitted:
        coding = fitted["coding_"]
        if coding.columns != columns:
            raise ValueError(f"coding_ must have n_features_in_ = {columns} columns, got {coding.columns}")
        known |= {"parts": len(coding.parts), "features": len(coding.features)}
    known["answers"] = math.prod(np.shape(fitted["value_"])[1:])
    if hasattr(fitted.get("search_"), "w"):
        known["places"] = np.size(fitted["search_"].w)
    return known


def leaves(value: Any, path: str = "", pattern: str = "") -> Iterator[tuple[str, str, Any]]:
    """Path, pattern (the path without indices) and value of everything inside, except dicts and named tuples."""
    if isinstance(value, Mapping):
        named: list[tuple[str, Any]] = [(str(name), inner) for name, inner in value.items()]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        named = [(name, getattr(value, name)) for name in value._fields]
    else:
        yield path, pattern, value
        for number, inner in enumerate(value if isinstance(value, tuple | list) else ()):
            yield from leaves(inner, f"{path}[{number}]", f"{pattern}[]")
        return
    for name, inner in named:
        yield from leaves(inner, f"{path}.{name}".removeprefix("."), f"{pattern}.{name}".removeprefix("."))

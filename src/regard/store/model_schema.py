"""What a fitted model of each kind holds: one table of its arrays, their dtypes and shapes.

A shape names the sizes of its axes, so that arrays are checked against each other: whatever has ``rows`` must have as
many as ``key_``. A size is known from the columns of X (``features``), stated by the file, or that of the first array
which has it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np


class Held(NamedTuple):
    """The dtype and the shape of an array."""

    dtype: str  # of numpy, a row of ``DTYPES``, or one of the two words below
    shape: str = ""  # sizes by name, one to an axis; *name is an axis or none, and alone any number of them


PLAIN = "a number"  # no array
TUPLE = "tuple"  # its length is its shape

# Dtypes that may be one or another, but are the same wherever the word occurs.
DTYPES = {
    "key": r"float32|float64",
    "weight": r"bool|u?int\d+|float\d+",
    "bandwidth": r"u?int\d+|float\d+",
    "name": r"str\d*|object",
    "any": r".*",
}


def _held(table: Mapping[str, str]) -> dict[str, Held]:
    """What is held under each name, from "dtype, axes" → names."""
    return {name: Held(*held.split(", ")) for held, names in table.items() for name in names.split()}


ROWS = _held(
    {
        PLAIN: "n_features_in_ arrival_[1] loo_score_",
        "name, columns": "feature_names_in_",
        "key, rows features": "key_",
        "weight, rows": "sample_weight_",
        "tuple, 2": "arrival_",
        "int64, rows": "arrival_[0]",
        "key, shelved features": "shelves_.key",
        "weight, shelved": "shelves_.sample_weight",
        "int64, shelves": "shelves_.shelves.keys",
        "key, shelves features": "shelves_.shelves.low shelves_.shelves.high",
        "float64, shelves": "shelves_.shelves.lightest shelves_.shelves.heaviest",
    }
)
NUMBERS = ROWS | _held(
    {
        "key, rows *outputs": "value_",
        "float64, rows *outputs": "loo_predictions_ residuals_ standardised_residuals_",
        "tuple, 2": "spread_",
        PLAIN: "spread_[]",
        "float64, answered answers": "search_.answer",
        "key, shelved *outputs": "shelves_.value",
    }
)
CLASSES = ROWS | _held(
    {
        "int64, rows": "value_",
        "any labels, classes": "classes_",
        PLAIN: "classes_given_ calibration_[]",
        "float64, rows classes": "loo_predictions_ left_out_probabilities_",
        "tuple, 2": "calibration_",
        "float64, answered classes": "search_.answer",
        "int64, shelved": "shelves_.value",
    }
)
# One w for all features, one to a feature or a matrix, and one to a column of a mixed table.
ONE = _held(
    {PLAIN: "w_", "float64, features": "bandwidth_", "float64": "search_.w", "bool, features": "search_.smoothed_out"}
)
EACH = ONE | _held({"float64, features *rank": "w_ search_.w"})
MIXED = _held(
    {
        "float64, features": "w_",
        "float64, columns": "bandwidth_",
        "float64, parts": "search_.w",
        "bool, parts": "search_.smoothed_out",
    }
)
KERNEL = _held(
    {
        "bandwidth, *bandwidth": "parameters.bandwidth",
        PLAIN: "ridge_ neighbours_",
        "float64, evaluations": "search_.path",
        "float64, evaluations places": "search_.places",
        "int64, evaluations": "search_.tried",
    }
)
HEADS = _held(
    {
        "tuple, heads": "heads_",
        PLAIN: "heads_[].weight heads_[].ridge",
        "float64, features": "heads_[].share",
        "float64, features *rank[]": "heads_[].w",
        "tuple, features": "scaling_.knots scaling_.standard scaling_.ranks",
        "float64, knots[]": "scaling_.knots[] scaling_.standard[] scaling_.ranks[]",
        "float64, evaluations": "search_.path",
    }
)
SCORE = _held(
    {
        "float64, features": "mean_ scale_ w_ bandwidth_",
        "float64, rows embedded": "embedding_",
        PLAIN: "n_iter_",
        "float64, epochs": "history_.loss history_.validation",
        "float32, embedded": "parameters_.score.log_w",
        "float32, embedded embedded": "parameters_.score.W",
        "float32, hidden embedded": "parameters_.score.W_q.weight parameters_.score.W_k.weight",
        "float32, 1 hidden": "parameters_.score.w_v.weight",
    }
)
MLP = _held(
    {
        "float32, units features": "parameters_.embed.net.0.weight",
        "float32, units": "parameters_.embed.net.0.bias parameters_.embed.net.2.bias",
        "float32, units units": "parameters_.embed.net.2.weight",
        "float32, added units": "parameters_.embed.net.4.weight",
        "float32, added": "parameters_.embed.net.4.bias",
    }
)
# What a model of each kind may hold, and without what it cannot answer; only these classes of ``regard`` are ever made
# from a file.
NEEDED = ("n_features_in_", "key_", "value_", "sample_weight_")
KINDS = {
    "AttentionRegressor": (NUMBERS | SCORE, (*NEEDED, "mean_", "scale_", "embedding_", "parameters_")),
    "AveragePoolingRegressor": (NUMBERS, NEEDED),
    "KernelClassifier": (CLASSES | HEADS, (*NEEDED, "classes_", "heads_", "scaling_")),
    "KernelRegressor": (NUMBERS | HEADS, (*NEEDED, "heads_", "scaling_")),
    "LocalLinearRegressor": (NUMBERS | KERNEL, (*NEEDED, "w_", "ridge_")),
    "NadarayaWatsonClassifier": (CLASSES | KERNEL, (*NEEDED, "classes_", "w_")),
    "NadarayaWatsonRegressor": (NUMBERS | KERNEL, (*NEEDED, "w_")),
    "NearestKeyRegressor": (NUMBERS, NEEDED),
}
# These may be None.
OPTIONAL = ("sample_weight_", "shelves_.sample_weight", "history_.validation")
# Emptied by ``forget``: what they said of rows is gone.
EMPTIED = ("search_.", "history_.")

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
    """The sizes by name of all that a model holds, found to agree with each other and with those ``stated``.

    Raises ValueError that names the array which does not.
    """
    missing = [name for name in KINDS[kind][1] if name not in fitted]
    if missing:
        raise ValueError(f"{missing[0]} is missing, and a {kind} needs it")
    table, known = _table(kind, parameters, fitted), _known(fitted)
    sizes: Sizes = {}
    found = [*leaves(fitted), *leaves(parameters, "parameters", "parameters")]
    # In the order of the table, so that sizes are those of the rows first.
    order = {pattern: number for number, pattern in enumerate(table)}
    for path, pattern, value in sorted(found, key=lambda leaf: order.get(leaf[1], len(order))):
        held = table.get(path, table.get(pattern))
        if held is None:
            # Modules and attributes of one's own: as they were saved, and nothing else is known of them.
            if not isinstance(value, np.ndarray):
                continue
            held = Held(f"any {path}", f"*{path}")
        emptied = "arrival_" in fitted and path.startswith(EMPTIED)
        _Wanted(path, held, sizes, known, stated).check(value, emptied=emptied)
    unused = [name for name in stated or () if name not in sizes]
    if unused:
        raise ValueError(f"{unused[0]} is stated, and no array has it")
    return sizes


def check_classes(fitted: Mapping[str, Any]) -> None:
    """Refuse numbers of classes that are none; this reads ``value_``."""
    if "classes_" in fitted and not 0 <= fitted["value_"].min() <= fitted["value_"].max() < len(fitted["classes_"]):
        raise ValueError(f"value_ holds numbers of classes beyond the {len(fitted['classes_'])} of classes_")


class _Wanted(NamedTuple):
    """What is wanted of one array; sizes that are new are added to ``sizes``."""

    path: str
    held: Held
    sizes: Sizes
    known: Mapping[str, int]
    stated: Mapping[str, Any] | None

    def check(self, value: Any, *, emptied: bool) -> None:
        if self.held.dtype == TUPLE:
            if not isinstance(value, tuple):
                raise self._error(f"a tuple, got a {type(value).__name__}")
            self._check_shape((len(value),), emptied=False)
        elif self.held.dtype == PLAIN:
            if isinstance(value, np.ndarray):
                raise self._error(f"a number, got an array of shape {value.shape}")
        elif isinstance(value, np.ndarray):
            self._check_shape(value.shape, emptied=emptied and value.shape[:1] == (0,))
            self._check_dtype(value.dtype, emptied=not value.size)
        elif not (self.path in OPTIONAL and value is None) and not self.path.startswith("parameters."):
            raise self._error(f"an array, got {str(value)[:40]!r}")

    def _check_shape(self, shape: tuple[int, ...], *, emptied: bool) -> None:
        # A name with [] is that of one head or one column.
        wanted = self.held.shape.replace("[]", self.path[self.path.rfind("[") : self.path.rfind("]") + 1])
        axes = wanted.split()
        some = bool(axes) and axes[-1][0] == "*"
        if not len(axes) - some <= len(shape) <= (np.inf if some and len(axes) == 1 else len(axes)):
            raise self._error(f"of shape ({wanted}), got shape {shape}")
        # Of what forget emptied only the length is known.
        for at, name in enumerate(axes[:1] if emptied else axes):
            size = list(shape[at:]) if name[0] == "*" else shape[at]
            if (stated := self._wanted(name.removeprefix("*"), size)) != size:
                raise self._error(f"of shape ({wanted}), where {name} is {stated}, got shape {shape}")

    def _check_dtype(self, dtype: np.dtype[Any], *, emptied: bool) -> None:
        if emptied:
            return
        wanted = self.held.dtype
        if (known := DTYPES.get(wanted.split()[0])) is not None:
            fits = re.fullmatch(known, dtype.name) is not None
            wanted = self._wanted(f"dtype of {wanted}", dtype.name) if fits else known
        if wanted != dtype.name:
            raise self._error(f"{wanted}, got {dtype.name}")

    def _wanted(self, name: str, found: Any) -> Any:
        """A size by name: known, of an array before, stated, or else what was found."""
        if name.isdigit():
            return int(name)
        if name in self.known:
            return self.known[name]
        default = found if self.stated is None else self.stated.get(name, "none")
        return self.sizes.setdefault(name, default)

    def _error(self, wanted: str) -> ValueError:
        return ValueError(f"{self.path} must be {wanted}")


def _table(kind: str, parameters: Mapping[str, Any], fitted: Mapping[str, Any]) -> dict[str, Held]:
    table, needed = KINDS[kind]
    if "w_" in needed:
        table |= MIXED if "coding_" in fitted else EACH if isinstance(fitted["w_"], np.ndarray) else ONE
        # One number where one was given for all, whatever has become of w.
        one = not isinstance(fitted.get("bandwidth_"), np.ndarray)
        return table | {"bandwidth_": Held(PLAIN)} if one else table
    return table | MLP if isinstance(parameters.get("embed"), str) else table


def _known(fitted: Mapping[str, Any]) -> dict[str, int]:
    """Sizes that follow from what is no array, or from another size."""
    columns = fitted["n_features_in_"]
    known = {"columns": columns, "features": columns}
    if "coding_" in fitted:
        coding = fitted["coding_"]
        if coding.columns != columns:
            raise ValueError(f"coding_ is of {coding.columns} columns, and n_features_in_ says {columns}")
        known |= {"parts": len(coding.parts), "features": len(coding.features)}
    known["answers"] = math.prod(np.shape(fitted["value_"])[1:])
    if hasattr(fitted.get("search_"), "w"):
        known["places"] = np.size(fitted["search_"].w)
    return known


def leaves(value: Any, path: str = "", pattern: str = "") -> Iterator[tuple[str, str, Any]]:
    """Every value inside of another that is no tuple or dict, and the tuples, with where it is."""
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

"""Modules as plain data: how to make a stack of well-known layers again, and the arrays to put into it.

Nothing is imported or called by a name from a recipe except the layers of one table, and no memory is taken for
sizes that it claims: modules are made without storage and are given arrays that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

# Layer → arguments of its constructor that are attributes of the same name.
LAYERS: dict[str, tuple[str, ...]] = {
    "BatchNorm1d": ("num_features", "eps", "momentum", "affine", "track_running_stats"),
    "Dropout": ("p",),
    "ELU": ("alpha",),
    "GELU": ("approximate",),
    "Identity": (),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine"),
    "LeakyReLU": ("negative_slope",),
    "Linear": ("in_features", "out_features"),
    "Mish": (),
    "ReLU": (),
    "SiLU": (),
    "Sigmoid": (),
    "Softplus": ("beta", "threshold"),
    "Tanh": (),
}
_BIASED = ("Linear", "LayerNorm")


def recipe(module: nn.Module) -> list[Any] | None:
    """How to make a module again, as plain data, or None where it is no ``Sequential`` or layer of the table.

    >>> recipe(nn.Sequential(nn.Linear(2, 3), nn.Tanh()))
    ['Sequential', [['Linear', {'in_features': 2, 'out_features': 3, 'bias': True}], ['Tanh', {}]]]
    """
    name = type(module).__name__
    if type(module) is nn.Sequential and list(module._modules) == [str(i) for i in range(len(module))]:
        parts = [recipe(part) for part in module]
        return None if None in parts else ["Sequential", parts]
    if name not in LAYERS or type(module) is not getattr(nn, name):
        return None
    arguments = {key: getattr(module, key) for key in LAYERS[name]}
    if name in _BIASED:
        arguments["bias"] = module.bias is not None
    return [name, arguments]


def made(described: Any) -> nn.Module:
    """A module from its recipe, without storage for its arrays. Raises ValueError for what is no recipe."""
    try:
        name, content = described
        if name == "Sequential":
            return nn.Sequential(*(made(part) for part in content))
        if name not in LAYERS or not set(content) <= {*LAYERS[name], "bias"}:
            raise ValueError
        with torch.device("meta"):
            layer: nn.Module = getattr(nn, name)(**content)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{str(described)[:60]} is no recipe of a module") from None
    return layer


def weighed(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> nn.Module:
    """The module with these arrays as its parameters and buffers; every one must be there and fit."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    try:
        module.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as reason:
        raise ValueError(f"embed does not fit the arrays that were learned: {reason}") from None
    return module

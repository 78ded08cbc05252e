"""Modules as plain data: a recipe to rebuild a stack of well-known layers, and the arrays of its parameters.

A recipe can only name the layers of one table, and the sizes in it allocate no memory: modules are created without
storage and then assigned arrays that exist.
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
    """A module as plain data, or None unless it is a layer of the table or a ``Sequential`` of such layers.

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
    """A module from its recipe, without storage for its arrays. Raises ValueError if the recipe is invalid."""
    try:
        name, content = described
        if name == "Sequential":
            return nn.Sequential(*(made(part) for part in content))
        if name not in LAYERS or not set(content) <= {*LAYERS[name], "bias"}:
            raise ValueError
        with torch.device("meta"):
            layer: nn.Module = getattr(nn, name)(**content)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{str(described)[:60]} is not a valid recipe of a module") from None
    return layer


def with_parameters(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> nn.Module:
    """The module with these arrays as its parameters and buffers; names and shapes must match exactly."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    try:
        module.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as reason:
        raise ValueError(f"embed does not match the learned arrays: {reason}") from None
    return module

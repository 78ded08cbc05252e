"""Checkpoints: the state of a training in one checksummed file, replaced atomically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.core.arrays import Array
from regard.data.files import PathLike
from regard.data.sealed import FileKind, read_sealed, write_sealed


class CheckpointError(ValueError):
    """A checkpoint that cannot be written, is damaged, or belongs to another training."""


_KIND = FileKind(
    "regard-checkpoint", 1, "regard checkpoint", {"regard": str, "settings": dict, "standing": dict}, CheckpointError
)


Tensors = dict[str, dict[str, Tensor]]  # groups: model, best weights, optimiser, random state


def save(path: PathLike, settings: Mapping[str, Any], standing: Mapping[str, Any], tensors: Tensors) -> None:
    """Write a checkpoint atomically, replacing an existing one.

    ``settings`` the training was started with and ``standing``, its counters and losses so far, are plain data.
    """
    arrays: dict[str, Array] = {
        f"{group}/{name}.npy": np.ascontiguousarray(tensor.detach().cpu().numpy())
        for group, members in tensors.items()
        for name, tensor in members.items()
    }
    write_sealed(path, _KIND, {"settings": dict(settings), "standing": dict(standing)}, arrays, force=True)


def load(path: PathLike, settings: Mapping[str, Any]) -> tuple[dict[str, Any], Tensors]:
    """Counters and tensors of a training with these settings. Raises CheckpointError if its settings differ."""
    description, arrays, _ = read_sealed(path, _KIND)
    saved = description["settings"]
    for name in dict.fromkeys((*settings, *saved)):
        if saved.get(name) != settings.get(name):
            raise CheckpointError(
                f"{path}: was written by a training with {name} = {saved.get(name)!r}, but {name} is now "
                f"{settings.get(name)!r}; resume with the same settings, or start a new training"
            )
    tensors: Tensors = {}
    for name, array in arrays.items():
        group, _, rest = name.removesuffix(".npy").partition("/")
        tensors.setdefault(group, {})[rest] = torch.from_numpy(array)
    return description["standing"], tensors

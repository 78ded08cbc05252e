"""Checkpoints: the state of a training in one checksummed file, replaced atomically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

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


class Checkpoint(NamedTuple):
    """Everything that the rest of a training depends on."""

    settings: dict[str, Any]  # the training was started with, as plain data
    standing: dict[str, Any]  # counters and losses so far, as plain data
    tensors: dict[str, dict[str, Tensor]]  # groups: model, best weights, optimiser, random state


def save(path: PathLike, checkpoint: Checkpoint) -> None:
    """Write the checkpoint atomically, replacing an existing one."""
    arrays: dict[str, Array] = {}
    for group, tensors in checkpoint.tensors.items():
        for name, tensor in tensors.items():
            arrays[f"{group}/{name}.npy"] = np.ascontiguousarray(tensor.detach().cpu().numpy())
    description = {"settings": checkpoint.settings, "standing": checkpoint.standing}
    write_sealed(path, _KIND, description, arrays, force=True)


def load(path: PathLike, settings: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint of a training with these settings. Raises CheckpointError if its settings differ."""
    description, arrays, _ = read_sealed(path, _KIND)
    saved = description["settings"]
    for name in dict.fromkeys((*settings, *saved)):
        if saved.get(name) != settings.get(name):
            raise CheckpointError(
                f"{path}: was written by a training with {name} = {saved.get(name)!r}, but {name} is now "
                f"{settings.get(name)!r}; resume with the same settings, or start a new training"
            )
    tensors: dict[str, dict[str, Tensor]] = {}
    for name, array in arrays.items():
        group, _, rest = name.removesuffix(".npy").partition("/")
        tensors.setdefault(group, {})[rest] = torch.from_numpy(array)
    return Checkpoint(saved, description["standing"], tensors)

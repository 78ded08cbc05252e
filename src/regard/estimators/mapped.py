"""Models whose arrays are in a file: the file is checked before each use."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from regard.estimators.layout import leaves


def check_file(model: Any) -> None:
    """Raise the error of ``MappedFile.check`` if an array of the model is in a file that is not what it was.

    *Cost*: two calls of the system; nothing for a model in memory.
    """
    file = vars(model).get("_file")
    if file is not None and any(_in_file(value) for _, _, value in leaves(vars(model))):
        file.check()


def _in_file(value: Any) -> bool:
    while isinstance(value, np.ndarray):
        value = value.base
    return isinstance(value, mmap.mmap)

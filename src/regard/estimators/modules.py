"""A torch module as part of a saved model: its recipe where it is made of well-known layers, else its name only."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from regard.estimators.base import Array


def packed(embed: Any, recipes: Any) -> Any:
    """``embed`` as plain data; ``recipes`` is ``regard.nn.recipes``, which only modules need."""
    described = recipes.recipe(embed)
    return {"class": f"{type(embed).__module__}.{type(embed).__qualname__}"} if described is None else described


def unpacked(content: Any, learned: Mapping[str, Array], given: Any, recipes: Any) -> Any:
    """The module with its learned arrays: from its recipe, or in a copy of the one that is ``given``.

    Raises ValueError where it cannot be made without being given.
    """
    if given is not None:
        if not isinstance(given, recipes.nn.Module):
            raise TypeError(f"embed must be a torch module, got {given!r}")
        return recipes.weighed(deepcopy(given).cpu(), learned)
    if isinstance(content, dict):
        raise ValueError(
            f"embed was a {str(content.get('class'))[:100]}, which a file cannot hold; "
            "make one in the same way and pass it: regard.load(path, embed=…)"
        )
    return recipes.weighed(recipes.made(content), learned)

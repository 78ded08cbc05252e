"""Checks of arguments that layers and translation models share."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral
from typing import Any


def at_least_one(**counts: Any) -> None:
    """Raise ValueError unless every argument is a whole number of at least 1."""
    for name, count in counts.items():
        if not isinstance(count, Integral) or int(count) < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {count!r}")


def one_of(accepted: Collection[str], **arguments: Any) -> None:
    """Raise ValueError unless every argument is one of the accepted strings."""
    for name, given in arguments.items():
        if not isinstance(given, str) or given not in accepted:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}, got {given!r}")

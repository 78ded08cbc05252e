"""``regard diagnose``: whether a saved model's attention is too thin, too thick or about right, and what to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from regard.cli.console import spinner, write_json, write_output


@dataclass(frozen=True)
class Diagnose:
    """Report whether a model's attention is too thin, too thick or about right.

    Compares the leave-one-out error with that at the best bandwidth. Attention that is too thin (like a needle) gives
    nearly all weight to the row itself and overfits; attention that is too thick (like a river) spreads over all rows
    and underfits. Prints the reason, how much is lost and what to do, then the numbers.
    """

    model: Annotated[str, typer.Argument(help="Model file written by regard fit or regard.save.")]
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False

    def run(self) -> None:
        from regard.store.models import load

        with spinner(f"Reading {self.model}") as now:
            model = load(self.model)
            kind = type(model).__name__
            if not hasattr(model, "diagnose"):
                raise ValueError(f"{self.model}: a {kind} has no bandwidth to diagnose")
            now(f"Computing leave-one-out predictions of {len(model.key_):,} rows")
            found = model.diagnose()
        if self.as_json:
            write_json(_plain(kind, found), indent=1)
        else:
            write_output(f"{kind}: {found}")


def _plain(kind: str, found: Any) -> dict[str, Any]:
    """A diagnosis as a dictionary for JSON; an infinite factor is None."""
    texts = {name: getattr(found, name) for name in ("verdict", "why", "advice", "gap", "excess")}
    numbers = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in found._asdict().items()
    }
    return {"model": kind, **texts, **numbers}

"""``regard diagnose``: is a saved model's attention too thin, too thick or about right, and what to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from regard.cli.console import tell, tell_json, working


@dataclass(frozen=True)
class Diagnose:
    """Say whether a model looks too thin, too thick or about right.

    Leaves out the training rows one after another, and compares the error with that of the best bandwidth: too thin
    (like a needle) only looks at itself and over-fits, too thick (like a river) looks at everybody and under-fits.
    Says why, by how much, and what to do; the numbers follow.
    """

    model: Annotated[str, typer.Argument(help="Model file, as regard fit or regard.save wrote it.")]
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")] = False

    def run(self) -> None:
        from regard.store.models import load

        with working(f"Reading {self.model}") as now:
            model = load(self.model)
            kind = type(model).__name__
            if not hasattr(model, "diagnose"):
                raise ValueError(f"{self.model}: a {kind} has no bandwidth to diagnose")
            now(f"Leaving out rows, one after another, of {len(model.key_):,}")
            found = model.diagnose()
        if self.as_json:
            tell_json(_plain(kind, found), indent=1)
        else:
            tell(f"{kind}: {found}")


def _plain(kind: str, found: Any) -> dict[str, Any]:
    """All that a diagnosis says, for JSON; an infinite factor is null."""
    said = {name: getattr(found, name) for name in ("verdict", "why", "advice", "gap", "excess")}
    numbers = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in found._asdict().items()
    }
    return {"model": kind, **said, **numbers}

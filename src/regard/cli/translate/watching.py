"""A bar and a curve while a translator learns, on a terminal only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regard.cli.console import clean
from regard.cli.progress import bar_on

if TYPE_CHECKING:
    from regard.seq2seq.training import Progress


@contextmanager
def watching(what: str) -> Iterator[Callable[[Progress], None] | None]:
    """What to tell progress to; None where nobody watches."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with bar_on(console) as bar:
        task = bar.add_task(clean(what), total=None, told="")
        losses: list[float] = []

        def watch(at: Progress) -> None:
            losses.append(at.loss)
            bar.update(task, total=at.steps, completed=at.step, told=told(at, losses))

        yield watch


def told(at: Any, losses: list[float]) -> str:
    """Epoch, the loss as a curve and a number, speed and the time left in one line."""
    from regard.plot.live import sparkline

    held_out = "" if math.isnan(at.validation) else f", held out {at.validation:.3g}"
    left = f"{at.seconds_left:.0f} s" if at.seconds_left < 100.0 else f"{at.seconds_left / 60.0:.0f} min"
    return (
        f"epoch {at.epoch}/{at.epochs}  {sparkline(losses)}  loss {at.loss:.3g}{held_out}, "
        f"{at.tokens_per_second:,.0f} tokens/s, {left} left"
    )

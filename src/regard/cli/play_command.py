"""``regard play``: the playground, a local page where moving a point shows at once what attention does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from regard.cli.console import say


@dataclass(frozen=True)
class Play:
    """Open the playground: drag points and the bandwidth, and see what attention does.

    A page on this machine only, behind an address that opens it once, in one browser; opened again elsewhere, a new one
    is printed. It draws curve, attention and left-out error as you drag, learns w by leave-one-out while you watch,
    fits a CSV of your own, and shows where a decoder looks when it translates a date. Nothing leaves the machine.
    """

    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 is a free one.")] = 0
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True

    def run(self) -> None:
        try:
            import starlette  # noqa: F401
            import uvicorn  # noqa: F401
            import websockets  # noqa: F401
        except ModuleNotFoundError as reason:
            raise ValueError(f"the playground needs {reason.name}; run pip install 'regard[play]'") from None
        from regard.play import serve

        def announce(url: str) -> None:
            print(url, flush=True)
            say("open this address in a browser on this machine; Ctrl-C ends it")

        serve(self.port, browser=self.browser, announce=announce)
        say("the playground is closed")

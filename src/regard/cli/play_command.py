"""``regard play``: the playground, a local page where moving a point shows at once what attention does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from regard.cli.console import say


@dataclass(frozen=True)
class Play:
    """Open the playground: drag points and the bandwidth, and see what attention does.

    Serves a page on this machine only, at an address that opens it once, in one browser; if it is opened again
    elsewhere, a new address is printed. The page draws the curve, the attention weights and the leave-one-out error as
    you drag, learns w by leave-one-out step by step, fits a CSV of your own, and shows the attention of a decoder that
    translates dates. No data leave the machine.
    """

    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 chooses a free one.")] = 0
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
            say("open this address in a browser on this machine; press Ctrl-C to stop")

        serve(self.port, browser=self.browser, announce=announce)
        say("playground closed")

"""``regard tour``: the notes' story, written into a folder, with its table on the terminal."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.command_io import Language
from regard.cli.console import say, working


@dataclass(frozen=True)
class Tour:
    """Walk from average pooling to attention on the study notes' data.

    Writes figures (PNG and SVG) and one self-contained page, index.html, and prints what each station found.
    """

    out: Annotated[Path, typer.Option(help="Folder for the page and the figures.")] = Path("tour")
    lang: Annotated[Language, typer.Option(help="Language of the page and the table.")] = Language.en
    force: Annotated[bool, typer.Option("--force", help="Write into the folder even if it is not empty.")] = False

    def run(self) -> None:
        _check_folder(self.out, self.force)
        with working("Walking the tour") as now:
            from regard import tour

            part = self.out.parent / f".regard-{secrets.token_hex(8)}.part"
            try:
                told = tour.run(
                    part,
                    lang=self.lang.value,
                    seed=0,
                    progress=lambda n, of, title: now(f"Station {n} of {of}: {title}"),
                )
                _move(part, self.out)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        _print_table(told)
        say(f"wrote {self.out / told.page.name}")


def _check_folder(out: Path, force: bool) -> None:
    if out.is_symlink() and not force:
        raise ValueError(f"{out}: is a symbolic link; it is followed only with --force")
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file, and the tour needs a folder")
    if not out.exists() and not out.parent.is_dir():
        raise ValueError(f"{out}: there is no folder {out.parent}")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise ValueError(f"{out}: the folder is not empty; its files are replaced only with --force")


def _move(part: Path, out: Path) -> None:
    """Put finished files in their places, each at once; other files in the folder stay."""
    out.mkdir(exist_ok=True)
    for found in sorted(part.rglob("*")):
        place = out / found.relative_to(part)
        if found.is_dir():
            place.mkdir(exist_ok=True)
        else:
            os.replace(found, place)


def _print_table(told: Any) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True, expand=True)
    for name, ratio in zip(told.columns, (4, 5, 8), strict=True):
        # Chinese has no spaces to break at: long cells fold instead of losing their end.
        table.add_column(name, ratio=ratio, overflow="fold")
    for row in told.rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)

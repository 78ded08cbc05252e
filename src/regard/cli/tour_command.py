"""``regard tour``: writes the tour into a folder and prints its summary table."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.command_io import Language
from regard.cli.console import say, spinner


@dataclass(frozen=True)
class Tour:
    """Write a guided tour from average pooling to learned attention, on the study notes' data.

    Writes figures (PNG and SVG) and one self-contained page, index.html, and prints a table of questions and answers.
    Takes about a minute and a half.
    """

    out: Annotated[Path, typer.Option(help="Folder for the page and the figures.")] = Path("tour")
    lang: Annotated[Language, typer.Option(help="Language of the page and the table.")] = Language.en
    force: Annotated[bool, typer.Option("--force", help="Write into the folder even if it is not empty.")] = False

    def run(self) -> None:
        _check_folder(self.out, self.force)
        with spinner("Preparing the tour") as now:
            from regard import tour

            part = self.out.parent / f".regard-{secrets.token_hex(8)}.part"
            try:
                result = tour.run(
                    part,
                    lang=self.lang.value,
                    seed=0,
                    progress=lambda n, of, title: now(f"Station {n} of {of}: {title}"),
                )
                _move(part, self.out)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        _print_table(result)
        say(f"wrote {self.out / result.page.name}")


def _check_folder(out: Path, force: bool) -> None:
    if out.is_symlink() and not force:
        raise ValueError(f"{out}: is a symbolic link; it is followed only with --force")
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out}: is a file; --out must be a folder")
    if not out.exists() and not out.parent.is_dir():
        raise ValueError(f"{out}: there is no folder {out.parent}")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise ValueError(f"{out}: the folder is not empty; its files are replaced only with --force")


def _move(part: Path, out: Path) -> None:
    """Move the finished files into ``out``, replacing each atomically; other files there stay."""
    out.mkdir(exist_ok=True)
    for found in sorted(part.rglob("*")):
        place = out / found.relative_to(part)
        if found.is_dir():
            place.mkdir(exist_ok=True)
        else:
            os.replace(found, place)


def _print_table(result: Any) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True, expand=True)
    for name, ratio in zip(result.columns, (4, 5, 8), strict=True):
        # Chinese has no spaces to break at: long cells are folded, not truncated.
        table.add_column(name, ratio=ratio, overflow="fold")
    for row in result.rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)

"""Runs the stations in their order, then writes the figures and the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from regard.data import notes
from regard.data.text import LANGUAGES
from regard.plot.printing import lettered, saved
from regard.tour.station import Visit
from regard.tour.stations import STATIONS
from regard.tour.texts import read_texts
from regard.tour.tour_page import Stop, page


class Row(NamedTuple):
    """One line of the table that sums the tour up."""

    station: str
    question: str
    answer: str


class TourResult(NamedTuple):
    """What ``run`` wrote, and the table for the terminal."""

    page: Path
    figures: tuple[Path, ...]  # PNG and SVG of each, in the order of the page
    columns: tuple[str, str, str]  # headings of the table
    rows: tuple[Row, ...]


def run(
    out: Path | str,
    lang: str = "en",
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> TourResult:
    """Write the tour into the folder ``out`` and return its table.

    Parameters
    ----------
    out : folder for ``index.html`` (self-contained) and ``figures/``; made if absent, files of an older tour
        are replaced. Nothing is written before every station is done.
    lang : "en" or "zh"
    seed : of the notes' data and of everything drawn at random
    progress : called before each station with its number, how many there are, and its title

    Returns
    -------
    TourResult(page, figures, columns, rows)

    *Cost*: about a minute and a half on two cores, most of it for the models of the last station, and once per
    machine the seconds of compiling the programs that learn.
    """
    out = Path(out)
    if lang not in LANGUAGES:
        raise ValueError(f"lang must be one of {', '.join(LANGUAGES)}, got {lang!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number, 0 or more, got {seed!r}")
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"out must be a folder, got the file {out}")
    stops: list[Stop] = []
    files: dict[Path, bytes] = {}
    with lettered():
        visit = Visit(notes(seed=seed), seed, lang)
        for number, station in enumerate(STATIONS, 1):
            if progress is not None:
                progress(number, len(STATIONS), station.texts["title"].said(lang))
            findings = station.compute(visit)
            pictures = []
            for drawing in findings.drawings:
                name = f"{number:02d}-{drawing.name}"
                pictures.append(saved(drawing.figure, "svg"))
                # Laid out once for both files.
                drawing.figure.set_layout_engine("none")
                files[Path("figures", f"{name}.png")] = saved(drawing.figure, "png")
                files[Path("figures", f"{name}.svg")] = pictures[-1]
            stops.append(Stop(station, number, findings, tuple(pictures)))
    html = page(stops, lang, seed, visit.data)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        (out / path).write_bytes(content)
    (out / "index.html").write_text(html, encoding="utf-8")
    rows = []
    for station, _, findings, _ in stops:
        title, question = (station.texts[name].said(lang) for name in ("title", "question"))
        rows.append(Row(title, question, findings.answer.said(lang)))
    words = read_texts("tour_page")
    headings = words["station"].said(lang), words["question"].said(lang), words["answer"].said(lang)
    return TourResult(out / "index.html", tuple(out / path for path in files), headings, tuple(rows))

"""The stations, in the order of the tour. Each is a Python file here and a Markdown file of the same name."""

from __future__ import annotations

from importlib import import_module

from regard.tour.station import Station

ORDER = (
    "cues",
    "average",
    "nearest_key",
    "soft",
    "kernel",
    "heatmap",
    "batch",
    "softmax",
    "moredata",
    "learned",
    "sharper",
    "needle_or_river",
    "density",
    "edges",
    "growth",
    "shape_of_w",
    "scoring",
    "root_d",
    "reinforcement",
    "homes",
    "date_translation",
)
STATIONS: tuple[Station, ...] = tuple(import_module(f"{__name__}.{name}").STATION for name in ORDER)

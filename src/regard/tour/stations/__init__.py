"""The stations, in the order they are visited. Adding one: a file here, and a line in this list."""

from __future__ import annotations

from importlib import import_module

from regard.tour.station import Station

ORDER = (
    "cues",
    "average",
    "hard",
    "soft",
    "kernel",
    "heatmap",
    "batch",
    "softmax",
    "moredata",
    "learned",
    "sharper",
    "diagnosis",
    "edges",
    "growth",
    "shapes",
    "scoring",
    "homes",
    "seq2seq",
)
STATIONS: tuple[Station, ...] = tuple(import_module(f"{__name__}.{name}").STATION for name in ORDER)

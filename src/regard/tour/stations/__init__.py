"""The stations, in the order they are visited. Adding one: a file here, and a line in this list."""

from __future__ import annotations

from regard.tour.station import Station
from regard.tour.stations import (
    average,
    batch,
    cues,
    diagnosis,
    edges,
    growth,
    hard,
    heatmap,
    homes,
    kernel,
    learned,
    moredata,
    scoring,
    seq2seq,
    shapes,
    sharper,
    soft,
    softmax,
)

STATIONS: tuple[Station, ...] = (
    cues.STATION,
    average.STATION,
    hard.STATION,
    soft.STATION,
    kernel.STATION,
    heatmap.STATION,
    batch.STATION,
    softmax.STATION,
    moredata.STATION,
    learned.STATION,
    sharper.STATION,
    diagnosis.STATION,
    edges.STATION,
    growth.STATION,
    shapes.STATION,
    scoring.STATION,
    homes.STATION,
    seq2seq.STATION,
)

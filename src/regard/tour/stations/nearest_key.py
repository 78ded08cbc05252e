"""Hard attention: the value of the nearest key and of no other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard import pool
from regard.core.scores import Nearest
from regard.data import notes_truth
from regard.model.naive_answers import root_mean_square
from regard.plot import plot_kernel_reg
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/nearest_key")


def compute(visit: Visit) -> Findings:
    x_train, y_train, x_test, y_truth = visit.data
    error = root_mean_square(pool(x_test, x_train, y_train, Nearest()).output - y_truth)
    fine = np.linspace(0.0, 5.0, 1001)
    stairs = pool(fine, x_train, y_train, Nearest()).output
    figure = plot_kernel_reg(fine, notes_truth(fine), stairs, x_train, y_train, labels=visit.lines)
    return findings(TEXTS, {"hard": figure}, error=error, turns=_turns(stairs), true_turns=_turns(notes_truth(fine)))


def _turns(curve: NDArray[Any]) -> int:
    """How often a curve changes between rising and falling."""
    steps = np.sign(np.diff(curve))
    steps = steps[steps != 0]
    return int((steps[1:] != steps[:-1]).sum())


STATION = Station("hard", TEXTS, compute)

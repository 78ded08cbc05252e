"""The tour: the notes' story on the notes' data, in figures, numbers and one page.

``run`` runs the stations in the order of ``stations.STATIONS`` and writes the page; see ``station.py`` for
what a station is and how to add one.
"""

from __future__ import annotations

import regard.plot  # noqa: F401  raises an error that says what to install if matplotlib is missing
from regard.tour.guide import Row, TourResult, run

__all__ = ["Row", "TourResult", "run"]

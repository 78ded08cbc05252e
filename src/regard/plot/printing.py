"""Reproducible figures for pages: fixed fonts and settings, the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import matplotlib
from matplotlib.figure import Figure

from regard.plot import fonts

# Dots per inch of PNG files: sharp on a phone and in print, small enough to send.
DPI = 160


@contextmanager
def lettered() -> Iterator[None]:
    """Matplotlib's default settings with fonts for every language, restored on exit."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["font.family"] = [fonts.LATIN]
        matplotlib.rcParams["font.family"] = fonts.families()
        # Names inside SVG files come from a hash; salted, the same figure gives the same bytes.
        matplotlib.rcParams["svg.hashsalt"] = "regard"
        yield


def saved(figure: Figure, kind: str) -> bytes:
    """The figure as "svg" or "png", without a date."""
    buffer = BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    return buffer.getvalue()

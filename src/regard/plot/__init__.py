"""Plots: arrays in, figures out.

Nothing here knows an estimator, touches pyplot's global state or opens a window: every function returns a
matplotlib ``Figure`` that a notebook shows by itself and ``savefig`` writes to any format.
"""

from __future__ import annotations

try:
    import matplotlib  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "regard.plot needs matplotlib, which is not installed; pip install 'regard[plot]' brings it"
    ) from missing

from regard.plot.heatmaps import show_heatmaps
from regard.plot.regression import plot_kernel_reg

__all__ = ["plot_kernel_reg", "show_heatmaps"]

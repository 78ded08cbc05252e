"""Plots: arrays in, figures out.

Nothing here imports an estimator, touches pyplot's global state or opens a window: every function returns a
matplotlib ``Figure`` that a notebook shows by itself and ``savefig`` writes to any format. A Display, as in
scikit-learn, holds its arrays, draws them by ``plot(ax=None)`` and keeps the artists; ``from_estimator`` reads the
attributes of a fitted one.
"""

from __future__ import annotations

try:
    import matplotlib  # noqa: F401
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "regard.plot needs matplotlib, which is not installed; pip install 'regard[plot]' brings it"
    ) from missing

from regard.plot.alignment_display import AlignmentDisplay
from regard.plot.attention_map import AttentionMapDisplay
from regard.plot.bandwidth_path import BandwidthPathDisplay
from regard.plot.curves import RegressionCurveDisplay
from regard.plot.explanation_display import ExplanationDisplay
from regard.plot.heatmaps import show_heatmaps
from regard.plot.neighbours import NeighbourDisplay
from regard.plot.regression import plot_kernel_reg
from regard.plot.relevance import FeatureRelevanceDisplay
from regard.plot.surface import SurfaceDisplay
from regard.plot.training_curve import TrainingCurveDisplay

__all__ = [
    "AlignmentDisplay",
    "AttentionMapDisplay",
    "BandwidthPathDisplay",
    "ExplanationDisplay",
    "FeatureRelevanceDisplay",
    "NeighbourDisplay",
    "RegressionCurveDisplay",
    "SurfaceDisplay",
    "TrainingCurveDisplay",
    "plot_kernel_reg",
    "show_heatmaps",
]

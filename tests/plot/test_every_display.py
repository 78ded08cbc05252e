"""What every Display promises: no pyplot, no estimator imported, axes given are used, SVG and PNG, nothing changed."""

from __future__ import annotations

import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from regard import plot
from regard.plot import style

# These tests need no minimum.
pytestmark = pytest.mark.usefixtures("brief_learning")

GRID = np.linspace(0.0, 1.0, 5)
MADE = {
    "RegressionCurveDisplay": lambda **more: plot.RegressionCurveDisplay(
        GRID, GRID, lower=GRID - 1, upper=GRID + 1, **more
    ),
    "AttentionMapDisplay": lambda **more: plot.AttentionMapDisplay(np.eye(5), query=GRID, key=GRID, **more),
    "BandwidthPathDisplay": lambda **more: plot.BandwidthPathDisplay(GRID + 1, GRID, chosen=1.5, **more),
    "FeatureRelevanceDisplay": lambda **more: plot.FeatureRelevanceDisplay([0.2, 0.8], **more),
    "TrainingCurveDisplay": lambda **more: plot.TrainingCurveDisplay(np.arange(5), GRID, screen="none", **more),
    "ExplanationDisplay": lambda **more: plot.ExplanationDisplay([0.6, 0.3], [0.9, -0.1], nearness=[0.2, 0.8], **more),
    "NeighbourDisplay": lambda **more: plot.NeighbourDisplay([3, 1], [0.6, 0.3], rest=0.1, others=2, **more),
    "AlignmentDisplay": lambda **more: plot.AlignmentDisplay(
        np.eye(2, 3), ["unbelievable", "<eos>"], ["incroyablement", "août", " "], entropy=True, **more
    ),
    "SurfaceDisplay": lambda **more: plot.SurfaceDisplay(GRID, GRID, np.outer(GRID, GRID), **more),
}


def test_every_display_is_here():
    assert set(MADE) == {name for name in plot.__all__ if name.endswith("Display")}


@pytest.mark.parametrize("name", MADE)
def test_a_display_draws_into_its_own_figure_or_the_axes_given(name):
    display = MADE[name]()
    assert display._repr_png_() is None, "nothing is drawn before plot"
    assert display.plot() is display
    assert isinstance(display.figure_, style.Picture)
    assert display.ax_ in display.figure_.axes
    for form, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        file = BytesIO()
        display.figure_.savefig(file, format=form)
        assert file.getvalue().startswith(start)
    assert display._repr_png_()[0].startswith(b"\x89PNG"), "a notebook shows it"
    left, right = Figure().subplots(1, 2)
    assert display.plot(right).ax_ is right
    assert display.figure_ is right.figure
    assert not left.has_data()


@pytest.mark.parametrize("name", MADE)
def test_no_text_is_cut_off(name):
    display = MADE[name]().plot()
    display.figure_.savefig(BytesIO(), format="png")
    page = display.figure_.bbox
    for ax in display.figure_.axes:
        box = ax.get_tightbbox()
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= page.x1 + 1
        assert box.y1 <= page.y1 + 1


@pytest.mark.parametrize("name", MADE)
def test_labels_are_checked(name):
    with pytest.raises(ValueError, match="labels must be among"):
        MADE[name](labels={"nonsense": "?"})


def test_no_setting_of_the_reader_changes():
    before = dict(matplotlib.rcParams)
    for make in MADE.values():
        make().plot()
    assert dict(matplotlib.rcParams) == before


def test_displays_load_neither_pyplot_nor_estimators():
    program = (
        "import sys, numpy as np\n"
        "from regard import plot\n"
        "grid = np.linspace(0, 1, 5)\n"
        "plot.SurfaceDisplay(grid, grid, np.outer(grid, grid)).plot()\n"
        "plot.AttentionMapDisplay(np.eye(5)).plot()\n"
        "plot.AlignmentDisplay(np.eye(2), ['a', 'b'], ['c', 'd'], entropy=True).plot()\n"
        "plot.BandwidthPathDisplay(grid + 1, grid).plot()\n"
        "plot.NeighbourDisplay([0], [1.0]).plot()\n"
        "display = plot.TrainingCurveDisplay()\n"
        "display.update(1, 2.0)\n"
        "display.close().figure_.savefig(sys.stdout.buffer, format='svg')\n"
        "heavy = {'matplotlib.pyplot', 'sklearn', 'numba', 'torch', 'IPython', 'regard.estimators', 'regard.pooling'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or None)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "nothing is printed in a script while it learns"


def test_the_page_about_plots_runs(tmp_path, monkeypatch):
    page = Path(__file__).resolve().parents[2] / "docs" / "plots.md"
    if not page.exists():
        pytest.skip("the docs are not beside these tests")
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        exec(compile(block, "plots.md", "exec"), names)
    assert {file.name for file in tmp_path.iterdir()} == {"surface.svg", "training.png"}

"""Plots, checked by what the artists hold and by the dots that come out."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from regard.plot import plot_kernel_reg, show_heatmaps, style


def panels(figure):
    return [ax for ax in figure.axes if ax.images and ax.get_label() != "<colorbar>"]


def dots(figure, dpi=100):
    buffer = BytesIO()
    figure.savefig(buffer, format="rgba", dpi=dpi)
    width, height = (round(inches * dpi) for inches in figure.get_size_inches())
    return np.frombuffer(buffer.getvalue(), np.uint8).reshape(height, width, 4)


@pytest.fixture
def weights():
    w = np.random.default_rng(3).random((2, 3, 5, 7))
    return w / w.sum(axis=-1, keepdims=True)


def test_every_panel_holds_its_matrix_on_one_scale(weights):
    figure = show_heatmaps(weights)
    shown = panels(figure)
    assert len(shown) == 6
    for ax, matrix in zip(shown, weights.reshape(6, 5, 7), strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), matrix)
        assert ax.images[0].get_clim() == (0.0, weights.max())
        assert ax.images[0].norm is shown[0].images[0].norm
    assert len(figure.axes) == 7, "six panels and one colour bar"


def test_queries_go_down_and_keys_to_the_right(weights):
    ax = panels(show_heatmaps(weights[:1, :1]))[0]
    assert ax.get_xlim() == (-0.5, 6.5)
    assert ax.get_ylim() == (4.5, -0.5)


def test_labels_stand_on_the_outer_panels_only(weights):
    shown = panels(show_heatmaps(weights, xlabel="keys", ylabel="queries", titles=["a", "b", "c"]))
    assert [ax.get_xlabel() for ax in shown] == ["", "", "", "keys", "keys", "keys"]
    assert [ax.get_ylabel() for ax in shown] == ["queries", "", "", "queries", "", ""]
    assert [ax.get_title() for ax in shown] == ["a", "b", "c", "a", "b", "c"]


def test_one_title_per_panel(weights):
    assert [ax.get_title() for ax in panels(show_heatmaps(weights, titles=list("abcdef")))] == list("abcdef")


@pytest.mark.parametrize(
    ("matrix", "limits"),
    [
        (np.full((4, 4), 0.25), (0.0, 0.25)),  # average pooling: full colour, not a scale of width zero
        (np.zeros((4, 4)), (0.0, 1.0)),
        (np.array([[-0.5, 1.5]]), (-0.5, 1.5)),  # signed weights of a local fit
        (np.array([[np.nan, 0.5], [-np.inf, 0.25]]), (0.0, 0.5)),
        (np.array([[-3.0, -1.0]]), (-3.0, 0.0)),
    ],
)
def test_the_scale_includes_zero_and_ignores_what_is_not_finite(matrix, limits):
    image = panels(show_heatmaps(matrix[None, None]))[0].images[0]
    assert image.get_clim() == limits
    np.testing.assert_array_equal(np.ma.getmaskarray(image.get_array()), ~np.isfinite(matrix))


def test_few_keys_keep_sharp_cells():
    """A checkerboard has two colours and nothing in between."""
    board = np.indices((10, 10)).sum(axis=0) % 2
    figure = show_heatmaps(board[None, None], figsize=(4, 3.5))
    ax = panels(figure)[0]
    picture = dots(figure)
    box = ax.get_window_extent().transformed(figure.dpi_scale_trans.inverted()).extents * 100
    left, right = int(box[0]) + 3, int(box[2]) - 3
    top, bottom = picture.shape[0] - int(box[3]) + 3, picture.shape[0] - int(box[1]) - 3
    inside = picture[top:bottom, left:right, :3].reshape(-1, 3)
    assert len(np.unique(inside, axis=0)) == 2


@pytest.mark.parametrize("key", [0, 1, 1000, 1234, 2345, 2999])
@pytest.mark.parametrize("dpi", [72, 100, 160])
def test_no_key_is_lost_or_smeared_among_thousands(key, dpi):
    needle = np.zeros((1, 1, 20, 3000))
    needle[..., key] = 1.0
    figure = show_heatmaps(needle, figsize=(5, 3))
    (ax,) = panels(figure)
    ax.spines[:].set_visible(False)
    picture = dots(figure, dpi)
    box = ax.get_window_extent().transformed(figure.dpi_scale_trans.inverted()).extents * dpi
    row = picture[picture.shape[0] - int(0.5 * (box[1] + box[3])), int(box[0]) : int(box[2]) + 2, :3]
    darkest = np.round(255 * np.array(style.WEIGHTS(1.0)[:3]))
    found = np.flatnonzero(np.abs(row - darkest).max(axis=1) < 2)
    assert 1 <= found.size <= 4
    assert abs(found.mean() - key / 3000 * (box[2] - box[0])) < 4
    # Nothing but white beside it: no half-tones.
    assert np.delete(row, found, axis=0).min() == 255


def test_blocks_keep_the_largest_magnitude_and_the_axes_their_numbers():
    matrix = np.full((1000, 2000), 0.25)
    matrix[10, 20], matrix[500, 1500], matrix[700, :] = -0.5, 0.75, np.nan
    (ax,) = panels(show_heatmaps(matrix[None, None]))
    shown = ax.images[0].get_array()
    assert shown.shape[0] < 400
    assert shown.shape[1] < 400
    assert (shown.min(), shown.max()) == (-0.5, 0.75)
    assert not np.ma.getmaskarray(shown).any(), "a gap hides no finite neighbour"
    assert ax.get_xlim() == (-0.5, 1999.5)
    assert ax.get_ylim() == (999.5, -0.5)


def test_very_long_matrices_fill_their_panel():
    assert panels(show_heatmaps(np.zeros((1, 1, 10, 1000))))[0].get_aspect() == "auto"
    assert panels(show_heatmaps(np.zeros((1, 1, 10, 10))))[0].get_aspect() == 1.0


def test_the_first_save_is_not_cut_off():
    """Square panels move when drawn; their titles must still lie inside the page the first time."""
    figure = show_heatmaps(np.zeros((1, 2, 50, 50)), xlabel="keys", titles=["one", "two"], figsize=(8.2, 4.0))
    figure.savefig(BytesIO(), format="svg")
    page = figure.bbox
    for ax in panels(figure):
        for words in (ax.title, ax.xaxis.label):
            box = words.get_window_extent()
            assert box.y0 >= page.y0 - 0.5
            assert box.y1 <= page.y1 + 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((3, 3)),), r"4 axes .*got shape \(3, 3\); for one heatmap pass matrices\[None, None\]"),
        ((np.zeros((1, 3, 3)),), r"4 axes .*got shape \(1, 3, 3\)"),
        ((np.zeros((1, 1, 0, 3)),), "must not be empty"),
        ((np.zeros((1, 2, 3, 3)), None, None, ["a", "b", "c"]), "titles must be 2 strings .* or 2 .*, got 3"),
        ((np.zeros((1, 2, 3, 3)), None, None, "ab"), "titles must be .*, got 'ab'"),
    ],
)
def test_heatmap_errors_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        show_heatmaps(*arguments)


@pytest.fixture
def curve():
    rng = np.random.default_rng(5)
    x_test, x_train = np.arange(0, 5, 0.1), np.sort(rng.random(20) * 5)
    return {
        "x_test": x_test,
        "y_truth": np.sin(x_test),
        "y_hat": np.cos(x_test),
        "x_train": x_train,
        "y_train": 2 * np.sin(x_train),
    }


def test_regression_lines_hold_the_data(curve):
    figure = plot_kernel_reg(**curve)
    (ax,) = figure.axes
    truth, predicted, training = ax.lines
    for line, x, y in (
        (truth, "x_test", "y_truth"),
        (predicted, "x_test", "y_hat"),
        (training, "x_train", "y_train"),
    ):
        np.testing.assert_array_equal(line.get_xdata(), curve[x])
        np.testing.assert_array_equal(line.get_ydata(), curve[y])
    assert training.get_marker() == "o"
    assert training.get_linestyle() == "None"
    assert training.get_alpha() == 0.5
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["Truth", "Pred", "Training"]
    assert len({line.get_color() for line in ax.lines}) == 3


def test_regression_limits(curve):
    (ax,) = plot_kernel_reg(**curve).axes
    assert ax.get_xlim() == (0.0, 5.0)
    low, high = ax.get_ylim()
    assert low < curve["y_train"].min() < curve["y_train"].max() < high
    assert high - low < 1.3 * np.ptp(curve["y_train"])
    flat = {name: [1.0, 1.0] for name in curve}
    assert plot_kernel_reg(**flat).axes[0].get_ylim() == (0.5, 1.5)


def test_regression_draws_into_given_axes(curve):
    own = Figure()
    left, right = own.subplots(1, 2)
    assert plot_kernel_reg(**curve, ax=right) is own
    assert not left.lines
    assert len(right.lines) == 3


def test_a_column_counts_as_a_vector_and_nan_leaves_a_gap(curve):
    curve["y_hat"] = np.where(curve["x_test"] < 1, np.nan, 0.0)[:, None]
    (ax,) = plot_kernel_reg(**curve).axes
    assert ax.lines[1].get_ydata().shape == curve["x_test"].shape
    assert np.isfinite(ax.get_ylim()).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_hat": np.zeros(3)}, r"y_hat must be as long as x_test \(50\), got 3"),
        ({"y_truth": np.zeros(51)}, r"y_truth must be as long as x_test \(50\), got 51"),
        ({"y_train": np.zeros(2)}, r"y_train must be as long as x_train \(20\), got 2"),
        ({"x_train": np.zeros((20, 2))}, r"x_train must have one axis .*got shape \(20, 2\)"),
    ],
)
def test_regression_errors_name_the_argument(curve, change, message):
    with pytest.raises(ValueError, match=message):
        plot_kernel_reg(**(curve | change))


def test_notebooks_show_the_figure(curve):
    png, size = plot_kernel_reg(**curve)._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert size == {"width": 614, "height": 384}


def test_no_setting_of_the_reader_changes(curve, weights):
    before = dict(matplotlib.rcParams)
    show_heatmaps(weights)
    plot_kernel_reg(**curve)
    assert dict(matplotlib.rcParams) == before


def _luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_weights_darken_steadily():
    """Lightness alone carries the weight, so colour-blind readers and printers lose nothing."""
    light = np.array([_luminance(style.WEIGHTS(v)) for v in np.linspace(0, 1, 256)])
    assert (np.diff(light) <= 0).all()
    assert light[0] > 0.99
    assert light[-1] < 0.03


def test_lines_that_meet_differ_for_colour_blind_readers():
    """Seen without red-green (deuteranopia, Machado 2009) every two hues of the cycle stay apart."""
    seen_as = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])
    seen = [seen_as @ to_rgb(colour) for colour in style.CYCLE[:4]]
    gaps = [np.abs(a - b).max() for i, a in enumerate(seen) for b in seen[:i]]
    assert min(gaps) > 0.1


def test_plots_load_neither_pyplot_nor_estimators():
    program = (
        "import sys, numpy as np\n"
        "from regard.plot import show_heatmaps, plot_kernel_reg\n"
        "show_heatmaps(np.eye(2)[None, None]); plot_kernel_reg([0, 1], [0, 1], [0, 1], [0], [1])\n"
        "heavy = {'matplotlib.pyplot', 'sklearn', 'numba', 'torch', 'regard.estimators', 'regard.pooling.functions'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or None)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_missing_matplotlib_is_named():
    program = "import sys; sys.modules['matplotlib'] = None\nimport regard.plot"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'regard[plot]'" in done.stderr

"""Training curves: what is drawn, and what is shown while learning, on every kind of screen."""

from __future__ import annotations

import sys
from io import StringIO
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from regard import AttentionRegressor, AveragePoolingRegressor, NadarayaWatsonRegressor
from regard.bandwidth import Objective, learn
from regard.plot import TrainingCurveDisplay, live

RNG = np.random.default_rng(6)
X = RNG.random((40, 1))
Y = np.sin(6 * X[:, 0])


@pytest.fixture
def unhurried(monkeypatch):
    """Every step is shown, however fast they come."""
    monkeypatch.setattr(live, "SECONDS_BETWEEN_NOTEBOOK_UPDATES", 0.0)
    monkeypatch.setattr(live, "SECONDS_BETWEEN_TERMINAL_UPDATES", 0.0)


def legend(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_a_search_is_drawn_by_evaluations(line):
    display = TrainingCurveDisplay.from_estimator(line)
    path = line.search_.path
    np.testing.assert_array_equal(display.line_.get_data(), (np.arange(1, len(path) + 1), path))
    np.testing.assert_array_equal(display.least_line_.get_ydata(), np.minimum.accumulate(path))
    assert display.best == int(path.argmin()) + 1
    assert display.ax_.get_xlabel() == "evaluation"
    assert display.validation_line_ is None


def test_epochs_are_drawn_with_held_out_rows():
    model = AttentionRegressor(max_iter=3, early_stopping=True, random_state=0).fit(X, Y)
    display = TrainingCurveDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.line_.get_ydata(), model.history_.loss)
    np.testing.assert_array_equal(display.validation_line_.get_ydata(), model.history_.validation)
    assert display.best == model.history_.best + 1
    assert display.best_point_.get_ydata()[0] == model.history_.validation[model.history_.best]
    assert display.ax_.get_xlabel() == "epoch"
    assert display.least_line_ is None


def test_it_listens_to_a_fit_and_draws_when_it_is_over():
    pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9 has no callbacks")
    display = TrainingCurveDisplay(screen="none")
    model = NadarayaWatsonRegressor().set_callbacks(display).fit(X, Y)
    np.testing.assert_array_equal(display.loss, model.search_.path)
    np.testing.assert_array_equal(display.line_.get_ydata(), model.search_.path)
    model.fit(X[:20], Y[:20])
    np.testing.assert_array_equal(display.loss, model.search_.path, "a second fit begins anew")
    attention = AttentionRegressor(max_iter=3, early_stopping=True, random_state=0).set_callbacks(display).fit(X, Y)
    np.testing.assert_array_equal(display.validation, attention.history_.validation)
    np.testing.assert_array_equal(display.loss, attention.history_.loss)


def test_it_is_the_progress_of_a_search():
    display = TrainingCurveDisplay(screen="none")
    found = learn(Objective.of(X, Y), progress=display)
    np.testing.assert_array_equal(display.loss, found.path)
    assert display.close().figure_ is display.ax_.figure


def test_losses_of_many_decades_are_logarithmic_and_gaps_stay_gaps():
    display = TrainingCurveDisplay([1, 2, 3], [100.0, np.inf, 1.0], screen="none").plot()
    assert display.ax_.get_yscale() == "log"
    assert np.isnan(display.line_.get_ydata()).tolist() == [False, True, False]
    assert TrainingCurveDisplay([1, 2], [-1.0, 50.0], screen="none").plot().ax_.get_yscale() == "linear"


def test_nothing_learned_yet_is_an_empty_picture():
    display = TrainingCurveDisplay(screen="none").plot()
    assert display.best is None
    assert display.ax_.get_legend() is None
    display.close()


def test_drawing_again_replaces_what_was_there():
    display = TrainingCurveDisplay([1], [2.0], screen="none").plot()
    display.update(2, 1.0, 1.5)
    display.plot(display.ax_)
    assert display.ax_.lines[0].get_ydata().tolist() == [2.0, 1.0]
    assert legend(display) == ["training", "held-out rows", "chosen: 1.5 at step 2"]
    assert len(display.ax_.lines) == 3


def test_a_notebook_gets_one_cell_that_is_replaced(monkeypatch, unhurried):
    shown = []
    handle = SimpleNamespace(update=lambda figure: shown.append(("again", figure, len(figure.axes[0].lines))))

    def to_cell(figure, display_id):
        shown.append(("first", figure, display_id))
        return handle

    package, part = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython, part.display = lambda: SimpleNamespace(kernel=object()), to_cell
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", part)
    display = TrainingCurveDisplay()
    for step, loss in enumerate([3.0, 2.0, 1.0], 1):
        display.update(step, loss)
    display.close()
    assert [what for what, *_ in shown] == ["first", "again", "again", "again"]
    assert len({id(figure) for _, figure, _ in shown}) == 1, "the same picture all the time"
    assert display.line_.get_ydata().tolist() == [3.0, 2.0, 1.0]
    display.close()
    assert len(shown) == 4, "closed once"


def test_a_notebook_is_not_flooded(monkeypatch):
    part = ModuleType("IPython.display")
    shown = []
    part.display = lambda figure, display_id: shown.append(figure) or SimpleNamespace(update=shown.append)
    monkeypatch.setitem(sys.modules, "IPython.display", part)
    monkeypatch.setattr(live, "monotonic", lambda: 100.0)
    display = TrainingCurveDisplay(screen="notebook")
    for step in range(50):
        display.update(step, 1.0)
    assert len(shown) == 1


def test_ipython_in_a_terminal_is_no_notebook(monkeypatch):
    package = ModuleType("IPython")
    package.get_ipython = lambda: SimpleNamespace()
    monkeypatch.setitem(sys.modules, "IPython", package)
    assert not isinstance(live.opened("auto"), live.Notebook)


def test_a_terminal_gets_one_line_that_is_written_over(monkeypatch, unhurried):
    rich = pytest.importorskip("rich.console")
    out = StringIO()
    console = rich.Console(file=out, force_terminal=True, width=100)
    monkeypatch.setattr(live, "_console", lambda: console)
    display = TrainingCurveDisplay()
    for step, loss in enumerate([3.0, np.nan, 1.0], 1):
        display.update(step, loss)
    display.close()
    lines = out.getvalue().split("\r")
    assert lines[-1].endswith("step 3  █▁  loss 1, least 1\n")
    assert out.getvalue().count("\n") == 1
    assert display.line_.get_ydata()[0] == 3.0, "and a picture at the end"


def test_a_pipe_gets_nothing(monkeypatch):
    rich = pytest.importorskip("rich.console")
    out = StringIO()
    monkeypatch.setattr(live, "_console", lambda: rich.Console(file=out, force_terminal=False))
    display = TrainingCurveDisplay()
    display.update(1, 1.0)
    display.close()
    assert out.getvalue() == ""
    assert display.loss == [1.0]


def test_without_rich_a_script_collects_and_a_terminal_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(live.opened("auto"), live.NoScreen)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'regard\[cli\]'"):
        live.opened("terminal")


def test_a_long_curve_fits_into_one_line():
    falling = live.sparkline(np.linspace(9.0, 0.0, 1000).tolist())
    assert len(falling) == 40
    assert (falling[0], falling[-1]) == ("█", "▁")
    assert list(falling) == sorted(falling, reverse=True)
    assert live.sparkline([2.0, 2.0]) == "▁▁"
    assert live.line_of([np.nan]) == "step 1"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": [1.0, 2.0]}, r"loss must be as long as step \(1\), got 2"),
        ({"validation": [1.0, 2.0]}, r"validation must be as long as step \(1\), got 2"),
        ({"best": 7}, "best must be one of the steps, got 7"),
        ({"screen": "paper"}, "screen must be one of 'auto', 'notebook', 'terminal', 'none', got 'paper'"),
        ({"labels": {"epochs": "?"}}, "labels must be among"),
    ],
)
def test_training_errors_name_the_argument(given, message):
    with pytest.raises(ValueError, match=message):
        TrainingCurveDisplay(**({"step": [1], "loss": [1.0]} | given))


def test_an_estimator_that_learned_nothing_is_named():
    with pytest.raises(TypeError, match=r"must have history_ or search_ .*got AveragePoolingRegressor"):
        TrainingCurveDisplay.from_estimator(AveragePoolingRegressor().fit(X, Y))

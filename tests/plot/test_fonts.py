"""Chinese letters in every figure, on a machine without a Chinese font and without a setting of the reader."""

from __future__ import annotations

import logging
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import font_manager, ft2font

import regard
from regard import LocalLinearRegressor, plot
from regard.plot import fonts, style
from support.story import CJK

ROOT = Path(regard.__file__).parent
TEXTS = sorted(path for path in ROOT.rglob("*") if path.suffix in {".py", ".js", ".html", ".md", ".toml", ".json"})
SHIPPED = Path(fonts.__file__).with_name("RegardSansSC.otf")


@pytest.fixture(autouse=True)
def _quiet(caplog):
    """A letter that no font has is a warning, hence an error; a family that is not found is only logged."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.WARNING] == []


@pytest.fixture(autouse=True)
def _no_installed_fonts(monkeypatch):
    """A machine whose only Chinese font is the package's own."""
    known = [entry for entry in font_manager.fontManager.ttflist if entry.name not in fonts.INSTALLED]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", known)


def png(figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def test_every_chinese_character_of_the_package_has_a_glyph():
    """Where this fails, tools/figure_font.py makes the font again."""
    glyphs = ft2font.FT2Font(str(SHIPPED)).get_charmap()
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in TEXTS}
    assert sum(bool(CJK.search(text)) for text in texts.values()) > 20
    missing = {
        name: sorted({letter for letter in text if letter >= "\u2e80" and ord(letter) not in glyphs})
        for name, text in texts.items()
    }
    assert {name: letters for name, letters in missing.items() if letters} == {}


def test_the_font_is_small_and_has_its_licence_beside_it():
    assert SHIPPED.stat().st_size < 600_000
    assert "SIL OPEN FONT LICENSE Version 1.1" in SHIPPED.with_name("OFL.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def table():
    """Features with Chinese names, of which the second decides most and the third does not vary."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.random((60, 3)), columns=["面积（米²）", "楼层", "朝向"])
    frame["朝向"] = 1.0
    return LocalLinearRegressor(bandwidth=[0.8, 0.3, 1.0]).fit(frame, np.sin(6 * frame["楼层"]))


def words(display: type) -> dict[str, str]:
    """Chinese for every text of a Display; what is filled in stays."""
    return {name: f"注意力：{text}" for name, text in display._LABELS.items()}


@pytest.mark.parametrize(
    "display",
    [
        plot.RegressionCurveDisplay,
        plot.AttentionMapDisplay,
        plot.BandwidthPathDisplay,
        plot.FeatureRelevanceDisplay,
        plot.NeighbourDisplay,
        plot.ExplanationDisplay,
        plot.SurfaceDisplay,
    ],
)
@pytest.mark.parametrize("given", [False, True], ids=["own axes", "given axes"])
def test_displays_of_an_estimator_write_chinese(display, given, table):
    row = [table.key_[:1]] if display in {plot.NeighbourDisplay, plot.ExplanationDisplay} else []
    ax = matplotlib.figure.Figure().subplots() if given else None
    shown = display.from_estimator(table, *row, labels=words(display), ax=ax)
    written = [text.get_text() for text in shown.figure_.findobj(matplotlib.text.Text)]
    assert any(CJK.search(text) for text in written)
    png(shown.figure_)


def test_displays_of_arrays_write_chinese():
    curve = plot.TrainingCurveDisplay(labels=words(plot.TrainingCurveDisplay))
    for step in range(3):
        curve.update(step, 1.0 / (step + 1), 1.0)
    curve.close()
    png(curve.figure_)
    alignment = plot.AlignmentDisplay(
        np.eye(2), ["星期一", "五月"], ["二", "〇"], entropy=True, labels=words(plot.AlignmentDisplay)
    )
    png(alignment.plot().figure_)
    heat = plot.show_heatmaps(
        np.eye(2)[None, None], xlabel="键", ylabel="查询", titles=["权重"], key_labels=["输", "入"]
    )
    png(heat)
    png(plot.plot_kernel_reg([0, 5], [0, 1], [0, 1], [1], [1], labels=("真实", "预测", "训练"), xlabel="输入"))


def test_signs_and_formulas_beside_chinese():
    figure = style.picture(4, 3)
    ax = style.dress(figure.subplots())
    ax.plot([-2.0, 1.0], [-1e-7, 1e-7], label="误差 ≤ 10⁻³，w² → ∞")
    ax.set_title("偏差 −1.5 ± σ", weight="bold")
    ax.set(xlabel=r"$x^2 - \sigma$", ylabel="“远近”的份额…")
    style.legend(ax)
    png(figure)


def test_latin_text_is_that_of_the_readers_font_alone(monkeypatch):
    def drawn():
        display = plot.AlignmentDisplay(np.eye(2), ["août", "␣"], ["<eos>", "−3"], entropy=True).plot()
        return png(display.figure_)

    with matplotlib.rc_context({"font.family": ["serif"]}):
        assert fonts.families()[0] == "serif"
        both = drawn()
        monkeypatch.setattr(fonts, "families", lambda: ["serif"])
        assert drawn() == both


def test_rare_characters_come_from_an_installed_font(monkeypatch):
    assert fonts.families() == [*matplotlib.rcParams["font.family"], fonts.CHINESE]
    installed = [SimpleNamespace(name=name) for name in ("SimSun", "Noto Sans CJK SC", "Lato")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [*font_manager.fontManager.ttflist, *installed])
    assert fonts.families()[-3:] == [fonts.CHINESE, "Noto Sans CJK SC", "SimSun"]


def test_the_font_is_known_to_matplotlib_once():
    fonts.families()
    fonts.families()
    known = [(Path(one.fname), one.weight) for one in font_manager.fontManager.ttflist if one.name == fonts.CHINESE]
    assert known == [(SHIPPED, 400), (SHIPPED, "bold")]


def test_a_page_can_bring_the_letters_it_has():
    letters = "汇注意力聚"
    font = fonts.letters_of(letters)
    assert sorted(ft2font.FT2Font(BytesIO(font)).get_charmap()) == sorted(map(ord, letters))
    assert len(font) < 5_000
    assert font == fonts.letters_of(letters)

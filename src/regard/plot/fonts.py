"""Find a font with Chinese letters, so that figures never show empty boxes instead."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from matplotlib import font_manager, ft2font, rcParams

# Every figure's Latin letters and symbols come from the font matplotlib brings along.
LATIN = "DejaVu Sans"

# Fonts that usually bring Chinese letters, the most legible in figures first.
FAMILIES = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "SimHei",
    "Heiti SC",
    "Droid Sans Fallback",
    "Noto Sans CJK JP",
    "Arial Unicode MS",
    "SimSun",
)
_FILES = ("noto", "sourcehan", "pingfang", "hiragino", "msyh", "wqy", "sim", "stheiti", "droidsansfallback", "arialuni")
_SAMPLE = "查询键值注意力权重误差训练输入"
_FIRST_CHINESE = "\u2e80"  # the first of Unicode's blocks for East Asia


def chinese_family() -> str | None:
    """Name of an installed font that has Chinese letters, None where there is none."""
    found = _known()
    if found is None and _look_again():
        found = _known()
    return found


def families_for(words: Iterable[str]) -> list[str]:
    """The reader's font families, and behind them one with Chinese letters where the words have any.

    Where no such font is installed, matplotlib says so when it draws.
    """
    families = list(rcParams["font.family"])
    chinese = any(letter >= _FIRST_CHINESE for word in words for letter in word)
    found = chinese_family() if chinese else None
    return families if found is None or found in families else [*families, found]


def _known() -> str | None:
    by_name = {entry.name: entry.fname for entry in font_manager.fontManager.ttflist}
    return next((name for name in FAMILIES if name in by_name and _has_letters(by_name[name])), None)


def _has_letters(path: str) -> bool:
    try:
        letters = ft2font.FT2Font(path).get_charmap()
    except (OSError, RuntimeError):
        return False
    return all(ord(letter) in letters for letter in _SAMPLE)


def _look_again() -> bool:
    """Matplotlib remembers the fonts of its first run; tell it of likely ones installed since."""
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    fresh = [
        path
        for path in font_manager.findSystemFonts()
        if path not in known and Path(path).name.lower().startswith(_FILES)
    ]
    for path in fresh:
        try:
            font_manager.fontManager.addfont(path)
        except (OSError, RuntimeError):
            continue
    return bool(fresh)

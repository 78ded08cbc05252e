"""Find a font with Chinese letters, so that figures never show empty boxes instead."""

from __future__ import annotations

from pathlib import Path

from matplotlib import font_manager, ft2font

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


def chinese_family() -> str | None:
    """Name of an installed font that has Chinese letters, None where there is none."""
    found = _known()
    if found is None and _look_again():
        found = _known()
    return found


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

"""Font families for figures in any language: a font with Chinese letters comes with the package."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

from matplotlib import font_manager, rcParams

# Every figure's Latin letters and symbols come from the font matplotlib brings along.
LATIN = "DejaVu Sans"
# The package's own, with the common Chinese characters; tools/figure_font.py makes it.
CHINESE = "Regard Sans SC"
_FILE = Path(__file__).with_name("RegardSansSC.otf")
# Fonts of the machine for the rare characters, the most legible in figures first.
INSTALLED = (
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


def families() -> list[str]:
    """The reader's font families, then ``CHINESE``, then those of ``INSTALLED`` that this machine has.

    Matplotlib takes every letter from the first family that has it, so Latin text looks as it does without this.
    """
    manager = font_manager.fontManager
    known = {entry.name for entry in manager.ttflist}
    if CHINESE not in known:
        manager.addfont(_FILE)
        # Bold text has the one weight there is; without this entry matplotlib would say so on the terminal.
        manager.ttflist.append(replace(manager.ttflist[-1], weight="bold"))
    return list(dict.fromkeys((*rcParams["font.family"], CHINESE, *(name for name in INSTALLED if name in known))))


def letters_of(text: str) -> bytes:
    """``CHINESE`` as an OpenType font with no more than the letters of a text, for a page that carries its own."""
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTFont

    options = Options()
    options.desubroutinize = True  # smaller, and every browser takes it
    subsetter = Subsetter(options)
    subsetter.populate(text=text)
    font = TTFont(_FILE, recalcTimestamp=False)
    subsetter.subset(font)
    made = BytesIO()
    font.save(made)
    return made.getvalue()

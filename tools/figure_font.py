# /// script
# requires-python = ">=3.11"
# dependencies = ["fonttools==4.68.0", "jieba==0.42.1"]
# ///
"""Make the font of Chinese letters in figures, src/regard/plot/fonts/RegardSansSC.otf, again.

``python tools/figure_font.py NotoSansCJK-Regular.ttc`` takes the font of Debian's package fonts-noto-cjk (Noto Sans CJK
2.004) and keeps three kinds of characters: all that the package itself writes, Chinese punctuation, and the most
frequent of GB 2312's common ones (level 1), counted in the dictionary of jieba. The same source and versions give the
same bytes.
"""

from __future__ import annotations

import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTCollection, TTFont

PACKAGE = Path(__file__).parents[1] / "src" / "regard"
OUT = PACKAGE / "plot" / "fonts" / "RegardSansSC.otf"
# A modified version has its own name, as the SIL Open Font License asks for.
FAMILY = "Regard Sans SC"
SOURCE_FAMILY = "Noto Sans CJK SC"
COMMON = 2800
TEXTS = {".py", ".js", ".html", ".md", ".toml", ".json"}
EAST_ASIA = "\u2e80"
PUNCTUATION = {chr(code) for code in (*range(0x3000, 0x3020), *range(0xFF01, 0xFF5F))}
COPYRIGHT, LICENCE, LICENCE_URL = 0, 13, 14


def written() -> set[str]:
    """Chinese characters in the package's own texts."""
    files = (path for path in PACKAGE.rglob("*") if path.suffix in TEXTS)
    return {letter for path in files for letter in path.read_text(encoding="utf-8") if letter >= EAST_ASIA}


def level_1() -> set[str]:
    """The 3,755 common characters of GB 2312: rows 16 to 55 of its table, of which the last ends early."""
    codes = ((row, cell) for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF) if (row, cell) < (0xD7, 0xFA))
    return {bytes(code).decode("gb2312") for code in codes}


def common() -> set[str]:
    """The ``COMMON`` most frequent characters of level 1; the smaller code first among equals."""
    jieba = find_spec("jieba")
    if jieba is None or jieba.origin is None:
        sys.exit("jieba is not installed: its dictionary says which characters are common")
    counts = Counter(dict.fromkeys(sorted(level_1()), 0))
    for line in Path(jieba.origin).with_name("dict.txt").read_text(encoding="utf-8").splitlines():
        word, count, _ = line.split(" ")
        for letter in set(word) & counts.keys():
            counts[letter] += int(count) * word.count(letter)
    return {letter for letter, _ in counts.most_common(COMMON)}


def rename(font: TTFont) -> None:
    """The names of a modified version; copyright and licence stay."""
    table = font["name"]
    kept = {code: table.getDebugName(code) for code in (COPYRIGHT, LICENCE, LICENCE_URL)}
    version = f"Subset of {SOURCE_FAMILY} {table.getDebugName(5)}"
    postscript = FAMILY.replace(" ", "") + "-Regular"
    table.names = []
    names = {1: FAMILY, 2: "Regular", 3: f"2.004;{postscript}", 4: FAMILY, 5: version, 6: postscript, **kept}
    for code, text in names.items():
        table.setName(text, code, 3, 1, 0x409)
    outlines = font["CFF "].cff
    outlines.fontNames = [postscript]
    top = outlines.topDictIndex[0]
    top.FamilyName = top.FullName = FAMILY
    top.rawDict.pop("Notice", None)  # a trademark that this version does not bear


def make(source: str) -> None:
    """Write the subset of the font collection ``source``."""
    fonts = TTCollection(source, recalcTimestamp=False).fonts
    font = next(one for one in fonts if one["name"].getDebugName(1) == SOURCE_FAMILY)
    options = Options()
    options.layout_features = []
    options.hinting = False
    options.desubroutinize = True
    options.notdef_outline = True
    options.name_IDs = ["*"]
    options.drop_tables += ["BASE", "DSIG", "GPOS", "GSUB", "VORG", "vhea", "vmtx"]
    subsetter = Subsetter(options)
    subsetter.populate(text="".join(sorted(written() | common() | PUNCTUATION)))
    subsetter.subset(font)
    rename(font)
    font.save(OUT)
    print(f"{OUT}: {len(font.getBestCmap()):,} characters, {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/figure_font.py NotoSansCJK-Regular.ttc")
    make(sys.argv[1])

"""The page's files: what they may contain, how large they are, and that both languages say everything."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from regard.core.kernels import KERNELS
from regard.play.date_service import MAX_DATE_CHARACTERS
from regard.play.messages import MAX_TEXT_CHARACTERS
from regard.play.static_files import page_files
from regard.play.tables import MAX_BYTES, MAX_FEATURES
from regard.play.w_training import MAX_POINTS, W_RANGE

FILES = page_files()
SCRIPTS = {address: file.content.decode() for address, file in FILES.items() if address.endswith(".js")}
# Bytes loaded when the page opens, and of all its scripts; lines of one.
MAX_CODE, MAX_SCRIPTS, LONGEST = 61_000, 67_000, 300


@cache
def words(lang: str) -> dict[str, str]:
    return json.loads(FILES[f"/words/{lang}.json"].content)


# Loaded when asked for.
FONT = "/RegardSansSC.otf"
LATER = {"/table.js", "/share.js", "/query_details.js", "/dates.js", "/dates.css", FONT}


def test_the_code_is_small_and_split_by_concern():
    """All scripts together, and all that is loaded when the page opens: scripts, markup and style."""
    sizes = {address: len(file.content) for address, file in FILES.items() if not address.startswith("/words/")}
    assert sum(sizes[address] for address in SCRIPTS) < MAX_SCRIPTS
    assert sum(sizes[address] for address in sizes.keys() - LATER) < MAX_CODE
    for address, text in SCRIPTS.items():
        assert text.count("\n") < LONGEST, address
        assert text.startswith("// "), address


@pytest.mark.parametrize("address", sorted(FILES.keys() - {FONT}))
def test_nothing_points_elsewhere_or_runs_text_as_code(address):
    text = FILES[address].content.decode()
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|javascript:", text
    )
    if address == "/":
        assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?! type=\"module\" src=\"/main\.js\"></script>)", text)


def test_imports_lead_to_files_of_the_page():
    for address, text in SCRIPTS.items():
        for target in re.findall(r'^import .*from "(.+)";', text, re.M):
            assert target.startswith("./"), address
            assert "/" + target[2:] not in LATER, address
            assert "/" + target[2:] in SCRIPTS, (address, target)


def test_both_languages_say_everything_and_nothing_else():
    assert list(words("en")) == list(words("zh"))
    asked = set(re.findall(r'data-(?:word|label)="(\w+)"', FILES["/"].content.decode()))
    code = "\n".join(SCRIPTS.values())
    asked |= {
        word for call in re.findall(r"\b(?:say|report|finish)\(([^;]*)", code) for word in re.findall(r'"(\w+)"', call)
    }
    asked |= {f"kernel_{name}" for name in (*KERNELS, "dot", "additive")}
    asked |= {f"why{kind}" for kind in re.findall(r'"(Constant|Alone|Thin|Thick|Nothing|Right)"', code)}
    asked |= {"thin", "thick", "right", "truth", "average", "nearest", "attention", "learned", "band"}
    assert set(words("en")) <= asked
    for name in set(re.findall(r'\bsay\("(\w+)"', code)):
        assert name in words("en")


def test_both_languages_fill_in_the_same():
    for name in words("en"):
        english, chinese = (sorted(re.findall(r"\{(\w+)\}", words(lang)[name])) for lang in ("en", "zh"))
        assert english == chinese, name
        assert words("en")[name], name
        assert words("zh")[name], name


def test_limits_of_the_page_are_those_of_the_server():
    state, table = SCRIPTS["/state.js"], SCRIPTS["/table.js"]
    assert f"MAX_POINTS = {MAX_POINTS}" in state
    assert f'maxlength="{MAX_DATE_CHARACTERS}"' in FILES["/"].content.decode()
    assert f"MAX_BYTES = {MAX_BYTES / 1e6:g}e6" in table
    assert f"MAX_FEATURES = {MAX_FEATURES}" in table
    assert "parts.w >= 1e-3 && parts.w <= 1e5" in state
    assert W_RANGE == (1e-3, 1e5)
    assert MAX_TEXT_CHARACTERS >= 100


def test_colours_are_the_houses():
    from regard.plot import style

    css = FILES["/style.css"].content.decode()
    for colour in (style.BLUE, style.VERMILION, style.INK):
        assert colour in css
    assert '"ffffff", "dcebf6", "9ccbe6", "3f95c9", "0b5c9b", "08264d"' in SCRIPTS["/shades.js"]

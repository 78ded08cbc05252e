"""The page in a real browser: what is taken away from it, and what is brought along."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest

from regard.data import houses
from support.conversation import wait_for
from support.visits import QUERY, TABLE, TOLERANCE, meets_refusals

pytestmark = pytest.mark.xdist_group("browser")


def test_a_link_brings_the_whole_state_back(visit):
    page = visit().open(
        "#kernel=laplace&w=3.5&sort=0&hide=truth.average&notes=20.4&lang=zh&theme=dark&learned=cosine,0.25"
    )
    page.drag(5, 40, 40)
    before = page.state()
    assert before["edited"]
    assert before["learned"] == {"kernel": "cosine", "w": 0.25}
    wait_for(page.page, "location.hash.includes('points=')")
    link = page.page.evaluate("location.hash")
    after = visit().open(link).state()
    for name in ("x", "y", "kernel", "sort", "hidden", "lang", "theme", "learned", "edited"):
        assert after[name] == before[name], name
    assert after["w"] == pytest.approx(before["w"], rel=1e-5)


def test_points_of_a_link_are_as_fine_as_links_are(visit):
    """Finer ones would have errors whose squares are 0, which were called those of points that do not vary."""
    page = visit().open("#points=1,1e-200_2,-3e-200_3,0.00012345")
    assert page.state()["y"] == [0, 0, 0.0001]


NONSENSE = [
    "#w=NaN&kernel=__proto__&notes=1e9.-1&hide=x&lang=fr&learned=constructor,1&points=a,b_c,d",
    "#%%%&points=9,9_8,8&learned=gaussian,NaN&w=-1",
    "#points=" + "_".join(["1,1"] * 1200),
]


def test_links_that_make_no_sense_open_the_usual_page(visit):
    page = visit()
    for fragment in NONSENSE:
        page.page.goto("about:blank")
        found = page.open(fragment).state()
        assert (len(found["x"]), found["kernel"], found["w"], found["learned"]) == (50, "gaussian", 1, None)


STATES = ["#w=2.5&notes=20.1", "#w=1.7&kernel=tricube&points=0.5,1_1,2_2.25,-1_4,0.5", "#w=0.8&kernel=dot"]
STATES += ["#w=2&kernel=additive&points=1,1_2,3_4,2"]


@pytest.mark.filterwarnings("ignore:.*training row within the bandwidth")
def test_the_six_lines_of_python_draw_the_same_curve(visit):
    page = visit()
    for fragment in STATES:
        page.page.goto("about:blank")
        page.open(fragment)
        page.page.click("#python")
        page.page.wait_for_selector("#code[open]")
        lines = page.text("#lines")
        assert len(lines.splitlines()) == 6
        made: dict[str, Any] = {}
        exec(lines, made)
        np.testing.assert_allclose(page.curve(), made["curve"], atol=0.01)
        exact = page.page.evaluate(
            "async () => { const { state } = await import('/state.js'), { curve } = await import('/pooling.js');"
            "const { queries } = await import('/plot.js');"
            "return [...curve(state.kernel, state.w, queries, state.x, state.y)]; }"
        )
        np.testing.assert_allclose(exact, made["curve"], atol=TOLERANCE)


def test_with_the_band_a_seventh_line_has_its_ends(visit):
    page = visit().open("#w=3&band=1&hide=none")
    wait_for(page.page, "document.querySelector('#plot .curve.band').getAttribute('d')")
    page.page.click("#python")
    page.page.wait_for_selector("#code[open]")
    made: dict[str, Any] = {}
    exec(page.text("#lines"), made)
    np.testing.assert_allclose(page.curve("band"), np.r_[made["low"][::2], made["high"][::-2]], atol=0.02)


def test_pictures_can_be_taken_away(visit, tmp_path):
    from PIL import Image

    page = visit().open("#w=3")
    for kind in ("svg", "png"):
        with page.page.expect_download() as download:
            page.page.click(f"#{kind}")
        download.value.save_as(tmp_path / f"regard.{kind}")
    svg = (tmp_path / "regard.svg").read_text(encoding="utf-8")
    assert svg.count("<circle") == 50
    assert "class=" not in svg
    picture = Image.open(tmp_path / "regard.png")
    box = page.page.locator("#plot").bounding_box()
    assert picture.size == (2 * round(box["width"]), 2 * round(box["height"]))
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 50


def test_curves_can_be_hidden(visit):
    page = visit().open()
    page.page.click("#legend button:nth-child(3)")  # nearest was hidden
    page.page.click("#legend button:nth-child(1)")
    page.settle()
    found = page.state()
    assert sorted(found["hidden"]) == ["band", "truth"]
    x, y = np.array(found["x"]), np.array(found["y"])
    np.testing.assert_allclose(page.curve("nearest"), y[np.abs(QUERY[:, None] - x).argmin(axis=1)], atol=0.01)
    np.testing.assert_allclose(page.curve("average"), y.mean(), atol=0.01)
    assert page.page.locator("#plot .curve.truth").get_attribute("d") == ""


def table_of(n: int, **renamed: str) -> bytes:
    data, out = houses(n), io.StringIO()
    names = [renamed.get(name, name) for name in (*data.feature_names, data.target_name)]
    out.write(",".join('"' + name.replace('"', '""') + '"' for name in names) + "\n")
    for row, y in zip(data.X, data.y, strict=True):
        out.write(",".join(repr(float(each)) for each in (*row, y)) + "\n")
    return out.getvalue().encode()


HTML = "<img src=x onerror=alert(1)><b>area</b>"


def test_95_own_data_with_html_for_names(visit, light_search):
    """A CSV is dropped, columns chosen, fitted, and a prediction clicked; names are text wherever they appear."""
    page = visit().open("#view=table", TABLE)
    page.page.set_input_files("#file", {"name": "<i>.csv", "mimeType": "text/csv", "buffer": table_of(60, area=HTML)})
    page.page.wait_for_selector("#fit:visible")
    assert page.page.input_value("#target") == "price"
    for name in ("rooms", "latitude", "longitude", "door_number"):
        page.page.uncheck(f"#features input[value={name}]")
    page.page.click("#fit")
    page.page.wait_for_selector("#relevance p", timeout=60_000)
    assert page.page.locator("#relevance p").count() == 3
    assert HTML in page.text("#relevance")
    assert re.search(r"Left-out R² of price is 0\.[5-9]", page.text("#score-text"))
    box = page.page.locator("#scatter").bounding_box()
    cloud = page.page.locator("#scatter .cloud").get_attribute("d")
    x, y = map(float, re.match(r"M([\d.]+) ([\d.]+)", cloud).groups())
    page.page.mouse.click(box["x"] + x + 3.5, box["y"] + y)
    page.page.wait_for_selector("#rows td")
    assert "Row 0, counted from 0, is" in page.text("#rows-text")
    assert HTML in page.text("#rows")
    assert page.page.locator("#rows .own").count() == 1
    page.page.focus("#scatter")
    page.page.keyboard.press("ArrowRight")
    wait_for(page.page, "!document.getElementById('rows-text').textContent.includes('Row 0, ')")
    assert page.page.locator("#table img, #table b > b").count() == 0


@pytest.mark.parametrize("power", [200, 307, -200])
def test_own_data_with_targets_whose_squares_leave_float64_are_drawn(visit, light_search, power):
    data = houses(30)
    lines = ["x,y", *(f"{x},{y / 1e3}e{power}" for x, y in zip(data.X[:, 0].tolist(), data.y.tolist(), strict=True))]
    page = visit().open("#view=table", TABLE)
    page.page.set_input_files("#file", {"name": "t.csv", "mimeType": "text/csv", "buffer": "\n".join(lines).encode()})
    page.page.wait_for_selector("#fit:visible")
    page.page.click("#fit")
    page.page.wait_for_selector("#relevance p", timeout=60_000)
    assert re.search(r"typical error is [\d.]+e[+-]\d{3};", page.text("#score-text"))
    drawn = page.page.locator("#scatter").inner_html()
    assert "NaN" not in drawn
    assert "∞" not in page.text("#table")


BAD_TABLES = [
    (b"x,y\n1,2\n3\n", "row 1"),
    (b"x,y\na,b\n", "two columns of numbers"),
    (b"x,y\n" + b"9" * 4_100_000, "4 MB"),
    (b"\x80\x04K\x01.", "UTF-8"),
]


@meets_refusals
def test_an_error_in_a_table_is_shown_in_words(visit):
    page = visit().open("#view=table", TABLE)
    for content, said in BAD_TABLES:
        page.page.set_input_files("#file", {"name": "t.csv", "mimeType": "text/csv", "buffer": content})
        wait_for(page.page, f"document.getElementById('table-status').textContent.includes('{said}')")
        assert page.page.locator("#table-status.wrong").count() == 1


def test_a_chinese_browser_is_spoken_to_in_chinese_and_no_element_has_a_style_of_its_own(visit):
    page = visit(locale="zh-CN").open()
    assert page.text("#train") == "训练"
    assert page.page.locator("[style]:not(i)").count() == 0

"""The page in a real browser: what a person does, and what must never happen meanwhile."""

from __future__ import annotations

import re
import time
import warnings

import numpy as np
import pytest

from regard import NadarayaWatsonRegressor
from regard.bandwidth import Objective, loo_objective
from regard.core.kernels import KERNELS
from regard.data import notes
from regard.scores import RADIAL
from support.browser import glyphs
from support.conversation import wait_for
from support.visits import OPEN, PHONE, READY, TABLE, agrees, meets_refusals

pytestmark = pytest.mark.xdist_group("browser")


def test_it_opens_with_the_notes_data_and_hides_the_token(visit):
    page = visit().open()
    found = page.state()
    data = notes(50, 0)
    assert (found["x"], found["y"]) == (data.x_train.tolist(), data.y_train.tolist())
    agrees(page)
    wait_for(page.page, "!location.href.includes('token')")
    error = loo_objective(data.x_train[:, None], data.y_train, RADIAL["gaussian"](1.0))
    assert float(page.text("#loo")) == pytest.approx(error, rel=0.005)


def test_a_dragged_point_moves_the_curve_as_the_library_says(visit):
    page = visit().open("#w=2")
    before, curve = page.state(), page.curve()
    page.drag(20, 90, -120)
    after = page.state()
    moved = [
        i for i in range(50) if abs(after["x"][i] - before["x"][i]) > 0.01 or abs(after["y"][i] - before["y"][i]) > 0.01
    ]
    assert moved == [20]
    assert after["x"][20] > before["x"][20]
    assert after["y"][20] > before["y"][20]
    assert np.abs(page.curve() - curve).max() > 0.05
    agrees(page)
    wait_for(page.page, READY)
    x, y = np.array(after["x"])[:, None], np.array(after["y"])
    best = page.page.evaluate("document.getElementById('bestW').textContent")
    model = NadarayaWatsonRegressor(metric="scalar").fit(x, y)
    assert float(best) == pytest.approx(model.w_, rel=0.05)


def test_clicks_add_and_remove_points(visit):
    page = visit().open()
    box = page.page.locator("#plot").bounding_box()
    page.page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.9)
    assert len(page.state()["x"]) == 51
    agrees(page)
    page.page.mouse.dblclick(*page.dot(50))
    page.settle()
    assert len(page.state()["x"]) == 50
    assert page.page.locator(".dot").count() == 50
    agrees(page)


def test_the_slider_moves_w_and_the_words(visit):
    page = visit().open()
    assert "river" in page.text("#picture")
    seen = set()
    for place in (50, 500, 950):
        page.page.locator("#w").fill(str(place))
        page.settle()
        found = page.state()
        assert found["w"] == pytest.approx(0.05 * 10_000 ** (place / 1000))
        agrees(page)
        x, y = np.array(found["x"])[:, None], np.array(found["y"])
        right = NadarayaWatsonRegressor(bandwidth=1 / found["w"]).fit(x, y).diagnose()
        shown = page.page.get_attribute("#verdict", "data-verdict")
        assert {"thin": "too thin", "thick": "too thick", "right": "about right"}[shown] == right.verdict
        assert float(page.text("#neighbours")) == pytest.approx(right.neighbours, rel=0.01)
        seen.add(shown)
    assert seen == {"thin", "thick", "right"}


def test_every_kernel_can_be_chosen(visit):
    page = visit().open("#w=1.5")
    names = page.page.locator("#kernel option").evaluate_all("all => all.map((each) => each.value)")
    assert names == [*KERNELS, "dot", "additive"]
    for name in names:
        page.page.select_option("#kernel", name)
        page.settle()
        if name in KERNELS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a row is empty, and takes the nearest key
                agrees(page)
        assert page.page.locator("#train").is_disabled() == (name not in KERNELS)
    assert "AttentionRegressor" in page.page.get_attribute("#train", "title")


@pytest.mark.parametrize("optimizer", ["lbfgs", "sgd"])
def test_train_to_convergence(visit, optimizer):
    page = visit().open("#w=0.7")
    start = page.state()
    page.page.select_option("#optimizer", optimizer)
    page.page.click("#train")
    wait_for(page.page, "!document.getElementById('train').disabled")
    found = page.state()
    x, y = np.array(start["x"])[:, None], np.array(start["y"])
    steps = page.page.locator("#steps .tries").get_attribute("d").count("M")
    if optimizer == "lbfgs":
        model = NadarayaWatsonRegressor(metric="scalar").fit(x, y)
        assert found["learned"]["w"] == pytest.approx(model.w_, rel=1e-9)
        assert steps == model.search_.evaluations
        assert page.page.get_attribute("#verdict", "data-verdict") == "right"
    else:
        from regard.bandwidth import follow_the_notes

        assert found["learned"]["w"] == pytest.approx(float(follow_the_notes(Objective.of(x, y), 0.7).w), rel=1e-9)
        assert steps == 6  # before the first of five epochs, and after each
        assert page.text("#training").startswith("5 epochs: w = ")
        marks = page.page.locator("#steps .grid text").all_text_contents()
        assert marks[:6] == ["0", "1", "2", "3", "4", "5"]
        assert "epoch" in marks
    assert found["w"] == found["learned"]["w"]
    agrees(page, "learned", found["learned"]["w"])
    page.page.click("#reset")
    wait_for(page.page, "!document.querySelector('#plot .curve.learned').getAttribute('d')")
    assert page.state()["w"] == 1
    assert page.page.locator("#steps .tries").get_attribute("d") == ""


def test_a_training_can_be_stopped(visit, monkeypatch):
    evaluate = Objective.__call__

    def slowly(self, *given, **options):
        # On a fast machine it would be over before anybody can press the button.
        time.sleep(0.02)
        return evaluate(self, *given, **options)

    monkeypatch.setattr(Objective, "__call__", slowly)
    page = visit().open("#notes=500.3&kernel=triweight")
    page.page.click("#train")
    wait_for(page.page, "document.querySelector('#steps .tries').getAttribute('d').length > 50")
    page.page.click("#stop")
    wait_for(page.page, "!document.getElementById('train').disabled")
    assert "stopped after" in page.text("#training")
    assert page.state()["learned"]["kernel"] == "triweight"


def test_hovering_shows_the_weights_of_a_query(visit):
    page = visit().open("#w=3")
    x, y = page.dot(25)
    page.page.mouse.move(x + 15, y + 60)
    wait_for(page.page, "document.querySelectorAll('#plot .weights line').length")
    lines = page.page.locator("#plot .weights line:visible")
    widths = [float(lines.nth(i).get_attribute("stroke-width")) for i in range(lines.count())]
    assert widths == sorted(widths, reverse=True)
    status = page.text("#plot-status")
    asked = float(re.search(r"x = ([\d.]+)", status)[1])
    data = notes(50, 0)
    weights = np.exp(-0.5 * (3.0 * (asked - data.x_train)) ** 2)
    share = np.sort(weights / weights.max())[::-1]
    np.testing.assert_allclose(np.array(widths[:5]) / widths[0], share[:5], atol=0.05)
    nearest = int(np.abs(data.x_train - asked).argmin())
    weight = 100 * weights[nearest] / weights.sum()
    named = re.search(r"\(x, y\): \(([-\d.]+), ([-\d.]+)\) ([\d.]+) %", status)
    right = (data.x_train[nearest], data.y_train[nearest], weight)
    assert [float(each) for each in named.groups()] == pytest.approx(right, rel=0.03)
    assert "9 of 10" not in status
    assert "Far from all points" not in status
    page.page.hover("#heat")
    assert ": weight" in page.text("#cell")


def test_a_band_of_ninety_percent_can_be_shown_and_follows_the_points(visit):
    page = visit().open("#w=3")
    assert not page.page.locator("#plot .curve.band").get_attribute("d")
    page.page.click("#legend button:has-text('jackknife+')")
    wait_for(page.page, "document.querySelector('#plot .curve.band').getAttribute('d')")
    before = page.curve("band")
    page.drag(20, 0, -150)
    assert np.abs(page.curve("band") - before).max() > 0.05
    found = page.state()
    x, y = np.array(found["x"])[:, None], np.array(found["y"])
    model = NadarayaWatsonRegressor(bandwidth=1 / 3).fit(x, y)
    low, high = model.predict_interval(np.linspace(0.0, 5.0, 121)[:, None], 0.9, "jackknife").T
    np.testing.assert_allclose(page.curve("band"), np.r_[low, high[::-1]], atol=0.02)
    wait_for(page.page, "location.hash.includes('band=1')")
    again = visit().open("#" + page.page.url.split("#")[1])
    wait_for(again.page, "document.querySelector('#plot .curve.band').getAttribute('d')")
    box = again.page.locator("#plot").bounding_box()
    again.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wait_for(again.page, "document.getElementById('plot-status').textContent.includes('9 of 10 cases')")
    at, low, high = (
        float(re.search(pattern, again.text("#plot-status"))[1])
        for pattern in (r"x = ([\d.]+)", r"between ([-\d.]+)", r"and ([-\d.]+)\.")
    )
    assert [low, high] == pytest.approx(model.predict_interval([[at]], 0.9, "jackknife")[0].tolist(), abs=0.05)


def test_a_query_far_from_all_points_is_reported(visit):
    points = "_".join(f"{i / 10},{i}" for i in range(12))
    page = visit().open(f"#points={points}&w=20&band=1&hide=none")
    box = page.page.locator("#plot").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2)
    wait_for(page.page, "document.getElementById('plot-status').textContent.includes('Far from all points')")


def test_the_heatmap_shows_the_weights_in_either_order(visit):
    page = visit().open("#notes=20.1&w=2")
    read = """() => {
        const c = document.getElementById("heat"), copy = new OffscreenCanvas(c.width, c.width).getContext("2d");
        copy.drawImage(c, 0, 0);
        return [c.width, [...copy.getImageData(0, 0, c.width, c.width).data].filter((_, i) => i % 4 === 0)]; }"""
    page.drag(0, 500, 0)  # out of order
    for box in (True, False):
        page.page.set_checked("#sort", box)
        page.settle()
        side, red = page.page.evaluate(read)
        found = page.state()
        x = np.sort(found["x"]) if box else np.array(found["x"])
        weights = np.exp(-0.5 * (found["w"] * (x[:, None] - x)) ** 2)
        weights /= weights.sum(axis=1, keepdims=True)
        assert side == 20
        # Darker is more: ranks agree where weights differ by more than a shade.
        shade = -np.array(red).reshape(20, 20)
        clear = weights > 0.05 * weights.max()
        assert np.corrcoef(shade[clear], weights[clear])[0, 1] > 0.9


@meets_refusals
def test_an_address_opens_one_browser_which_may_reload_it_and_go_on_from_the_locked_page(visit, playground):
    url = playground.new_url()
    page = visit()
    page.page.goto(url)
    wait_for(page.page, READY)
    for again in (page.page.reload, lambda: page.page.goto(url)):
        again()
        wait_for(page.page, READY)
    other = visit()
    other.page.goto(url)
    assert "Open that one" in other.text("body")
    # Where another site's link leads here the browser keeps its cookie to itself; our own link is as good as any.
    other.open()
    other.page.goto("about:blank")
    other.page.set_content(f'<a href="{url}">open</a>')
    other.page.click("a")
    assert "Open that one" in other.text("body")
    other.page.click("p a")
    wait_for(other.page, READY)


def test_the_language_button_has_its_letters_on_any_machine(visit):
    page = visit().open()
    assert page.text("#lang") == "中文"
    wait_for(page.page, "document.fonts.status === 'loaded'")
    assert glyphs(page.page, "#lang") == 2


def test_the_page_says_where_the_tour_is(visit):
    assert "regard tour" in visit().open().text("footer")


@meets_refusals
def test_chinese_is_whole_and_is_remembered(visit):
    page = visit().open()
    page.page.click("#lang")
    wait_for(page.page, "location.hash.includes('lang=zh')")
    visible = page.text("body")
    left = re.findall(
        r"[A-Za-z]{3,}",
        re.sub(
            r"regard tour --lang zh|tour/index.html|regard|SVG|PNG|Python|SGD|BFGS|English|softmax|score|Epanechnikov",
            "",
            visible,
        ),
    )
    assert left == []
    assert page.page.evaluate("document.documentElement.lang") == "zh-CN"
    again = visit()
    again.page.goto(page.page.url.split("#")[0])  # no token and no cookie here: an error that says what to do
    assert "还没有用过，请打开那个地址" in again.text("body")
    again.page.context.clear_cookies()
    again.open("#" + page.page.url.split("#")[1])
    assert "像河" in again.text("#picture")


def test_a_table_dropped_anywhere_opens_its_view(visit):
    page = visit().open()
    page.page.evaluate(
        """() => { const given = new DataTransfer();
        given.items.add(new File(["x,y\\n1,2\\n2,3\\n4,5\\n"], "own.csv", { type: "text/csv" }));
        dispatchEvent(new DragEvent("drop", { dataTransfer: given, cancelable: true })); }"""
    )
    wait_for(page.page, "document.getElementById('table-status').textContent.startsWith('own.csv: 3 rows')")
    assert page.page.locator("#fit").is_visible()


def test_what_is_not_needed_at_first_is_loaded_later(visit):
    page = visit().open()
    loaded = "performance.getEntriesByType('resource').map((each) => new URL(each.name).pathname)"
    assert not {"/table.js", "/share.js", "/query_details.js", "/dates.js", "/dates.css"} & set(
        page.page.evaluate(loaded)
    )
    page.page.click("#tab-table")
    wait_for(page.page, TABLE)
    assert "/table.js" in page.page.evaluate(loaded)


@pytest.mark.parametrize("view", ["points", "table"])
def test_a_phone_shows_everything_within_its_width(visit, view):
    page = visit(PHONE, has_touch=True, is_mobile=True).open(f"#view={view}", OPEN)
    wide = """() => {
        const out = (e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1;
        const all = [...document.querySelectorAll("button, select, svg, canvas, h2, p")];
        return [document.documentElement.scrollWidth, all.filter(out).map((e) => e.id || e.textContent)];
    }"""
    for lang in ("en", "zh"):
        page.settle()
        assert page.state()["lang"] == lang
        assert page.page.evaluate(wide) == [390, []]
        page.page.click("#lang")


def test_a_finger_drags_a_point(visit):
    page = visit(PHONE, has_touch=True, is_mobile=True).open()
    before = page.state()["y"][10]
    page.page.locator("#plot").scroll_into_view_if_needed()
    x, y = page.dot(10)
    touch = page.page.context.new_cdp_session(page.page)
    for kind, dy in (("touchStart", 0), ("touchMove", 20), ("touchMove", 50), ("touchEnd", 0)):
        points = [] if kind == "touchEnd" else [{"x": x, "y": y + dy}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.settle()
    assert page.state()["y"][10] < before - 0.2
    agrees(page)


def test_the_keyboard_does_all_that_the_pointer_does(visit):
    page = visit().open("#w=2")
    keyboard = page.page.keyboard
    for _ in range(40):
        keyboard.press("Tab")
        if page.page.evaluate("document.activeElement.classList.contains('dot')"):
            break
    number = "[...document.querySelectorAll('.dot')].indexOf(document.activeElement)"
    here = page.page.evaluate(number)
    assert here >= 0
    assert "Arrow keys" in page.text("#plot-status")
    before = page.state()
    keyboard.press("ArrowUp")
    keyboard.press("ArrowRight")
    keyboard.press("Shift+ArrowRight")
    after = page.state()
    assert after["y"][here] == pytest.approx(before["y"][here] + 0.1, abs=1e-3)
    assert after["x"][here] == pytest.approx(before["x"][here] + 0.11, abs=1e-3)
    assert page.page.evaluate("document.activeElement.ariaLabel").startswith(f"Point {here + 1} of 50")
    keyboard.press("Enter")
    assert len(page.state()["x"]) == 51
    assert page.page.evaluate(number) == 50
    keyboard.press("Delete")
    assert len(page.state()["x"]) == 50
    keyboard.press("Home")
    assert page.page.evaluate(number) == int(np.argmin(page.state()["x"]))
    keyboard.press("PageDown")
    assert page.page.evaluate(number) == int(np.argsort(page.state()["x"])[1])
    page.settle()
    agrees(page)
    page.page.focus("#tab-points")
    keyboard.press("ArrowRight")
    assert page.page.locator("#table").is_visible()
    assert page.page.evaluate("document.activeElement.id") == "tab-table"


def test_two_points_always_stay(visit):
    page = visit().open("#points=1,1_2,3_4,2", "document.querySelectorAll('.dot').length === 3")
    page.page.locator(".dot").first.focus()
    for _ in range(3):
        page.page.keyboard.press("Delete")
    assert len(page.state()["x"]) == 2
    assert "two points must stay" in page.text("#plot-status")

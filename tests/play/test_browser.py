"""The page in a real browser: what a person does, and what must never happen meanwhile."""

from __future__ import annotations

import io
import re
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from conversation import wait_for
from regard import NadarayaWatsonRegressor
from regard.bandwidth import Objective, loo_objective
from regard.data import houses, notes
from regard.kernels import KERNELS
from regard.scores import RADIAL

pytestmark = pytest.mark.xdist_group("browser")
TOLERANCE = 1e-6
DESK, PHONE = {"width": 1360, "height": 900}, {"width": 390, "height": 844}
# The page is there, whatever it shows.
OPEN = "!!document.querySelector('#kernel option')"
TABLE = "!!document.getElementById('file').onchange"
READY = "!!document.querySelector('.sweep:not(.stale)')?.getAttribute('d')"
QUERY = np.linspace(0.0, 5.0, 241)


class Visit:
    """One page, with short ways to ask it things."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url

    def open(self, fragment: str = "", ready: str = READY) -> Visit:
        self.page.goto(f"{self.url}{fragment}")
        wait_for(self.page, ready)
        return self

    def state(self) -> dict[str, Any]:
        return self.page.evaluate(
            "async () => { const { state } = await import('/state.js'); "
            "return { ...state, x: [...state.x], y: [...state.y], hidden: [...state.hidden] }; }"
        )

    def curve(self, name: str = "attention") -> np.ndarray:
        """The curve drawn, in the units of the data."""
        return np.array(
            self.page.evaluate(
                """async (name) => {
                const { state } = await import("/state.js"), drawn = document.querySelector(`#plot .curve.${name}`);
                const numbers = drawn.getAttribute("d").match(/[-\\d.]+/g).map(Number);
                const cy = [...document.querySelectorAll(".dot")].map((dot) => +dot.getAttribute("cy"));
                const [a, b] = [Math.min(...cy), Math.max(...cy)].map((each) => cy.indexOf(each));
                const slope = (state.y[b] - state.y[a]) / (cy[b] - cy[a]);
                return numbers.filter((_, i) => i % 2).map((each) => state.y[a] + (each - cy[a]) * slope);
                }""",
                name,
            )
        )

    def dot(self, number: int) -> tuple[float, float]:
        box = self.page.locator(".dot").nth(number).bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def drag(self, number: int, dx: float, dy: float) -> None:
        x, y = self.dot(number)
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x + dx / 2, y + dy / 2)
        self.page.mouse.move(x + dx, y + dy)
        self.page.mouse.up()
        self.settle()

    def settle(self) -> None:
        """Two frames on, everything is drawn."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)


def meets_refusals(test: Any) -> Any:
    """A test in which the server is meant to refuse something."""
    test.refused = True
    return test


@pytest.fixture
def visit(playground, chromium, request, pictures) -> Iterator[Any]:
    """Opens pages; at the end none may have complained, or asked for anything beyond this machine."""
    contexts, complaints, asked = [], [], []
    # A refusal is an answer like any other, yet chromium writes it on its console.
    excused = getattr(request.function, "refused", False)

    def start(viewport: dict[str, int] = DESK, **options: Any) -> Visit:
        context = chromium.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(error.stack))
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda socket: asked.append(socket.url))
        return Visit(page, playground.url)

    yield start
    for number, context in enumerate(contexts):
        name = re.sub(r"\W+", "_", request.node.name)
        context.pages[0].screenshot(path=pictures / f"{name}_{number}.png", full_page=True)
        context.close()
    assert [each for each in complaints if not (excused and "responded with a status of 4" in each)] == []
    local = (
        f"http://127.0.0.1:{playground.port}/",
        f"ws://127.0.0.1:{playground.port}/",
        "blob:http://127.0.0.1",
        "data:",
    )
    assert [url for url in asked if not url.startswith(local)] == []


def predicted(found: dict[str, Any], w: float | None = None) -> np.ndarray:
    x, y = np.array(found["x"]), np.array(found["y"])
    model = NadarayaWatsonRegressor(kernel=found["kernel"], bandwidth=1 / (w or found["w"]))
    return model.fit(x[:, None], y).predict(QUERY[:, None])


def agrees(visit: Visit, name: str = "attention", w: float | None = None) -> None:
    """The curve drawn is the library's, as closely as a tenth of a pixel can be read."""
    np.testing.assert_allclose(visit.curve(name), predicted(visit.state(), w), atol=0.01)


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
                warnings.simplefilter("ignore", UserWarning)  # somebody is out of reach, and takes the nearest
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
        assert steps == 6
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


def test_hovering_shows_where_a_query_looks(visit):
    page = visit().open("#w=3")
    x, y = page.dot(25)
    page.page.mouse.move(x + 15, y + 60)
    page.settle()
    lines = page.page.locator("#plot .looks line:visible")
    widths = [float(lines.nth(i).get_attribute("stroke-width")) for i in range(lines.count())]
    assert widths == sorted(widths, reverse=True)
    told = page.text("#told")
    asked = float(re.search(r"x = ([\d.]+)", told)[1])
    data = notes(50, 0)
    weights = np.exp(-0.5 * (3.0 * (asked - data.x_train)) ** 2)
    share = np.sort(weights / weights.max())[::-1]
    np.testing.assert_allclose(np.array(widths[:5]) / widths[0], share[:5], atol=0.05)
    page.page.hover("#heat")
    assert "with weight" in page.text("#cell")


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
def test_chinese_is_whole_and_is_remembered(visit):
    page = visit().open()
    page.page.click("#lang")
    wait_for(page.page, "location.hash.includes('lang=zh')")
    visible = page.text("body")
    left = re.findall(
        r"[A-Za-z]{3,}", re.sub(r"regard|SVG|PNG|Python|SGD|BFGS|English|softmax|score|Epanechnikov", "", visible)
    )
    assert left == []
    assert page.page.evaluate("document.documentElement.lang") == "zh-CN"
    again = visit()
    again.page.goto(page.page.url.split("#")[0])  # no token and no cookie here: refused in a word of JSON
    assert "token" in again.text("body")
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
    wait_for(page.page, "document.getElementById('table-told').textContent.startsWith('own.csv: 3 rows')")
    assert page.page.locator("#fit").is_visible()


def test_what_is_not_needed_at_first_is_loaded_later(visit):
    page = visit().open()
    loaded = "performance.getEntriesByType('resource').map((each) => new URL(each.name).pathname)"
    assert not {"/table.js", "/share.js"} & set(page.page.evaluate(loaded))
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
    assert "Arrow keys" in page.text("#told")
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
    assert "Two points must stay" in page.text("#told")


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
    assert sorted(found["hidden"]) == ["truth"]
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
    assert re.search(r"Left-out R² of price is 0\.[5-9]", page.text("#score-told"))
    box = page.page.locator("#scatter").bounding_box()
    cloud = page.page.locator("#scatter .cloud").get_attribute("d")
    x, y = map(float, re.match(r"M([\d.]+) ([\d.]+)", cloud).groups())
    page.page.mouse.click(box["x"] + x + 3.5, box["y"] + y)
    page.page.wait_for_selector("#rows td")
    assert "Row 1 is" in page.text("#rows-told")
    assert HTML in page.text("#rows")
    assert page.page.locator("#rows .own").count() == 1
    page.page.focus("#scatter")
    page.page.keyboard.press("ArrowRight")
    wait_for(page.page, "!document.getElementById('rows-told').textContent.includes('Row 1 is')")
    assert page.page.locator("#table img, #table b > b").count() == 0


BAD_TABLES = [
    (b"x,y\n1,2\n3\n", "row 2"),
    (b"x,y\na,b\n", "two columns of numbers"),
    (b"x,y\n" + b"9" * 4_100_000, "4 MB"),
    (b"\x80\x04K\x01.", "UTF-8"),
]


@meets_refusals
def test_a_bad_table_is_told_in_words(visit):
    page = visit().open("#view=table", TABLE)
    for content, said in BAD_TABLES:
        page.page.set_input_files("#file", {"name": "t.csv", "mimeType": "text/csv", "buffer": content})
        wait_for(page.page, f"document.getElementById('table-told').textContent.includes('{said}')")
        assert page.page.locator("#table-told.wrong").count() == 1


def test_a_chinese_browser_is_spoken_to_in_chinese_and_no_element_has_a_style_of_its_own(visit):
    page = visit(locale="zh-CN").open()
    assert page.text("#train") == "训练"
    assert page.page.locator("[style]:not(i)").count() == 0

"""The tour's page in a real browser: nothing covers anything else, and its sliders say what the library says."""

from __future__ import annotations

import re

import numpy as np
import pytest

from regard import NadarayaWatsonRegressor
from regard.bandwidth import loo_objective
from regard.data.text import LANGUAGES
from regard.scores import Gaussian
from regard.tour.stations import STATIONS
from support.browser import glyphs
from support.conversation import wait_for
from support.story import CJK, NAMES, attention

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")

WIDTHS = (360, 700, 1000, 1400)
W_MIN, W_MAX, STEPS = 0.05, 500.0, 1000
SLIDERS = ("kernel", "heatmap", "learned", "diagnosis")

# Lines of text by the block or label that they stand in: pairs of different ones that overlap, what is cut off on the
# right, and how wide the page is. Fonts reach a little over their line.
MEASURED = """() => {
    for (const each of document.querySelectorAll("details")) each.open = true;
    const SLACK = 2, found = [], cut = [];
    const scrolls = (e) => e && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
    const inline = (e) => e.tagName !== "text" && getComputedStyle(e).display === "inline";
    const block = (e) => (inline(e) ? block(e.parentElement) : e);
    for (const section of document.querySelectorAll("header, nav, section, footer")) {
        const lines = [], walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            const { currentNode: node } = walker;
            if (!node.data.trim() || !node.parentElement.checkVisibility()) continue;
            const range = document.createRange();
            range.selectNodeContents(node);
            for (const box of range.getClientRects()) {
                if (box.width < 1) continue;
                lines.push([block(node.parentElement), box, node.data.trim().slice(0, 40)]);
                const out = box.right > innerWidth + 1 || box.left < -1;
                if (out && !scrolls(node.parentElement)) cut.push(node.data.trim());
            }
        }
        lines.forEach(([a, one, text], i) => lines.slice(i + 1).forEach(([b, other, more]) => {
            const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
            const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
            if (a !== b && across > SLACK && down > SLACK) found.push(`${section.id}: ${text} | ${more}`);
        }));
    }
    return { found, cut, wide: document.documentElement.scrollWidth };
}"""


@pytest.fixture
def opened(chromium, tours):
    """Opens the page; at the end it must have asked for nothing and complained of nothing."""
    contexts, complaints, asked = [], [], []

    def start(lang="en", width=1000, **options):
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda mistake: complaints.append(mistake.stack))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(tours[lang].page.as_uri())
        if options.get("java_script_enabled", True):
            wait_for(page, "document.fonts.status === 'loaded'")
        return page

    yield start
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url[:80] for url in asked if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_text_covers_another_or_is_cut_off(opened, lang, width):
    page = opened(lang, width)
    wait_for(page, f"document.querySelectorAll('.slider output').length === {len(SLIDERS)}")
    page.wait_for_timeout(100)  # the sliders draw in the next frame
    assert page.evaluate(MEASURED) == {"found": [], "cut": [], "wide": width}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_phone_shows_formulas_whole_and_figures_readably(opened, lang):
    page = opened(lang, 360)
    scrolled = "[...document.querySelectorAll('.formula')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    assert page.evaluate(scrolled) == 0
    # The width of a figure's viewBox is in points, and its smallest letters have nine or so.
    sizes = page.evaluate("[...document.querySelectorAll('figure img')].map((e) => e.clientWidth / e.naturalWidth)")
    assert len(sizes) > len(STATIONS)
    assert min(sizes) > 0.6


@pytest.mark.parametrize("width", [1000, 1400])
def test_a_desk_shows_code_whole(opened, width):
    page = opened(width=width)
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    wide = "[...document.querySelectorAll('pre')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.innerText)"
    assert page.evaluate(wide) == []


def test_the_measure_sees_what_is_covered_and_cut_off(opened):
    page = opened()
    page.evaluate("document.querySelector('#scoring .answer .number').style.marginRight = '-9rem'")
    page.evaluate("document.querySelector('#scoring .answer').style.gridTemplateColumns = '6rem 1fr'")
    page.evaluate("document.querySelector('#scoring .number span').style.width = '20rem'")
    page.evaluate("document.querySelector('#scoring .number span').textContent = 'x'.repeat(40)")
    page.evaluate("document.querySelector('#cues .question').style.whiteSpace = 'nowrap'")
    measured = page.evaluate(MEASURED)
    assert any(each.startswith("scoring") for each in measured["found"])
    assert measured["cut"]


def test_chinese_has_a_font_on_any_machine(opened):
    page = opened("zh")
    for selector in ("h1", "#kernel h2", "#kernel .story p", ".slider .move"):
        letters = len(CJK.findall(page.locator(selector).first.inner_text()))
        assert glyphs(page, selector) >= letters > 0


@pytest.mark.parametrize("lang", LANGUAGES)
def test_without_javascript_all_but_the_sliders_is_there(opened, lang):
    page = opened(lang, java_script_enabled=False)
    assert page.locator(".slider:visible").count() == 0
    assert page.locator("section .answer:visible").count() == len(STATIONS)
    assert page.locator("figure img:visible").count() > len(STATIONS)


def chosen(page, name, place):
    """Moves a slider; the w that it stands for, and what is said there."""
    box = page.locator(f"#{name} .slider")
    box.locator("[type=range]").fill(str(place))
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    w = W_MIN * (W_MAX / W_MIN) ** (place / STEPS)
    assert float(re.search(r"w = ([\d.]+)", box.locator("output").inner_text())[1]) == pytest.approx(w, rel=5e-3)
    said = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-\d+)?", box.locator("p").inner_text().replace("1/Σα²", ""))
    return w, [float(each) for each in said]


def close(found, expected):
    """Three digits are shown."""
    assert found == pytest.approx(expected, rel=6e-3, abs=1e-12)


def test_sliders_begin_where_the_notes_do(opened):
    page = opened()
    for name in SLIDERS:
        assert page.locator(f"#{name} output").inner_text() == "w = 1 · h = 1"


@pytest.mark.parametrize("place", [0, 300, 500, 800])
def test_sliders_say_what_the_library_says(opened, data, place):
    page, (x, y) = opened(), (data.x_train, data.y_train)
    w, (query, keys, n, answer) = chosen(page, "kernel", place)
    weights = attention(np.array([2.5]), x, w)[0]
    assert (query, n) == (2.5, 50)
    close([keys, answer], [1 / (weights**2).sum(), weights @ y])

    w, (most, keys) = chosen(page, "heatmap", place)
    weights = attention(data.x_test, x, w)
    median = np.quantile(1 / (weights**2).sum(axis=1), 0.5, method="inverted_cdf")
    close([most, keys], [weights.max(), median])

    w, (loss, least, best) = chosen(page, "learned", place)
    model = NadarayaWatsonRegressor(metric="scalar").fit(x[:, None], y)
    close([loss, least], [50 * loo_objective(x[:, None], y, Gaussian(w)), 50 * model.search_.value])
    assert best == pytest.approx(model.w_, rel=0.02)

    w, (keys, fitted, left) = chosen(page, "diagnosis", place)
    found = NadarayaWatsonRegressor(bandwidth=1 / w).fit(x[:, None], y).diagnose()
    close([keys, fitted, left], [found.neighbours, found.training_loss, found.loo_loss])
    assert found.verdict in page.locator("#diagnosis .slider p").inner_text().lower()


def test_a_slider_moves_by_the_keyboard_and_has_a_name(opened):
    page = opened("zh")
    slider = page.get_by_role("slider", name="拖动 w").first
    slider.focus()
    page.keyboard.press("ArrowRight")
    wait_for(page, "document.querySelector('#kernel output').textContent.startsWith('w = 1.01')")
    assert page.evaluate("document.querySelector('#kernel input').ariaValueText").startswith("w = 1.01")


def test_the_heat_map_can_be_shuffled_and_follows_the_colour_scheme(opened):
    corner = """() => {
        const copy = new OffscreenCanvas(50, 50).getContext("2d");
        copy.drawImage(document.querySelector("#heatmap canvas"), 0, 0);
        return [...copy.getImageData(0, 0, 50, 50).data];
    }"""
    page = opened(color_scheme="dark")
    page.wait_for_timeout(100)
    tidy = np.array(page.evaluate(corner)).reshape(50, 50, 4)
    page.locator("#heatmap [type=checkbox]").uncheck()
    page.wait_for_timeout(100)
    mixed = np.array(page.evaluate(corner)).reshape(50, 50, 4)
    assert np.array_equal(np.sort(tidy.reshape(-1, 4), axis=0), np.sort(mixed.reshape(-1, 4), axis=0))
    rows = np.arange(50)
    assert np.corrcoef(rows, tidy[..., 0].argmax(axis=1))[0, 1] > 0.9
    assert abs(np.corrcoef(rows, mixed[..., 0].argmax(axis=1))[0, 1]) < 0.5
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(100)
    light = np.array(page.evaluate(corner)).reshape(50, 50, 4)
    assert light[..., 0].mean() > 2 * mixed[..., 0].mean()


def test_the_stops_with_sliders_are_stations():
    from regard.tour.tour_page import SLIDERS as SHOWN

    assert tuple(SHOWN) == SLIDERS
    assert set(SHOWN) <= set(NAMES)

"""The view of dates in a real browser: type, watch it step, point, press keys, and take it away by link."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from regard.play.date_service import DateService
from support.conversation import wait_for
from support.reader import SURE, Reader, translation_of
from support.visits import PHONE

pytestmark = pytest.mark.xdist_group("browser")

SAID = "document.getElementById('date-status').textContent"
STEPS = "[...document.querySelectorAll('#decoder .step')]"
AT = f"{STEPS}.findIndex((each) => each.classList.contains('at'))"
VIEW = "#view=dates&date="


def translated(page, text: str) -> None:
    wait_for(page.page, f"{SAID} === {text!r}")


def test_a_typed_date_is_translated_and_the_decoder_steps_through_it(visit):
    page = visit().open("#view=dates", "!!document.querySelector('#examples button')")
    translated(page, "May 3rd, 2021 → 2021-05-03")
    page.page.fill("#date", "le 3 mai 2021")
    translated(page, "le 3 mai 2021 → 2021-05-03")
    seen, pale = [0], "document.querySelectorAll('#decoder .later').length"
    while seen[-1] < 10:
        at, later = page.page.evaluate(f"[{AT}, {pale}]")
        assert at + later == 10, "what is not said yet is pale"
        seen.append(at)
        page.page.wait_for_timeout(50)
    assert seen == sorted(seen)
    assert len(set(seen)) > 4, "one step after the other"
    assert page.page.locator("#decoder text").count() == len("le 3 mai 2021") + 11
    assert page.text("#decoder-step").startswith("Step 11 of 11 writes ⏎")
    page.page.click("#replay")
    wait_for(page.page, f"{AT} < 10")


def test_weights_are_drawn_where_the_model_looked(visit):
    page = visit(reduced_motion="reduce").open(VIEW + "3. Mai 2021", f"{AT} === 0")
    weights = translation_of("3. Mai 2021").weights
    shades = page.page.evaluate(
        "[...document.querySelectorAll('#align rect:not(.frame)')].map((each) => +each.style.fillOpacity)"
    )
    assert shades == pytest.approx(weights.ravel(), abs=1e-4)
    page.page.hover("#decoder .step >> nth=9")
    assert page.page.evaluate(AT) == 9
    widths = page.page.evaluate(
        "[...document.querySelectorAll('#decoder line')].map((each) => +each.getAttribute('stroke-width'))"
    )
    assert [width / max(widths) for width in widths] == pytest.approx(weights[9] / weights[9].max(), abs=1e-3)
    percent = round(100 * (SURE + (1 - SURE) / 11))
    assert page.text("#decoder-step") == f"Step 10 of 11 writes 3 and attends to 3 {percent} %"
    # The map's rows are steps too, and the frame stands around the one that is shown.
    page.page.hover("#align rect >> nth=40")
    assert page.page.evaluate(AT) == 3
    assert page.page.locator("#align .frame").get_attribute("y") == page.page.locator(
        "#align rect >> nth=33"
    ).get_attribute("y")


def test_nothing_moves_for_those_who_want_it_so(visit):
    page = visit(reduced_motion="reduce").open(VIEW + "3. Mai 2021", f"{AT} === 0")
    page.page.wait_for_timeout(1200)
    assert page.page.evaluate(AT) == 0
    assert page.page.locator("#decoder .later").count() == 0
    assert page.page.evaluate("getComputedStyle(document.querySelector('#decoder rect')).transitionDuration") == "0s"


def test_keys_go_from_step_to_step_and_stop_the_animation(visit):
    page = visit().open(VIEW + "3. Mai 2021", f"{AT} >= 0")
    page.page.focus("#decoder")
    page.page.keyboard.press("ArrowLeft")
    here = page.page.evaluate(AT)
    for key, by in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        page.page.keyboard.press(key)
        assert page.page.evaluate(AT) == here + by
    page.page.wait_for_timeout(1000)
    assert page.page.evaluate(AT) == here + 1
    for _ in range(15):
        page.page.keyboard.press("ArrowRight")
    assert page.page.evaluate(AT) == 10
    assert page.page.evaluate("document.getElementById('decoder-step').ariaLive") == "polite"
    assert "Arrow keys" in page.page.evaluate("document.getElementById('decoder').ariaLabel")


def test_examples_links_and_html(visit):
    page = visit().open("#view=dates", "!!document.querySelector('#examples button')")
    page.page.click("#examples button >> nth=4")
    translated(page, "二〇二一年五月三日 → 2021-05-03")
    wait_for(page.page, "decodeURIComponent(location.hash).includes('date=二〇二一年五月三日')")
    again = visit().open("#" + page.page.url.split("#")[1], f"{AT} >= 0")
    translated(again, "二〇二一年五月三日 → 2021-05-03")
    page.page.fill("#date", "<b onclick=alert(1)>&")
    translated(page, "<b onclick=alert(1)>& → <b onclick=alert(1)>&")
    assert page.page.locator("#dates b").count() == 0
    page.page.fill("#date", "  ")
    wait_for(page.page, f"{SAID} === ''")
    assert page.page.locator("#decoder").is_hidden()


def test_a_refusal_is_shown_in_the_page(visit):
    page = visit().open(VIEW + "3" * 60, f"{SAID} !== ''")
    assert "1 to 40 characters" in page.text("#date-status")
    assert "wrong" in page.page.get_attribute("#date-status", "class")
    assert page.page.locator("#decoder").is_hidden()


def test_the_page_waits_for_a_model_that_learns(visit, playground, monkeypatch, tmp_path):
    go = threading.Event()

    def learn(watch):
        watch(SimpleNamespace(step=1, steps=4))
        go.wait(60)
        return Reader()

    monkeypatch.setattr(playground.shared, "dates", DateService(tmp_path / "dates.regard", learn))
    page = visit().open("#view=dates", f"{SAID}.endsWith('25 %')")
    assert page.page.locator("#date-bar").is_visible()
    assert page.page.evaluate("document.getElementById('date-bar').value") == 0.25
    go.set()
    translated(page, "May 3rd, 2021 → 2021-05-03")
    assert page.page.locator("#date-bar").is_hidden()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_phone_shows_everything_within_its_width(visit, lang):
    page = visit(PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce")
    page.open(f"{VIEW}mi%C3%A9rcoles, 23 de septiembre de 2021&lang={lang}", f"{AT} === 0")
    wide = """() => {
        const out = (e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1;
        return [document.documentElement.scrollWidth, [...document.querySelectorAll("#dates *")].filter(out).length];
    }"""
    assert page.page.evaluate(wide) == [390, 0]
    page.page.tap("#decoder .step >> nth=5")
    assert page.page.evaluate(AT) == 5


def test_chinese_is_whole(visit):
    page = visit().open(VIEW + "2021年5月3日&lang=zh", f"{AT} >= 0")
    left = page.text("#dates")
    for example in ("May 3rd, 2021", "le 3 mai 2021", "Montag, 3. Mai 2021"):
        left = left.replace(example, "")
    assert not any("a" <= letter.lower() <= "z" for letter in left)
    assert page.page.evaluate("[...document.querySelectorAll('[data-label]')].every((each) => each.ariaLabel)")
    page.page.click("#lang")
    assert "Attention of the decoder" in page.text("#dates")
    assert page.text("#decoder-step").startswith("Step")

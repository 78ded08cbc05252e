"""A visitor of the playground's page: a browser's page, with short ways to ask it things."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from regard import NadarayaWatsonRegressor
from support.conversation import wait_for

TOLERANCE = 1e-6
DESK, PHONE = {"width": 1360, "height": 900}, {"width": 390, "height": 844}
# The page is there, whatever it shows.
OPEN = "!!document.querySelector('#kernel option')"
TABLE = "!!document.getElementById('file').onchange"
READY = "!!document.querySelector('.sweep:not(.stale)')?.getAttribute('d')"
QUERY = np.linspace(0.0, 5.0, 241)


class Visit:
    """One page, with short ways to ask it things."""

    def __init__(self, page: Any, new_url: Callable[[], str]) -> None:
        self.page, self.new_url = page, new_url

    def open(self, fragment: str = "", ready: str = READY) -> Visit:
        self.page.goto(f"{self.new_url()}{fragment}")
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


def predicted(found: dict[str, Any], w: float | None = None) -> np.ndarray:
    x, y = np.array(found["x"]), np.array(found["y"])
    model = NadarayaWatsonRegressor(kernel=found["kernel"], bandwidth=1 / (w or found["w"]))
    return model.fit(x[:, None], y).predict(QUERY[:, None])


def agrees(visit: Visit, name: str = "attention", w: float | None = None) -> None:
    """The curve drawn is the library's, as closely as a tenth of a pixel can be read."""
    np.testing.assert_allclose(visit.curve(name), predicted(visit.state(), w), atol=0.01)

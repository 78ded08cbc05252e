"""``regard fit --report``: a page beside the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import files, ok, refused

FIT = ("fit", "houses.csv", "--target", "price", "--out", "m.regard", "--bandwidth", "scott")


@pytest.mark.parametrize(("lang", "words"), [("en", "What was learned about price"), ("zh", "关于 price 学到了什么")])
def test_a_page(here: Path, capfd, lang: str, words: str) -> None:
    _, err = ok(capfd, *FIT, "--report", "page.html", "--lang", lang)
    assert "wrote page.html: open it in a browser\n" in err
    assert words in Path("page.html").read_text(encoding="utf-8")
    assert files(here) == ["houses.csv", "kinds.csv", "m.regard", "page.html"]


def test_what_is_there_stays(here: Path, capfd) -> None:
    Path("page.html").write_text("mine")
    assert "page.html: already exists" in refused(capfd, *FIT, "--report", "page.html")
    assert "m.regard" not in files(here)
    ok(capfd, *FIT, "--report", "page.html", "--force")
    assert Path("page.html").read_text(encoding="utf-8") != "mine"


def test_the_page_is_a_file_of_its_own(here: Path, capfd) -> None:
    for place in ("-", "m.regard"):
        assert "must be a file, and another one than --out" in refused(capfd, *FIT, "--report", place)
    assert "houses.csv: is an input file too" in refused(capfd, *FIT, "--report", "houses.csv", "--force")
    assert files(here) == ["houses.csv", "kinds.csv"]

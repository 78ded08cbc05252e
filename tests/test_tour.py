"""The tour: every number is computed a second time here, in plain numpy; every page must stand alone."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from dataclasses import fields, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib import font_manager

from regard.data import notes, notes_truth
from regard.tour import TourResult, fonts, guide, page, pictures, run
from regard.tour.station import Told, Visit
from regard.tour.stations import STATIONS
from regard.tour.stations.moredata import REPEATS, SIZES
from regard.tour.text import LANGUAGES, Text

# One worker runs the tour once per language and all these tests read it.
pytestmark = pytest.mark.xdist_group("tour")

NAMES = ["cues", "average", "hard", "soft", "kernel", "heatmap", "batch", "softmax", "moredata"]
CJK = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def tours(tmp_path_factory):
    """Tours in both languages. A letter missing from a figure's font would be a warning, hence an error."""
    return {lang: run(tmp_path_factory.mktemp("tour") / lang, lang=lang) for lang in LANGUAGES}


@pytest.fixture(scope="module")
def answers(tours):
    return dict(zip(NAMES, (row.answer for row in tours["en"].rows), strict=True))


@pytest.fixture(scope="module")
def data():
    return notes(seed=0)


def error(predicted, truth):
    return np.sqrt(np.mean((predicted - truth) ** 2))


def attention(query, key, w=1.0):
    e = np.exp(-0.5 * (w * (query[:, None] - key[None, :])) ** 2)
    return e / e.sum(axis=1, keepdims=True)


# ---------------------------------------------------------------- what the stations answer


def test_stations_come_in_the_order_of_the_story():
    assert [station.name for station in STATIONS] == NAMES


def test_rows_are_the_stations(tours):
    for lang, tour in tours.items():
        assert isinstance(tour, TourResult)
        assert [(r.station, r.question) for r in tour.rows] == [
            (s.title.said(lang), s.question.said(lang)) for s in STATIONS
        ]
    assert tours["en"].columns == ("Station", "Question", "Answer")


def test_cues(answers):
    keys, words = np.array([[3, 0], [2, 0.5], [1, 2], [0.5, 3]]), np.array([0, 40, 150, 300])
    glance, wish = (np.exp(keys @ q) / np.exp(keys @ q).sum() for q in ([1, 0], [0, 1]))
    assert f"from {100 * glance[3]:.0f}% to {100 * wish[3]:.0f}%" in answers["cues"]
    assert f"from {glance @ words:.0f} to {wish @ words:.0f} words" in answers["cues"]


def test_average_pooling(answers, data):
    mean = data.y_train.mean()
    assert f"the mean is {mean:.3f} everywhere" in answers["average"]
    assert f"misses the truth by {error(mean, data.y_truth):.3f}" in answers["average"]


def _nearest(data, queries):
    return data.y_train[np.abs(queries[:, None] - data.x_train[None, :]).argmin(axis=1)]


def test_hard_attention(answers, data):
    fine = np.linspace(0, 5, 1001)
    turns = []
    for curve in (_nearest(data, fine), notes_truth(fine)):
        steps = [step for step in np.sign(np.diff(curve)) if step]
        turns.append(sum(a != b for a, b in pairwise(steps)))
    assert f"RMSE is {error(_nearest(data, data.x_test), data.y_truth):.3f}." in answers["hard"]
    assert f"turns {turns[0]} times between 0 and 5, the truth only {turns[1]} times" in answers["hard"]


def test_soft_attention(answers, data):
    soft = error(attention(data.x_test, data.x_train) @ data.y_train, data.y_truth)
    mean, hard = error(data.y_train.mean(), data.y_truth), error(_nearest(data, data.x_test), data.y_truth)
    assert f"RMSE is {soft:.3f}, {100 - 100 * soft / mean:.0f}% less than the mean’s {mean:.3f}" in answers["soft"]
    assert f"({hard:.3f})" in answers["soft"]
    assert ("beats hard attention" in answers["soft"]) == (soft < hard)


def test_soft_attention_says_so_when_hard_attention_is_nearer():
    data = notes(seed=1)
    soft = error(attention(data.x_test, data.x_train) @ data.y_train, data.y_truth)
    assert soft > error(_nearest(data, data.x_test), data.y_truth), "choose another seed for this test"
    told = STATIONS[NAMES.index("soft")].tell(Visit(data, 1, "en"))
    assert "Hard attention is nearer still" in told.answer.en
    assert "硬注意力还要更近一些" in told.answer.zh


def test_kernel_widths(answers, data):
    heard = [1 / (attention(np.array([2.5]), data.x_train, w) ** 2).sum() for w in (1.0, 4.0)]
    assert f"{heard[0]:.1f} of 50 keys for w = 1 and {heard[1]:.1f} for w = 4" in answers["kernel"]


def test_kernel_curves_are_gaussian(data):
    figure = STATIONS[NAMES.index("kernel")].tell(Visit(data, 0, "en")).drawings[0].figure
    for line, w in zip(figure.axes[0].lines, (0.5, 1.0, 2.0, 4.0), strict=True):
        u = line.get_xdata()
        np.testing.assert_allclose(line.get_ydata(), np.exp(-((w * u) ** 2) / 2) / np.sqrt(2 * np.pi), rtol=1e-12)


def test_heatmap_ranks(answers, data):
    from scipy.stats import rankdata

    def agree(a, b):
        return np.corrcoef(rankdata(a), rankdata(b))[0, 1]

    rng = np.random.default_rng(0)
    keys, queries = rng.permutation(data.x_train), rng.permutation(data.x_test)
    tidy, mixed = attention(data.x_test, data.x_train).argmax(axis=1), attention(queries, keys).argmax(axis=1)
    sorted_, shuffled, numbers = (
        f"{value:.3f}".replace("-", "−")
        for value in (agree(np.arange(50), tidy), agree(np.arange(50), mixed), agree(queries, keys[mixed]))
    )
    assert f"is {sorted_} sorted and {shuffled} shuffled" in answers["heatmap"]
    assert f"it is {numbers}, shuffled or not" in answers["heatmap"]
    assert float(sorted_) > 0.98
    assert abs(float(shuffled.replace("−", "-"))) < 0.4


def test_heatmap_panels_hold_the_same_weights(data):
    figure = STATIONS[NAMES.index("heatmap")].tell(Visit(data, 0, "en")).drawings[0].figure
    tidy, mixed = (ax.images[0] for ax in figure.axes[:2])
    np.testing.assert_allclose(tidy.get_array(), attention(data.x_test, data.x_train), rtol=1e-12)
    np.testing.assert_allclose(np.sort(tidy.get_array(), axis=None), np.sort(mixed.get_array(), axis=None), rtol=1e-12)
    assert tidy.get_clim() == mixed.get_clim()


def _small(answer):
    """The tiny number an answer ends with."""
    if answer.endswith(" 0."):
        return 0.0
    digits, power = re.search(r"([\d.]+)\s×\s10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", answer).groups()
    return float(digits) * 10.0 ** int(power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))


def test_batch_multiplication(answers):
    assert "4.5 and 14.5" in answers["batch"]
    assert _small(answers["batch"]) < 1e-13


def test_softmax_is_the_kernel_ratio(answers):
    assert "2,500 weights" in answers["softmax"]
    assert _small(answers["softmax"]) < 1e-14


def test_more_data(answers):
    errors = np.empty((3, len(SIZES)))
    for column, n in enumerate(SIZES):
        squares = np.zeros(3)
        for draw in range(REPEATS):
            d = notes(n_train=n, seed=draw)
            fixed, shrinking = (attention(d.x_test, d.x_train, 1 / h) @ d.y_train - d.y_truth for h in (1.0, n**-0.2))
            squares += [np.mean(e**2) for e in (fixed, shrinking, shrinking[(d.x_test > 0.99) & (d.x_test < 4.01)])]
        errors[:, column] = np.sqrt(squares / REPEATS)
    slopes = [f"{np.polyfit(np.log(SIZES), np.log(e), 1)[0]:.2f}".replace("-", "−") for e in errors]
    said = answers["moredata"]
    assert f"from {errors[0, 0]:.3f} to {errors[0, -1]:.3f} at h = 1 (slope {slopes[0]};" in said
    assert f"from {errors[1, 0]:.3f} to {errors[1, -1]:.3f} with" in said
    assert f"(slope {slopes[1]}, and {slopes[2]} away from the edges)" in said
    # The story's claims: the fixed bandwidth stays at its bias, the other falls like n^(−2/5) inside.
    bias = float(re.search(r"the bias is ([\d.]+)", said).group(1))
    assert abs(errors[0, -1] - bias) < 0.02
    assert errors[1, -1] < 0.3 * errors[1, 0]
    assert -0.5 < float(slopes[2].replace("−", "-")) < -0.33


@pytest.mark.parametrize("station", STATIONS, ids=NAMES)
def test_the_code_on_the_page_runs(station, data):
    *lines, last = station.code.rstrip().split("\n")
    names = {**data._asdict()}
    exec("\n".join(lines), names)
    result = eval(last, names)
    expected = {
        "cues": lambda: np.exp([0, 0.5, 2, 3]) @ [0, 40, 150, 300] / np.exp([0, 0.5, 2, 3]).sum(),
        "average": lambda: np.full(50, data.y_train.mean()),
        "hard": lambda: _nearest(data, data.x_test),
        "soft": lambda: attention(data.x_test, data.x_train) @ data.y_train,
        "kernel": lambda: 1 / (attention(np.array([2.5]), data.x_train, 4.0) ** 2).sum(),
        "batch": lambda: [[[4.5]], [[14.5]]],
        "softmax": lambda: 0.0,
    }
    if station.name in expected:
        np.testing.assert_allclose(result, expected[station.name](), rtol=1e-10, atol=1e-14)


# ---------------------------------------------------------------- two languages


def _texts():
    for station in STATIONS:
        for field in fields(station):
            if isinstance(words := getattr(station, field.name), Text):
                yield f"{station.name}.{field.name}", words
    yield from ((f"page.{name}", words) for name, words in page.WORDS.items())
    yield from ((f"column.{words.en}", words) for words in guide.COLUMNS)


@pytest.mark.parametrize("words", [pytest.param(words, id=where) for where, words in _texts()])
def test_every_text_is_there_in_both_languages(words):
    assert words.en.strip()
    assert not CJK.search(words.en)
    assert CJK.search(words.zh)


def test_answers_and_captions_are_in_both_languages(tours):
    for lang in LANGUAGES:
        html = tours[lang].page.read_text(encoding="utf-8")
        captions = re.findall(r"<figcaption>(.*?)</figcaption>", html)
        assert len(captions) == len(STATIONS)
        for words in [*captions, *(row.answer for row in tours[lang].rows)]:
            assert bool(CJK.search(words)) == (lang == "zh"), words


def test_both_languages_say_the_same_numbers(tours):
    for en, zh in zip(tours["en"].rows, tours["zh"].rows, strict=True):
        numbers = [sorted(set(re.findall(r"\d+\.\d+", row.answer))) for row in (en, zh)]
        assert numbers[0] == numbers[1]


def test_an_english_page_has_no_chinese(tours):
    assert not CJK.search(tours["en"].page.read_text(encoding="utf-8"))


def test_chinese_lines_join_without_a_space(tours):
    html = tours["zh"].page.read_text(encoding="utf-8")
    stories = "".join(re.findall(r'<div class="story">(.*?)</div>', html, flags=re.DOTALL))
    assert not re.search(r"[\u4e00-\u9fff，。；：）]\s+[\u4e00-\u9fff，。；：（]", stories)


# ---------------------------------------------------------------- letters in figures


def test_without_a_chinese_font_figures_stay_english_and_the_page_says_so(monkeypatch, tmp_path, tours):
    seen = []

    def tell(visit: Visit) -> Told:
        seen.append(visit.lettering)
        return STATIONS[1].tell(visit)

    monkeypatch.setattr(fonts, "chinese_family", lambda: None)
    monkeypatch.setattr(guide, "STATIONS", (replace(STATIONS[1], tell=tell),))
    result = run(tmp_path, lang="zh")
    html = result.page.read_text(encoding="utf-8")
    assert seen == ["en"]
    assert page.WORDS["letters"].zh in html
    assert CJK.search(result.rows[0].answer)
    assert page.WORDS["letters"].en not in tours["en"].page.read_text(encoding="utf-8")


def test_a_font_without_chinese_letters_is_not_chosen(monkeypatch):
    latin = font_manager.findfont(fonts.LATIN)
    pretender = SimpleNamespace(name="SimHei", fname=latin)
    monkeypatch.setattr(font_manager, "fontManager", SimpleNamespace(ttflist=[pretender]))
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert fonts.chinese_family() is None
    monkeypatch.setattr(fonts, "_has_letters", lambda path: path == latin)
    assert fonts.chinese_family() == "SimHei"


def test_the_more_legible_font_wins(monkeypatch):
    known = [SimpleNamespace(name=name, fname=name) for name in ("SimSun", "Noto Sans CJK SC", "DejaVu Sans")]
    monkeypatch.setattr(font_manager, "fontManager", SimpleNamespace(ttflist=known))
    monkeypatch.setattr(fonts, "_has_letters", lambda path: True)
    assert fonts.chinese_family() == "Noto Sans CJK SC"


def test_fonts_installed_since_are_found(monkeypatch):
    known: list[SimpleNamespace] = []

    def add(path):
        known.append(SimpleNamespace(name="WenQuanYi Micro Hei", fname=path))

    monkeypatch.setattr(font_manager, "fontManager", SimpleNamespace(ttflist=known, addfont=add))
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: ["/fonts/Lato.ttf", "/fonts/wqy-microhei.ttc"])
    monkeypatch.setattr(fonts, "_has_letters", lambda path: True)
    assert fonts.chinese_family() == "WenQuanYi Micro Hei"
    assert [entry.fname for entry in known] == ["/fonts/wqy-microhei.ttc"]


# ---------------------------------------------------------------- the page and the files


class Reader(HTMLParser):
    """Collects addresses and tags, and insists that every tag is closed in turn."""

    VOID = frozenset({"meta", "link", "img", "br", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.alts: list[str | None] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.addresses += [given[name] for name in ("src", "href", "srcset", "action", "data") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag == "img":
            self.alts.append(given.get("alt"))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def _read(tour):
    reader = Reader()
    html = tour.page.read_text(encoding="utf-8")
    reader.feed(html)
    reader.close()
    return reader, html


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_is_self_contained(tours, lang):
    reader, html = _read(tours[lang])
    assert reader.open == []
    prose = re.sub(r'"data:image[^"]*"', "", html)
    assert len(prose) < 60_000
    assert not re.search(r"https?:|//[a-z]|@import|url\(", prose)
    assert not reader.tags & {"script", "iframe", "object", "embed", "video", "audio"}
    for address in reader.addresses:
        assert address.startswith(("data:", "#")), address[:60]
        assert not address.startswith("#") or address[1:] in reader.ids
    assert len(set(reader.ids)) == len(reader.ids) == len(STATIONS) + 1
    assert len(reader.alts) == len(STATIONS)
    assert all(reader.alts)
    assert f'<html lang="{"zh-CN" if lang == "zh" else "en"}">' in html


def test_embedded_figures_are_the_files_and_point_nowhere_else(tours):
    reader, _ = _read(tours["en"])
    head = "data:image/svg+xml;base64,"
    embedded = [base64.b64decode(a.removeprefix(head)) for a in reader.addresses if a.startswith(head)]
    assert embedded == [path.read_bytes() for path in tours["en"].figures if path.suffix == ".svg"]
    for svg in embedded:
        for element in ET.fromstring(svg).iter():
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:"))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_figure_is_there_as_png_and_svg(tours, lang):
    tour = tours[lang]
    names = [f"{number:02d}-{name}" for number, name in enumerate(NAMES, 1)]
    assert [path.name for path in tour.figures] == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    assert sorted(p for p in tour.page.parent.rglob("*") if p.is_file()) == sorted([tour.page, *tour.figures])
    for path in tour.figures:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG") if path.suffix == ".png" else b"<svg" in content


def test_the_answer_stands_in_its_section_and_in_the_table(tours):
    html = tours["en"].page.read_text(encoding="utf-8")
    assert html.count("misses the truth by 0.943") == 2
    assert "n<sup>−1/5</sup> (slope" in html


def test_the_same_seed_gives_the_same_bytes(tours, tmp_path):
    again = run(tmp_path, lang="en", seed=0)
    assert again.rows == tours["en"].rows
    assert again.page.read_bytes() == tours["en"].page.read_bytes()


def test_another_seed_gives_other_numbers(tours, tmp_path, monkeypatch):
    monkeypatch.setattr(guide, "STATIONS", STATIONS[1:2])
    other = run(tmp_path, seed=7)
    expected = error(notes(seed=7).y_train.mean(), notes_truth(notes().x_test))
    assert f"by {expected:.3f}" in other.rows[0].answer
    assert other.rows[0] != tours["en"].rows[1]
    assert "seed=7" in other.page.read_text(encoding="utf-8")
    assert "regard tour --lang en" in tours["en"].page.read_text(encoding="utf-8")


# ---------------------------------------------------------------- manners


def test_progress_is_told_before_each_station(tmp_path, monkeypatch):
    monkeypatch.setattr(guide, "STATIONS", STATIONS[1:3])
    heard = []
    run(tmp_path, lang="zh", progress=lambda *what: heard.append(what))
    assert heard == [(1, 2, "平均汇聚"), (2, 2, "硬注意力")]


def test_a_failing_station_leaves_nothing_behind(tmp_path, monkeypatch):
    def tell(visit: Visit) -> Told:
        raise KeyboardInterrupt

    monkeypatch.setattr(guide, "STATIONS", (STATIONS[1], replace(STATIONS[2], tell=tell)))
    before = dict(matplotlib.rcParams)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "tour")
    assert not (tmp_path / "tour").exists()
    assert dict(matplotlib.rcParams) == before


def test_a_readers_settings_neither_matter_nor_change(tmp_path, monkeypatch):
    monkeypatch.setattr(guide, "STATIONS", STATIONS[1:2])
    plain = run(tmp_path / "plain").figures[1].read_bytes()
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "savefig.bbox": "tight"}):
        mine = dict(matplotlib.rcParams)
        assert run(tmp_path / "own").figures[1].read_bytes() == plain
        assert dict(matplotlib.rcParams) == mine


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"lang": "fr"}, ValueError, "lang must be one of en, zh, got 'fr'"),
        ({"seed": -1}, ValueError, "seed must be a whole number, 0 or more, got -1"),
        ({"seed": 1.5}, ValueError, "seed must be a whole number, 0 or more, got 1.5"),
        ({"seed": True}, ValueError, "seed must be a whole number, 0 or more, got True"),
    ],
)
def test_errors_name_the_argument(tmp_path, arguments, kind, message):
    with pytest.raises(kind, match=message):
        run(tmp_path / "tour", **arguments)
    assert not (tmp_path / "tour").exists()


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "tour").write_text("mine")
    with pytest.raises(NotADirectoryError, match="out must be a folder, got the file"):
        run(tmp_path / "tour")
    assert (tmp_path / "tour").read_text() == "mine"


# ---------------------------------------------------------------- the README's pictures


def test_the_readmes_pictures_can_be_drawn_again(tmp_path):
    drawn = pictures.draw(tmp_path / "images")
    assert [path.name for path in drawn] == ["hero.png", "query-key-value.png", "more-data.png"]
    kept = Path(__file__).resolve().parents[1] / "docs" / "images"
    assert sorted(path.name for path in kept.glob("*.png")) == sorted(path.name for path in drawn)
    for path in [*drawn, *kept.glob("*.png")]:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size < 150_000

"""Dates on the server: the model is learned once, in the background, and kept; bad texts are refused in a word."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace

import numpy as np
import pytest

from regard.play import date_service
from regard.play.date_service import MAX_DATE_CHARACTERS, DateService, cache_path, load_model
from regard.play.security import Refused
from support.reader import Reader, learned_at_once, translation_of

SHORT = 300


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "new" / "dates.regard"


def settled(model: DateService, text: str = "3. Mai 2021") -> dict:
    """The answer once there is one."""
    end = monotonic() + 60.0
    while (found := model.answer(text))["did"] == "learning":
        assert monotonic() < end
        sleep(0.01)
    return found


# ---------------------------------------------------------------- the conversation


def test_a_date_is_translated_with_its_weights(talk):
    conversation = talk()
    heard = []
    while not heard or heard[-1]["did"] == "learning":
        conversation.ask(do="translate", text=" 3. Mai 2021 ")
        heard += conversation.until("translated", "learning", "refused")
    found, expected = heard[-1], translation_of("3. Mai 2021")
    assert found["text"] == "2021-05-03"
    assert found["source"] == list("3. Mai 2021")
    assert found["target"] == [*"2021-05-03", "<eos>"]
    np.testing.assert_allclose(found["weights"], expected.weights, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "text must be text of 1 to 400 characters"),
        ("   ", f"a date of 1 to {MAX_DATE_CHARACTERS} characters"),
        ("3" * (MAX_DATE_CHARACTERS + 1), f"a date of 1 to {MAX_DATE_CHARACTERS} characters"),
        ("3" * 5000, "text must be text of 1 to 400 characters"),
        (None, "text must be text"),
        (["3 mai"], "text must be text"),
        (20210503, "text must be text"),
    ],
)
def test_what_is_no_text_is_422(talk, text, said):
    conversation = talk()
    conversation.ask(do="translate", text=text)
    heard = conversation.until("refused")[-1]
    assert heard["status"] == 422
    assert said in heard["error"]
    assert len(json.dumps(heard)) < SHORT


def test_other_fields_are_refused(talk):
    conversation = talk()
    conversation.ask(do="translate", text="3 mai", path="/etc/passwd")
    assert conversation.until("refused")[-1]["error"] == "the message has unknown fields; accepted are do, job, text"


def test_a_text_as_long_as_allowed_and_html_come_back_as_they_are(talk, playground):
    settled(playground.shared.dates)
    conversation = talk()
    for text in ("3" * MAX_DATE_CHARACTERS, "<b onclick=alert(1)>&amp;"):
        conversation.ask(do="translate", text=text)
        assert conversation.until("translated")[-1]["source"] == list(text)


# ---------------------------------------------------------------- learned once


def test_all_who_ask_wait_for_one_learning_and_receive_its_progress(place):
    begin, go, calls = threading.Event(), threading.Event(), []

    def learn(watch):
        calls.append(1)
        begin.wait(60)
        for step, steps in ((1, 4), (3, 4), (2, 4)):
            watch(SimpleNamespace(step=step, steps=steps))
        go.wait(60)
        return Reader()

    model = DateService(place, learn)
    assert model.answer("3 mai 2021") == {"did": "learning", "done": 0.0}
    begin.set()
    end = monotonic() + 60.0
    while model.answer("3 mai 2021")["done"] < 0.75:
        assert monotonic() < end
        sleep(0.01)
    assert model.answer("3 mai 2021") == {"did": "learning", "done": 0.75}, "it never goes back"
    go.set()
    assert settled(model, "3 mai 2021")["text"] == "2021-05-03"
    assert calls == [1]
    assert place.exists()


def test_the_cache_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_path() == tmp_path / "regard" / date_service.MODEL_FILE
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_path() == tmp_path / ".cache" / "regard" / date_service.MODEL_FILE


def test_a_file_that_cannot_be_read_is_replaced(place):
    place.parent.mkdir()
    for content in (b"", b"PK\x03\x04 half a file", b"\x80\x04K\x01."):
        place.write_bytes(content)
        assert load_model(place) is None
        assert settled(DateService(place, learned_at_once))["did"] == "translated"
        assert place.read_bytes() == b"a file of another kind"


def test_a_folder_that_cannot_be_written_to_is_no_reason_to_fail(tmp_path):
    (tmp_path / "file").write_text("mine")
    assert settled(DateService(tmp_path / "file" / "dates.regard", learned_at_once))["did"] == "translated"
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("reason", "status", "said"),
    [
        (
            ModuleNotFoundError("no torch", name="torch"),
            409,
            "translating dates needs torch: run pip install 'regard[nn]'",
        ),
        (RuntimeError("secret"), 500, "a bug in regard: RuntimeError"),
    ],
)
def test_a_failure_is_reported_once_and_the_next_who_asks_tries_again(place, reason, status, said):
    left = [reason]

    def learn(watch):
        if left:
            raise left.pop()
        return Reader()

    model = DateService(place, learn)
    with pytest.raises(Refused) as refused:
        settled(model)
    assert refused.value.status == status
    assert said in refused.value.message
    assert settled(model)["did"] == "translated"


def test_the_end_of_the_playground_ends_the_learning(place):
    steps = []

    def learn(watch):
        while len(steps) < 6000:
            watch(SimpleNamespace(step=1, steps=2))
            steps.append(1)
            sleep(0.01)
        return Reader()

    model = DateService(place, learn)
    model.answer("3 mai 2021")
    thread = model._thread
    model.close()
    assert not thread.is_alive()
    assert len(steps) < 6000
    assert not place.exists(), "half a model is not kept"
    model.answer("3 mai 2021")
    assert model._thread is None, "and no learning begins anew"


# ---------------------------------------------------------------- the model itself


def test_a_model_that_was_really_learned_is_kept_and_found_again(place, monkeypatch):
    from regard.seq2seq import date_model

    for name, value in {"PAIRS": 300, "VALID": 30, "EPOCHS": 1}.items():
        monkeypatch.setattr(date_model, name, value)
    first = settled(DateService(place))
    assert np.shape(first["weights"]) == (len(first["target"]), len(first["source"]))
    np.testing.assert_allclose(np.sum(first["weights"], axis=1), 1.0, atol=0.01)
    assert json.dumps(first, allow_nan=False)

    def never(watch):
        raise AssertionError("it is in the cache")

    assert settled(DateService(place, never)) == first

"""The conversation: bad messages (lines 85, 87, 88), turns (91), goodbyes (92), and training as the library trains."""

from __future__ import annotations

import json
from time import monotonic, sleep

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from regard import KernelRegressor, NadarayaWatsonRegressor
from regard.bandwidth import Objective, follow_the_notes
from regard.data import houses, notes
from regard.play.job_queue import Job
from regard.play.messages import MAX_CHARACTERS
from regard.play.sessions import REQUESTS
from regard.play.w_training import TrainingRequest, train

DATA = notes(30, 0)
TRAIN = {
    "do": "train",
    "x": DATA.x_train.tolist(),
    "y": DATA.y_train.tolist(),
    "kernel": "gaussian",
    "optimizer": "lbfgs",
    "w": 1.0,
}
HOW = '"kernel": "gaussian", "optimizer": "sgd"'
SHORT = 300


def refusal(conversation, text: str) -> dict:
    conversation.send(text)
    heard = conversation.until("refused")[-1]
    assert len(json.dumps(heard)) < SHORT
    return heard


@pytest.fixture
def open_talk(talk):
    return talk()


def eventually(holds) -> None:
    end = monotonic() + 20.0
    while not holds():
        assert monotonic() < end
        sleep(0.01)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e10", "true", '"1"', "null", "[1]"]
)
def test_85_numbers_that_are_none_are_422_and_not_repeated(talk, number):
    for message in (
        f'{{"do": "train", "job": 1, "x": [1, {number}], "y": [1, 2], {HOW}, "w": 1}}',
        f'{{"do": "train", "job": 1, "x": [1, 2], "y": [1, 2], {HOW}, "w": {number}}}',
    ):
        heard = refusal(talk(), message)
        assert heard["status"] == 422
        assert "400" not in heard["error"]
        assert "NaN" not in heard["error"]


def test_87_an_over_long_list_is_a_short_422(talk):
    heard = refusal(talk(), json.dumps({**TRAIN, "job": 1, "x": [1.5] * 20_000}))
    assert heard["status"] == 422
    assert "2 to 1,000 entries" in heard["error"]


def test_88_json_a_hundred_thousand_deep_is_400(talk):
    assert refusal(talk(), "[" * 100_000 + "]" * 100_000)["status"] in (400, 413)
    assert refusal(talk(), "[" * 90_000 + "]" * 90_000)["status"] == 400
    assert refusal(talk(), '{"a":' * 30_000)["status"] == 400


def test_a_message_that_is_too_long_is_refused_and_one_far_too_long_ends_the_talk(talk):
    conversation = talk()
    assert refusal(conversation, '"' + "x" * MAX_CHARACTERS + '"')["status"] == 413

    def send_too_much():
        """The server may close while it is still being sent."""
        conversation.send('"' + "x" * 4 * MAX_CHARACTERS + '"')
        conversation.hear()

    with pytest.raises(ConnectionClosed):
        send_too_much()


def test_bytes_end_the_talk(talk, playground):
    conversation = talk()
    conversation.send(b"\x80\x04K\x01.")
    with pytest.raises(ConnectionClosed):
        conversation.hear()
    eventually(lambda: not playground.shared.sessions)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("", 400),
        ("{", 400),
        ("[]", 422),
        ("3", 422),
        ("{}", 422),
        ('{"do": "dance", "job": 1}', 422),
        ('{"do": "train"}', 422),
        ('{"do": "train", "job": 0}', 422),
        ('{"do": "explain", "job": 1, "row": -1}', 422),
        ('{"do": "explain", "job": 1, "row": 0}', 409),
        ('{"do": "explain", "job": 1, "row": 0, "path": "/etc/passwd"}', 422),
        ('{"do": "fit", "job": 1, "table": "../../x", "target": "y", "features": ["x"]}', 404),
        (json.dumps({**TRAIN, "job": 1, "kernel": "__class__"}), 422),
        (json.dumps({**TRAIN, "job": 1, "y": [1.0, 2.0]}), 422),
        (json.dumps({**TRAIN, "job": 1, "x": [1.0] * 30}), 422),
        (json.dumps({**TRAIN, "job": 1, "w": 0}), 422),
        ('{"do": "train", "job": ' + "9" * 5000 + "}", 400),
    ],
)
def test_messages_that_make_no_sense(talk, message, status):
    assert refusal(talk(), message)["status"] == status


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    do=st.sampled_from([*REQUESTS, "stop", "dance"]),
    fields=st.dictionaries(
        st.sampled_from(["x", "y", "w", "kernel", "optimizer", "row", "table", "target", "features", "z"]), VALUES
    ),
)
def test_messages_of_anything_are_refused_or_heard(open_talk, do, fields):
    open_talk.send(json.dumps({"do": do, "job": 1, **fields}))
    open_talk.send("{")  # what comes after is still heard
    heard = [open_talk.hear()]
    while heard[-1].get("status") != 400:
        heard.append(open_talk.hear())
    assert all(each.get("status", 0) < 500 for each in heard)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_lbfgs_is_the_librarys_search_step_by_step(talk, kernel):
    conversation = talk()
    conversation.ask(**{**TRAIN, "kernel": kernel})
    heard = conversation.until("trained")
    assert [each["did"] for each in heard[:2]] == ["queued", "started"]
    steps, done = [each for each in heard if each["did"] == "step"], heard[-1]
    model = NadarayaWatsonRegressor(kernel=kernel, metric="scalar").fit(DATA.x_train[:, None], DATA.y_train)
    assert done["w"] == pytest.approx(model.w_, rel=1e-9)
    assert done["loss"] == pytest.approx(model.search_.value, rel=1e-9)
    assert done["steps"] == len(steps) >= model.search_.evaluations
    np.testing.assert_allclose(
        [each["loss"] for each in steps[: model.search_.evaluations]], model.search_.path, rtol=1e-9
    )
    assert not done["stopped"]


def test_sgd_is_the_notes_recipe_step_by_step(talk):
    conversation = talk()
    conversation.ask(**{**TRAIN, "optimizer": "sgd", "w": 0.6})
    heard = conversation.until("trained")
    found = follow_the_notes(Objective.of(DATA.x_train[:, None], DATA.y_train), 0.6)
    steps = [each for each in heard if each["did"] == "step"]
    np.testing.assert_allclose([each["w"] for each in steps], [*found.places[:, 0], float(found.w)], rtol=1e-12)
    np.testing.assert_allclose([30 * each["loss"] for each in steps[:-1]], found.path, rtol=1e-12)
    assert heard[-1]["w"] == pytest.approx(float(found.w), rel=1e-12)


def long_training() -> dict:
    data = notes(500, 1)
    return {**TRAIN, "kernel": "triweight", "x": data.x_train.tolist(), "y": data.y_train.tolist()}


def test_stop_keeps_the_best_so_far(talk):
    conversation = talk()
    conversation.ask(**long_training())
    heard = conversation.until("step")
    conversation.send('{"do": "stop"}')
    heard += conversation.until("trained")
    assert heard[-1]["stopped"]
    assert heard[-1]["loss"] == min(each["loss"] for each in heard if each["did"] == "step")


@pytest.mark.parametrize("size", [1.0, 1e-200])
def test_stopped_the_best_so_far_is_the_best_in_any_unit_of_y(size):
    """Where squares are below float64 all errors are 0, and still one w is the best."""
    lesson = TrainingRequest(DATA.x_train, size * DATA.y_train, "gaussian", "lbfgs", 1.0)
    messages: list[dict] = []

    class Ended(Job):
        @property
        def over(self) -> bool:
            return len(messages) >= 8

    train(lesson, Ended("", print, 1.0), messages.append)
    objective = Objective.of(DATA.x_train[:, None], DATA.y_train)
    tried = [each["w"] for each in messages if each["did"] == "step"]
    assert len(tried) >= 8
    assert messages[-1]["stopped"]
    assert messages[-1]["w"] == min(tried, key=lambda w: objective(w).value)


def test_91_trainings_wait_for_their_turn_and_too_many_are_409(talk, playground):
    first, second = talk(), talk()
    first.ask(**long_training())
    first.until("step")
    for _ in range(6):
        first.ask(**long_training())
    heard = first.until("refused")
    assert heard[-1]["status"] == 409
    # The other page is next, although four of the first page's wait already.
    second.ask(**TRAIN)
    assert second.hear() == {"job": 1, "did": "queued", "before": 2}
    second.send('{"do": "stop"}')
    assert second.hear()["did"] == "dropped"
    first.send('{"do": "stop"}')
    # Four are dropped, and the one at work may end before the last of them is reported.
    heard = first.until("trained")
    while [each["did"] for each in heard].count("dropped") < 4:
        heard.append(first.hear())
    assert "started" not in [each["did"] for each in heard]
    eventually(lambda: not playground.shared.queue.busy)


def test_92_a_page_that_leaves_stops_its_jobs_and_leaves_nothing(talk, playground):
    conversation = talk()
    for _ in range(3):
        conversation.ask(**long_training())
    conversation.until("step")
    conversation.close()
    queue = playground.shared.queue
    eventually(lambda: not playground.shared.sessions and not queue.waiting and not queue.busy)
    again = talk()
    again.ask(**TRAIN)
    assert again.until("trained")


def csv_of(n: int) -> bytes:
    data = houses(n)
    head = ",".join([*data.feature_names, data.target_name])
    return "\n".join(
        [head, *(",".join(map(repr, [*map(float, row), float(y)])) for row, y in zip(data.X, data.y, strict=True))]
    ).encode()


def test_own_data_are_fitted_and_rows_looked_up(talk, web, light_search):
    table = web.post("/table", content=csv_of(60), headers={"content-type": "text/csv"}).json()["table"]
    conversation = talk()
    names = ["area", "age", "distance"]
    conversation.ask(do="fit", table=table, target="price", features=names)
    heard = conversation.until()
    done = heard[-1]
    assert done["did"] == "fitted", done
    assert any(each["did"] == "progress" for each in heard)
    assert sum(done["relevance"]) == pytest.approx(1.0)
    assert done["error"] < done["nearest_error"] < done["mean_error"] * 1.5
    assert len(done["predicted"]) == len(done["actual"]) == 60
    sure = conversation.until("sure")[-1]
    conversation.ask(do="explain", row=7)
    explained = conversation.until()[-1]
    data = houses(60)
    model = KernelRegressor().fit(data.X[:, [0, 1, 3]], data.y)
    ends = model.predict_interval(data.X[:, [0, 1, 3]], 0.9, "conformal")
    assert sure["half"] == pytest.approx(np.median(ends[:, 1] - ends[:, 0]) / 2)
    assert explained["interval"] == pytest.approx(ends[7].tolist())
    explanation = model.explain(data.X[7:8, [0, 1, 3]], top=8)[0]
    assert explained["neighbours"] == pytest.approx(explanation.neighbours)
    assert explained["nearness"] == pytest.approx(explanation.nearness.tolist())
    assert [each["effective"] for each in explained["rows"]] == pytest.approx(explanation.effective.tolist())
    assert explained["far"] is False
    assert explained["actual"] == data.y[7]
    assert explained["left_out"] == done["predicted"][7]
    assert [each["weight"] for each in explained["rows"]] == sorted(
        (each["weight"] for each in explained["rows"]), reverse=True
    )
    assert sum(each["weight"] for each in explained["rows"]) == pytest.approx(explained["mass"])
    assert explained["rows"][0]["x"] == data.X[explained["rows"][0]["row"], [0, 1, 3]].tolist()
    conversation.ask(do="explain", row=60)
    assert conversation.until()[-1]["status"] == 422


@pytest.mark.parametrize("size", [1e160, 1e300, 1e-200])
def test_targets_whose_squares_leave_float64_are_fitted_and_reported(talk, web, light_search, size):
    data, fits = houses(30), {}
    for unit in (1.0, size):
        lines = ["x,y", *(f"{x!r},{float(y) * unit!r}" for x, y in zip(data.X[:, 0].tolist(), data.y, strict=True))]
        sent = web.post("/table", content="\n".join(lines).encode(), headers={"content-type": "text/csv"})
        conversation = talk()
        conversation.ask(do="fit", table=sent.json()["table"], target="y", features=["x"])
        done = conversation.until()[-1]
        assert done["did"] == "fitted", done
        fits[unit] = [done[name] / unit for name in ("error", "mean_error", "nearest_error")], done["verdict"]
    assert fits[size][0] == pytest.approx(fits[1.0][0], rel=1e-6)
    assert fits[size][1] == fits[1.0][1]


def test_a_job_that_tells_what_is_no_json_is_answered_and_the_page_goes_on(talk, monkeypatch):
    def broken(lesson, job, tell):
        tell({"did": "step", "w": 1.0, "loss": float("inf")})

    monkeypatch.setattr("regard.play.w_training.train", broken)
    conversation = talk()
    for _ in range(2):
        conversation.ask(**TRAIN)
        heard = conversation.until()[-1]
        assert (heard["did"], heard["status"]) == ("refused", 500)
        assert heard["error"].startswith("a bug in regard")


def test_a_row_far_from_all_others_is_flagged_and_few_rows_have_no_interval(talk, web, light_search):
    lines = ["x,y", *(f"{i / 10},{(i - 3) ** 2}" for i in range(7)), "90,5"]
    table = web.post("/table", content="\n".join(lines).encode(), headers={"content-type": "text/csv"}).json()["table"]
    conversation = talk()
    conversation.ask(do="fit", table=table, target="y", features=["x"])
    assert conversation.until("sure")[-1]["half"] is None
    explained = []
    for row in (2, 7):
        conversation.ask(do="explain", row=row)
        explained.append(conversation.until()[-1])
    assert [each["far"] for each in explained] == [False, True]
    assert [each["interval"] for each in explained] == [None, None]


def test_a_fit_that_is_stopped_keeps_the_best_so_far(talk, web):
    table = web.post("/table", content=csv_of(150), headers={"content-type": "text/csv"}).json()["table"]
    conversation = talk()
    conversation.ask(do="fit", table=table, target="price", features=["area", "age", "distance", "rooms"])
    for _ in range(3):
        conversation.until("progress")
    conversation.send('{"do": "stop"}')
    done = conversation.until("fitted", "stopped")[-1]
    assert done["did"] == "stopped" or (done["stopped"] and np.isfinite(done["predicted"]).all())
    conversation.ask(do="explain", row=0)
    assert conversation.until()[-1]["did"] == ("explained" if done["did"] == "fitted" else "refused")


@pytest.mark.parametrize(
    ("target", "features", "said"),
    [
        ("price", ["price"], "cannot be one of the features"),
        ("nothing", ["area"], "no column"),
        ("price", ["area", "area"], "must not contain duplicates"),
        ("price", [], "list of 1 to 30"),
        ("price", ["x" * 500], "text of 1 to"),
    ],
)
def test_columns_that_make_no_sense_are_422(talk, web, target, features, said):
    table = web.post("/table", content=csv_of(10), headers={"content-type": "text/csv"}).json()["table"]
    conversation = talk()
    conversation.ask(do="fit", table=table, target=target, features=features)
    heard = conversation.until("refused")[-1]
    assert heard["status"] == 422
    assert said in heard["error"]

"""AttentionRegressor: it is the layer, it leaves out by deletion, it learns, and it minds its manners."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch import nn

import regard
from regard import AttentionRegressor, NadarayaWatsonRegressor
from regard.estimators import attention
from regard.nn import AdditiveScore, AttentionPooling, BilinearScore, GaussianScore, left_out
from regard.store import StoreError

SCORES = ("gaussian", "additive", "dot")
DATA = regard.data.notes(seed=0)
CURVE, HEIGHT = DATA.x_train[:, None], DATA.y_train
rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2)) * [1.0, 50.0] + [5.0, 0.0]
Y = np.sin(X[:, 0]) + X[:, 1] / 50.0
QUERIES = rng.normal(size=(9, 2)) * [1.0, 50.0] + [5.0, 0.0]


def small(score="gaussian", embed=None, **given):
    """A few quick epochs."""
    return AttentionRegressor(
        score, embed, **{"max_iter": 2, "hidden_size": 4, "embed_size": 2, "random_state": 0} | given
    )


class Doubled(nn.Module):
    """A class of the user's own: two outputs for two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 2)

    def forward(self, rows):
        return 2.0 * self.line(rows)


def layers():
    return nn.Sequential(
        nn.Linear(2, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Dropout(0.2), nn.Linear(4, 3, bias=False), nn.LayerNorm(3)
    )


# ---------------------------------------------------------------- the score, in plain numpy


def scored(model, query, key):
    """Scores (Q, K) from the learned arrays alone."""
    p = {name: array.astype(np.float64) for name, array in model.parameters_.items()}

    def place(rows):
        z = (rows - model.mean_) / model.scale_
        if model.embed == "mlp":
            a = z
            for number in (0, 2, 4):
                a = a @ p[f"embed.net.{number}.weight"].T + p[f"embed.net.{number}.bias"]
                a = a / (1.0 + np.exp(-a)) if number < 4 else a
            z = np.hstack([z, a])
        return z

    q, k = place(query), place(key)
    if "score.log_w" in p:
        return -0.5 * ((np.exp(p["score.log_w"]) * (q[:, None] - k[None])) ** 2).sum(-1)
    if "score.W" in p:
        return q @ p["score.W"] @ k.T
    hidden = np.tanh((q @ p["score.W_q.weight"].T)[:, None] + (k @ p["score.W_k.weight"].T)[None])
    return hidden @ p["score.w_v.weight"][0]


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module", params=[(s, e) for s in SCORES for e in (None, "mlp")], ids=lambda p: f"{p[0]}-{p[1]}")
def model(request):
    return small(*request.param).fit(X, Y)


def test_it_is_the_line_of_the_docstring(model):
    weights = softmax(scored(model, QUERIES, X))
    np.testing.assert_allclose(model.attend(QUERIES), weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.predict(QUERIES), weights @ Y, rtol=1e-10, atol=1e-12)
    index, weight, mass = model.attend(QUERIES, top=3)
    np.testing.assert_allclose(weight, np.sort(weights)[:, :-4:-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.take_along_axis(weights, index, 1), weight, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mass, weight.sum(axis=1), rtol=1e-9)


def test_it_is_the_layer(model):
    """The modules of regard.nn, given what was learned, answer the same in float64."""
    learned = {name[6:]: torch.tensor(array) for name, array in model.parameters_.items() if name.startswith("score.")}
    if model.get_params()["score"] == "gaussian":
        score = GaussianScore(learned["log_w"].double().exp())
    else:
        r = model.embedding_.shape[1]
        score = AdditiveScore(r, r, 4) if model.get_params()["score"] == "additive" else BilinearScore(r, r)
        score.load_state_dict(learned)
    keys, values = torch.tensor(model.embedding_), torch.tensor(Y)[:, None]
    output = AttentionPooling(score.double())(torch.tensor(model._placed(QUERIES)), keys, values)
    np.testing.assert_allclose(model.predict(QUERIES), output[:, 0].detach().numpy(), rtol=1e-10)


def test_leaving_out_is_deletion(model):
    for row in range(0, len(X), 7):
        others = np.arange(len(X)) != row
        alone = softmax(scored(model, X[row : row + 1], X[others])) @ Y[others]
        np.testing.assert_allclose(model.loo_predictions_[row], alone[0], rtol=1e-10)
    misses = model.loo_predictions_ - Y
    np.testing.assert_allclose(model.loo_score_, 1.0 - np.mean(misses**2) / np.var(Y), rtol=1e-10)


def test_the_loss_is_the_left_out_error(model):
    """With steps of next to nothing, an epoch's loss is that of its start, whatever the minibatches."""
    for batch in (1, 7, 1000):
        still = clone(model).set_params(learning_rate=1e-12, max_iter=1, batch_size=batch).fit(X, Y)
        np.testing.assert_allclose(still.history_.loss, [1.0 - still.loo_score_], rtol=1e-4)


def test_a_gaussian_without_embedding_is_nadaraya_watson():
    constant = np.column_stack([X, np.full(len(X), 7.0)])
    model = small(max_iter=4).fit(constant, Y, sample_weight=np.arange(30))
    assert model.bandwidth_[2] == np.inf
    assert model.w_[2] == 0.0
    twin = NadarayaWatsonRegressor(bandwidth=model.bandwidth_).fit(constant, Y, sample_weight=np.arange(30))
    queries = np.column_stack([QUERIES, np.arange(9.0)])
    np.testing.assert_allclose(model.predict(queries), twin.predict(queries), rtol=1e-10)
    np.testing.assert_allclose(model.attend(queries), twin.attend(queries), rtol=1e-9, atol=1e-14)


def test_it_finds_the_bandwidth_that_the_search_finds():
    found = AttentionRegressor(max_iter=6, random_state=0).fit(CURVE, HEIGHT)
    best = NadarayaWatsonRegressor().fit(CURVE, HEIGHT)
    np.testing.assert_allclose(found.w_, best.w_, rtol=0.02)
    assert best.loo_score_ - 0.002 < found.loo_score_ <= best.loo_score_ + 1e-9


# ---------------------------------------------------------------- repetitions, importances, groups


def literally(model, rows, y, row, others):
    return softmax(scored(model, rows[row : row + 1], rows[others])) @ y[others]


def test_a_repeated_row_leaves_once():
    times = np.tile([1, 3, 0], 10)
    weighted = small("additive").fit(X, Y, sample_weight=times)
    copies = np.repeat(np.arange(30), times)
    repeated = small("additive").fit(X[copies], Y[copies])
    assert all(np.array_equal(a, repeated.parameters_[name]) for name, a in weighted.parameters_.items())
    np.testing.assert_allclose(weighted.predict(QUERIES), repeated.predict(QUERIES), rtol=1e-10)
    np.testing.assert_array_equal(weighted.loo_predictions_[copies], repeated.loo_predictions_)
    assert np.isnan(weighted.loo_predictions_[times == 0]).all()
    others = np.delete(np.arange(len(copies)), 5)
    np.testing.assert_allclose(
        repeated.loo_predictions_[5], literally(repeated, X[copies], Y[copies], 5, others)[0], rtol=1e-10
    )
    still = clone(repeated).set_params(learning_rate=1e-12, max_iter=1).fit(X[copies], Y[copies])
    np.testing.assert_allclose(still.history_.loss, [1.0 - still.loo_score_], rtol=1e-4)


def test_importances_and_groups_leave_whole():
    importance = np.linspace(0.1, 2.0, 30)
    model = small("dot").fit(X, Y, sample_weight=importance)
    others = np.arange(30) != 4
    scores = scored(model, X[4:5], X[others]) + np.log(importance[others])
    np.testing.assert_allclose(model.loo_predictions_[4], (softmax(scores) @ Y[others])[0], rtol=1e-10)
    groups = np.repeat(list("abcdef"), 5)
    model = small("gaussian").fit(X, Y, groups=groups)
    np.testing.assert_allclose(model.loo_predictions_[4], literally(model, X, Y, 4, groups != "a")[0], rtol=1e-10)
    for given in ({"sample_weight": importance}, {"groups": groups}):
        still = small(learning_rate=1e-12, max_iter=1, batch_size=30).fit(X, Y, **given)
        np.testing.assert_allclose(still.history_.loss, [1.0 - still.loo_score_], rtol=1e-4)


# ---------------------------------------------------------------- learning


@pytest.mark.parametrize(
    ("score", "embed", "least"), [("gaussian", None, 0.7), ("additive", None, 0.6), ("dot", "mlp", 0.6)]
)
def test_every_score_learns_the_notes_curve(score, embed, least):
    model = AttentionRegressor(score, embed, hidden_size=16, max_iter=10, learning_rate=0.03, random_state=0)
    model.fit(CURVE, HEIGHT)
    assert model.loo_score_ > least
    assert model.history_.loss[-1] < 0.5 * max(1.0, model.history_.loss[0])
    mean = np.sqrt(np.mean((HEIGHT.mean() - DATA.y_truth) ** 2))
    assert np.sqrt(np.mean((model.predict(DATA.x_test[:, None]) - DATA.y_truth) ** 2)) < 0.5 * mean


def test_a_plain_dot_product_leans_but_still_beats_the_mean():
    model = AttentionRegressor("dot", max_iter=5, random_state=0).fit(CURVE, HEIGHT)
    assert 0.1 < model.loo_score_ < 0.3


def test_parts_of_a_minibatch_add_up(monkeypatch):
    whole = small("additive", "mlp", max_iter=1).fit(X, Y)
    monkeypatch.setitem(left_out.CELLS, "cpu", 1000)  # eight queries at once
    parts = small("additive", "mlp", max_iter=1).fit(X, Y)
    for name, array in whole.parameters_.items():
        np.testing.assert_allclose(parts.parameters_[name], array, rtol=1e-3, atol=1e-5)


def test_several_outputs():
    both = small().fit(X, np.column_stack([Y, -1e3 * Y]))
    alone = small().fit(X, Y)
    np.testing.assert_allclose(both.parameters_["score.log_w"], alone.parameters_["score.log_w"], rtol=1e-4)
    np.testing.assert_allclose(both.predict(QUERIES)[:, 1], -1e3 * both.predict(QUERIES)[:, 0], rtol=1e-9)
    np.testing.assert_allclose(both.loo_score_, alone.loo_score_, rtol=1e-4)


def test_units_do_not_matter():
    plain, scaled = small("additive").fit(X, Y), small("additive").fit(X * [1e6, 1e-6] + 1e3, 1e-3 * Y + 5.0)
    np.testing.assert_allclose(scaled.loo_predictions_, 1e-3 * plain.loo_predictions_ + 5.0, rtol=1e-5)


def test_the_order_of_rows_does_not_matter():
    order = np.random.default_rng(1).permutation(len(X))
    here, there = small("additive").fit(X, Y), small("additive").fit(X[order], Y[order])
    assert all(np.array_equal(a, there.parameters_[name]) for name, a in here.parameters_.items())
    np.testing.assert_array_equal(here.loo_predictions_[order], there.loo_predictions_)


def test_far_queries_stay_among_the_values():
    far = np.array([[1e300, 0.0], [-1e300, 1e300], [1e9, -1e9]])
    for score in SCORES:
        for embed in (None, "mlp"):
            answers = small(score, embed, max_iter=1).fit(X, Y).predict(far)
            assert ((Y.min() <= answers) & (answers <= Y.max())).all()


def test_nothing_to_tell_apart_is_the_mean():
    for score in SCORES:
        model = small(score, max_iter=1).fit(np.ones((6, 2)), np.arange(6.0))
        np.testing.assert_allclose(model.predict(QUERIES), 2.5)
    np.testing.assert_allclose(small(max_iter=1).fit(X, np.full(30, 3.0)).predict(QUERIES), 3.0)


# ---------------------------------------------------------------- early stopping


def test_noise_stops_it_early():
    noise = np.random.default_rng(0).normal(size=(200, 3))
    model = small("gaussian", "mlp", max_iter=20, early_stopping=True, n_iter_no_change=2, learning_rate=0.05)
    history = model.fit(noise[:, :2], noise[:, 2]).history_
    assert history.best == np.argmin(history.validation)
    assert model.n_iter_ == len(history.loss) == len(history.validation) == history.best + 3 < 20
    assert len(model.key_) == len(model.embedding_) == 200, "rows held out are keys again"


def test_the_best_epoch_is_kept():
    noise = np.random.default_rng(0).normal(size=(80, 3))
    options = {"early_stopping": True, "n_iter_no_change": 9, "learning_rate": 0.05, "validation_fraction": 0.25}
    model = small("gaussian", "mlp", max_iter=5, **options).fit(noise[:, :2], noise[:, 2])
    rows = np.random.RandomState(0)
    rows.randint(2**31 - 1)
    order = np.lexsort(noise.T[::-1])  # as ``distinct`` sorts them
    held = order[rows.permutation(80)[:20]]
    others = np.setdiff1d(np.arange(80), held)
    answers = softmax(scored(model, noise[held, :2], noise[others, :2])) @ noise[others, 2]
    error = np.mean((answers - noise[held, 2]) ** 2) / np.var(noise[:, 2])
    np.testing.assert_allclose(model.history_.validation.min(), error, rtol=1e-4)


@pytest.mark.parametrize(("rows", "held"), [(59, False), (60, True)])
def test_auto_holds_out_where_rows_are_many(rows, held, monkeypatch):
    assert attention.MANY == 1000
    monkeypatch.setattr(attention, "MANY", 60)
    x = np.linspace(0.0, 1.0, rows)[:, None]
    model = small(max_iter=1).fit(x, x[:, 0])
    assert (model.history_.validation is not None) == held
    other = clone(model).set_params(early_stopping=not held).fit(x, x[:, 0])
    assert (other.history_.validation is None) == held


# ---------------------------------------------------------------- seeds


@pytest.mark.parametrize("embed", ["mlp", layers()], ids=["mlp", "layers"])
def test_the_same_seed_gives_the_same_bits(embed):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, again = small("additive", embed).fit(X, Y), small("additive", embed).fit(X, Y)
    assert torch.equal(torch.random.get_rng_state(), before), "the caller's own random numbers"
    assert first.parameters_.keys() == again.parameters_.keys()
    assert all(np.array_equal(a, again.parameters_[name]) for name, a in first.parameters_.items())
    np.testing.assert_array_equal(first.history_.loss, again.history_.loss)
    np.testing.assert_array_equal(first.predict(QUERIES), again.predict(QUERIES))
    other = small("additive", embed, random_state=1).fit(X, Y)
    assert not np.array_equal(first.history_.loss, other.history_.loss)


# ---------------------------------------------------------------- modules of the user's own


def test_a_module_is_copied_and_starts_as_it_is():
    mine = layers().double()
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    model = small("gaussian", mine).fit(X, Y)
    assert all(torch.equal(before[name], value) for name, value in mine.state_dict().items())
    assert mine.training
    assert mine[0].weight.dtype == torch.float64
    assert not np.array_equal(model.parameters_["embed.0.weight"], before["0.weight"].numpy())
    still = small("gaussian", mine, learning_rate=1e-12, max_iter=1).fit(X, Y)
    np.testing.assert_allclose(still.parameters_["embed.0.weight"], before["0.weight"].numpy(), rtol=1e-5)


def test_frozen_and_lazy_modules():
    frozen = Doubled().requires_grad_(False)
    model = small("gaussian", frozen).fit(X, Y)
    np.testing.assert_array_equal(model.parameters_["embed.line.weight"], frozen.line.weight.numpy())
    place = frozen(torch.tensor((QUERIES - model.mean_) / model.scale_).float()).numpy()
    np.testing.assert_allclose(model._placed(QUERIES), place, rtol=1e-4, atol=1e-5)
    lazy = small("dot", nn.Sequential(nn.LazyLinear(3), nn.Tanh())).fit(X, Y)
    assert lazy.embedding_.shape == (30, 3)
    assert np.isfinite(lazy.predict(QUERIES)).all()


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (nn.Flatten(0), r"embed must turn rows \(n, 2\) into floats \(n, r\), got torch.float32 \(60,\) for n=30"),
        (nn.LSTM(2, 3), "embed must turn rows .* got tuple"),
    ],
)
def test_what_a_module_must_give(module, told):
    with pytest.raises(ValueError, match=told):
        small("gaussian", module).fit(X, Y)


# ---------------------------------------------------------------- save and load


@pytest.mark.parametrize(
    "model",
    [small("additive"), small("gaussian", "mlp", early_stopping=True), small("dot", layers())],
    ids=["additive", "deep kernel", "layers"],
)
def test_it_comes_back_to_the_last_bit(model, tmp_path):
    path = tmp_path / "model"
    regard.save(model.fit(X, Y), path)
    back = regard.load(path)
    assert vars(back).keys() == vars(model).keys()
    assert type(back.history_) is type(model.history_)
    for query in (QUERIES, QUERIES.astype(np.float32)):
        np.testing.assert_array_equal(back.predict(query), model.predict(query))
        np.testing.assert_array_equal(back.attend(query), model.attend(query))
    assert str(back.embed) == str(model.embed)
    regard.save(back, path, force=True)
    np.testing.assert_array_equal(regard.load(path).predict(QUERIES), model.predict(QUERIES))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(QUERIES), model.predict(QUERIES))


def test_a_class_of_ones_own_must_be_passed(tmp_path):
    path = tmp_path / "model"
    model = small("gaussian", Doubled()).fit(X, Y)
    regard.save(model, path)
    with pytest.raises(StoreError, match=r"embed was a .*Doubled, which a file cannot hold; .*load\(path, embed=…\)"):
        regard.load(path)
    given = Doubled()
    before = given.line.weight.clone()
    back = regard.load(path, embed=given)
    np.testing.assert_array_equal(back.predict(QUERIES), model.predict(QUERIES))
    assert torch.equal(given.line.weight, before)
    with pytest.raises(StoreError, match="embed does not fit the arrays that were learned"):
        regard.load(path, embed=nn.Linear(2, 2))
    with pytest.raises(StoreError, match="embed must be a torch module, got 3"):
        regard.load(path, embed=3)


def test_embed_is_refused_where_there_is_none(tmp_path):
    regard.save(small().fit(X, Y), tmp_path / "plain")
    regard.save(NadarayaWatsonRegressor(bandwidth=1.0).fit(X, Y), tmp_path / "other")
    with pytest.raises(StoreError, match="this one has embed=None"):
        regard.load(tmp_path / "plain", embed=Doubled())
    with pytest.raises(StoreError, match="embed is for an AttentionRegressor, and this is a NadarayaWatsonRegressor"):
        regard.load(tmp_path / "other", embed=Doubled())


@pytest.mark.parametrize(
    "content",
    [
        ["Linear", {"in_features": 10**9, "out_features": 10**9}],
        ["Linear", {"in_features": -1, "out_features": 2}],
        ["Linear", {"path": "x"}],
        ["Sequential", [["os.system", {}]]],
        ["Sequential", 3],
        3,
        [],
    ],
    ids=str,
)
def test_forged_recipes(content, tmp_path):
    model = small("gaussian", layers()).fit(X, Y)
    model.embed = content
    with pytest.raises(ValueError, match=r"no recipe of a module|embed does not fit"):
        model._rebuild(None)


# ---------------------------------------------------------------- without torch


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_without_torch(tmp_path):
    """The class is there, learning says what is missing, and a saved model without an embedding still answers."""
    model = small("additive").fit(X, Y)
    regard.save(model, tmp_path / "model")
    done = run(
        f"""
import json, sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


sys.meta_path.insert(0, Absent())
import regard
model = regard.load({str(tmp_path / "model")!r})
print(json.dumps(model.predict({QUERIES.tolist()!r}).tolist()))
try:
    regard.AttentionRegressor().fit([[0.0], [1.0]], [0.0, 1.0])
except ImportError as told:
    print(told)
"""
    )
    assert done.returncode == 0, done.stderr
    answers, told = done.stdout.splitlines()
    np.testing.assert_allclose(json.loads(answers), model.predict(QUERIES), rtol=1e-12)
    assert told == "AttentionRegressor needs torch, which is not installed; pip install 'regard[nn]' brings it"


def test_torch_is_not_imported_before_it_is_needed():
    done = run("import sys, regard; regard.AttentionRegressor('dot', 'mlp'); print('torch' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


# ---------------------------------------------------------------- Ctrl-C, callbacks, the bar


def test_ctrl_c_keeps_the_best_so_far(monkeypatch):
    real, steps = left_out._step, []

    def step(*args):
        steps.append(1)
        if len(steps) == 70:  # an epoch has 32 steps
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(left_out, "_step", step)
    model = small(max_iter=4).fit(X, Y)
    assert model.history_.interrupted
    assert model.n_iter_ == 2
    whole = small(max_iter=4).fit(X, Y)
    np.testing.assert_array_equal(model.history_.loss, whole.history_.loss[:2])
    steps[:] = [1] * 60
    before = model.predict(QUERIES)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    np.testing.assert_array_equal(model.predict(QUERIES), before)


class Listener:
    def __init__(self, stop_after=99):
        self.heard, self.stop_after = [], stop_after

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context, **told): ...

    def on_fit_task_end(self, estimator, context, *, metadata=None, **told):
        if metadata:
            self.heard.append(metadata["criterion"])
        return len(self.heard) >= self.stop_after


def test_callbacks_hear_every_epoch_and_can_stop_it():
    pytest.importorskip("sklearn.callback")
    listener = Listener()
    model = small().set_callbacks(listener).fit(X, Y)
    assert listener.heard == model.history_.loss.tolist()
    model = small(max_iter=3).set_callbacks(Listener(stop_after=2)).fit(X, Y)
    assert model.n_iter_ == 2
    assert model.history_.interrupted


def test_a_bar_on_request(capfd, monkeypatch):
    small(progress=True, max_iter=3).fit(X, Y)
    out, err = capfd.readouterr()
    assert out == ""
    assert "Learning attention" in err
    assert "3/3" in err
    small().fit(X, Y)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(ImportError, match=r"rich, which is not installed; pip install 'regard\[cli\]'"):
        small(progress=True).fit(X, Y)


# ---------------------------------------------------------------- scikit-learn's manners


def test_score_is_a_parameter_and_a_method():
    model = AttentionRegressor("dot", max_iter=2)
    assert model.get_params()["score"] == "dot"
    assert clone(model).get_params() == model.get_params()
    assert "score='dot'" in repr(model)
    assert model.set_params(score="additive").get_params()["score"] == "additive"
    assert model.fit(X, Y).score(X, Y) == pytest.approx(1 - np.mean((model.predict(X) - Y) ** 2) / np.var(Y))
    search = GridSearchCV(small(), {"score": ["dot", "gaussian"]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"score": "gaussian"}


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"score": "cosine"}, ValueError, "score must be one of 'gaussian', 'additive', 'dot', got 'cosine'"),
        ({"score": None}, ValueError, "score must be one of"),
        ({"embed": "cnn"}, ValueError, "embed must be None, 'mlp' or a torch module, got 'cnn'"),
        ({"embed": 3}, TypeError, "embed must be None, 'mlp' or a torch module, got 3"),
        ({"embed": nn.Linear}, TypeError, "embed must be"),
        ({"hidden_size": 0}, ValueError, "hidden_size must be a whole number of at least 1, got 0"),
        ({"embed_size": 2.0}, ValueError, "embed_size must be"),
        ({"max_iter": True}, ValueError, "max_iter must be"),
        ({"n_iter_no_change": -1}, ValueError, "n_iter_no_change must be"),
        ({"batch_size": "large"}, ValueError, "batch_size must be a whole number of at least 1, got 'large'"),
        ({"learning_rate": np.nan}, ValueError, "learning_rate must be a number between 0 and inf, got nan"),
        ({"validation_fraction": 1.0}, ValueError, "validation_fraction must be a number between 0 and 1, got 1.0"),
        ({"early_stopping": "yes"}, ValueError, "early_stopping must be True, False or 'auto', got 'yes'"),
        ({"device": "abacus"}, ValueError, "device must be 'cpu' or 'cuda', got 'abacus'"),
        ({"device": None}, ValueError, "device must be"),
        ({"learning_rate": 1e30}, ValueError, "the loss did not stay finite in the first epoch; lower learning_rate"),
    ],
)
def test_errors_name_the_parameter(given, kind, told):
    with pytest.raises(kind, match=told):
        small(**given).fit(X, Y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there():
    with pytest.raises(ValueError, match="device='cuda', but torch sees no GPU here"):
        small(device="cuda").fit(X, Y)


def test_bad_data():
    for bad in (np.nan, np.inf):
        spoilt = X.copy()
        spoilt[3, 1] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            small().fit(spoilt, Y)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            small().fit(X, np.where(np.arange(30) == 3, bad, Y))
    with pytest.raises(ValueError, match=r"rows to leave out and others to look at, got 1 row \(n_samples=1\)"):
        small().fit(X[:1], Y[:1])
    with pytest.raises(ValueError, match="got one group"):
        small().fit(X, Y, groups=np.zeros(30, int))
    with pytest.raises(ValueError, match="early_stopping=True needs rows to learn from beside those held out, got 2"):
        small(early_stopping=True).fit(X[:2], Y[:2])
    twice = small(max_iter=1).fit(X[:1], Y[:1], sample_weight=[2])
    assert twice.predict(QUERIES).tolist() == [Y[0]] * 9


def test_a_refit_forgets():
    model = small().fit(X, Y)
    assert hasattr(model, "w_")
    model.set_params(embed="mlp").fit(CURVE, HEIGHT)
    assert not hasattr(model, "w_")
    assert not hasattr(model, "bandwidth_")
    assert model.predict(CURVE).shape == (50,)

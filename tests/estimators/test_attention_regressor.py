"""AttentionRegressor saved and loaded, without torch, interrupted, and among scikit-learn."""

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
from regard.nn import loo_training
from regard.store.models import StoreError
from support.deep import CURVE, HEIGHT, QUERIES, Doubled, X, Y, layers, small

# ---------------------------------------------------------------- save and load


@pytest.mark.parametrize(
    "model",
    [small("additive"), small("gaussian", "mlp", early_stopping=True), small("dot", layers())],
    ids=["additive", "deep kernel", "layers"],
)
def test_a_saved_model_is_equal_to_the_last_bit(model, tmp_path):
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


def test_a_module_of_the_caller_must_be_passed_to_load(tmp_path):
    path = tmp_path / "model"
    model = small("gaussian", Doubled()).fit(X, Y)
    regard.save(model, path)
    with pytest.raises(
        StoreError, match=r"embed was a .*Doubled, which is not stored in the file; .*load\(path, embed=…\)"
    ):
        regard.load(path)
    given = Doubled()
    before = given.line.weight.clone()
    back = regard.load(path, embed=given)
    np.testing.assert_array_equal(back.predict(QUERIES), model.predict(QUERIES))
    assert torch.equal(given.line.weight, before)
    with pytest.raises(StoreError, match="embed does not match the learned arrays"):
        regard.load(path, embed=nn.Linear(2, 2))
    with pytest.raises(StoreError, match="embed must be a torch module, got 3"):
        regard.load(path, embed=3)


def test_embed_is_refused_where_there_is_none(tmp_path):
    regard.save(small().fit(X, Y), tmp_path / "plain")
    regard.save(NadarayaWatsonRegressor(bandwidth=1.0).fit(X, Y), tmp_path / "other")
    with pytest.raises(StoreError, match="fitted with embed=None"):
        regard.load(tmp_path / "plain", embed=Doubled())
    with pytest.raises(
        StoreError, match="embed is only for AttentionRegressor, but this file holds a NadarayaWatsonRegressor"
    ):
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
    with pytest.raises(ValueError, match=r"not a valid recipe of a module|embed does not match"):
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
except ImportError as error:
    print(error)
"""
    )
    assert done.returncode == 0, done.stderr
    answers, message = done.stdout.splitlines()
    np.testing.assert_allclose(json.loads(answers), model.predict(QUERIES), rtol=1e-12)
    assert message == "AttentionRegressor needs torch, which is not installed; pip install 'regard[nn]' brings it"


def test_torch_is_not_imported_before_it_is_needed():
    done = run("import sys, regard; regard.AttentionRegressor('dot', 'mlp'); print('torch' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


# ---------------------------------------------------------------- Ctrl-C, callbacks, the bar


def test_ctrl_c_keeps_the_best_so_far(monkeypatch):
    real, steps = loo_training._step, []

    def step(*args):
        steps.append(1)
        if len(steps) == 70:  # an epoch has 32 steps
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(loo_training, "_step", step)
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

    def on_fit_task_begin(self, estimator, context, **details): ...

    def on_fit_task_end(self, estimator, context, *, metadata=None, **details):
        if metadata:
            self.heard.append(metadata["criterion"])
        return len(self.heard) >= self.stop_after


def test_callbacks_are_called_in_every_epoch_and_can_stop_it():
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


# ---------------------------------------------------------------- scikit-learn's conventions


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
    ("given", "kind", "message"),
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
def test_errors_name_the_parameter(given, kind, message):
    with pytest.raises(kind, match=message):
        small(**given).fit(X, Y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there():
    with pytest.raises(ValueError, match="device='cuda' needs a GPU"):
        small(device="cuda").fit(X, Y)


def test_bad_data():
    for bad in (np.nan, np.inf):
        spoilt = X.copy()
        spoilt[3, 1] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            small().fit(spoilt, Y)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            small().fit(X, np.where(np.arange(30) == 3, bad, Y))
    with pytest.raises(ValueError, match=r"at least 2 rows, in different groups; got 1 row \(n_samples=1\)"):
        small().fit(X[:1], Y[:1])
    with pytest.raises(ValueError, match="got one group"):
        small().fit(X, Y, groups=np.zeros(30, int))
    with pytest.raises(ValueError, match="early_stopping=True needs at least 3 rows, got 2"):
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

"""AttentionRegressor learns, stops early, minds its seed, and takes modules of the user."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from regard import AttentionRegressor
from regard.estimators import attention
from regard.nn import loo_training
from support.deep import CURVE, DATA, HEIGHT, QUERIES, SCORES, Doubled, X, Y, layers, scored, small, softmax

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
    monkeypatch.setitem(loo_training.MAX_NUMBERS_PER_TILE, "cpu", 1000)  # eight queries at once
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


def test_without_differences_the_answer_is_the_mean():
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
    assert attention.MIN_ROWS_TO_HOLD_OUT == 1000
    monkeypatch.setattr(attention, "MIN_ROWS_TO_HOLD_OUT", 60)
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
    np.testing.assert_allclose(model._transform().keys(QUERIES), place, rtol=1e-4, atol=1e-5)
    lazy = small("dot", nn.Sequential(nn.LazyLinear(3), nn.Tanh())).fit(X, Y)
    assert lazy.embedding_.shape == (30, 3)
    assert np.isfinite(lazy.predict(QUERIES)).all()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Flatten(0), r"embed must map rows \(n, 2\) to floats \(n, r\), got torch.float32 \(60,\) for n=30"),
        (nn.LSTM(2, 3), "embed must map rows .* got tuple"),
    ],
)
def test_what_a_module_must_give(module, message):
    with pytest.raises(ValueError, match=message):
        small("gaussian", module).fit(X, Y)

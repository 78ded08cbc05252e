"""AttentionRegressor is the layer; weights are copies, and leaving out is deletion."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

from regard import AttentionRegressor, NadarayaWatsonRegressor
from regard.nn import AdditiveScore, AttentionPooling, BilinearScore, GaussianScore
from support.deep import CURVE, HEIGHT, QUERIES, SCORES, X, Y, scored, small, softmax

# ---------------------------------------------------------------- the score, in plain numpy


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
    output = AttentionPooling(score.double())(torch.tensor(model._transform().keys(QUERIES)), keys, values)
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

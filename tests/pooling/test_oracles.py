"""Other people's code: torch's attention, the notes' computation, scikit-learn's and scipy's formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from scipy.stats import gaussian_kde
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.neighbors import KNeighborsRegressor, RadiusNeighborsRegressor
from torch.nn import functional as F

from regard.data import notes
from regard.pooling.functions import attention_weights, pool
from regard.scores import Additive, Boxcar, DotProduct, Gaussian, Laplace, Nearest
from support.engines import engines_for, every_engine, taken
from support.generators import make_inputs


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The tensors are small: torch's threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def attend_with_torch(query, key, value, mask=None, scale=None):
    """Scaled dot product attention in float64."""
    parts = [torch.tensor(np.asarray(array, np.float64))[None] for array in (query, key, value)]
    mask = None if mask is None else torch.tensor(mask)
    return F.scaled_dot_product_attention(*parts, attn_mask=mask, scale=scale)[0].numpy()


# ---- torch


@engines_for(DotProduct(), option="mask")
@pytest.mark.parametrize("option", ["plain", "mask", "additive"])
def test_dot_product_is_torch_attention(option, engine):
    query, key, value, options = make_inputs(option, 40, 60, 3, d=5)
    if option != "plain":
        options["mask"][0] = options["mask"][1]  # torch has no empty rows
    expected = attend_with_torch(query, key, value, **options)
    assert np.allclose(pool(query, key, value, DotProduct(), engine=engine, **options).output, expected, rtol=1e-12)


@pytest.mark.parametrize("w", [0.7, np.array([0.5, 1.5, 0.0])])
@taken(["gaussian-scalar"], ["plain", "mask", "weights"])
def test_gaussian_is_torch_attention_on_augmented_features(score, option, w, engine):
    """−½‖q − k‖² = q·k − ½‖k‖² + const: one more feature makes a kernel regression of any attention."""
    query, key, value, options = make_inputs(option, 40, 60, 2, d=3)
    q, k = query * w, key * w
    bias = -0.5 * (k**2).sum(axis=1, keepdims=True)
    if "sample_weight" in options:
        with np.errstate(divide="ignore"):
            bias = np.maximum(bias + np.log(options["sample_weight"])[:, None], -1e300)
    if "mask" in options:
        options["mask"][0] = True
    expected = attend_with_torch(
        np.hstack([q, np.ones((40, 1))]), np.hstack([k, bias]), value, options.get("mask"), scale=1.0
    )
    assert np.allclose(pool(query, key, value, Gaussian(w), engine=engine, **options).output, expected, rtol=1e-12)


@every_engine
def test_the_notes_computation(engine):
    """softmax(−(x − xᵢ)²/2) times y, as the notes write it in torch: bandwidth 1."""
    data = notes()
    x_train, y_train, x_test = (torch.tensor(part) for part in (data.x_train, data.y_train, data.x_test))
    X_repeat = x_test.repeat_interleave(len(x_train)).reshape((-1, len(x_train)))
    weights = F.softmax(-((X_repeat - x_train) ** 2) / 2, dim=1)
    assert np.allclose(
        attention_weights(data.x_test, data.x_train, Gaussian(), engine=engine), weights.numpy(), rtol=1e-12
    )
    got = pool(data.x_test, data.x_train, data.y_train, Gaussian(), engine=engine).output
    assert np.allclose(got, torch.matmul(weights, y_train).numpy(), rtol=1e-13)


@every_engine
def test_the_notes_learned_width(engine):
    """softmax(−((x − xᵢ)·w)²/2): the notes' parametric pooling, by batch matrix multiplication."""
    data = notes()
    queries, keys, values = (torch.tensor(part) for part in (data.x_test, data.x_train, data.y_train))
    w = torch.tensor(2.3, dtype=torch.float64)
    weights = F.softmax(-(((queries[:, None] - keys[None]) * w) ** 2) / 2, dim=1)
    expected = torch.bmm(weights.unsqueeze(1), values.repeat(len(queries), 1).unsqueeze(-1)).reshape(-1)
    got = pool(data.x_test, data.x_train, data.y_train, Gaussian(2.3), engine=engine).output
    assert np.allclose(got, expected.numpy(), rtol=1e-12)


@engines_for(Additive(np.ones((2, 1)), np.ones((2, 1)), np.ones(2)))
def test_additive_attention_as_torch_layers(engine):
    torch.manual_seed(0)
    W_q, W_k, w_v = (torch.nn.Linear(*sizes, bias=False, dtype=torch.float64) for sizes in ((3, 8), (4, 8), (8, 1)))
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(40, 3)), rng.normal(size=(60, 4)), rng.normal(size=(60, 2))
    with torch.no_grad():
        features = W_q(torch.tensor(query)).unsqueeze(1) + W_k(torch.tensor(key)).unsqueeze(0)
        expected = torch.softmax(w_v(torch.tanh(features)).squeeze(-1), dim=1) @ torch.tensor(value)
    score = Additive(*(layer.weight.detach().numpy() for layer in (W_q, W_k)), w_v.weight.detach().numpy()[0])
    assert np.allclose(pool(query, key, value, score, engine=engine).output, expected.numpy(), rtol=1e-12)


@engines_for(DotProduct())
def test_single_precision_is_no_worse_than_torch(engine):
    query, key, value, _ = make_inputs("plain", 200, 300, 1, d=5, dtype=np.float32)
    truth = attend_with_torch(query, key, value)
    theirs = F.scaled_dot_product_attention(*(torch.tensor(part)[None] for part in (query, key, value)))[0].numpy()
    ours = pool(query, key, value, DotProduct(), engine=engine).output
    assert (
        np.abs(ours - truth).max()
        <= 2 * np.abs(theirs - truth).max() + 4 * np.finfo(np.float32).eps * np.abs(value).max()
    )


# ---- scikit-learn and scipy


@every_engine
def test_kernel_matrices_of_scikit_learn(engine):
    query, key, value, _ = make_inputs("plain", 40, 60, 1, d=3)
    K = rbf_kernel(query, key, gamma=0.5 * 1.3**2)
    got = pool(query, key, value, Gaussian(1.3), engine=engine)
    assert np.allclose(got.output, K @ value / K.sum(axis=1, keepdims=True), rtol=1e-11)
    assert np.allclose(got.logsumexp, np.log(K.sum(axis=1)), rtol=1e-12, atol=1e-13)
    # In one dimension the city-block distance is the distance.
    K = laplacian_kernel(query[:, :1], key[:, :1], gamma=1.3)
    assert np.allclose(
        pool(query[:, :1], key[:, :1], value, Laplace(1.3), engine=engine).output,
        K @ value / K.sum(axis=1, keepdims=True),
        rtol=1e-12,
    )


@every_engine
def test_neighbours_of_scikit_learn(engine):
    rng = np.random.default_rng(2)
    query, key, value = rng.normal(size=(40, 3)), rng.normal(size=(90, 3)), rng.normal(size=90)
    nearest = KNeighborsRegressor(n_neighbors=1).fit(key, value).predict(query)
    assert np.array_equal(pool(query, key, value, Nearest(), engine=engine).output, nearest)
    reach = RadiusNeighborsRegressor(radius=3.0).fit(key, value).predict(query)
    assert np.allclose(pool(query, key, value, Boxcar(1 / 3.0), engine=engine).output, reach, rtol=1e-12)


@every_engine
def test_logsumexp_is_a_density_estimate_of_scipy(engine):
    rng = np.random.default_rng(4)
    key, query = rng.normal(size=80), np.linspace(-2.0, 2.0, 40)
    width = 0.4
    density = gaussian_kde(key, bw_method=width / key.std(ddof=1))(query)
    heights = pool(query, key, key, Gaussian(1 / width), engine=engine).logsumexp
    assert np.allclose(np.exp(heights) / (80 * width * np.sqrt(2.0 * np.pi)), density, rtol=1e-12)


@engines_for(DotProduct(), option="additive")
def test_softmax_and_logsumexp_of_scipy(engine):
    query, key, value, options = make_inputs("additive", 40, 60, 2, d=3)
    options["mask"][0] = 0.0
    s = query @ key.T * 1.5 / np.sqrt(3.0) + options["mask"]
    got = pool(query, key, value, DotProduct(1.5), engine=engine, **options)
    assert np.allclose(got.logsumexp, logsumexp(s, axis=1), rtol=1e-13)
    assert np.allclose(
        attention_weights(query, key, DotProduct(1.5), engine=engine, **options),
        softmax(s, axis=1),
        rtol=1e-12,
        atol=1e-16,
    )
    assert np.allclose(got.output, softmax(s, axis=1) @ value, rtol=1e-12, atol=1e-14)

"""``attention_weights`` and ``tol`` of tensors, pictures of them, and what may not be mixed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import regard
from regard.scores import Additive, Boxcar, DotProduct, Epanechnikov, Gaussian, Laplace
from support.tensor_paths import take_engines

SCORES = {
    "gaussian": Gaussian(0.7),
    "laplace": Laplace([0.5, 1.0, 0.2]),
    "matrix": Gaussian(np.ones((3, 2))),
    "boxcar": Boxcar(0.5),
    "epanechnikov": Epanechnikov(0.4),
    "dot": DotProduct(),
    "additive": Additive(np.ones((2, 3)), -np.ones((2, 3)), [1.0, 0.5]),
}
every_score = pytest.mark.parametrize("name", SCORES)


def sides(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 5, 3).to(dtype), torch.randn(2, 6, 3).to(dtype)


@every_score
@pytest.mark.parametrize("option", ["none", "mask", "added", "weight", "exclude"])
def test_weights_are_those_of_arrays(name, option):
    query, key = sides()
    options = {
        "none": {},
        "mask": {"mask": torch.rand(5, 6) < 0.6},
        "added": {"mask": torch.randn(5, 6).double().masked_fill(torch.rand(5, 6) < 0.3, -torch.inf)},
        "weight": {"sample_weight": torch.tensor([1.0, 0.0, 2.0, 1.0, 3.0, 0.5])},
        "exclude": {"exclude": (torch.arange(5), torch.arange(6))},
    }[option]
    found = regard.attention_weights(query, key, SCORES[name], **options)
    arrays = {k: tuple(p.numpy() for p in v) if isinstance(v, tuple) else v.numpy() for k, v in options.items()}
    for b in range(2):
        expected = regard.attention_weights(query[b].numpy(), key[b].numpy(), SCORES[name], **arrays)
        np.testing.assert_allclose(found[b], expected, rtol=1e-12, atol=1e-13)


@every_score
def test_weights_have_gradients_and_give_the_output(name):
    query, key = (part.requires_grad_() for part in sides())
    value = torch.randn(2, 6, 2, dtype=torch.float64)
    weights = regard.attention_weights(query, key, SCORES[name])
    torch.testing.assert_close(weights @ value, regard.pool(query, key, value, SCORES[name]).output)
    assert torch.autograd.gradcheck(lambda q, k: regard.attention_weights(q, k, SCORES[name]), (query, key))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_weights_come_in_the_dtype_of_queries(dtype):
    query, key = sides(dtype)
    found = regard.attention_weights(query, key, Gaussian())
    assert found.dtype == dtype
    exact = regard.attention_weights(query.double(), key.double(), Gaussian())
    torch.testing.assert_close(found.double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


def test_weights_refuse_what_pool_refuses():
    query, key = sides()
    key[1, 2, 0] = torch.nan
    with pytest.raises(ValueError, match="key row 2 is not finite"):
        regard.attention_weights(query, key, Gaussian())
    assert regard.attention_weights(query, key, Gaussian(), mask=torch.arange(6) != 2).isfinite().all()


@pytest.mark.parametrize("tol", [-1.0, 1.0, "none", torch.nan])
def test_tol_is_checked(tol):
    query, key = sides()
    for function in (regard.pool, regard.explain_plan):
        with pytest.raises(ValueError, match=r"tol must be a number in \[0, 1\)"):
            function(query, key, key, Gaussian(), tol=tol)


def test_tol_reaches_the_engines(monkeypatch):
    take_engines(monkeypatch)
    x = torch.linspace(0.0, 5.0, 3000, dtype=torch.float64)
    plans = [str(regard.explain_plan(x, x, x.sin(), Gaussian(40.0), tol=tol)) for tol in (None, 0.0, 1e-3)]
    assert plans[0] == plans[1] != plans[2]
    exact, rough = (regard.pool(x, x, x.sin(), Gaussian(40.0), tol=tol).output for tol in (0.0, 1e-3))
    assert 0.0 < (exact - rough).abs().max() < 2e-3


@pytest.mark.parametrize("score", [Gaussian(torch.tensor(1.0)), DotProduct(torch.tensor(1.0, requires_grad=True))])
def test_arrays_with_parameters_that_are_tensors(score):
    x = np.ones((3, 2))
    for call in (
        lambda: regard.pool(x, x, x, score),
        lambda: regard.pool(x, x, x[:, 0], score),
        lambda: regard.attention_weights(x, x, score),
        lambda: regard.explain_plan(x, x, x, score),
    ):
        with pytest.raises(TypeError, match=f"the parameters of {type(score).__name__} are torch tensors but query is"):
            call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_pictures_of_tensors(dtype):
    weights = torch.softmax(torch.randn(1, 2, 3, 4), -1).to(dtype).requires_grad_()
    figure = regard.plot.show_heatmaps(weights)
    shown = figure.axes[1].collections or figure.axes[1].images
    np.testing.assert_array_equal(np.asarray(shown[0].get_array()).reshape(3, 4), weights[0, 1].detach().double())
    assert regard.plot.AttentionMapDisplay(weights[0, 0]) is not None

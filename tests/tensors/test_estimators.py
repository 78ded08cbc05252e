"""Estimators on a device: the same answers as on the CPU, and clear words where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

import regard
from regard.engines.gpu import fused, placement
from regard.estimators import parameters

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=30)
AT = X[:9] * 1.1
MODELS = [
    regard.NadarayaWatsonRegressor(bandwidth=0.5),
    regard.NadarayaWatsonRegressor(metric="scalar"),
    regard.NadarayaWatsonClassifier(bandwidth=[0.5, 2.0]),
    regard.LocalLinearRegressor(bandwidth=0.8, ridge=0.01),
]


@pytest.fixture
def on_device(monkeypatch, programs):
    """The interpreter stands in for a GPU."""
    monkeypatch.setitem(parameters.PARAMETERS, "device", lambda name, given: None)
    for module in (fused, placement):
        monkeypatch.setattr(module, "device", lambda: torch.device("cpu"))


@pytest.mark.usefixtures("on_device", "light_search")
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_the_same_answers(model, monkeypatch):
    asked, forward = [], fused.launch_forward
    monkeypatch.setattr(fused, "launch_forward", lambda *given: asked.append(1) or forward(*given))
    target = Y > 0.0 if isinstance(model, regard.NadarayaWatsonClassifier) else Y
    there = clone(model).set_params(device="cuda").fit(X, target)
    model.fit(X, target)
    answers = (lambda m: m.predict_proba(AT)) if hasattr(model, "predict_proba") else (lambda m: m.predict(AT))
    assert np.allclose(answers(there), answers(model), rtol=1e-9, atol=1e-9)
    assert asked
    # Weights are formed on the CPU, wherever predictions are.
    count, weights = len(asked), there.attend(AT)
    assert len(asked) == count
    assert np.array_equal(there.set_params(device="cpu").attend(AT), weights)
    assert np.allclose(weights, model.attend(AT), rtol=1e-7, atol=1e-12)


@pytest.mark.usefixtures("on_device")
def test_a_mixture_is_learned_there(monkeypatch):
    from regard.bandwidth import device_lines

    blocks, block = [], device_lines.DeviceWeights
    monkeypatch.setattr(device_lines, "DeviceWeights", lambda *given: blocks.append(1) or block(*given))
    here, there = regard.KernelRegressor().fit(X, Y), regard.KernelRegressor(device="cuda").fit(X, Y)
    assert blocks
    assert np.allclose(there.loo_predictions_, here.loo_predictions_, rtol=1e-6, atol=1e-6)
    assert there.search_.evaluations == here.search_.evaluations


@pytest.mark.usefixtures("on_device")
def test_a_deep_kernel_answers_there():
    here = regard.AttentionRegressor(max_iter=1, random_state=0).fit(X, Y)
    there = regard.AttentionRegressor(max_iter=1, random_state=0).fit(X, Y).set_params(device="cuda")
    assert np.allclose(there.predict(AT), here.predict(AT), rtol=1e-9)


@pytest.mark.parametrize("make", [regard.KernelRegressor, regard.KernelClassifier, regard.NadarayaWatsonRegressor])
def test_words(make):
    with pytest.raises(ValueError, match="device must be 'cpu' or 'cuda', got 'gpu'"):
        make(device="gpu").fit(X, Y > 0.0)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device='cuda' needs a GPU"):
            make(device="cuda").fit(X, Y > 0.0)


@pytest.mark.usefixtures("on_device")
def test_an_engine_for_the_cpu_is_an_error():
    with pytest.raises(ValueError, match="engine must be 'auto' or 'fused' with device='cuda', got engine='tiled'"):
        regard.NadarayaWatsonRegressor(device="cuda", engine="tiled").fit(X, Y)

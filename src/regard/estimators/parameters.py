"""What the parameters of the estimators may be: one table, checked by name, and rules that join several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from regard.bandwidth import CRITERIA, OPTIMIZERS
from regard.bandwidth.losses import LOSSES
from regard.bandwidth.parametrization import METRICS
from regard.bandwidth.rules import checked_kernel
from regard.core.scores import KERNELS
from regard.data.columns import NUMBER
from regard.engines import check_engine
from regard.model.smoother import torch_part

MISSING = ("refuse", "ignore")
SCORES = ("gaussian", "additive", "dot")
DEVICES = ("cpu", "cuda")


def one_of(*accepted: str) -> Callable[[str, Any], None]:
    """A parameter that is one of some words."""

    def check(name: str, given: Any) -> None:
        if not isinstance(given, str) or given not in accepted:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}, got {given!r}")

    return check


def whole(name: str, given: Any, least: int = 1) -> None:
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {given!r}")


def between(low: float, high: float) -> Callable[[str, Any], None]:
    """A number strictly between two others."""

    def check(name: str, given: Any) -> None:
        if isinstance(given, bool) or not isinstance(given, Real) or not low < float(given) < high:
            raise ValueError(f"{name} must be a number between {low:g} and {high:g}, got {given!r}")

    return check


def _engine(_: str, given: Any) -> None:
    check_engine(given)


def _device(name: str, given: Any) -> None:
    """A GPU only where torch sees one."""
    if not isinstance(given, str) or given not in DEVICES:
        raise ValueError(f"{name} must be 'cpu' or 'cuda', got {given!r}")
    if given == "cuda":
        try:
            import torch
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                "device='cuda' needs torch, which is not installed; pip install 'regard[nn]' brings it", name="torch"
            ) from missing
        if not torch.cuda.is_available():
            raise ValueError("device='cuda', but torch sees no GPU here; use device='cpu'")


def _tol(name: str, given: Any) -> None:
    if given is not None and not (isinstance(given, Real) and 0.0 <= float(given) < 1.0):
        raise ValueError(f"{name} must be None or a number in [0, 1), got {given!r}")


def _ridge(name: str, given: Any) -> None:
    learned = isinstance(given, str) and given == "loo"
    number = isinstance(given, Real) and not isinstance(given, bool)
    if not (learned or (number and 0.0 <= float(given) < np.inf)):
        raise ValueError(f"{name} must be a finite number, not negative, or 'loo', got {given!r}")


def _embed(name: str, given: Any) -> None:
    if isinstance(given, str):
        if given != "mlp":
            raise ValueError(f"{name} must be None, 'mlp' or a torch module, got {given!r}")
    elif given is not None and not isinstance(given, torch_part("network").nn.Module):
        raise TypeError(f"{name} must be None, 'mlp' or a torch module, got {given!r}")


def _early_stopping(name: str, given: Any) -> None:
    if not isinstance(given, bool) and str(given) != "auto":
        raise ValueError(f"{name} must be True, False or 'auto', got {given!r}")


# In the order in which they are checked.
PARAMETERS: dict[str, Callable[[str, Any], None]] = {
    "engine": _engine,
    "device": _device,
    "tol": _tol,
    "missing": one_of(*MISSING),
    "loss": one_of(*LOSSES),
    "metric": one_of(*METRICS),
    "optimizer": one_of(*OPTIMIZERS),
    "ridge": _ridge,
    "score": one_of(*SCORES),
    "embed": _embed,
    **dict.fromkeys(("hidden_size", "embed_size", "max_iter", "batch_size", "n_iter_no_change"), whole),
    "learning_rate": between(0.0, np.inf),
    "validation_fraction": between(0.0, 1.0),
    "early_stopping": _early_stopping,
}


def kernel_name(kernel: Any) -> str:
    """The kernel of the features: a product of kernels of columns is Gaussian."""
    return NUMBER if columns_given(kernel) else checked_kernel(kernel)


def columns_given(kernel: Any) -> bool:
    """Whether ``kernel`` names kernels of the columns of a table."""
    return isinstance(kernel, Mapping | list | tuple)


def check_parameters(estimator: Any) -> None:
    """Raise ValueError or TypeError naming the parameter, what was given and what is accepted."""
    given = estimator.get_params(deep=False)
    for name, check in PARAMETERS.items():
        if name in given:
            check(name, given[name])
    if "empty" in given:
        one_of(*estimator._EMPTY)("empty", given["empty"])
    if given.get("device", "cpu") != "cpu" and given.get("engine", "auto") not in ("auto", "fused"):
        raise ValueError(f"device={given['device']!r} is for engine 'auto' or 'fused', got engine={given['engine']!r}")
    if "kernel" in given:
        if "bandwidth" in given:
            _check_width(estimator, given)
        elif not (given["kernel"] is None or columns_given(given["kernel"])):
            raise ValueError(f"kernel must be None, or kernels of columns as a dict or a list, got {given['kernel']!r}")


def _check_width(estimator: Any, given: dict[str, Any]) -> None:
    """Parameters that go together in the estimators with one bandwidth."""
    kernel, bandwidth = kernel_name(given["kernel"]), given["bandwidth"]
    rule = bandwidth if isinstance(bandwidth, str) else None
    if given["missing"] == "ignore" and (KERNELS[kernel].compact or rule == "adaptive"):
        raise ValueError("missing='ignore' is for one bandwidth and a kernel that reaches everywhere: 'gaussian'")
    if given.get("loss", "squared") == "absolute" and rule != "loo":
        raise ValueError(f"loss='absolute' is what bandwidth='loo' goes by, got bandwidth={bandwidth!r}")
    if given.get("ridge") == "loo" and rule != "loo":
        raise ValueError(f"ridge='loo' is learned with bandwidth='loo', got bandwidth={bandwidth!r}")
    if estimator._LABELS and rule in CRITERIA and rule != "loo":
        raise ValueError(f"bandwidth={bandwidth!r} is for regression; use 'loo'")
    if given["optimizer"] == "sgd":
        if rule != "loo":
            raise ValueError(f"optimizer 'sgd' is the notes' recipe for bandwidth='loo', got {bandwidth!r}")
        if given.get("loss", "squared") != "squared":
            raise ValueError("optimizer 'sgd' is the notes' recipe, which goes by squared errors")
        if given["metric"] == "full":
            raise ValueError("optimizer 'sgd' learns one w or one per feature, not metric='full'")
        if "ridge" in given:
            raise ValueError("optimizer 'sgd' is the notes' recipe, which is for NadarayaWatsonRegressor")

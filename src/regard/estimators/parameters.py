"""Validation of the estimators' parameters: a table of checks by name, and rules for combinations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
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
    """Check that a parameter is one of some strings."""

    def check(name: str, given: Any) -> None:
        if not isinstance(given, str) or given not in accepted:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}, got {given!r}")

    return check


def whole_number(name: str, given: Any, least: int = 1) -> None:
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {given!r}")


def between(low: float, high: float) -> Callable[[str, Any], None]:
    """Check that a parameter is a number strictly between two others."""

    def check(name: str, given: Any) -> None:
        if isinstance(given, bool) or not isinstance(given, Real) or not low < float(given) < high:
            raise ValueError(f"{name} must be a number between {low:g} and {high:g}, got {given!r}")

    return check


def _engine(_: str, given: Any) -> None:
    check_engine(given)


def _device(name: str, given: Any) -> None:
    """Check the device; "cuda" needs torch and a GPU."""
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
            raise ValueError("device='cuda' needs a GPU, but torch.cuda.is_available() is False; use device='cpu'")


def _tol(name: str, given: Any) -> None:
    if given is not None and not (isinstance(given, Real) and 0.0 <= float(given) < 1.0):
        raise ValueError(f"{name} must be None or a number in [0, 1), got {given!r}")


def _ridge(name: str, given: Any) -> None:
    learned = isinstance(given, str) and given == "loo"
    number = isinstance(given, Real) and not isinstance(given, bool)
    if not (learned or (number and 0.0 <= float(given) < np.inf)):
        raise ValueError(f"{name} must be a finite number of at least 0, or 'loo', got {given!r}")


def _neighbours(name: str, given: Any) -> None:
    whole = isinstance(given, Integral) and not isinstance(given, bool) and int(given) >= 1
    fraction = isinstance(given, Real) and not isinstance(given, Integral) and 0.0 < float(given) < 1.0
    if not (given is None or whole or fraction):
        raise ValueError(
            f"{name} must be None, a whole number of at least 1, or a fraction of the rows above 0 and below 1, "
            f"got {given!r}"
        )


def _embed(name: str, given: Any) -> None:
    if isinstance(given, str):
        if given != "mlp":
            raise ValueError(f"{name} must be None, 'mlp' or a torch module, got {given!r}")
    elif given is not None and not isinstance(given, torch_part("network").nn.Module):
        raise TypeError(f"{name} must be None, 'mlp' or a torch module, got {given!r}")


def _early_stopping(name: str, given: Any) -> None:
    if not isinstance(given, bool) and str(given) != "auto":
        raise ValueError(f"{name} must be True, False or 'auto', got {given!r}")


# Checks by parameter, in the order in which they run.
PARAMETERS: dict[str, Callable[[str, Any], None]] = {
    "engine": _engine,
    "device": _device,
    "tol": _tol,
    "missing": one_of(*MISSING),
    "loss": one_of(*LOSSES),
    "metric": one_of(*METRICS),
    "optimizer": one_of(*OPTIMIZERS),
    "ridge": _ridge,
    "neighbours": _neighbours,
    "score": one_of(*SCORES),
    "embed": _embed,
    **dict.fromkeys(("hidden_size", "embed_size", "max_iter", "batch_size", "n_iter_no_change"), whole_number),
    "learning_rate": between(0.0, np.inf),
    "validation_fraction": between(0.0, 1.0),
    "early_stopping": _early_stopping,
}


def kernel_name(kernel: Any) -> str:
    """Name of the kernel over features; kernels of columns are all Gaussian in their features."""
    return NUMBER if columns_given(kernel) else checked_kernel(kernel)


def columns_given(kernel: Any) -> bool:
    """Whether ``kernel`` gives a kernel for each column of a table."""
    return isinstance(kernel, Mapping | list | tuple)


def check_parameters(estimator: Any) -> None:
    """Raise ValueError or TypeError that names the parameter, the value given and the values accepted."""
    given = estimator.get_params(deep=False)
    for name, check in PARAMETERS.items():
        if name in given:
            check(name, given[name])
    if "empty" in given:
        one_of(*estimator._EMPTY_CHOICES)("empty", given["empty"])
    if given.get("device", "cpu") != "cpu" and given.get("engine", "auto") not in ("auto", "fused"):
        raise ValueError(
            f"engine must be 'auto' or 'fused' with device={given['device']!r}, got engine={given['engine']!r}"
        )
    if "kernel" in given:
        if "bandwidth" in given:
            _check_width(estimator, given)
        elif not (given["kernel"] is None or columns_given(given["kernel"])):
            raise ValueError(f"kernel must be None, or a dict or list of kernels of columns, got {given['kernel']!r}")


def _check_width(estimator: Any, given: dict[str, Any]) -> None:
    """Combinations of parameters of the estimators with a bandwidth."""
    kernel, bandwidth = kernel_name(given["kernel"]), given["bandwidth"]
    rule = bandwidth if isinstance(bandwidth, str) else None
    if given["missing"] == "ignore" and (KERNELS[kernel].compact or rule == "adaptive"):
        raise ValueError("missing='ignore' needs a fixed bandwidth and a kernel of unbounded support: 'gaussian'")
    if given.get("loss", "squared") == "absolute" and rule != "loo":
        raise ValueError(f"loss='absolute' needs bandwidth='loo', got bandwidth={bandwidth!r}")
    if given.get("ridge") == "loo" and rule != "loo":
        raise ValueError(f"ridge='loo' needs bandwidth='loo', got bandwidth={bandwidth!r}")
    if estimator._IS_CLASSIFIER and rule in CRITERIA and rule != "loo":
        raise ValueError(f"bandwidth={bandwidth!r} is for regression only; use bandwidth='loo' for a classifier")
    if given["neighbours"] is not None and rule != "adaptive":
        raise ValueError(f"neighbours needs bandwidth='adaptive', got bandwidth={bandwidth!r}")
    if given["optimizer"] == "sgd":
        if rule != "loo":
            raise ValueError(f"optimizer='sgd' needs bandwidth='loo', got bandwidth={bandwidth!r}")
        if given.get("loss", "squared") != "squared":
            raise ValueError(f"optimizer='sgd' needs loss='squared', got loss={given['loss']!r}")
        if given["metric"] == "full":
            raise ValueError("optimizer='sgd' needs metric='scalar' or 'feature', got metric='full'")
        if "ridge" in given:
            raise ValueError(f"optimizer='sgd' is not available for {type(estimator).__name__}; use optimizer='lbfgs'")

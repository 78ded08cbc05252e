"""What the parameters of the kernel estimators may be, one by one and together."""

from __future__ import annotations

from typing import Any

from regard.bandwidth import OPTIMIZERS
from regard.bandwidth.losses import LOSSES
from regard.bandwidth.shapes import METRICS
from regard.estimators.mixed import MISSING
from regard.scores import KERNELS


def check_kernel_parameters(estimator: Any) -> None:
    """Raise ValueError naming the parameter, what was given and what is accepted."""
    kernel = estimator._kernel  # an unknown name is an error
    bandwidth = estimator.bandwidth if isinstance(estimator.bandwidth, str) else None
    for name, accepted in (
        ("missing", MISSING),
        ("loss", LOSSES),
        ("empty", estimator._EMPTY),
        ("metric", METRICS),
        ("optimizer", OPTIMIZERS),
    ):
        given = getattr(estimator, name)
        if given not in accepted:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}, got {given!r}")
    if estimator.missing == "ignore" and (KERNELS[kernel].compact or bandwidth == "adaptive"):
        raise ValueError("missing='ignore' is for one bandwidth and a kernel that reaches everywhere: 'gaussian'")
    if estimator.loss == "absolute" and bandwidth != "loo":
        raise ValueError(f"loss='absolute' is what bandwidth='loo' goes by, got bandwidth={estimator.bandwidth!r}")
    if estimator.optimizer == "sgd":
        if bandwidth != "loo":
            raise ValueError(f"optimizer 'sgd' is the notes' recipe for bandwidth='loo', got {estimator.bandwidth!r}")
        if estimator.loss != "squared":
            raise ValueError("optimizer 'sgd' is the notes' recipe, which goes by squared errors")
        if estimator.metric == "full":
            raise ValueError("optimizer 'sgd' learns one w or one per feature, not metric='full'")

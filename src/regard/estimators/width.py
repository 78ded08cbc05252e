"""From ``bandwidth=`` to a fitted bandwidth: numbers, a rule, or learned by a criterion."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from regard.bandwidth import CRITERIA, Objective, Width, learned, resolve
from regard.bandwidth.adaptive import learn_neighbours
from regard.bandwidth.binary_scaling import powers_of_two, unscaled, unscaled_w
from regard.bandwidth.distinct import distinct, expand_rows
from regard.core.arrays import Array
from regard.core.bounds import bounds_of
from regard.core.local_fits import check_spans
from regard.core.scores import RADIAL
from regard.data.columns import Coding
from regard.estimators.callbacks import callback_progress
from regard.estimators.parameters import kernel_name
from regard.model.smoother import Head, RunOptions
from regard.pooling.runner import small_matrices

# Attributes learned by an earlier fit.
LEARNED_ATTRIBUTES = ("bandwidth_", "neighbours_", "search_", "loo_predictions_", "loo_score_")


def kernel_heads(model: Any) -> tuple[Head, ...]:
    """The one head of an estimator with a kernel and a bandwidth."""
    fitted, coding = vars(model), vars(model).get("coding_")
    return (
        Head(
            1.0,
            RADIAL[kernel_name(model.kernel)](model.w_),
            degree=model._DEGREE,
            ridge=fitted.get("ridge_", 0.0),
            neighbours=fitted.get("neighbours_"),
            sloped=None if coding is None else np.asarray(coding.numbers),
        ),
    )


def learn_bandwidth(
    model: Any, key: Array, value: Array, weight: Array | None, groups: Any, classes: int | None
) -> None:
    """Store the rows, and the bandwidth as given, by a rule, or learned."""
    for name in LEARNED_ATTRIBUTES:
        model.__dict__.pop(name, None)
    if model._DEGREE:
        check_spans(key if weight is None else key[weight > 0])
    bandwidth, coding = model.bandwidth, vars(model).get("coding_")
    if isinstance(bandwidth, str) and (len(key) if weight is None else (weight > 0).sum()) == 1:
        # Nothing to learn: every prediction is this row's y.
        count = key.shape[1] if coding is None else len(coding.parts)
        width = Width(np.full(count, np.inf), np.zeros(count))
    elif isinstance(bandwidth, str) and bandwidth in (*CRITERIA, "adaptive"):
        width = _learned(model, key, value, weight, groups, classes)
    elif groups is not None:
        raise ValueError(f"groups are for learning: they need bandwidth='loo', got bandwidth={bandwidth!r}")
    elif coding is not None:
        width = given_bandwidth(coding, bandwidth)
    else:
        target = None if classes is not None else value
        width = resolve(bandwidth, key, target, kernel=kernel_name(model.kernel), sample_weight=weight)
    model._set_training_rows(key, value, weight)
    set_bandwidth(model, width)


def set_bandwidth(model: Any, width: Width) -> None:
    """Set ``w_`` and ``bandwidth_``. For a mixed table, ``width`` has one w per part and ``w_`` one per feature."""
    model.w_, coding = width.w, vars(model).get("coding_")
    if coding is not None:
        model.w_, model.bandwidth_ = coding.per_feature(width.w), coding.bandwidth_of(width.w)
    elif width.bandwidth is not None:
        model.bandwidth_ = width.bandwidth
    if "ridge" in model.get_params(deep=False):
        model.ridge_ = width.ridge if model.ridge == "loo" else float(model.ridge)


def fixed_ridge(model: Any) -> float | None:
    """The given ridge, or None if it is to be learned."""
    ridge = getattr(model, "ridge", 0.0)
    return None if ridge == "loo" else float(ridge)


def given_bandwidth(coding: Coding, bandwidth: Any) -> Width:
    """Given bandwidths of a mixed table: h of numeric columns, λ of categories; one per column or one for all."""
    given = np.asarray(bandwidth) if not isinstance(bandwidth, str) else np.empty(0, object)
    if given.dtype.kind not in "fiu" or given.ndim > 1 or np.isnan(given.astype(np.float64)).any():
        raise ValueError(
            "bandwidth of a mixed table must be 'loo', 'aicc', 'gcv', a number, or one number per column, "
            f"got {bandwidth!r}"
        )
    if given.ndim and len(given) != coding.columns:
        raise ValueError(f"bandwidth has {len(given)} numbers but X has {coding.columns} columns")
    w = coding.w_of(np.broadcast_to(given.astype(np.float64), coding.columns))
    return Width(coding.bandwidth_of(w), w)


def _learned(model: Any, key: Array, value: Array, weight: Array | None, groups: Any, classes: int | None) -> Width:
    bandwidth, coding = model.bandwidth, vars(model).get("coding_")
    if groups is not None and bandwidth not in ("loo", "adaptive"):
        raise ValueError(f"groups need bandwidth='loo' or 'adaptive', got bandwidth={bandwidth!r}")
    key, value, weight, groups, place = distinct(key, value, weight, groups)
    options: dict[str, Any] = {
        "kernel": kernel_name(model.kernel),
        "degree": model._DEGREE,
        "classes": classes,
        "sample_weight": weight,
        "groups": groups,
        "engine": RunOptions(model.engine, model.tol, model.device).options["engine"],
        "loss": getattr(model, "loss", "squared"),
    }
    # Features are scaled by powers of two, exactly, so that no square over- or underflows. The steps of "sgd", however,
    # are in the units of X.
    power = powers_of_two(bounds_of(key), common=model.metric == "scalar") * (model.optimizer != "sgd")
    if coding is not None:
        _check_learnable(model)
        options |= {"coding": coding, "sloped": np.asarray(coding.numbers)}
        power = np.where(coding.numbers, power, 0)
    scaled = np.ldexp(key.astype(np.float64), -power)
    criterion = "loo" if bandwidth == "adaptive" else bandwidth
    objective = Objective.of(scaled, value, criterion=criterion, **options)
    start = None
    if model.optimizer == "sgd":
        shape = () if model.metric == "scalar" else (key.shape[1],)
        start = np.asarray(check_random_state(model.random_state).random_sample(shape))
    single, ridge = value.ndim == 1 and classes is None, fixed_ridge(model)
    with small_matrices(), callback_progress(model) as progress:
        if bandwidth == "adaptive":
            found: Any = learn_neighbours(
                objective,
                model.metric,
                ridge or 0.0,
                neighbours=model.neighbours,
                seed=model._seed(),
                progress=progress,
            )
        else:
            width = learned(
                objective,
                metric=model.metric,
                optimizer=model.optimizer,
                ridge=ridge,
                start=start,
                seed=model._seed(),
                progress=progress,
            )
    left_out = objective if criterion == "loo" else Objective.of(scaled, value, **options)
    if bandwidth == "adaptive":
        model.neighbours_, model.search_ = found.neighbours, found._replace(w=unscaled_w(found.w, power))
        width = Width.of(model.search_.w)
    else:
        assert width.search is not None
        found = width.search if left_out is objective else left_out(width.w, width.ridge)
        width = unscaled(width, power if coding is None else power[coding.firsts])
        model.search_ = width.search
    answers = expand_rows(found.answer, place)
    model.loo_predictions_ = answers[:, 0] if single else answers
    model.loo_score_ = left_out.score(found.answer)
    return width


def _check_learnable(model: Any) -> None:
    """Raise ValueError for parameters that mixed tables do not support."""
    for name, given, accepted in (("metric", model.metric, "feature"), ("optimizer", model.optimizer, "lbfgs")):
        if given != accepted:
            raise ValueError(f"{name} must be {accepted!r} for a mixed table, got {given!r}")
    if model.bandwidth == "adaptive":
        raise ValueError("bandwidth='adaptive' does not support mixed tables; use bandwidth='loo'")

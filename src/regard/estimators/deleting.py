"""Predictions without each of the training rows, from one look at the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.estimators.base import Array
from regard.inference.jackknife import Deleted, lines_without_each, without_each
from regard.local import centre_and_scale, fit_local
from regard.pooling import pool
from regard.problem import build
from regard.scores import Gaussian, Nearest


def answers_without_each(model: Any, query: Array, value: Array, copies: Array) -> Array:
    """f_{−i}(x) (Q, K) of one attention for values (K,): one of a row's copies leaves.

    *Cost*: O(Q·K·d²) time and memory O(Q·K·d): call it with a tile of queries.
    """
    query = query.astype(np.float64)
    weights, nobody = model._weights(query)
    each = weights / copies
    if getattr(model, "_DEGREE", 0):
        found = _lines(model, query, each, value, nobody)
    else:
        found = without_each(each, value, weights @ value)
    rows, keys = np.nonzero(found.alone)
    if rows.size:
        found.answer[rows, keys] = _looking_again(model, query[rows], keys, value)
    return found.answer


def _lines(model: Any, query: Array, weights: Array, value: Array, nobody: Array) -> Deleted:
    output, scale, local = model._local(query, value[:, None])
    fit, score = local.fit, local.problem.score
    output = np.where(nobody, weights @ value, output[:, 0])
    slope = np.where(nobody[:, None], 0.0, np.asarray(fit.slope)[:, 0] * scale[0])
    spread, leaning = np.asarray(fit.spread), getattr(model, "_leaning", None)
    if model._ridge > 0.0:
        width = query.shape[1]
        W = score.w if score.w.ndim == 2 else np.diag(np.broadcast_to(score.w, width))
        W = W if leaning is None else W * leaning[:, None]
        guarded = model._ridge * (1.0 + (np.asarray(fit.centre) ** 2).sum(axis=1))
        system = W.T @ spread @ W + guarded[:, None, None] * np.eye(W.shape[1])
        inverse = W @ np.linalg.solve(system, np.broadcast_to(W.T, (len(query), *W.T.shape)))
    else:
        variance = np.diagonal(spread, axis1=1, axis2=2)
        unit = np.where(variance > 0.0, 1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0)), 0.0)
        turned = np.linalg.pinv(spread * unit[:, :, None] * unit[:, None, :], rcond=1e-8, hermitian=True)
        inverse = turned * unit[:, :, None] * unit[:, None, :]
    inverse = np.where(nobody[:, None, None], 0.0, inverse)
    delta = model.key_.astype(np.float64)[None] - query[:, None]
    delta = delta if leaning is None else delta * leaning
    return lines_without_each(weights, delta, value, output, fit, inverse, slope)


def _looking_again(model: Any, query: Array, keys: Array, value: Array) -> Array:
    """The answer of query j (J, d) with key ``keys[j]`` (J,) barred."""
    key, score = model.key_.astype(np.float64), model.attention_score_
    options: dict[str, Any] = {"sample_weight": model.sample_weight_, "exclude": (keys, np.arange(len(key)))}
    degree = getattr(model, "_DEGREE", 0)
    centre, scale = centre_and_scale(value[:, None], model.sample_weight_)
    if isinstance(score, Nearest):
        return pool(query, key, value, score, **options).output
    problem = build(query, key, (value[:, None] - centre) / scale, score, **options)
    leaning = getattr(model, "_leaning", None)
    slopes: dict[str, Any] = {} if leaning is None else {"leaning": leaning}
    local = fit_local(problem, degree, model._ridge if degree else 0.0, model._engine, **slopes)
    answer = (centre + scale * local.fit.output)[:, 0]
    nobody = local.partial.mass <= 0.0
    if nobody.any():
        options["exclude"] = (keys[nobody], np.arange(len(key)))
        limit = Nearest(score.w) if np.any(score.w) else Gaussian(0.0)
        answer[nobody] = pool(query[nobody], key, value, limit, **options).output
    return np.asarray(answer)

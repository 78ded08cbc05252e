"""Gradients: raw sums from the adjoint programs, then the chain rule through w and the projections."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engines.tiled.jobs import blocks, each
from regard.engines.tiled.words import frozen
from regard.partial import Partial
from regard.planner import Step
from regard.problem import Adjoint, Problem
from regard.programs.adjoint import pull_keys, pull_queries
from regard.programs.pairs import ADDITIVE, Pairs
from regard.scores import Additive, DotProduct, Radial

Array = NDArray[Any]


def sums_over_keys(
    problem: Problem, pairs: Pairs, step: Step, partial: Partial, adjoint: Adjoint
) -> tuple[Array, Array]:
    """Raw sums over keys: for w, and for the (projected) queries."""
    columns = frozen(np.ascontiguousarray(problem.columns.T))
    grad_query = np.zeros(pairs.queries.shape)
    size = pairs.keys.shape[0]

    def run(rows: slice) -> Array:
        grad_w = np.zeros((1 if pairs.form == ADDITIVE else size, size))
        pull_queries(
            pairs,
            columns,
            *adjoint,
            rows.start,
            rows.stop,
            step.key_tile,
            partial.peak,
            partial.mass,
            grad_w,
            grad_query,
        )
        return grad_w

    parts = each(run, blocks(problem.query.shape[0], step.query_tile), step.threads)
    return np.sum(parts, axis=0), grad_query


def sums_over_queries(
    problem: Problem, pairs: Pairs, step: Step, partial: Partial, adjoint: Adjoint
) -> tuple[Array, Array]:
    """Raw sums over queries: for the (projected) keys, and for the values."""
    nothing = frozen(np.empty(0, pairs.keys.dtype))
    mirrored = pairs._replace(
        queries=frozen(np.ascontiguousarray(pairs.keys.T)),
        keys=frozen(np.ascontiguousarray(pairs.queries.T)),
        weight=nothing,
        log_weight=nothing,
        mask=frozen(np.ascontiguousarray(pairs.mask.T)),
        bias=frozen(np.ascontiguousarray(pairs.bias.T)),
        query_labels=pairs.key_labels,
        key_labels=pairs.query_labels,
    )
    left, value, right = (frozen(np.ascontiguousarray(part.T)) for part in adjoint)
    grad_key, grad_value = np.zeros(mirrored.queries.shape), np.zeros(problem.columns.shape)

    def run(rows: slice) -> None:
        pull_keys(
            mirrored,
            pairs.weight,
            frozen(problem.columns),
            left,
            value,
            right,
            rows.start,
            rows.stop,
            step.key_tile,
            partial.peak,
            partial.mass,
            grad_key,
            grad_value,
        )

    each(run, blocks(problem.key.shape[0], step.query_tile), step.threads)
    return grad_key, grad_value


def chain_rule(problem: Problem, raw: dict[str, Any]) -> dict[str, Any]:
    """Raw sums → gradients, through u² = ‖w∘δ‖² or through the projections."""
    score, out = problem.score, dict(raw)
    if isinstance(score, Radial):
        w = score.w
        metric = w @ w.T if w.ndim == 2 else np.diag(np.broadcast_to(w**2, problem.key.shape[1]))
        for name, sign in (("query", -2.0), ("key", 2.0)):
            if name in raw:
                out[name] = sign * raw[name] @ metric
        if "w" in raw:
            squares = raw["w"] + np.tril(raw["w"], -1).T  # the programs fill the lower triangle
            diagonal = np.diag(squares)
            out["w"] = 2.0 * (squares @ w if w.ndim == 2 else w * (diagonal if w.ndim else diagonal.sum()))
    elif isinstance(score, DotProduct):
        root = np.sqrt(max(problem.key.shape[1], 1))
        if "w" in raw:
            out["w"] = float((raw["query"] * problem.query).sum() / root)
        for name in ("query", "key"):
            if name in raw:
                out[name] = raw[name] * (score.w / root)
    elif isinstance(score, Additive):
        if "w" in raw:
            out["w"] = (raw["query"].T @ problem.query, raw["key"].T @ problem.key, raw["w"][0])
        for name, projection in (("query", score.W_q), ("key", score.W_k)):
            if name in raw:
                out[name] = raw[name] @ projection
    return out

"""Gradients: sums from the backward programs, then the chain rule through w and the projections."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.core.arrays import Array
from regard.core.plan import Step
from regard.core.problem import Adjoint, Gradients, Problem
from regard.core.scores import Additive, DotProduct, Radial
from regard.core.state import Partial
from regard.engines.cpu.program_inputs import packed, read_only, read_only_inputs, unpacked
from regard.engines.cpu.pruning import SelectTiles
from regard.engines.cpu.worker_threads import query_jobs, run_jobs
from regard.programs.cpu.backward_sums import backward_over_keys, backward_over_queries
from regard.programs.cpu.centred_moments import backward_centred
from regard.programs.cpu.pair_scores import ADDITIVE, PairInputs


def sums_over_keys(
    problem: Problem,
    pairs: PairInputs,
    step: Step,
    partial: Partial,
    adjoint: Adjoint,
    select: SelectTiles,
    only_w: bool,
) -> tuple[Array, Array]:
    """Sums over keys for the gradients of w and of the (projected) queries; the latter has no columns if ``only_w``."""
    dtype, lanes = problem.query.dtype, pairs.queries.shape[2]
    inverse_mass = _inverse_mass(partial)[:, None]

    def pack(rows: Array) -> Array:
        packed_rows = packed(rows.astype(dtype), lanes)
        # The padding of the last block must not contribute.
        packed_rows[-1, :, lanes - (len(pairs.queries) * lanes - pairs.rows) :] = 0.0
        return read_only(packed_rows)

    plain = np.zeros((len(inverse_mass), 0)) if adjoint.plain is None else adjoint.plain * inverse_mass
    cotangent = tuple(map(pack, (adjoint.left * inverse_mass, adjoint.value, -adjoint.right, plain)))
    peak = packed(partial.peak.astype(dtype), lanes)
    columns, size = read_only(problem.columns), pairs.keys.shape[1]
    grad_query = np.zeros((len(pairs.queries), 0 if only_w else size, 2, lanes))

    def run(rows: slice) -> Array:
        grad_w = np.zeros((1 if pairs.form == ADDITIVE else size, size))
        where = rows.start, rows.stop, step.key_tile, select(rows)
        if problem.rough and only_w:
            backward_centred(pairs, columns, cotangent, *where, peak, grad_w)
        else:
            backward_over_keys(pairs, columns, cotangent, *where, peak, grad_w, grad_query)
        return grad_w

    parts = run_jobs(run, query_jobs(pairs.queries, step), step.threads)
    return np.sum(parts, axis=0), unpacked(grad_query.sum(axis=2), pairs.rows)


def sums_over_queries(
    problem: Problem, pairs: PairInputs, step: Step, partial: Partial, adjoint: Adjoint, select: SelectTiles
) -> tuple[Array, Array]:
    """Sums over queries for the gradients of the (projected) keys and of the values."""
    dtype, lanes = problem.query.dtype, pairs.queries.shape[2]
    n_key = len(problem.key)
    weight = problem.sample_weight
    none = np.empty(0, dtype)
    attended = partial.mass > 0.0
    mirrored = read_only_inputs(
        pairs._replace(
            rows=n_key,
            queries=packed(pairs.keys, lanes),
            keys=unpacked(pairs.queries, pairs.rows),
            key_bias=none if pairs.direct else np.where(attended, -partial.peak, 0.0).astype(dtype),
            key_weight=none,
            mask=pairs.mask.T,
            bias=pairs.bias.T,
            query_labels=packed(pairs.key_labels, lanes),
            key_labels=unpacked(pairs.query_labels, pairs.rows),
        )
    )
    # The bias holds the queries' peaks, so the peak along the lanes is minus the key's own log weight.
    own = np.zeros(n_key) if problem.log_weight is None else -problem.log_weight
    peak = packed(own.astype(dtype), lanes)
    signs = np.r_[1.0, np.full(adjoint.left.shape[1] - 1, -1.0)]  # δ changes sign when the roles are exchanged
    nothing = np.zeros((len(adjoint.left), 0))
    plain = nothing if adjoint.plain is None else adjoint.plain * signs[: adjoint.plain.shape[1]]
    parts = adjoint.left * signs, adjoint.value, -adjoint.right * signs, plain
    cotangent = tuple(read_only(part.astype(dtype)) for part in parts)
    inverse_mass = read_only(_inverse_mass(partial).astype(dtype))
    columns = read_only(packed(problem.columns, lanes))
    grad_key = np.zeros((len(columns), pairs.keys.shape[1], 2, lanes))
    grad_value = np.zeros((len(columns), problem.columns.shape[1], 2, lanes))

    def run(rows: slice) -> None:
        where = rows.start, rows.stop, step.key_tile, select(rows)
        backward_over_queries(mirrored, inverse_mass, columns, cotangent, *where, peak, grad_key, grad_value)

    run_jobs(run, query_jobs(columns, step), step.threads)
    key, values = (unpacked(grad.sum(axis=2), n_key) for grad in (grad_key, grad_value))
    if pairs.direct and weight is not None:
        key, values = key * weight[:, None], values * weight[:, None]
    return (-key if isinstance(problem.score, Radial) else key), values


def _inverse_mass(partial: Partial) -> Array:
    """1/mass, 0 in empty rows."""
    attended = partial.mass > 0.0
    return np.where(attended, 1.0 / np.where(attended, partial.mass, 1.0), 0.0)


def no_gradients(problem: Problem, want: frozenset[str]) -> Gradients:
    """Zero gradients, for a problem without pairs."""
    score = problem.score
    w: Any = np.zeros_like(score.w) if isinstance(score, Radial | DotProduct) else None
    if isinstance(score, Additive):
        w = tuple(np.zeros_like(part) for part in (score.W_q, score.W_k, score.w_v))
    zeros = {"w": w} | {name: np.zeros(getattr(problem, name).shape) for name in ("query", "key")}
    zeros["value"] = np.zeros(problem.columns.shape)
    return Gradients(**{name: zeros[name] for name in want})


def chain_rule(problem: Problem, raw: dict[str, Any]) -> dict[str, Any]:
    """Sums of the programs → gradients, through u² = ‖w∘δ‖² or through the projections."""
    score, out = problem.score, dict(raw)
    if isinstance(score, Radial):
        w = score.w
        metric = w @ w.T if w.ndim == 2 else np.diag(np.broadcast_to(w**2, problem.key.shape[1]))
        for name, sign in (("query", -2.0), ("key", 2.0)):
            if name in raw:
                out[name] = sign * raw[name] @ metric
        if "w" in raw:
            squares = raw["w"] + np.triu(raw["w"], 1).T  # the programs fill the upper triangle
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
        if {"w", "key"} <= raw.keys():
            out["w"] = (raw["query"].T @ problem.query, raw["key"].T @ problem.key, raw["w"][0])
        for name, projection in (("query", score.W_q), ("key", score.W_k)):
            if name in raw:
                out[name] = raw[name] @ projection
    return out

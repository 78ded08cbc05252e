"""The numbers of a case, and what it comes to in plain torch at any precision, by definitions written out here."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any, NamedTuple

import torch

from gpu.cases import DENSE, Case, is_compact, on_edge
from regard.scores import RADIAL, Additive, DotProduct

Tensor = torch.Tensor
# Numbers of one (rows, keys, features) block of the oracle.
CELLS = 1 << 23
# Queries that are compared where there are too many.
SAMPLE = 40


class Problem(NamedTuple):
    """Leaves (query, key, value, parameters …) as they are passed, options, cotangents, and what is compared."""

    leaves: list[Tensor]
    clean: list[Tensor]  # without what a mask hides
    options: dict[str, Any]
    rows: Tensor  # queries that are compared
    grad_output: Tensor  # (B, Q, P), 0 but for these rows
    grad_logsumexp: Tensor  # (B, Q)


def problem_of(case: Case, device: str) -> Problem:
    random = torch.Generator().manual_seed(case.seed)
    dtype = getattr(torch, case.dtype)
    B, Q, K, d, P = case.B, case.Q, case.K, case.d, case.P

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=random)

    shared = 1 if case.option == "shared" else B
    query, key, value = normal(B, Q, d), normal(shared, K, d), normal(shared, K, P) + 0.5
    if case.option == "leave-one-out":
        query = key.clone()
    if is_compact(case.score) and not case.score.endswith("matrix"):
        # Short numbers, and powers of two for w: whether a key is in reach is then the same in every precision.
        query, key = ((8.0 * x).round().clamp(-30.0, 30.0) / 8.0 for x in (query, key))
    real = torch.promote_types(dtype, torch.float32)
    parameters = [part.to(real) for part in _parameters(case, normal)]
    sides = [part.to(dtype) for part in (query, key, value)]
    options: dict[str, Any] = {}
    hidden = None
    if case.option in ("mask", "everything", "garbage"):
        options["mask"] = uniform(B, Q, K) < 0.7
        options["mask"][0, 0] = False
    if case.option == "bias":
        options["mask"] = torch.where(uniform(Q, K) < 0.8, normal(Q, K), -torch.inf).to(real)
    if case.option == "lengths":
        options["valid_lens"] = torch.randint(0, K + 1, (B,), generator=random)
    if case.option == "query lengths":
        options["valid_lens"] = torch.randint(0, K + 1, (B, Q), generator=random)
    if case.option == "leave-one-out":
        options["exclude"] = torch.arange(Q), torch.arange(K)
    if case.option in ("exclude", "everything"):
        options["exclude"] = tuple(torch.randint(0, 7, (n,), generator=random) for n in (Q, K))
    if case.option in ("weights", "everything"):
        options["sample_weight"] = uniform(K) + 0.1
    if case.option == "repetitions":
        options["sample_weight"] = torch.randint(0, 4, (K,), generator=random)
        options["sample_weight"][0] = 2
    clean = sides
    if case.option == "garbage":
        hidden = uniform(K) < 0.2
        options["mask"][:, :, hidden] = False
        clean = [part.clone() for part in sides]
        sides[0][0, 0] = torch.nan
        for part, bad in ((sides[1], torch.nan), (sides[2], torch.inf)):
            part[:, hidden] = bad
        clean[0][0, 0] = 0.0
        for part in clean[1:]:
            part[:, hidden] = 0.0

    def put(part: Any) -> Any:
        return tuple(map(put, part)) if isinstance(part, tuple) else part.to(device)

    rows = _rows(case, random)
    if on_edge(case.score):
        # With a key on the edge of reach precisions disagree.
        sides64 = [part.double() for part in clean]
        squares = [
            _squares(q[rows], k, parameters[0].double())
            for q, k in zip(sides64[0], sides64[1].expand(B, -1, -1), strict=True)
        ]
        rows = rows[~torch.stack([((part - 1.0).abs() < 1e-4).any(1) for part in squares]).any(0)]
    weight = torch.zeros(Q)
    weight[rows] = 1.0
    grad_output, grad_logsumexp = normal(B, Q, P) * weight[:, None], normal(B, Q) * weight
    return Problem(
        [put(part) for part in (*sides, *parameters)],
        [put(part) for part in (*clean, *parameters)],
        {name: put(part) for name, part in options.items()},
        rows.to(device),
        grad_output.to(device),
        grad_logsumexp.to(device),
    )


def score_of(case: Case, parameters: list[Tensor], *, numbers: bool = False) -> Any:
    """The score; with ``numbers`` its parameters are arrays."""
    given = [part.detach().double().cpu().numpy() for part in parameters] if numbers else parameters
    if case.score == "additive":
        return Additive(*given)
    return DotProduct(given[0]) if case.score == "dot" else RADIAL[case.score.partition("-")[0]](given[0])


def _parameters(case: Case, normal: Any) -> list[Tensor]:
    d, h = case.d, case.hidden
    if case.score == "additive":
        return [normal(h, d) / sqrt(d), normal(h, d) / sqrt(d), 2.0 * normal(h) / sqrt(h)]
    if case.score == "dot":
        return [torch.tensor(1.5)]
    # Two keys are some √(2d) apart.
    compact = is_compact(case.score)
    w = (0.75 if compact else 2.0) / sqrt(2.0 * d)
    if case.score.endswith("matrix"):
        r = max(1, min(d // 2, 16))
        return [normal(d, r) * (w / sqrt(r))]
    if compact:
        w = 2.0 ** round(torch.log2(torch.tensor(w)).item())
    if case.score.endswith("feature"):
        pattern = torch.tensor([1.0, -1.0, 0.5, -1.0]).repeat(d)[:d]
        return [w * pattern]
    return [torch.tensor(w)]


def _rows(case: Case, random: torch.Generator) -> Tensor:
    """All queries, or those at edges of tiles and some more."""
    Q = case.Q
    if case.B * Q * case.K * max(case.d, case.P) <= DENSE >> 3:
        return torch.arange(Q)
    edges = [at + step for at in (0, 32, 64, 128, 256, Q - Q % 256, Q - Q % 32, Q) for step in (-1, 0)]
    drawn = torch.randint(0, Q, (SAMPLE - len(edges),), generator=random).tolist()
    return torch.tensor(sorted({at for at in (*edges, *drawn) if 0 <= at < Q}))


class Answer(NamedTuple):
    """output (B, R, P) and logsumexp (B, R) of the compared rows, gradients of the wanted leaves, and their sizes."""

    output: Tensor
    logsumexp: Tensor
    gradients: dict[int, Tensor]
    share: float  # the largest attention that a key got, over all compared rows
    condition: float  # by how much more than one rounding a score may be off


def wanted(case: Case, leaves: int) -> tuple[int, ...]:
    """Numbers of the leaves whose gradients are asked for."""
    names = {"all": range(leaves), "nothing": (), "query": (0,), "key": (1,), "value": (2,), "w": range(3, leaves)}
    return tuple(names[case.want])


def oracle(case: Case, it: Problem, dtype: torch.dtype) -> Answer:
    """The definition at this precision, a few rows at a time."""
    leaves = [leaf.detach().to(dtype).requires_grad_() for leaf in it.clean]
    wants = wanted(case, len(leaves))
    totals = {n: torch.zeros_like(leaves[n]) for n in wants}
    share = torch.zeros(leaves[2].shape[:2], dtype=dtype, device=leaves[2].device)
    width = max(case.d, case.P, case.hidden if case.score == "additive" else 1)
    size = max(1, CELLS // (case.K * width))
    outputs, heights, condition = [], [], 1.0
    for b in range(case.B):
        found = []
        for rows in torch.split(it.rows, size):
            output, height, weights, off = _answer(case, it, leaves, b, rows)
            total = (output * it.grad_output[b, rows].to(dtype)).sum()
            finite = torch.where(torch.isfinite(height), height, 0.0)
            total = total + (finite * it.grad_logsumexp[b, rows].to(dtype)).sum()
            if wants:
                parts = torch.autograd.grad(
                    total, [leaves[n] for n in wants], allow_unused=True, materialize_grads=True
                )
                for n, part in zip(wants, parts, strict=True):
                    totals[n] += part
            share[b if len(share) > 1 else 0] += weights.detach().sum(0)
            condition = max(condition, float((weights * off).detach().sum(1).max()))
            found.append((output.detach(), height.detach()))
        for into, parts in zip((outputs, heights), zip(*found, strict=True), strict=True):
            into.append(torch.cat(parts))
    return Answer(torch.stack(outputs), torch.stack(heights), totals, float(share.max()), condition)


def _answer(
    case: Case, it: Problem, leaves: list[Tensor], b: int, rows: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key, value = (leaf[b if len(leaf) > 1 else 0] for leaf in leaves[:3])
    scores, off = _scores(case, query[rows], key, leaves[3:])
    allowed = torch.ones_like(scores, dtype=torch.bool)
    for name, given in it.options.items():
        if name == "mask" and given.dtype == torch.bool:
            allowed = allowed & given[b, rows]
        elif name == "mask":
            allowed = allowed & (given[rows] > -torch.inf)
            scores = scores + torch.where(given[rows] > -torch.inf, given[rows], 0.0).to(scores.dtype)
        elif name == "valid_lens":
            lens = given[b] if given.ndim == 1 else given[b, rows, None]
            allowed = allowed & (torch.arange(case.K, device=scores.device) < lens)
        elif name == "exclude":
            allowed = allowed & (given[0][rows, None] != given[1])
        else:
            allowed = allowed & (given > 0)
            scores = scores + torch.log(torch.where(given > 0, given, 1).to(scores.dtype))
    allowed = allowed & (scores > -torch.inf)
    scores = torch.where(allowed, scores, -torch.inf)
    empty = ~allowed.any(1)
    scores = torch.where(empty[:, None], 0.0, scores)
    weights = torch.where(empty[:, None], 0.0, torch.softmax(scores, 1))
    height = torch.where(empty, -torch.inf, torch.logsumexp(scores, 1))
    return weights @ value, height, weights, off


def _scores(case: Case, query: Tensor, key: Tensor, parameters: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Scores (R, K), and by how many roundings of u they may be off."""
    one = torch.ones((), device=query.device)
    if case.score == "additive":
        W_q, W_k, w_v = parameters
        return torch.tanh((query @ W_q.T)[:, None] + (key @ W_k.T)[None]) @ w_v, one
    w = parameters[0]
    if case.score == "dot":
        return w * (query @ key.T) / sqrt(case.d), one
    u2 = _squares(query, key, w)
    apart = u2 > 0.0
    u = torch.where(apart, torch.sqrt(torch.where(apart, u2, 1.0)), 0.0)
    name = case.score.partition("-")[0]
    if name in ("gaussian", "laplace"):
        return (-0.5 * u2 if name == "gaussian" else -u), one
    inside = u2 <= 1.0
    u, u2 = torch.where(inside, u, 0.0), torch.where(inside, u2, 0.0)
    height = {
        "boxcar": torch.ones_like(u),
        "triangular": 1.0 - u,
        "epanechnikov": 1.0 - u2,
        "biweight": (1.0 - u2) ** 2,
        "triweight": (1.0 - u2) ** 3,
        "tricube": (1.0 - u2 * u) ** 3,
        "cosine": torch.sin(0.5 * pi * (1.0 - u)),
    }[name]
    reached = inside & (height > 0.0)
    off = 3.0 / (1.0 - torch.where(reached, u, 0.0)).clamp(min=1e-6)
    return torch.where(reached, torch.log(torch.where(reached, height, 1.0)), -torch.inf), off


def _squares(query: Tensor, key: Tensor, w: Tensor) -> Tensor:
    """u² (R, K)."""
    difference = query[:, None] - key[None]
    return (difference @ w if w.ndim == 2 else difference * w).square().sum(2)

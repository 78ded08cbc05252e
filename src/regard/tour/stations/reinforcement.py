"""Hard attention by reinforcement: one key is drawn, and the gradient of the expected cost is estimated from draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.plot import style
from regard.tour.station import Findings, Station, Visit, findings, needs_torch
from regard.tour.texts import read_texts

if TYPE_CHECKING:
    from torch import Tensor

    from regard.nn import BilinearScore
    from regard.nn.hard_attention import Estimator

TEXTS = read_texts("stations/reinforcement")

# Symbols to choose from, and queries in a batch.
SYMBOLS = 8
QUERIES = 32
# Draws per query: a baseline is the mean cost of the others.
DRAWS = 4
STEPS = 40
LEARNING_RATE = 0.1
# Repetitions of the estimated gradient.
ESTIMATES = 1000
WAYS = ("argmax", "without", "with", "exact", "soft")


class GradientEstimates(NamedTuple):
    """GradientEstimates of the expected cost with respect to W at its start, W = 0."""

    exact: NDArray[Any]  # (SYMBOLS²,)
    estimates: dict[str, NDArray[Any]]  # (ESTIMATES, SYMBOLS²), "without" a baseline and "with" one


@needs_torch
def compute(visit: Visit) -> Findings:
    costs = {way: train(way, visit.seed) for way in WAYS}
    gradients = measure(visit.seed)
    values: dict[str, Any] = {f"{way}_cost": cost[-1] for way, cost in costs.items()}
    for way, estimates in gradients.estimates.items():
        variance = float(estimates.var(axis=0).sum())
        values[f"{way}_variance"] = variance
        values[f"{way}_error"] = float(np.linalg.norm(estimates.mean(axis=0) - gradients.exact))
        values[f"{way}_chance"] = float(np.sqrt(variance / ESTIMATES))
    return findings(
        TEXTS,
        {"training": _training(visit, costs), "gradient": _histograms(visit, gradients)},
        estimates=ESTIMATES,
        steps=STEPS,
        start=costs["exact"][0],
        length=float(np.linalg.norm(gradients.exact)),
        **values,
    )


def train(way: str, seed: int) -> list[float]:
    """Expected cost before each step and after the last one."""
    import torch

    from regard.nn import AttentionPooling, BilinearScore, HardAttention, LeaveOneOut

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        score = BilinearScore(SYMBOLS, SYMBOLS)
        torch.nn.init.zeros_(score.W)
        soft = AttentionPooling(score)
        hard = {
            "argmax": HardAttention(score).eval(),
            "without": HardAttention(score, "reinforce", samples=DRAWS),
            "with": HardAttention(score, "reinforce", samples=DRAWS, baseline=LeaveOneOut()),
            "exact": HardAttention(score, "marginal"),
        }
        optimiser = torch.optim.Adam(score.parameters(), lr=LEARNING_RATE)
        costs = [expected_cost(score, way)]
        for _ in range(STEPS):
            keys = torch.eye(SYMBOLS)[torch.rand(QUERIES, SYMBOLS).argsort()]  # (QUERIES, SYMBOLS, SYMBOLS)
            queries = torch.eye(SYMBOLS)[torch.randint(SYMBOLS, (QUERIES, 1))]  # (QUERIES, 1, SYMBOLS)
            if way == "soft":
                objective = _cost(soft(queries, keys, keys), queries)
            else:
                pooled = hard[way](queries, keys, keys)
                objective = pooled.objective(_cost(pooled.output, queries))
            optimiser.zero_grad()
            # The cost of the largest score has no gradient at all.
            if objective.requires_grad:
                objective.mean().backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            costs.append(expected_cost(score, way))
    return costs


def _cost(output: Tensor, queries: Tensor) -> Tensor:
    """½‖output − query‖²: 0 for the value of the right key, 1 for that of a wrong one."""
    return 0.5 * (output - queries).square().sum(-1)


def expected_cost(score: BilinearScore, way: str) -> float:
    """Over all queries; every key is there, so the order of the keys plays no part."""
    import torch

    weights = score.W.detach().softmax(-1)
    right = torch.eye(SYMBOLS)
    if way == "soft":
        return float(_cost(weights, right).mean())
    if way == "argmax":
        return float(_cost(right[weights.argmax(-1)], right).mean())
    return float(1.0 - weights.diagonal().mean())


def measure(seed: int) -> GradientEstimates:
    """Every estimate has its own copy of W; a batch holds every symbol equally often as a query."""
    import torch

    from regard.nn import HardAttention, LeaveOneOut

    keys = torch.eye(SYMBOLS).expand(ESTIMATES, -1, -1)
    queries = keys.repeat(1, QUERIES // SYMBOLS, 1)  # (ESTIMATES, QUERIES, SYMBOLS)

    def gradients(estimator: Estimator, **how: Any) -> NDArray[Any]:
        W = torch.zeros(ESTIMATES, SYMBOLS, SYMBOLS, requires_grad=True)
        attention = HardAttention(lambda q, k: q @ W @ k.mT, estimator, **how)
        pooled = attention(queries, keys, keys)
        pooled.objective(_cost(pooled.output, queries)).mean(-1).sum().backward()
        assert W.grad is not None
        return W.grad.flatten(1).double().numpy()

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GradientEstimates(
            gradients("marginal")[0],
            {
                "without": gradients("reinforce", samples=DRAWS),
                "with": gradients("reinforce", samples=DRAWS, baseline=LeaveOneOut()),
            },
        )


def _training(visit: Visit, costs: dict[str, list[float]]) -> Figure:
    figure = style.picture(6.4, 4.0)
    ax = style.dress(figure.subplots())
    colours = (style.MUTED, style.VERMILION, style.BLUE, style.INK, style.GREEN)
    for (way, cost), colour, dash in zip(
        costs.items(), colours, (":", "--", "-", "-.", (0, (5, 1, 1, 1))), strict=True
    ):
        ax.plot(cost, color=colour, linestyle=dash, linewidth=2.2, label=visit.label(TEXTS[way]))
    ax.set(xlabel=visit.label(TEXTS["step"]), ylabel=visit.label(TEXTS["cost"]), xlim=(0, STEPS), ylim=(0, 1))
    style.legend(ax, loc="center right", bbox_to_anchor=(1.0, 0.62))
    return figure


def _histograms(visit: Visit, gradients: GradientEstimates) -> Figure:
    """How far each estimate is from the exact gradient, in lengths of the exact gradient."""
    figure = style.picture(6.4, 3.6)
    ax = style.dress(figure.subplots())
    distances = {
        way: np.linalg.norm(estimates - gradients.exact, axis=1) / np.linalg.norm(gradients.exact)
        for way, estimates in gradients.estimates.items()
    }
    bins = np.linspace(0.0, 1.05 * max(float(each.max()) for each in distances.values()), 50).tolist()
    for (way, each), colour, hatch in zip(distances.items(), (style.VERMILION, style.BLUE), ("//", None), strict=True):
        name = visit.label(TEXTS[way])
        ax.hist(each, bins, histtype="stepfilled", color=colour, alpha=0.6, hatch=hatch, edgecolor=colour, label=name)
    ax.set(xlabel=visit.label(TEXTS["distance"]), ylabel=visit.label(TEXTS["count"]), xlim=(0, bins[-1]))
    style.legend(ax, loc="upper right")
    return figure


STATION = Station("reinforcement", TEXTS, compute)

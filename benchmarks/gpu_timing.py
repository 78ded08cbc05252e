"""Times and errors on a GPU, and the problems they are taken of."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor
DEVICE = "cuda"


def milliseconds(run: Callable[[], Any], rounds: int = 5) -> float:
    """Median time of a call among others back to back, after two warm ones."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    torch.cuda.synchronize()
    # As a network would call it: the host runs ahead of the device if it can.
    once = time.perf_counter() - started
    calls = 1 if once > 0.5 else max(3, min(50, int(0.03 / once)))
    return statistics.median(event_milliseconds(run, calls) for _ in range(rounds))


def event_milliseconds(run: Callable[[], Any], calls: int) -> float:
    """Mean time of a call by CUDA events around so many of them."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end) / calls)


def in_turns(runs: dict[str, Callable[[], Any]], turns: int = 9) -> dict[str, float]:
    """Median times of several, one after the other again and again: short calls wait for a host whose pace changes."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            spent[name].append(milliseconds(run, 1))
    return {name: statistics.median(times) for name, times in spent.items()}


def backward(run: Callable[[], Tensor], leaves: list[Tensor]) -> Callable[[], Any]:
    def both() -> Any:
        return torch.autograd.grad(run().sum(), leaves)

    return both


def problem(n: int, d: int, P: int = 1, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    query, key = (torch.rand(n, d, device=DEVICE, generator=generator) for _ in range(2))
    return (
        query,
        key,
        torch.sin(6.0 * key[:, :1].expand(-1, P)) + 0.1 * torch.randn(n, P, device=DEVICE, generator=generator),
    )


def error(
    output: Tensor, query: Tensor, key: Tensor, value: Tensor, score: Callable[[Tensor, Tensor], Tensor]
) -> float:
    """Largest error of the first answers, against float64."""
    rows = min(256, len(output))
    truth = torch.cat(
        [torch.softmax(score(q.double(), key.double()), 1) @ value.double() for q in query[:rows].split(32)]
    )
    return float((output[:rows].double() - truth).abs().max() / value.abs().max())


def gaussian_scores(w: float) -> Callable[[Tensor, Tensor], Tensor]:
    def scores(query: Tensor, key: Tensor) -> Tensor:
        return -0.5 * w * w * ((query[:, None] - key[None]) ** 2).sum(2)

    return scores


def in_blocks(run: Callable[[Tensor], Tensor], query: Tensor, rows: int) -> Tensor:
    return torch.cat([run(part) for part in query.split(rows)])


def gradient_error(found: tuple[Tensor, ...], leaves: list[Tensor]) -> float:
    """Largest error of an additive score's gradients, each as a share of its largest number, against float64."""
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    truth = [torch.zeros_like(leaf) for leaf in exact]
    query, key, value, W_q, W_k, w_v = exact
    for rows in torch.arange(len(query), device=DEVICE).split(128):
        hidden = torch.tanh((query[rows] @ W_q.T)[:, None] + (key @ W_k.T)[None])
        part = torch.autograd.grad((torch.softmax(hidden @ w_v, 1) @ value).sum(), exact)
        truth = [total + more for total, more in zip(truth, part, strict=True)]
    return max(float((x - y).abs().max() / y.abs().max()) for x, y in zip(found, truth, strict=True))

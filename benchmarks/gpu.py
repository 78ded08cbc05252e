"""Fused pooling on one GPU beside plain torch, torch.compile, scaled_dot_product_attention and FlexAttention.

    PYTHONPATH=src python benchmarks/gpu.py [--quick] [--only gaussian,loo,additive,dot,layers]

Needs a CUDA device, torch and Triton; writes results/gpu.json and gpu.md. Rates are 10¹² pairs of query and key per
second, times are medians of CUDA events. Peers (``gpu_peers.py``) take the number of queries at which they are fastest,
always against all keys; variants in lower precision are listed with their errors. Errors are the largest of 256 answers
against float64, as a share of the largest value.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from gpu_peers import peers
from gpu_tables import text_of
from gpu_timing import (
    DEVICE,
    backward,
    error,
    gaussian_scores,
    gradient_error,
    in_blocks,
    in_turns,
    milliseconds,
    problem,
)
from machine import RESULTS, save
from regard.scores import Additive, DotProduct, Gaussian, Score
from regard.tensors import fused_pool

Tensor = torch.Tensor
FAR = 1 << 18
# d and w, keys uniform on the unit cube; eight features go by differences if w is large, by products if not
CASES = ((1, 300.0), (3, 12.0), (8, 12.0), (8, 2.0), (64, 0.8))
SIZES = {torch.float32: 1 << 15, torch.float16: 1 << 16, torch.bfloat16: 1 << 16}
FLOORS = {1: 3.6, 3: 2.4, 8: 1.25, 64: 0.55}


def gaussians(quick: bool) -> list[dict[str, Any]]:
    """Forward, backward, and peers, by number of features."""
    out = []
    for d, w in CASES:
        query, key, value = problem(FAR, d)
        score = Gaussian(w)
        run = lambda q=query, k=key, v=value, s=score: fused_pool(q, k, v, s)[0]  # noqa: E731
        forward = milliseconds(run)
        leaves = [x.clone().requires_grad_() for x in (query, key, value, torch.tensor(w, device=DEVICE))]
        whole = backward(lambda x=leaves: fused_pool(*x[:3], Gaussian(x[3]))[0], leaves)
        both = milliseconds(whole, 3)
        first, second = whole(), whole()
        out.append(
            {
                "d": d,
                "w": w,
                "rate": FAR * FAR / forward / 1e9,
                "floor": FLOORS[d],
                "forward_ms": forward,
                "both_ms": both,
                "ratio": both / forward,
                "error": error(run(), query, key, value, gaussian_scores(w)),
                "same_bits": all(torch.equal(a, b) for a, b in zip(first, second, strict=True)),
                "peers": [] if quick else peers(query, key, value, w, 3),
            }
        )
        print(
            f"d={d}: {out[-1]['rate']:.2f} T/s, ratio {out[-1]['ratio']:.2f}, error {out[-1]['error']:.1e}", flush=True
        )
    return out


def leave_one_out(n: int = 1 << 20, d: int = 8) -> dict[str, Any]:
    """Mean squared error of every row left out, and its gradient with respect to one w per feature."""
    query, _, value = problem(n, d)
    rows = torch.arange(n, device=DEVICE)
    w = torch.full((d,), 2.0, device=DEVICE, requires_grad=True)

    def run() -> Tensor:
        output, _ = fused_pool(query, query, value, Gaussian(w), exclude=(rows, rows))
        return torch.autograd.grad(((output - value) ** 2).mean(), w)[0]

    return {"n": n, "d": d, "seconds": milliseconds(run, 2) / 1e3, "floor": 2.5}


def additive(n: int = 1 << 14, hidden: int = 64) -> dict[str, Any]:
    generator = torch.Generator(DEVICE).manual_seed(0)
    shapes = ((n, 16), (n, 16), (n, 1), (hidden, 16), (hidden, 16), (hidden,))
    leaves = [torch.randn(*shape, device=DEVICE, generator=generator) for shape in shapes]
    for weight in leaves[3:5]:
        # As torch.nn.Linear begins.
        torch.nn.init.uniform_(weight, -0.25, 0.25, generator=generator)
    leaves = [leaf.requires_grad_() for leaf in leaves]

    def run() -> Tensor:
        return fused_pool(*leaves[:3], Additive(*leaves[3:]))[0]

    def scores(query: Tensor, key: Tensor) -> Tensor:
        W_q, W_k, w_v = (leaf.detach().to(query.dtype) for leaf in leaves[3:])
        return torch.tanh((query @ W_q.T)[:, None] + (key @ W_k.T)[None]) @ w_v

    def eager() -> Tensor:
        return in_blocks(lambda q: torch.softmax(scores(q, leaves[1]), 1) @ leaves[2], leaves[0], 512)

    query, key, value = (leaf.detach() for leaf in leaves[:3])
    with torch.no_grad():
        forward, plain = milliseconds(run), milliseconds(eager, 3)
        compiled = torch.compile(lambda q, k, v: torch.softmax(scores(q, k), 1) @ v, dynamic=False)
        fast = milliseconds(lambda: in_blocks(lambda q: compiled(q, key, value), query, 2048), 3)
        off, rough = error(run(), query, key, value, scores), error(eager(), query, key, value, scores)
    both = backward(run, leaves)
    spent = milliseconds(both)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    both()
    extra = (torch.cuda.max_memory_allocated() - before) / 2**20
    return {
        "n": n, "hidden": hidden, "forward_ms": forward, "both_ms": spent, "extra_mb": extra, "error": off,
        "gradient_error": gradient_error(both(), leaves),
        "torch_ms": plain, "torch_error": rough, "compile_ms": fast,
    }  # fmt: skip


def dot_products(quick: bool) -> list[dict[str, Any]]:
    """Scaled dot products beside torch's own, by dtype."""
    out = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for n, d in ((SIZES[dtype], 64), (SIZES[dtype], 128)):
            query, key, value = (torch.randn(1, n, d, device=DEVICE).to(dtype) for _ in range(3))
            run = lambda q=query, k=key, v=value: fused_pool(q, k, v, DotProduct())[0]  # noqa: E731
            sdpa = lambda q=query, k=key, v=value: F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])  # noqa: E731
            ours, theirs = milliseconds(run, 7), milliseconds(sdpa, 7)
            leaves = [x.clone().requires_grad_() for x in (query, key, value)]
            our_both = milliseconds(backward(lambda x=leaves: fused_pool(*x, DotProduct())[0], leaves), 3)
            their_both = milliseconds(
                backward(lambda x=leaves: F.scaled_dot_product_attention(*(y[:, None] for y in x)), leaves), 3
            )
            scores = lambda q, k, d=d: q @ k.T / math.sqrt(d)  # noqa: E731
            off, their_off = (
                error(x.reshape(n, d).float(), query[0], key[0], value[0], scores) for x in (run(), sdpa())
            )
            out.append(
                {
                    "dtype": str(dtype).removeprefix("torch."),
                    "n": n,
                    "d": d,
                    "ms": ours,
                    "sdpa_ms": theirs,
                    "both_ms": our_both,
                    "sdpa_both_ms": their_both,
                    "error": off,
                    "sdpa_error": their_off,
                }
            )
            if quick:
                break
    return out


def layers() -> list[dict[str, Any]]:
    """Shapes of attention layers: a batch, 64 columns, masks of valid lengths; forward and backward."""
    out = []
    for name, B, n, d in (("gaussian", 8, 2048, 64), ("gaussian", 64, 512, 32), ("additive", 16, 512, 64)):
        query, key, value = (torch.randn(B, n, d, device=DEVICE, requires_grad=True) for _ in range(3))
        lens = torch.randint(1, n + 1, (B,), device=DEVICE)
        mask = torch.arange(n, device=DEVICE) < lens[:, None, None]
        W_q, W_k, w_v = (torch.randn(*s, device=DEVICE) / 8.0 for s in ((64, d), (64, d), (64,)))
        score: Score = Gaussian(0.3) if name == "gaussian" else Additive(W_q, W_k, w_v)

        def ours(score: Score = score, x: Any = (query, key, value), lens: Tensor = lens) -> Tensor:
            return fused_pool(*x, score, valid_lens=lens)[0]

        def theirs(
            name: str = name, x: Any = (query, key, value), mask: Tensor = mask, w: Any = (W_q, W_k, w_v)
        ) -> Tensor:
            q, k, v = x
            if name == "gaussian":
                scores = 0.09 * (q @ k.transpose(1, 2) - 0.5 * (k * k).sum(2)[:, None])
            else:
                scores = torch.tanh((q @ w[0].T)[:, :, None] + (k @ w[1].T)[:, None]) @ w[2]
            return torch.softmax(scores.masked_fill(~mask, -torch.inf), 2) @ v

        leaves = [query, key, value]
        row: dict[str, Any] = {"name": name, "B": B, "n": n, "d": d}
        runs = {"ours": ours, "torch": theirs, "compile": torch.compile(theirs, dynamic=False)}
        with torch.no_grad():
            row |= {f"{label}_ms": spent for label, spent in in_turns(runs).items()}
        both = {label: backward(run, leaves) for label, run in runs.items()}
        row |= {f"{label}_both_ms": spent for label, spent in in_turns(both).items()}
        out.append(row)
    return out


PARTS: dict[str, Callable[[bool], Any]] = {
    "gaussian": gaussians,
    "loo": lambda quick: leave_one_out(),  # noqa: ARG005
    "additive": lambda quick: additive(),  # noqa: ARG005
    "dot": dot_products,
    "layers": lambda quick: [] if quick else layers(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="no peers, no layers")
    parser.add_argument("--only", default="", help="parts to measure again, such as gaussian,additive; others are kept")
    options = parser.parse_args()
    import triton

    kept = RESULTS / "gpu.json"
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if options.only and kept.exists() else {}
    found |= {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "when": time.strftime("%Y-%m-%d"),
    }
    for name in options.only.split(",") if options.only else PARTS:
        found[name] = PARTS[name](options.quick)
    text = text_of(found, FAR)
    print(text)
    save("gpu", found, text)
    if "OUT" in os.environ:
        for name, content in (("gpu.json", json.dumps(found, indent=1)), ("gpu.md", text)):
            (Path(os.environ["OUT"]) / name).write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

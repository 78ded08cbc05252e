"""Layers beside the ways to write them in torch, every size and mode in one table.

    python benchmarks/layers.py [--quick] [--sizes 16,256] [--only gaussian,dot] [--threads 1] [--clock process]

Each row is a layer, a number of keys and what is asked for: the output, its gradients, both with dropout, or output
and weights with gradients. Contestants take turns, call by call; times are medians. ``ratio`` is regard's time over
that of the fastest other. Writes results/layers.*, on a CUDA machine results/layers_cuda.*. ``--clock process`` counts
the time of this process only, for a machine shared with others; use it with ``--threads 1``.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor, nn

import regard
from gpu_timing import event_milliseconds
from layer_peers import PEERS, SCORES, W
from machine import describe, facts, save, table
from regard.nn import AttentionPooling, multi_head
from regard.scores import DotProduct, Gaussian

SIZES = (16, 64, 256, 1024, 4096)
BATCH, FEATURES, UNITS, DROPOUT = 4, 64, 64, 0.1
MODES = ("forward", "backward", "dropout", "weights")
# A contestant slower than this, in seconds, is left out at larger sizes.
TOO_SLOW = 4.0
# Seconds that one turn of one contestant should take; turns, and turns if a single call takes longer.
TURN, TURNS, SLOW_TURNS = 0.02, 7, 3
# Largest difference between answers, relative to the largest value: all compute the same.
SAME = 2e-4
LARGEST_RATIO = 1.2


@dataclass(frozen=True)
class Case:
    """A layer at one size in one mode."""

    layer: str
    keys: int
    mode: str

    @property
    def trains(self) -> bool:
        return self.mode != "forward"

    @property
    def dropout(self) -> float:
        return DROPOUT if self.mode == "dropout" else 0.0


class Pool(nn.Module):
    """``regard.pool`` as a layer."""

    def __init__(self, score: Any) -> None:
        super().__init__()
        self.score = score

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        output: Any = regard.pool(queries, keys, values, self.score).output  # type: ignore[arg-type]
        return output  # type: ignore[no-any-return]


def ours(case: Case, device: str) -> Callable[..., Any]:
    """Regard's layer, with the parameters that every peer uses."""
    if case.layer.startswith("pool"):
        return Pool(Gaussian(W) if case.layer == "pool gaussian" else DotProduct())
    if case.layer == "multi_head":
        pooling = AttentionPooling(SCORES["dot"](FEATURES, UNITS), case.dropout)
        layer: nn.Module = multi_head(pooling, heads=4, query_size=FEATURES)
    else:
        layer = AttentionPooling(SCORES[case.layer](FEATURES, UNITS), case.dropout)
    layer = layer.to(device).train()
    return (lambda *given: layer(*given, need_weights=True)) if case.mode == "weights" else layer


def cases(layers: list[str], sizes: list[int]) -> Iterator[Case]:
    for layer in layers:
        for mode in MODES:
            if layer.startswith("pool") and mode in ("dropout", "weights"):
                continue
            for keys in sizes:
                yield Case(layer, keys, mode)


def call(run: Callable[..., Any], given: list[Tensor], case: Case) -> Callable[[], Any]:
    """One call as the mode asks for it."""

    def once() -> Any:
        if not case.trains:
            with torch.no_grad():
                return run(*given)
        found = run(*given)
        output = found if isinstance(found, Tensor) else found[0]
        return torch.autograd.grad(output.sum(), given)

    return once


class Stopwatch:
    """Milliseconds of a call: of CUDA events, or of a clock."""

    def __init__(self, device: str, clock: Callable[[], float]) -> None:
        self.device, self.clock = device, clock

    def __call__(self, run: Callable[[], Any], calls: int) -> float:
        if self.device == "cuda":
            return event_milliseconds(run, calls)
        started = self.clock()
        for _ in range(calls):
            run()
        return 1e3 * (self.clock() - started) / calls


def measured(runs: dict[str, Callable[[], Any]], watch: Stopwatch) -> dict[str, float]:
    """Median milliseconds of every contestant, in turns."""
    calls = {}
    for name, run in runs.items():
        run()
        calls[name] = max(1, min(200, int(1e3 * TURN / max(watch(run, 1), 1e-3))))
    spent: dict[str, list[float]] = {name: [] for name in runs}
    slow = any(count == 1 for count in calls.values())
    for _ in range(SLOW_TURNS if slow else TURNS):
        for name, run in runs.items():
            spent[name].append(watch(run, calls[name]))
    return {name: statistics.median(times) for name, times in spent.items()}


def answer(run: Callable[..., Any], given: list[Tensor]) -> Tensor:
    with torch.no_grad():
        found = run(*given)
    return found if isinstance(found, Tensor) else found[0]


def contestants(case: Case, given: list[Tensor], compiler: bool, slow: set[tuple[str, str, str]]) -> dict[str, Any]:
    """Every way to compute the case, as a call, or as the reason why there is none."""
    device = given[0].device.type
    layer = ours(case, device)
    found: dict[str, Any] = {"regard": layer}
    parameters = layer if isinstance(layer, nn.Module) else layer.__closure__[0].cell_contents  # type: ignore[index]
    for name, peer in PEERS[case.layer].items():
        reason = peer.refuses(case.mode, device, compiler)
        if (case.layer, case.mode, name) in slow:
            reason = f"more than {TOO_SLOW:g} s at the size before"
        found[name] = reason or peer.made(parameters, case.dropout, case.mode == "weights")
    expected = None
    for name, run in list(found.items()):
        if isinstance(run, str):
            continue
        try:
            if case.mode != "dropout":
                got = answer(run, given)
                expected = got if expected is None else expected
                off = float((got - expected).abs().max() / given[2].abs().max())
                if not off <= SAME:
                    found[name] = f"differs by {off:.1e}"
                    continue
            found[name] = call(run, given, case)
            found[name]()
        except Exception as reason:
            found[name] = str(reason).split("\n")[0][:80]
    return found


def row(case: Case, device: str, compiler: bool, watch: Stopwatch, slow: set[tuple[str, str, str]]) -> dict[str, Any]:
    torch.manual_seed(0)
    # Of unit variance: layers see normalised features.
    sides = [torch.randn(BATCH, case.keys, FEATURES, device=device) for _ in range(3)]
    given = [part.requires_grad_(case.trains) for part in sides]
    found = contestants(case, given, compiler, slow)
    times = measured({name: run for name, run in found.items() if not isinstance(run, str)}, watch)
    slow |= {(case.layer, case.mode, name) for name, spent in times.items() if spent > 1e3 * TOO_SLOW}
    others = {name: spent for name, spent in times.items() if name != "regard"}
    best = min(others, key=lambda name: others[name]) if others else ""
    return {
        "layer": case.layer, "keys": case.keys, "mode": case.mode, "ms": times,
        "reasons": {name: run for name, run in found.items() if isinstance(run, str)},
        "best": best, "ratio": times["regard"] / others[best] if best else None,
    }  # fmt: skip


def text_of(record: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for peers in PEERS.values() for name in peers))
    cells = []
    for found in record["rows"]:
        times = found["ms"]
        ratio = "" if found["ratio"] is None else f"{found['ratio']:.2f}"
        cells.append(
            [
                found["layer"],
                found["mode"],
                str(found["keys"]),
                f"{times['regard']:.3f}",
                *(f"{times[name]:.3f}" if name in times else "" for name in names),
                found["best"],
                ratio + (" >" if found["ratio"] and found["ratio"] > LARGEST_RATIO else ""),
            ]
        )
    reasons = sorted({f"{name}: {why}" for found in record["rows"] for name, why in found["reasons"].items()})
    ratios = [found["ratio"] for found in record["rows"] if found["ratio"]]
    within = sum(ratio <= LARGEST_RATIO for ratio in ratios)
    where = record["device"] or describe(record["machine"])
    return "\n\n".join(
        [
            where,
            f"Milliseconds of {BATCH} members of so many queries and keys, {FEATURES} features and columns, float32, "
            f"{record['threads']} threads, {record['clock']} time; dropout {DROPOUT}. ratio: regard over the fastest; "
            f"{within} of {len(ratios)} rows at most {LARGEST_RATIO}.",
            table(["layer", "mode", "keys", "regard", *names, "fastest other", "ratio"], cells),
            "Left out:\n\n" + "\n".join(f"- {line}" for line in reasons) if reasons else "",
        ]
    ).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three sizes; prints only")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", default=",".join(PEERS), help=f"layers among {', '.join(PEERS)}")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=("wall", "process"), default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    compiler = device == "cuda" or any(map(shutil.which, ("c++", "g++", "clang++")))
    machine = facts()
    sizes = [16, 64, 256] if options.quick else [int(size) for size in options.sizes.split(",")]
    watch, slow = Stopwatch(device, process_time if options.clock == "process" else perf_counter), set[Any]()
    rows = []
    for case in cases(options.only.split(","), sizes):
        rows.append(row(case, device, compiler, watch, slow))
        found = rows[-1]
        print(f"{case.layer:14} {case.mode:9} {case.keys:5} {found['ms']['regard']:10.3f} ms  "
              f"{found['best']:20} ratio {found['ratio'] or 0:.2f}", flush=True)  # fmt: skip
        torch._dynamo.reset()
    record = {
        "machine": machine, "device": torch.cuda.get_device_name() if device == "cuda" else "",
        "threads": options.threads, "clock": options.clock, "rows": rows,
    }  # fmt: skip
    text = text_of(record)
    print(text)
    if not options.quick and options.only == ",".join(PEERS):
        save("layers_cuda" if device == "cuda" else "layers", record, text)


if __name__ == "__main__":
    main()

"""Compile the Triton programs of some calls for an H200, on any machine: the interpreter runs what does not compile.

Run as a script, in a process that does not interpret; the arguments name the calls.
"""

from __future__ import annotations

import sys
from typing import Any

N = 256


class Device:
    """As much of a driver as compiling needs."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_only() -> list[str]:
    """From here on launches only compile; their names are kept."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    driver.set_active(Device())
    run, names = JITFunction.run, []

    def warm(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        names.append(self.fn.__name__)
        return run(self, *args, grid=grid, warmup=True, **kwargs)

    JITFunction.run = warm
    return names


def calls() -> dict[str, Any]:
    import torch

    from regard.engines.gpu import batch_passes, launch, layer_launch
    from regard.engines.gpu.layout import ADDITIVE, LoweredBatch, Visibility, tile_score

    labels = torch.arange(N)[None]
    every = Visibility(
        mask=torch.ones(1, N, N, dtype=torch.bool),
        lens=torch.full((1, N), 5),
        query_labels=labels,
        key_labels=labels,
        log_weight=torch.zeros(1, N, dtype=torch.float64),
    )
    wanted = frozenset({"query", "key", "value", "w"})

    def both(code: int, d: int, P: int, visibility: Visibility, dtype: Any = torch.float32, per: bool = False) -> None:
        query, key, value = (torch.zeros(1, N, c, dtype=dtype) for c in (d, d, P))
        real = torch.promote_types(dtype, torch.float32)
        w = torch.ones(d, dtype=real) if per else torch.tensor(0.5, dtype=real)
        it = LoweredBatch(code, query, key, value, w, visibility)
        found = batch_passes.forward_batch(it)
        grad, height = torch.zeros(1, N, P, dtype=real), torch.zeros(1, N, dtype=real)
        batch_passes.backward_batch(it, found, grad, height, wanted)

    def lines() -> None:
        query, key, value = (torch.zeros(1, N, c, dtype=torch.float64) for c in (3, 3, 2))
        score, state = tile_score(0, query, key, torch.ones(3, dtype=torch.float64)), torch.zeros(1, 2, N).double()
        launch.launch_delta_moments(score, value, every, state, 2)
        lines = torch.zeros(1, N, 3, 4).double()
        for mirror in (False, True):
            launch.launch_backward(score, value, every, state, value, state[:, 0], lines, mirror=mirror)

    def a_layer(code: int, d: int, P: int, dtype: Any = torch.float32) -> None:
        query, key, value = (torch.zeros(2, N, c, dtype=dtype) for c in (d, d, P))
        w = torch.ones(d) if code == ADDITIVE else torch.tensor(0.5)
        visibility = Visibility(mask=torch.ones(2, N, N, dtype=torch.bool), lens=torch.full((2,), 5))
        it = LoweredBatch(code, query, key, value, w, visibility)
        found = layer_launch.layer_forward(it)
        layer_launch.layer_backward(it, found, torch.zeros(2, N, P), torch.zeros(2, N), (True, True, True, True))

    return {
        "gaussian": lambda: both(0, 3, 1, Visibility()),
        "additive": lambda: both(10, 4, 1, Visibility(), per=True),
        "gaussian, per feature": lambda: both(0, 8, 2, every, per=True),
        "gaussian, many features": lambda: both(0, 20, 9, every, per=True),
        "gaussian, double": lambda: both(0, 3, 1, every, torch.float64),
        "tricube": lambda: both(7, 3, 1, every),
        "cosine, biased": lambda: both(8, 3, 1, every._replace(bias=torch.zeros(1, N, N))),
        "dot product": lambda: both(9, 3, 1, every),
        "additive, masked": lambda: both(10, 40, 2, every, per=True),
        "additive, double": lambda: both(10, 20, 1, every, torch.float64, per=True),
        "additive, many columns": lambda: both(10, 8, 9, every, per=True),
        "gaussian rows": lambda: both(16, 8, 1, every),
        "gaussian rows, many columns": lambda: both(16, 64, 20, every),
        "dot rows": lambda: both(17, 64, 64, every),
        "dot rows, half": lambda: both(17, 64, 64, every, torch.bfloat16),
        "lines": lines,
        "layer, few features": lambda: a_layer(0, 3, 1),
        "layer, many features": lambda: a_layer(0, 64, 64),
        "layer, dot product, half": lambda: a_layer(9, 64, 100, torch.bfloat16),
        "layer, additive": lambda: a_layer(ADDITIVE, 31, 8),
    }


if __name__ == "__main__":
    names = compile_only()
    for name in sys.argv[1:]:
        calls()[name]()
        print(name, len(names))

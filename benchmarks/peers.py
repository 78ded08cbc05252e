"""The problem, f(q) = Σ softmax(−½w²‖q − k‖²) v, and the peers' ways to solve it, as a careful user would write them.

Every peer is a function of the keys, the values and w that does what can be done once (norms, copies into tensors)
and gives back ``run(queries, setting) → answers``. The setting is what its speed hangs on: rows of queries handled
at once or, for SDPA, how widths are padded. The benchmark tries the settings of each peer and keeps the fastest. All
scores work in the dtype of the keys, on centred data where products of coordinates are taken. The peers that `regard
bench` shows too are in ``regard.racing.peers``.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from machine import cores
from regard.racing.peers import Array, Run, numpy_in_place, statsmodels_kernel_reg, torch_sdpa

SIZE = 40_000  # queries and keys
SAMPLE = 500  # first queries, whose answers are checked
NEIGHBOURS = 300  # what the bandwidth is chosen for
DIRECT = "numpy, direct differences"
PLAIN = "numpy, GEMM distances"
IN_PLACE = "numpy, GEMM in place"
SDPA = "torch SDPA"


@dataclass(frozen=True)
class Case:
    """One row group of the table. ``h`` 0 means: chosen so that about ``NEIGHBOURS`` keys matter to a query."""

    dtype: str
    width: int
    h: float = 0.0
    floors: dict[str, float] = field(default_factory=dict)
    quick: bool = True

    @property
    def bandwidth(self) -> float:
        # Effective neighbours 1/Σα² of a Gaussian: density times (2√π·h)^d.
        density = SIZE / 5.0**self.width
        return self.h or (NEIGHBOURS / density) ** (1 / self.width) / (2 * np.pi**0.5)

    @property
    def name(self) -> str:
        return f"{self.dtype} d={self.width}" + (f" h={self.h:g}" if self.h else "")


# "numpy" in the floors may mean the textbook expressions or the same tuned by hand: both are judged.
CASES = (
    Case("float32", 1, floors={PLAIN: 40.0, IN_PLACE: 40.0, SDPA: 2.5}),
    Case("float32", 3, quick=False),
    Case("float32", 8, floors={PLAIN: 15.0, IN_PLACE: 15.0, SDPA: 2.0}),
    Case("float64", 1, floors={PLAIN: 10.0, IN_PLACE: 10.0}),
    Case("float64", 8, quick=False),
    # Wide: every key matters and no weight is subnormal, which at the narrow bandwidth slows some peers.
    Case("float32", 1, h=1.0, floors={PLAIN: 40.0, IN_PLACE: 40.0, SDPA: 2.5}, quick=False),
    Case("float64", 1, h=1.0, floors={PLAIN: 10.0, IN_PLACE: 10.0}, quick=False),
)


def data(case: Case) -> tuple[Array, Array, Array, float]:
    """Queries and keys uniform on [0, 5)^d, values Σ(2 sin x + x^0.8) + N(0, 0.5²), and w."""
    rng = np.random.default_rng(2)
    query, key = (rng.uniform(0.0, 5.0, (SIZE, case.width)).astype(case.dtype) for _ in range(2))
    value = (2 * np.sin(key) + key**0.8).sum(axis=1) + rng.normal(0.0, 0.5, SIZE)
    # A w that float32 holds exactly, so that no library's rounding of it counts as an error.
    return query, key, value.astype(case.dtype), float(np.float32(1 / case.bandwidth))


def truth(case: Case, query: Array, key: Array, value: Array, w: float) -> Array | None:
    """Answers of the sample one precision up; None where the machine has no wider floats than float64."""
    wider = np.float64 if case.dtype == "float32" else np.longdouble
    if np.finfo(wider).eps > 1e-3 * np.finfo(case.dtype).eps:
        return None
    return exact(query[:SAMPLE], key, value, w, wider)


class Peer(NamedTuple):
    """One way to compute the same answers."""

    name: str
    prepare: Callable[[Array, Array, float], Run]  # (keys (K, d), values (K,), w) → run
    settings: tuple[int, ...]
    setting: str  # what the settings are
    threads: str  # which part uses all cores, for the table
    only: str = ""  # a dtype, where the peer knows just one
    most: int = 0  # queries at most, where even 512 take long
    tune_on: int = 128  # queries for trying the settings
    compiles: bool = False  # its first call compiles


def exact(queries: Array, keys: Array, values: Array, w: float, dtype: type[np.floating[Any]]) -> Array:
    """The answers by direct differences in a wider dtype: the truth that errors are measured against.

    *Cost*: O(Q·K·d) time, a few tiles of (16, K) memory.
    """
    run = numpy_direct(keys.astype(dtype), values.astype(dtype), w)
    return run(queries.astype(dtype), 16)


def numpy_gemm(keys: Array, values: Array, w: float) -> Run:
    """The formula as the textbook writes it, ‖q‖² − 2q·k + ‖k‖² by matrix product, in plain expressions."""
    real = keys.dtype.type
    centre = keys.mean(axis=0)
    key = keys - centre
    key_norm = (key**2).sum(axis=1)

    def run(queries: Array, rows: int) -> Array:
        out = []
        for start in range(0, len(queries), rows):
            query = queries[start : start + rows] - centre
            distance2 = (query**2).sum(axis=1)[:, None] - 2 * query @ key.T + key_norm  # (rows, K)
            score = real(-0.5 * w * w) * distance2
            weight = np.exp(score - score.max(axis=1, keepdims=True))
            out.append(weight @ values / weight.sum(axis=1))
        return np.concatenate(out)

    return run


def numpy_direct(keys: Array, values: Array, w: float) -> Run:
    """Differences first, then squares: slower than a matrix product and as exact as the dtype allows."""
    real = keys.dtype.type
    features = np.ascontiguousarray(keys.T)

    def run(queries: Array, rows: int) -> Array:
        out = []
        for start in range(0, len(queries), rows):
            query = queries[start : start + rows]
            distance2 = np.zeros((len(query), len(keys)), keys.dtype)
            for feature, row in enumerate(features):
                difference = query[:, feature, None] - row
                difference *= real(w)
                difference *= difference
                distance2 += difference
            distance2 *= real(-0.5)
            distance2 -= distance2.max(axis=1, keepdims=True)
            weight = np.exp(distance2, out=distance2)
            out.append(weight @ values / weight.sum(axis=1))
        return np.concatenate(out)

    return run


def torch_softmax(keys: Array, values: Array, w: float) -> Run:
    """Scores w²q·k − ½w²‖k‖² by one addmm, softmax, product with the values."""
    import torch

    centre = torch.from_numpy(keys.mean(axis=0))
    key = torch.from_numpy(keys) - centre
    value = torch.from_numpy(values)
    bias = -0.5 * w * w * (key * key).sum(1)

    def run(queries: Array, rows: int) -> Array:
        query = (torch.from_numpy(queries) - centre) * (w * w)
        tiles = [torch.softmax(torch.addmm(bias, tile, key.T), dim=1) @ value for tile in query.split(rows)]
        return np.asarray(torch.cat(tiles).numpy())

    return run


def keops(keys: Array, values: Array, w: float) -> Run:
    """A KeOps lazy tensor: differences, exponential, and one reduction for mass and moment. All queries at once."""
    import contextlib
    import io

    # Importing it prints that there is no GPU.
    with contextlib.redirect_stdout(io.StringIO()):
        import pykeops  # type: ignore[import-untyped]
        from pykeops.numpy import LazyTensor  # type: ignore[import-untyped]
    pykeops.set_verbose(False)
    key = LazyTensor(keys[None, :, :])
    columns = LazyTensor(np.stack([np.ones_like(values), values], axis=1)[None, :, :])

    def run(queries: Array, _: int) -> Array:
        query = LazyTensor(queries[:, None, :])
        weight = (((query - key) ** 2).sum(-1) * (-0.5 * w * w)).exp()
        sums = (weight * columns).sum(axis=1)
        return np.asarray(sums[:, 1] / sums[:, 0])

    return run


PEERS = (
    # Products of few rows stay on one thread, which on a busy machine is the faster way by far.
    Peer(PLAIN, numpy_gemm, (8, 32, 128), "rows", "matrix products"),
    Peer(IN_PLACE, numpy_in_place, (8, 32, 128), "rows", "matrix products"),
    Peer(DIRECT, numpy_direct, (4, 16, 64), "rows", "last product"),
    Peer("torch softmax", torch_softmax, (32, 128, 512), "rows", "all", tune_on=1024),
    # Its program takes larger blocks from 768 queries on.
    Peer(SDPA, torch_sdpa, (1, 8, 16), "width a multiple of", "all", tune_on=2048),
    Peer("KeOps", keops, (0,), "", "all", compiles=True),
    Peer("statsmodels KernelReg", statsmodels_kernel_reg, (0,), "", "one", only="float64", most=16),
)


def use_all_cores() -> None:
    """Let torch use every core this process may use, where it is installed."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(cores())


def private_keops() -> None:
    """Let KeOps compile into a folder of its own, so that the time is seen and nothing stays.

    Asked for before KeOps is imported, the removal comes after KeOps has written its last file.
    """
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["KEOPS_CACHE_FOLDER"] = folder

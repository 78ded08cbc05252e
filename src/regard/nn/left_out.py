"""Learning over a training set: every row is answered by the others, and the squared error of that goes downhill.

Minibatches of queries look at all keys, so memory is O(batch·K). A row never sees a key of its own label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import cos, inf, isfinite, pi
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.arrays import Array
from regard.nn.network import network
from regard.nn.pooling import AttentionPooling

Progress = Callable[[int, float], None]

# Numbers that scoring one part of a minibatch may hold at once: some 64 MB of float32, and a gigabyte on a GPU.
CELLS = {"cpu": 1 << 24, "cuda": 1 << 28}
# Steps that make an epoch: small tables are walked through several times before anybody looks.
STEPS = 32
# Numbers in a minibatch up to which one thread is quicker than two.
SMALL = 1 << 20
# The logarithm of w has far to go, and each is one number: it walks faster than the rest.
HASTE = 10.0


class Rows(NamedTuple):
    """Rows, standardised, and which of them are keys; a query may look at every key that has another label.

    Arrays of numpy, until ``on`` makes them tensors.
    """

    inputs: Any  # (n, d)
    values: Any  # (n, P)
    weight: Any  # (n,)  what the error of a row counts
    label: Any  # (n,)
    key: Any  # (K,)  a row may be there twice, and rows held out have no keys
    key_label: Any  # (K,)
    key_log_weight: Any = None  # (K,)

    def on(self, device: str) -> Rows:
        """Tensors: numbers in float32, integers as they are."""
        return Rows(*(None if array is None else _tensor(array).to(device) for array in self))

    def mask(self, label: Tensor) -> Tensor:
        """``attn_mask`` (Q, K) for queries of these labels."""
        may: Tensor = label.unsqueeze(1) != self.key_label
        return may if self.key_log_weight is None else torch.where(may, self.key_log_weight, -torch.inf)


class Settings(NamedTuple):
    """How to learn; the parameters of ``AttentionRegressor`` with every "auto" decided."""

    score: str
    embed: Any
    hidden_size: int
    embed_size: int
    max_iter: int
    learning_rate: float
    batch_size: int
    n_iter_no_change: int
    device: str
    seed: int


class Learned(NamedTuple):
    """What came out."""

    parameters: dict[str, Array]  # "embed.…" and "score.…", of the best epoch
    loss: list[float]  # of every epoch, the mean over its minibatches as they came
    validation: list[float]  # of every epoch, where rows were held out
    best: int  # number of the best epoch, from 0
    interrupted: bool


def learn(rows: Rows, held: Rows | None, settings: Settings, progress: Progress | None = None) -> Learned:
    """Learn an embedding and a score. Ctrl-C ends it with the best epoch so far, once there is one.

    *Cost*: O(n·K·r) time per epoch for r embedded features (hidden units with an additive score), O(batch·K) memory.
    """
    rows, held = rows.on(settings.device), None if held is None else held.on(settings.device)
    with _seeded(settings.seed, torch.device(settings.device)), _threads(settings.batch_size * _cells(settings, rows)):
        modules = network(settings.score, settings.embed, rows.inputs, settings.hidden_size, settings.embed_size)
        tile = _tile(settings, rows)
        quick = [p for name, p in modules.named_parameters() if name == "score.log_w"]
        others = [p for name, p in modules.named_parameters() if name != "score.log_w" and p.requires_grad]
        haste = [(group, pace) for group, pace in ((quick, HASTE), (others, 1.0)) if group]
        optimizer = torch.optim.Adam([{"params": group, "pace": pace} for group, pace in haste])
        n, losses, validations = len(rows.inputs), [], []
        best, least, kept, interrupted = 0, inf, {}, False
        batches = -(-n // settings.batch_size)
        walks = max(1, STEPS // batches)
        steps, step = walks * batches * settings.max_iter, 0
        try:
            for epoch in range(settings.max_iter):
                total = 0.0
                modules.train()
                for batch in _batches(n, walks, settings):
                    rate = settings.learning_rate * 0.5 * (1.0 + cos(pi * step / steps))
                    for group in optimizer.param_groups:
                        group["lr"] = rate * group["pace"]
                    total += _step(modules, optimizer, rows, batch, tile) * len(batch) / (walks * n)
                    step += 1
                found = total if held is None else error(modules, rows, held, tile)
                if not isfinite(found):
                    break
                losses.append(total)
                validations += [] if held is None else [found]
                if found < least:
                    best, least = epoch, found
                    kept = {name: value.detach().cpu().numpy().copy() for name, value in modules.state_dict().items()}
                if progress is not None:
                    progress(epoch + 1, found)
                if held is not None and epoch - best >= settings.n_iter_no_change:
                    break
        except KeyboardInterrupt:
            if not kept:
                raise
            interrupted = True
    if not kept:
        raise ValueError(
            f"the loss did not stay finite in the first epoch; lower learning_rate={settings.learning_rate}"
        )
    return Learned(kept, losses, validations, best, interrupted)


def _batches(n: int, walks: int, settings: Settings) -> Iterator[Tensor]:
    """Row numbers of the minibatches of an epoch; every walk goes through all rows in an order of its own."""
    for _ in range(walks):
        yield from torch.split(torch.randperm(n).to(settings.device), settings.batch_size)


def _step(modules: nn.ModuleDict, optimizer: torch.optim.Optimizer, rows: Rows, batch: Tensor, tile: int) -> float:
    """One step down the left-out error of a minibatch; returns that error."""
    optimizer.zero_grad()
    place = modules["embed"](rows.inputs)  # (n, r)
    # Parts of the minibatch add up their gradients here, so that the embedding is run through only once.
    corner = place.detach().requires_grad_(place.requires_grad)
    total = 0.0
    for part in torch.split(batch, tile):
        output = _pooled(modules, rows, corner, corner[part], rows.label[part])
        error = (rows.weight[part].unsqueeze(1) * (output - rows.values[part]).square()).sum()
        loss = error / (len(batch) * rows.values.shape[1])
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    if corner.grad is not None:
        place.backward(corner.grad)  # type: ignore[no-untyped-call]
    optimizer.step()
    return total


def error(modules: nn.ModuleDict, rows: Rows, held: Rows, tile: int) -> float:
    """Mean squared error of rows held out, answered by the training rows."""
    modules.eval()
    with torch.no_grad():
        keys, queries = modules["embed"](rows.inputs), modules["embed"](held.inputs)
        total = 0.0
        for part in torch.split(torch.arange(len(queries), device=queries.device), tile):
            output = _pooled(modules, rows, keys, queries[part], held.label[part])
            total += float((held.weight[part].unsqueeze(1) * (output - held.values[part]).square()).sum())
    return total / float(held.weight.sum() * held.values.shape[1])


def _pooled(modules: nn.ModuleDict, rows: Rows, place: Tensor, queries: Tensor, label: Tensor) -> Tensor:
    """Answers (Q, P) from the keys among embedded rows (n, r)."""
    keys, values = (place, rows.values) if len(rows.key) == len(place) else (place[rows.key], rows.values[rows.key])
    output: Tensor = AttentionPooling(modules["score"])(queries, keys, values, attn_mask=rows.mask(label))
    return output


def _tile(settings: Settings, rows: Rows) -> int:
    """Queries scored at once."""
    return max(1, min(settings.batch_size, CELLS[torch.device(settings.device).type] // _cells(settings, rows)))


def _cells(settings: Settings, rows: Rows) -> int:
    """Numbers that scoring one query holds at once."""
    return len(rows.key) * (settings.hidden_size if settings.score == "additive" else 1)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers from a seed, and the caller's own as they were before."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def _threads(cells: int) -> Iterator[None]:
    """One thread where minibatches are small: waking another takes longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if cells <= SMALL else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _tensor(array: Array) -> Tensor:
    tensor = torch.tensor(array)
    return tensor.float() if tensor.is_floating_point() else tensor

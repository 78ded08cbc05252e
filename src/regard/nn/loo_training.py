"""Learning an embedding and a score over a training set, by gradient descent on the leave-one-out squared error.

Minibatches of queries attend to all keys, so memory is O(batch·K). A row never attends to a key with its own label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import cos, inf, isfinite, pi
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.core.arrays import Array
from regard.nn.attention_pooling import AttentionPooling
from regard.nn.network import network

EpochCallback = Callable[[int, float], None]

# Numbers that scoring one tile of a minibatch may hold at once: 64 MB of float32, and a gigabyte on a GPU.
MAX_NUMBERS_PER_TILE = {"cpu": 1 << 24, "cuda": 1 << 28}
# A small table is passed through several times per epoch, so that an epoch has about this many steps.
STEPS_PER_EPOCH = 32
# Numbers in a minibatch up to which one thread is faster than two.
MAX_NUMBERS_FOR_ONE_THREAD = 1 << 20
# Learning rate of log_w relative to that of the other parameters: it has farther to go.
LOG_W_RATE = 10.0


class LabelledRows(NamedTuple):
    """Standardised rows, and which of them are keys; a query may attend to every key that has another label.

    Arrays of numpy, until ``on`` makes them tensors.
    """

    inputs: Any  # (n, d)
    values: Any  # (n, P)
    weight: Any  # (n,)  of the squared error of a row
    label: Any  # (n,)
    key: Any  # (K,)  indices of rows, possibly repeated; validation rows have no keys
    key_label: Any  # (K,)
    key_log_weight: Any = None  # (K,)

    def on(self, device: str) -> LabelledRows:
        """Tensors on a device: floats in float32, integers unchanged."""
        tensors = (None if array is None else torch.tensor(array).to(device) for array in self)
        return LabelledRows(*(t.float() if t is not None and t.is_floating_point() else t for t in tensors))

    def mask(self, label: Tensor) -> Tensor:
        """``attn_mask`` (Q, K) for queries with these labels."""
        allowed: Tensor = label.unsqueeze(1) != self.key_label
        return allowed if self.key_log_weight is None else torch.where(allowed, self.key_log_weight, -torch.inf)


class LearningSettings(NamedTuple):
    """The parameters of ``AttentionRegressor`` with every "auto" resolved."""

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


class FittedNetwork(NamedTuple):
    """The result of ``learn``."""

    parameters: dict[str, Array]  # "embed.…" and "score.…", of the best epoch
    loss: list[float]  # of every epoch: the mean over its minibatches, each before its step
    validation: list[float]  # of every epoch, if there are validation rows
    best: int  # index of the best epoch, from 0
    interrupted: bool


def learn(
    rows: LabelledRows,
    held: LabelledRows | None,
    settings: LearningSettings,
    progress: EpochCallback | None = None,
) -> FittedNetwork:
    """Learn an embedding and a score. Ctrl-C stops after the first epoch and returns the best epoch so far.

    Parameters
    ----------
    rows : training rows, with keys.
    held : validation rows, for early stopping; None chooses the best epoch by training loss.
    settings : sizes and schedule.
    progress : called after every epoch with its number from 1 and its loss.

    *Cost*: O(n·K·r) time per epoch for r embedded features (hidden units with an additive score), O(batch·K) memory.
    """
    rows, held = rows.on(settings.device), None if held is None else held.on(settings.device)
    per_query = len(rows.key) * (settings.hidden_size if settings.score == "additive" else 1)
    tile = max(1, min(settings.batch_size, MAX_NUMBERS_PER_TILE[torch.device(settings.device).type] // per_query))
    # In small minibatches, waking another thread takes longer than the work.
    threads = 1 if settings.batch_size * per_query <= MAX_NUMBERS_FOR_ONE_THREAD else torch.get_num_threads()
    gpu = [torch.device(settings.device)] if settings.device.startswith("cuda") else []
    with torch.random.fork_rng(devices=gpu), torch_threads(threads):
        torch.manual_seed(settings.seed)
        modules = network(settings.score, settings.embed, rows.inputs, settings.hidden_size, settings.embed_size)
        fast = [p for name, p in modules.named_parameters() if name == "score.log_w"]
        others = [p for name, p in modules.named_parameters() if name != "score.log_w" and p.requires_grad]
        groups = [{"params": group, "scale": scale} for group, scale in ((fast, LOG_W_RATE), (others, 1.0)) if group]
        optimizer = torch.optim.Adam(groups)
        n, losses, validations = len(rows.inputs), [], []
        best, least, best_parameters, interrupted = 0, inf, {}, False
        batches = -(-n // settings.batch_size)
        passes = max(1, STEPS_PER_EPOCH // batches)
        steps, step = passes * batches * settings.max_iter, 0
        try:
            for epoch in range(settings.max_iter):
                total = 0.0
                modules.train()
                # Every pass visits all rows in a new random order.
                orders = (torch.randperm(n).to(settings.device) for _ in range(passes))
                for batch in (batch for order in orders for batch in torch.split(order, settings.batch_size)):
                    rate = settings.learning_rate * 0.5 * (1.0 + cos(pi * step / steps))
                    for group in optimizer.param_groups:
                        group["lr"] = rate * group["scale"]
                    total += _step(modules, optimizer, rows, batch, tile) * len(batch) / (passes * n)
                    step += 1
                loss = total if held is None else error(modules, rows, held, tile)
                if not isfinite(loss):
                    break
                losses.append(total)
                validations += [] if held is None else [loss]
                if loss < least:
                    best, least = epoch, loss
                    best_parameters = {
                        name: p.detach().cpu().numpy().copy() for name, p in modules.state_dict().items()
                    }
                if progress is not None:
                    progress(epoch + 1, loss)
                if held is not None and epoch - best >= settings.n_iter_no_change:
                    break
        except KeyboardInterrupt:
            if not best_parameters:
                raise
            interrupted = True
    if not best_parameters:
        raise ValueError(
            f"the loss did not stay finite in the first epoch; lower learning_rate={settings.learning_rate}"
        )
    return FittedNetwork(best_parameters, losses, validations, best, interrupted)


def _step(
    modules: nn.ModuleDict, optimizer: torch.optim.Optimizer, rows: LabelledRows, batch: Tensor, tile: int
) -> float:
    """One optimiser step on the leave-one-out error of a minibatch; returns that error."""
    optimizer.zero_grad()
    embedded = modules["embed"](rows.inputs)  # (n, r)
    # Tiles of the minibatch accumulate their gradients here, so that the embedding has one backward pass.
    leaf = embedded.detach().requires_grad_(embedded.requires_grad)
    total = 0.0
    for part in torch.split(batch, tile):
        output = _pooled(modules, rows, leaf, leaf[part], rows.label[part])
        error = (rows.weight[part].unsqueeze(1) * (output - rows.values[part]).square()).sum()
        loss = error / (len(batch) * rows.values.shape[1])
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    if leaf.grad is not None:
        embedded.backward(leaf.grad)  # type: ignore[no-untyped-call]
    optimizer.step()
    return total


def error(modules: nn.ModuleDict, rows: LabelledRows, held: LabelledRows, tile: int) -> float:
    """Mean squared error of validation rows, predicted from the training rows."""
    modules.eval()
    with torch.no_grad():
        keys, queries = modules["embed"](rows.inputs), modules["embed"](held.inputs)
        total = 0.0
        for part in torch.split(torch.arange(len(queries), device=queries.device), tile):
            output = _pooled(modules, rows, keys, queries[part], held.label[part])
            total += float((held.weight[part].unsqueeze(1) * (output - held.values[part]).square()).sum())
    return total / float(held.weight.sum() * held.values.shape[1])


def _pooled(modules: nn.ModuleDict, rows: LabelledRows, embedded: Tensor, queries: Tensor, label: Tensor) -> Tensor:
    """Predictions (Q, P) from the keys among embedded rows (n, r)."""
    keys, values = embedded, rows.values
    if len(rows.key) != len(embedded):
        keys, values = embedded[rows.key], values[rows.key]
    output: Tensor = AttentionPooling(modules["score"])(queries, keys, values, attn_mask=rows.mask(label))
    return output


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """A context in which torch uses this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)

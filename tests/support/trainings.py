"""Small trainings for tests: a line to fit, and a few words to reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data import Pairs, reversal
from regard.seq2seq.model import Architecture
from regard.seq2seq.pair_training import Learned, Lesson, learn
from regard.seq2seq.training_settings import Training

BATCHES, ROWS = 6, 8
# Tests run side by side: more threads would only wait for each other.
torch.set_num_threads(1)


class Line:
    """A task that is no translation: fit a line through noise, with dropout so that random numbers matter."""

    def __init__(self, validations: Sequence[float] = (), hook: Callable[[int], None] | None = None) -> None:
        made = torch.Generator().manual_seed(0)
        self.module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1))
        with torch.no_grad():
            for part in self.module.parameters():
                part.copy_(torch.randn(part.shape, generator=made) * 0.3)
        self.X = torch.randn(BATCHES, ROWS, 3, generator=made)
        self.y = self.X.sum(-1, keepdim=True)
        self.validations = list(validations)
        self.hook = hook
        self.calls = 0

    def batches(self, epoch: int) -> Sequence[int]:
        return torch.randperm(BATCHES, generator=torch.Generator().manual_seed(epoch)).tolist()

    def loss(self, batch: int, progress: float) -> tuple[Tensor, int]:
        assert 0.0 <= progress <= 1.0
        self.calls += 1
        if self.hook is not None:
            self.hook(self.calls)
        X, y = self.X[batch], self.y[batch]
        return ((self.module(X) - y) ** 2).mean(), y.numel()

    def validate(self) -> float:
        assert not self.module.training
        if self.validations:
            return self.validations.pop(0)
        with torch.no_grad():
            return float(((self.module(self.X) - self.y) ** 2).mean())


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: part.clone() for name, part in module.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """To the last bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def words(n: int = 200, longest: int = 5) -> tuple[Pairs, Pairs]:
    return reversal(n, seed=0, lengths=(1, longest)).split(0.2)


def taught(folder: Path | None = None, *, epochs: int = 2, **options: Any) -> Learned:
    train, valid = words()
    return learn(
        train,
        valid,
        architecture=Architecture(8, 12, dropout=0.2),
        lesson=Lesson(unit="characters", batch_size=16),
        training=Training(epochs=epochs, warmup=3, learning_rate=5e-3),
        folder=folder,
        **options,
    )

"""Training a module by gradient descent. Nothing here depends on translation: what is trained is a ``Task``.

The result is a function of the task, the settings and the seed. A checkpoint holds everything that the rest of a
training depends on, so an interrupted and resumed training ends with the same weights, bit for bit on a CPU.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.data.files import PathLike
from regard.nn.argument_checks import at_least_one, one_of
from regard.seq2seq.checkpoints import load, save

SCHEDULES = ("cosine", "plateau")
# Final learning rate of the cosine schedule, relative to the largest.
FINAL_RATE = 0.01
# Steps between two checks of the loss: on a GPU every check waits for the device.
STEPS_PER_CHECK = 20
CHECKPOINT = "checkpoint.regard"
METRICS = "metrics.jsonl"


class Task(Protocol):
    """What is trained."""

    @property
    def module(self) -> nn.Module: ...

    def batches(self, epoch: int) -> Sequence[Any]:
        """The batches of an epoch, the same at every call."""

    def loss(self, batch: Any, progress: float) -> tuple[Tensor, int]:
        """The mean loss of a batch and the number of tokens it is a mean of; ``progress`` goes from 0 to 1."""

    def validate(self) -> float:
        """The validation loss."""


@dataclass(frozen=True)
class Training:
    """The settings of a training.

    Parameters
    ----------
    epochs : int, default=20
        Maximum number of epochs.
    learning_rate : float, default=0.001
        Largest learning rate of Adam.
    schedule : {"cosine", "plateau"}, default="cosine"
        "cosine" decays along a cosine to a hundredth at the end; "plateau" halves the rate after every two epochs
        without improvement; both rise linearly over the first ``warmup`` steps.
    warmup : int, default=100
        Steps over which the rate rises.
    clip : float, default=1.0
        Maximum norm of the gradient.
    patience : int, default=5
        Number of epochs without a lower validation loss after which training stops.
    seconds : float, default=None
        Time limit; a cosine schedule then ends there.
    seed : int, default=0
        Of all random numbers.

    >>> Training(epochs=5).schedule
    'cosine'
    """

    epochs: int = 20
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    warmup: int = 100
    clip: float = 1.0
    patience: int = 5
    seconds: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        at_least_one(epochs=self.epochs, patience=self.patience)
        one_of(SCHEDULES, schedule=self.schedule)
        for name in ("learning_rate", "clip"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if self.warmup < 0:
            raise ValueError(f"warmup must be at least 0, got {self.warmup}")
        if self.seconds is not None and not self.seconds > 0.0:
            raise ValueError(f"seconds must be positive, got {self.seconds}")

    def rate(self, step: int, progress: float, halvings: int) -> float:
        """The learning rate at a step (from 0), after this fraction of the training.

        Parameters
        ----------
        step : int
            Counted from 0.
        progress : float
            Fraction of the training that is done.
        halvings : int
            How often "plateau" has halved the rate.

        Returns
        -------
        float

        >>> [round(Training(learning_rate=1.0, warmup=2).rate(step, step / 8, 0), 3) for step in (0, 1, 2, 4, 8)]
        [0.333, 0.642, 0.855, 0.505, 0.01]
        """
        rise = min(1.0, (step + 1) / (self.warmup + 1))
        if self.schedule == "plateau":
            return self.learning_rate * (rise * 0.5**halvings)
        fall = FINAL_RATE + (1.0 - FINAL_RATE) * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
        return self.learning_rate * (rise * fall)


@dataclass
class TrainingState:
    """The counters and losses of a training in progress."""

    epoch: int = 0
    batch: int = 0  # index of the next batch of this epoch
    step: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0  # over the tokens of this epoch
    tokens: int = 0  # of this epoch
    all_tokens: int = 0
    best: float = math.inf
    best_epoch: int = -1
    halvings: int = 0
    metrics_end: int = 0  # size in bytes of the metrics file at this point
    losses: list[float] = field(default_factory=list)  # by epoch
    validations: list[float] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """As values that JSON can represent, which has no infinity."""
        return {**asdict(self), "best": repr(self.best)}


class TrainingProgress(NamedTuple):
    """What ``watch`` is called with."""

    epoch: int  # from 1
    epochs: int
    step: int
    steps: int  # in all epochs
    loss: float
    validation: float  # the latest, NaN before the first
    tokens_per_second: float
    seconds_left: float  # estimate, without early stopping


class TrainingOutcome(NamedTuple):
    """How a training ended; the module then has the weights of its best epoch."""

    ended: str  # "epochs", "patience", "seconds", "interrupted"
    best: float
    best_epoch: int  # from 0
    losses: tuple[float, ...]
    validations: tuple[float, ...]
    steps: int
    seconds: float


class DivergedError(ValueError):
    """The loss is not finite any more."""


class Trainer:
    """One training of one task.

    Parameters
    ----------
    task : Task
        What is trained: ``module``, ``batches(epoch)``, ``loss(batch, progress)`` and ``validate()``.
    training : Training
        How.
    folder : str or path, default=None
        Where checkpoint and metrics are written; None writes neither.
    every : float, default=30.0
        Seconds between two checkpoints.
    settings : dict, default=None
        Plain data which, besides ``training``, must agree with a checkpoint to resume from it.
    watch : callable, default=None
        Called with ``TrainingProgress`` every few steps and after every epoch.

    >>> class Halve:
    ...     module = nn.Linear(1, 1, bias=False)
    ...     def batches(self, epoch): return [torch.ones(4, 1)]
    ...     def loss(self, batch, progress): return (self.module(batch) - 0.5 * batch).square().mean(), len(batch)
    ...     def validate(self): return self.loss(torch.ones(4, 1), 1.0)[0].item()
    >>> Trainer(Halve(), Training(epochs=2, warmup=0)).run().steps
    2
    """

    def __init__(
        self,
        task: Task,
        training: Training,
        *,
        folder: PathLike | None = None,
        every: float = 30.0,
        settings: Mapping[str, Any] | None = None,
        watch: Callable[[TrainingProgress], None] | None = None,
    ) -> None:
        self.task, self.training, self._every, self._watch = task, training, every, watch
        self._folder = None if folder is None else Path(folder)
        self._settings = {**asdict(training), **(settings or {})}
        # A training may be resumed with another time limit.
        self._settings.pop("seconds")
        self._optimiser = torch.optim.Adam(task.module.parameters(), lr=training.learning_rate, eps=1e-9)
        self._best: dict[str, Tensor] = {}
        self.standing = TrainingState()

    def run(self, *, resume: bool = False) -> TrainingOutcome:
        """Train to the end, to the time limit, or until Ctrl-C, which saves a checkpoint and returns normally.

        Parameters
        ----------
        resume : bool, default=False
            Continue from the checkpoint in the folder.

        Returns
        -------
        TrainingOutcome
            The module then has the weights of its best epoch.

        Raises
        ------
        DivergedError
            A ValueError: the loss is not finite any more.
        """
        with torch.random.fork_rng(), _interrupts() as interrupted:
            torch.manual_seed(self.training.seed)
            if resume:
                self._resume()
            if self._folder is not None:
                self._open_metrics()
            self._began, self._since, self._saved = monotonic() - self.standing.seconds, monotonic(), monotonic()
            self._steps_before, self._tokens_before = self.standing.step, self.standing.all_tokens
            ended = self._epochs(interrupted)
        if self._best:
            self.task.module.load_state_dict(self._best)
        at = self.standing
        return TrainingOutcome(
            ended, at.best, at.best_epoch, tuple(at.losses), tuple(at.validations), at.step, at.seconds
        )

    def _epochs(self, interrupted: Callable[[], bool]) -> str:
        at, training = self.standing, self.training
        while at.epoch < training.epochs:
            batches = self.task.batches(at.epoch)
            steps = training.epochs * len(batches)
            if self._best and self._progress(steps) >= 1.0:
                return "seconds"
            total = torch.zeros((), dtype=torch.float64, device=next(self.task.module.parameters()).device)
            self.task.module.train()
            while at.batch < len(batches):
                progress = self._progress(steps)
                # Whatever the time limit, an epoch has at least one batch.
                if progress >= 1.0 and at.tokens:
                    break
                total += self._step(batches[at.batch], min(progress, 1.0))
                at.batch, at.step, at.seconds = at.batch + 1, at.step + 1, monotonic() - self._began
                stop, due = interrupted(), monotonic() - self._saved >= self._every
                if stop or due or at.step % STEPS_PER_CHECK == 0 or at.batch == len(batches):
                    at.loss_sum, total = at.loss_sum + float(total), torch.zeros_like(total)
                    self._check_loss(steps)
                if (stop or due) and at.batch < len(batches):
                    self._save()
                if stop:
                    return "interrupted"
            # The time limit may have been reached between two checks.
            at.loss_sum += float(total)
            ended = self._epoch_ended(steps)
            if ended:
                return ended
        return "epochs"

    def _progress(self, steps: int) -> float:
        return max(self.standing.step / steps, (monotonic() - self._began) / (self.training.seconds or math.inf))

    def _step(self, batch: Any, progress: float) -> Tensor:
        """One optimiser step; returns the sum of the losses of the batch over its tokens."""
        training, at = self.training, self.standing
        for group in self._optimiser.param_groups:
            group["lr"] = training.rate(at.step, progress, at.halvings)
        self._optimiser.zero_grad(set_to_none=True)
        loss, tokens = self.task.loss(batch, progress)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.task.module.parameters(), training.clip)
        self._optimiser.step()
        at.tokens, at.all_tokens = at.tokens + tokens, at.all_tokens + tokens
        return loss.detach().double() * tokens

    def _check_loss(self, steps: int) -> None:
        at = self.standing
        loss = at.loss_sum / max(at.tokens, 1)
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {loss} in step {at.step}; try a learning_rate below "
                f"{self.training.learning_rate} or a clip below {self.training.clip}"
            )
        if self._watch is not None:
            spent = max(monotonic() - self._since, 1e-9)
            per_step = spent / max(at.step - self._steps_before, 1)
            left = min(per_step * (steps - at.step), (self.training.seconds or math.inf) - at.seconds)
            validation = at.validations[-1] if at.validations else math.nan
            rate = (at.all_tokens - self._tokens_before) / spent
            self._watch(
                TrainingProgress(
                    at.epoch + 1, self.training.epochs, at.step, steps, loss, validation, rate, max(left, 0.0)
                )
            )

    def _epoch_ended(self, steps: int) -> str:
        """Validate and keep the weights if they are the best so far; returns why the training ends here, or ""."""
        at, training = self.standing, self.training
        module = self.task.module
        module.eval()
        with torch.no_grad():
            validation = self.task.validate()
        loss = at.loss_sum / max(at.tokens, 1)
        at.losses.append(loss)
        at.validations.append(validation)
        if validation < at.best or not self._best:
            at.best, at.best_epoch = validation, at.epoch
            self._best = {name: part.detach().clone() for name, part in module.state_dict().items()}
        elif training.schedule == "plateau" and (at.epoch - at.best_epoch) % 2 == 0:
            at.halvings += 1
        self._check_loss(steps)
        self._write_metrics(loss, validation)
        over = self._progress(steps) >= 1.0
        at.epoch, at.batch, at.loss_sum, at.tokens = at.epoch + 1, 0, 0.0, 0
        at.seconds = monotonic() - self._began
        stalled = at.epoch - 1 - at.best_epoch >= training.patience
        ended = "patience" if stalled else "seconds" if over and at.step < steps else ""
        if monotonic() - self._saved >= self._every or ended or at.epoch == training.epochs:
            self._save()
        return ended

    # ---- files

    def _save(self) -> None:
        if self._folder is None:
            return
        moments = {
            f"{number}.{name}": value
            for number, state in self._optimiser.state_dict()["state"].items()
            for name, value in state.items()
        }
        random = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            random["cuda"] = torch.cuda.get_rng_state()
        tensors = {"model": self.task.module.state_dict(), "best": self._best, "adam": moments, "random": random}
        save(self._folder / CHECKPOINT, self._settings, self.standing.plain(), tensors)
        self._saved = monotonic()

    def _resume(self) -> None:
        if self._folder is None:
            raise ValueError("resume=True needs folder, the folder of the training to resume; got folder=None")
        standing, tensors = load(self._folder / CHECKPOINT, self._settings)
        self.standing = TrainingState(**{**standing, "best": float(standing["best"])})
        self.task.module.load_state_dict(tensors["model"])
        device = next(self.task.module.parameters()).device
        self._best = {name: part.to(device) for name, part in tensors.get("best", {}).items()}
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.get("adam", {}).items():
            number, _, what = name.partition(".")
            states.setdefault(int(number), {})[what] = value
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": states})
        torch.set_rng_state(tensors["random"]["cpu"])
        if torch.cuda.is_available() and "cuda" in tensors["random"]:
            torch.cuda.set_rng_state(tensors["random"]["cuda"])

    def _open_metrics(self) -> None:
        """Remove the lines written after the checkpoint; they will be written again."""
        assert self._folder is not None
        with open(self._folder / METRICS, "ab") as file:
            file.truncate(min(self.standing.metrics_end, os.fstat(file.fileno()).st_size))

    def _write_metrics(self, loss: float, validation: float) -> None:
        if self._folder is None:
            return
        at = self.standing
        line = {
            "epoch": at.epoch + 1, "step": at.step, "loss": loss, "validation": validation,
            "learning_rate": self._optimiser.param_groups[0]["lr"], "tokens": at.tokens,
            "seconds": round(monotonic() - self._began, 3),
        }  # fmt: skip
        with open(self._folder / METRICS, "ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            at.metrics_end = file.tell()


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """A function that returns whether Ctrl-C was pressed; a second one interrupts at once. Main thread only."""
    pressed: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def handler(number: int, frame: Any) -> None:
        if pressed:
            signal.default_int_handler(number, frame)
        pressed.append(True)

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)

"""Training a module by gradient descent. Nothing here depends on translation: what is trained is a ``Task``.

The result is a function of the task, the settings and the seed. A checkpoint holds everything that the rest of a
training depends on, so an interrupted and resumed training ends with the same weights, bit for bit on a CPU.

Where ``torch.distributed`` is initialised, as in ``processes.process_group``, its processes train together by torch's
DistributedDataParallel: each takes its part of the batches of a step, and the result is that of one process, to
rounding and but for the random numbers of dropout.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.data.files import PathLike
from regard.nn.argument_checks import at_least_one
from regard.nn.loo_training import torch_threads
from regard.seq2seq.checkpoints import load, save
from regard.seq2seq.processes import Processes
from regard.seq2seq.thread_choice import fastest_threads
from regard.seq2seq.training_settings import LOSS, OPTIMIZERS, Training

# Steps between two checks of the loss: on a GPU every check waits for the device.
STEPS_PER_CHECK = 20
CHECKPOINT = "checkpoint.regard"
METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
Weights = dict[str, Tensor]


class Task(Protocol):
    """What is trained."""

    @property
    def module(self) -> nn.Module: ...

    def batches(self, epoch: int) -> Sequence[Any]:
        """The batches of an epoch, the same at every call."""

    def loss(self, batch: Any, progress: float) -> tuple[Tensor, int]:
        """The mean loss of a batch and the number of tokens it is a mean of; ``progress`` goes from 0 to 1."""

    def validate(self) -> float | Mapping[str, float]:
        """The validation loss, or several measures by name, "loss" among them; of the others more is better."""


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
    threads: int = 0  # of torch; 0 leaves them as they are
    losses: list[float] = field(default_factory=list)  # by epoch
    validations: list[float] = field(default_factory=list)
    measures: dict[str, float] = field(default_factory=dict)  # of the latest validation

    def plain(self) -> dict[str, Any]:
        """As values that JSON can represent, which has no infinity."""
        return {**asdict(self), "best": repr(self.best)}


class TrainingProgress(NamedTuple):
    """What ``watch`` is called with; ``validation`` is the latest validation loss."""

    epoch: int  # from 1
    epochs: int
    step: int
    steps: int  # in all epochs
    loss: float
    validation: float  # the latest, NaN before the first
    tokens_per_second: float
    seconds_left: float  # estimate, without early stopping
    measures: Mapping[str, float]  # of the latest validation


class TrainingOutcome(NamedTuple):
    """How a training ended; the module then has the weights of its best epoch."""

    ended: str  # "epochs", "patience", "seconds", "interrupted"
    best: float  # of the criterion
    best_epoch: int  # from 0
    losses: tuple[float, ...]
    validations: tuple[float, ...]
    steps: int
    seconds: float
    criterion: str = LOSS


class DivergedError(ValueError):
    """The loss is not finite any more."""


class LossOfTask(nn.Module):
    """The loss of a task as the ``forward`` of a module, which DistributedDataParallel wraps."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.module, self._task = task.module, task

    def forward(self, batch: Any, progress: float) -> tuple[Tensor, int]:
        return self._task.loss(batch, progress)


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
    threads : int or "measured", default=None
        Number of threads of torch, or "measured" to choose it by a few steps, on a CPU and in one process; None leaves
        it as it is. A resumed training has the number that was measured first, since another one may round differently.
    tensorboard : bool, default=False
        Write the measures to ``folder``/tensorboard too; needs the package tensorboard.

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
        threads: int | str | None = None,
        tensorboard: bool = False,
    ) -> None:
        self.task, self.training, self._every, self._watch = task, training, every, watch
        self._folder = None if folder is None else Path(folder)
        self._settings = {**asdict(training), **(settings or {})}
        # A training may be resumed with another time limit.
        self._settings.pop("seconds")
        self._processes = Processes()
        if training.accumulate % self._processes.count:
            raise ValueError(
                f"accumulate must be a multiple of the {self._processes.count} processes, which share the batches of "
                f"a step, got {training.accumulate}"
            )
        if threads is not None and threads != "measured":
            at_least_one(threads=threads)
        self._threads = threads
        parameters = list(task.module.parameters())
        self._optimiser = OPTIMIZERS[training.optimizer](
            parameters,
            lr=training.learning_rate,
            betas=(0.9, training.beta2),
            eps=1e-9,
            weight_decay=training.weight_decay,
            fused=parameters[0].is_cuda,
        )
        self._loss = task.loss if self._processes.count == 1 else DistributedDataParallel(LossOfTask(task))
        self._best: Weights = {}
        self._recent: list[Weights] = []  # at the ends of the last epochs, the latest at the end
        self._writer = _summary_writer(self._folder) if tensorboard and self._processes.is_main else None
        self.standing = TrainingState()

    def run(self, *, resume: bool = False) -> TrainingOutcome:
        """Train to the end, to the time limit, or until Ctrl-C or SIGTERM, which save a checkpoint and return.

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
            torch.manual_seed(self.training.seed + self._processes.rank)
            if resume:
                self._resume()
            with self._chosen_threads():
                if self._folder is not None and self._processes.is_main:
                    self._open_metrics()
                self._began, self._since, self._saved = monotonic() - self.standing.seconds, monotonic(), monotonic()
                self._steps_before, self._tokens_before = self.standing.step, self.standing.all_tokens
                ended = self._epochs(interrupted)
        if self._writer is not None:
            self._writer.close()
        if self._best:
            self.task.module.load_state_dict(self._best)
        at = self.standing
        return TrainingOutcome(
            ended,
            at.best,
            at.best_epoch,
            tuple(at.losses),
            tuple(at.validations),
            at.step,
            at.seconds,
            self.training.criterion,
        )

    @contextmanager
    def _chosen_threads(self) -> Iterator[None]:
        """A context with the number of threads of this training."""
        at = self.standing
        # Several processes have as many threads each as they were started with.
        measurable = self._processes.count == 1 and next(self.task.module.parameters()).device.type == "cpu"
        if isinstance(self._threads, int):
            at.threads = self._threads
        elif self._threads == "measured" and measurable and not at.threads:
            at.threads = self._measured_threads()
        with torch_threads(at.threads) if at.threads else nullcontext():
            yield

    def _measured_threads(self) -> int:
        batches = self.task.batches(0)
        typical = batches[len(batches) // 2]

        def step() -> None:
            loss, _ = self.task.loss(typical, 0.0)
            loss.backward()  # type: ignore[no-untyped-call]

        self.task.module.train()
        with torch.random.fork_rng():
            chosen = fastest_threads(step)
        self._optimiser.zero_grad(set_to_none=True)
        return chosen

    def _epochs(self, interrupted: Callable[[], bool]) -> str:
        at, training = self.standing, self.training
        while at.epoch < training.epochs:
            batches = self.task.batches(at.epoch)
            steps = training.epochs * math.ceil(len(batches) / training.accumulate)
            if self._best and self._progress(steps) >= 1.0:
                return "seconds"
            total = torch.zeros((), dtype=torch.float64, device=next(self.task.module.parameters()).device)
            self.task.module.train()
            while at.batch < len(batches):
                progress = self._progress(steps)
                # Whatever the time limit, an epoch has at least one batch.
                if progress >= 1.0 and at.tokens:
                    break
                group = batches[at.batch : at.batch + training.accumulate]
                total += self._step(group, min(progress, 1.0))
                at.batch, at.step, at.seconds = at.batch + len(group), at.step + 1, monotonic() - self._began
                # All processes save and stop together.
                stop, due = map(bool, self._processes.all_sum(interrupted(), monotonic() - self._saved >= self._every))
                if stop or due or at.step % STEPS_PER_CHECK == 0 or at.batch == len(batches):
                    total = self._add_losses(total)
                    self._check_loss(steps)
                if (stop or due) and at.batch < len(batches):
                    self._save()
                if stop:
                    return "interrupted"
            # The time limit may have been reached between two checks.
            self._add_losses(total)
            ended = self._epoch_ended(steps)
            if ended:
                return ended
        return "epochs"

    def _add_losses(self, total: Tensor) -> Tensor:
        """Add the sum of losses of all processes to that of the epoch; returns a new sum, 0."""
        self.standing.loss_sum += self._processes.all_sum(float(total))[0]
        return torch.zeros_like(total)

    def _progress(self, steps: int) -> float:
        """The fraction of the training that is done, by steps or by time."""
        by_steps = self.standing.step / steps
        if self.training.seconds is None:
            return by_steps
        return self._processes.broadcast([max(by_steps, (monotonic() - self._began) / self.training.seconds)])[0]

    def _step(self, batches: Sequence[Any], progress: float) -> Tensor:
        """One optimiser step; returns the sum of the losses of this process over its tokens.

        The gradient is that of the mean over all tokens of all batches.
        """
        training, at, processes = self.training, self.standing, self._processes
        for group in self._optimiser.param_groups:
            group["lr"] = training.rate(at.step, progress, at.halvings)
        self._optimiser.zero_grad(set_to_none=True)
        # In the last step of an epoch a process may have no batch: it takes any, and leaves it out of the sum.
        mine = batches[processes.rank :: processes.count] or batches[:1]
        weight = 1 if processes.rank < len(batches) else 0
        alone = training.accumulate == 1
        total = torch.zeros((), dtype=torch.float64, device=next(self.task.module.parameters()).device)
        tokens = 0
        for number, batch in enumerate(mine, 1):
            with self._without_sync() if number < len(mine) else nullcontext():
                loss, count = self._loss(batch, progress)
                (loss if alone else loss * (count * weight)).backward()
            total += loss.detach().double() * (count * weight)
            tokens += count * weight
        tokens = int(processes.all_sum(tokens)[0])
        if not alone:
            # DistributedDataParallel returns the mean of the processes, not their sum.
            gradients = [part.grad for part in self.task.module.parameters() if part.grad is not None]
            torch._foreach_mul_(gradients, processes.count / max(tokens, 1))
        nn.utils.clip_grad_norm_(self.task.module.parameters(), training.clip)
        self._optimiser.step()
        at.tokens, at.all_tokens = at.tokens + tokens, at.all_tokens + tokens
        return total

    def _without_sync(self) -> Any:
        """A context in which gradients are not exchanged between processes."""
        return self._loss.no_sync() if isinstance(self._loss, DistributedDataParallel) else nullcontext()

    def _check_loss(self, steps: int) -> None:
        at = self.standing
        loss = at.loss_sum / max(at.tokens, 1)
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {loss} in step {at.step}; try a learning_rate below "
                f"{self.training.learning_rate} or a clip below {self.training.clip}"
            )
        if self._writer is not None:
            self._writer.add_scalar("loss/train", loss, at.step)
            self._writer.add_scalar("learning_rate", self._optimiser.param_groups[0]["lr"], at.step)
        if self._watch is not None and self._processes.is_main:
            spent = max(monotonic() - self._since, 1e-9)
            per_step = spent / max(at.step - self._steps_before, 1)
            left = min(per_step * (steps - at.step), (self.training.seconds or math.inf) - at.seconds)
            validation = at.validations[-1] if at.validations else math.nan
            rate = (at.all_tokens - self._tokens_before) / spent
            epochs = self.training.epochs
            self._watch(
                TrainingProgress(
                    at.epoch + 1, epochs, at.step, steps, loss, validation, rate, max(left, 0.0), dict(at.measures)
                )
            )

    def _epoch_ended(self, steps: int) -> str:
        """Validate and keep the weights if they are the best so far; returns why the training ends here, or ""."""
        at, training = self.standing, self.training
        candidate = self._candidate()
        at.measures = self._validated()
        value = at.measures[training.criterion]
        loss = at.loss_sum / max(at.tokens, 1)
        at.losses.append(loss)
        at.validations.append(at.measures[LOSS])
        if self._is_best(value):
            at.best, at.best_epoch, self._best = value, at.epoch, candidate
        elif training.schedule == "plateau" and (at.epoch - at.best_epoch) % 2 == 0:
            at.halvings += 1
        if training.average > 1:
            self.task.module.load_state_dict(self._recent[-1])
        self._check_loss(steps)
        self._write_metrics(loss)
        over = self._progress(steps) >= 1.0
        at.epoch, at.batch, at.loss_sum, at.tokens = at.epoch + 1, 0, 0.0, 0
        at.seconds = monotonic() - self._began
        stalled = at.epoch - 1 - at.best_epoch >= training.patience
        ended = "patience" if stalled else "seconds" if over and at.step < steps else ""
        due = self._processes.broadcast([monotonic() - self._saved >= self._every])[0]
        if due or ended or at.epoch == training.epochs:
            self._save()
        return ended

    def _is_best(self, value: float) -> bool:
        """Whether this epoch is better than all before; of equal ones, such as no exact match, by the loss."""
        at = self.standing
        if not self._best or self.training.criterion == LOSS:
            return not self._best or value < at.best
        return value > at.best or (value == at.best and at.validations[-1] < at.validations[at.best_epoch])

    def _candidate(self) -> Weights:
        """The weights to validate: of this epoch, or the mean of the last ones, which the module then has."""
        now = {name: part.detach().clone() for name, part in self.task.module.state_dict().items()}
        if self.training.average == 1:
            return now
        self._recent = [*self._recent, now][-self.training.average :]
        mean = {
            name: torch.stack([one[name] for one in self._recent]).mean(0) if part.is_floating_point() else part
            for name, part in now.items()
        }
        self.task.module.load_state_dict(mean)
        return mean

    def _validated(self) -> dict[str, float]:
        """The measures of the task, those of the first process in all of them."""
        self.task.module.eval()
        with torch.no_grad():
            found = self.task.validate()
        measures = {LOSS: found} if isinstance(found, float | int) else dict(found)
        if self.training.criterion not in measures:
            raise ValueError(
                f"criterion must be one of {', '.join(map(repr, measures))}, which the task measures, "
                f"got {self.training.criterion!r}"
            )
        return dict(zip(measures, self._processes.broadcast(list(measures.values())), strict=True))

    # ---- files

    def _save(self) -> None:
        if self._folder is None:
            return
        moments = {
            f"{number}.{name}": value
            for number, state in self._optimiser.state_dict()["state"].items()
            for name, value in state.items()
        }
        random = {
            _of_rank("cpu", rank): state for rank, state in enumerate(self._processes.all_gather(torch.get_rng_state()))
        }
        if torch.cuda.is_available():
            states = self._processes.all_gather(torch.cuda.get_rng_state())
            random.update({_of_rank("cuda", rank): state for rank, state in enumerate(states)})
        self._saved = monotonic()
        if not self._processes.is_main:
            return
        tensors = {"model": self.task.module.state_dict(), "best": self._best, "adam": moments, "random": random}
        tensors.update({f"recent{number}": weights for number, weights in enumerate(self._recent)})
        save(self._folder / CHECKPOINT, self._settings, self.standing.plain(), tensors)
        self._saved = monotonic()

    def _resume(self) -> None:
        if self._folder is None:
            raise ValueError("resume=True needs folder, the folder of the training to resume; got folder=None")
        standing, tensors = load(self._folder / CHECKPOINT, self._settings)
        self.standing = TrainingState(**{**standing, "best": float(standing["best"])})
        self.task.module.load_state_dict(tensors["model"])
        device = next(self.task.module.parameters()).device
        recent = sorted((name for name in tensors if name.startswith("recent")), key=lambda name: int(name[6:]))
        groups = [
            {name: part.to(device) for name, part in tensors.get(group, {}).items()} for group in ("best", *recent)
        ]
        self._best, self._recent = groups[0], groups[1:]
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.get("adam", {}).items():
            number, _, what = name.partition(".")
            states.setdefault(int(number), {})[what] = value
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": states})
        random, rank = tensors["random"], self._processes.rank
        # Resumed with more processes than before, the others have the random numbers of a new training.
        if _of_rank("cpu", rank) in random:
            torch.set_rng_state(random[_of_rank("cpu", rank)])
        if torch.cuda.is_available() and _of_rank("cuda", rank) in random:
            torch.cuda.set_rng_state(random[_of_rank("cuda", rank)])

    def _open_metrics(self) -> None:
        """Remove the lines written after the checkpoint; they will be written again."""
        assert self._folder is not None
        with open(self._folder / METRICS, "ab") as file:
            file.truncate(min(self.standing.metrics_end, os.fstat(file.fileno()).st_size))

    def _write_metrics(self, loss: float) -> None:
        at = self.standing
        if self._writer is not None:
            for name, value in at.measures.items():
                self._writer.add_scalar(f"{name}/validation", value, at.step)
        if self._folder is None or not self._processes.is_main:
            return
        line = {
            "epoch": at.epoch + 1, "step": at.step, "loss": loss, "validation": at.measures[LOSS],
            **{name: value for name, value in at.measures.items() if name != LOSS},
            "learning_rate": self._optimiser.param_groups[0]["lr"], "tokens": at.tokens,
            "seconds": round(monotonic() - self._began, 3),
        }  # fmt: skip
        with open(self._folder / METRICS, "ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            at.metrics_end = file.tell()


def _of_rank(name: str, rank: int) -> str:
    """The name of a random state in a checkpoint."""
    return name if rank == 0 else f"{name}.{rank}"


def _summary_writer(folder: Path | None) -> Any:
    if folder is None:
        raise ValueError("tensorboard=True needs folder, where its files are written; got folder=None")
    try:
        return import_module("torch.utils.tensorboard").SummaryWriter(str(folder / TENSORBOARD))
    except ImportError:
        raise ValueError("TensorBoard logs need tensorboard; run pip install tensorboard") from None


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """A function that returns whether Ctrl-C or SIGTERM came; a second one interrupts at once. Main thread only."""
    pressed: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def handler(number: int, frame: Any) -> None:
        if pressed:
            signal.default_int_handler(number, frame)
        pressed.append(True)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(pressed)
    finally:
        for number, was in before.items():
            signal.signal(number, was)

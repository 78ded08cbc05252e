"""The trainer: walks a module down its loss. It knows nothing of translation; what it trains is a ``Task``.

A training is a function of its task, its settings and its seed. What it depends on while it runs is in its checkpoint,
so that a training that was interrupted and resumed ends with the same weights, to the last bit on a CPU.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.files import PathLike
from regard.seq2seq.checkpoints import Checkpoint, load, save
from regard.seq2seq.training import DivergedError, Outcome, Progress, Standing, Task, Training

# Steps between two looks at the loss: on a GPU every look waits for the device.
LOOK = 20
CHECKPOINT, METRICS = "checkpoint.regard", "metrics.jsonl"


class Trainer:
    """One training of one task.

    Parameters
    ----------
    task : what is trained.
    training : how.
    folder : where its checkpoint and its metrics go; None keeps nothing.
    every : seconds between two checkpoints.
    settings : plain data that a checkpoint is refused for if it differs, beside ``training``.
    watch : called with ``Progress`` every few steps and after every epoch.
    """

    def __init__(
        self,
        task: Task,
        training: Training,
        *,
        folder: PathLike | None = None,
        every: float = 30.0,
        settings: Mapping[str, Any] | None = None,
        watch: Callable[[Progress], None] | None = None,
    ) -> None:
        self.task, self.training, self._every, self._watch = task, training, every, watch
        self._folder = None if folder is None else Path(folder)
        self._settings = {**asdict(training), **(settings or {})}
        # A longer limit is no other training.
        self._settings.pop("seconds")
        self._optimiser = torch.optim.Adam(task.module.parameters(), lr=training.learning_rate, eps=1e-9)
        self._best: dict[str, Tensor] = {}
        self.standing = Standing()

    def run(self, *, resume: bool = False) -> Outcome:
        """Train to the end, to the limit, or to Ctrl-C, which saves a checkpoint and is told in the outcome."""
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
        told = self.standing
        return Outcome(
            ended, told.best, told.best_epoch, tuple(told.losses), tuple(told.validations), told.step, told.seconds
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
                # Whatever the limit, an epoch sees one batch at least.
                if progress >= 1.0 and at.tokens:
                    break
                total += self._step(batches[at.batch], min(progress, 1.0))
                at.batch, at.step, at.seconds = at.batch + 1, at.step + 1, monotonic() - self._began
                stop, due = interrupted(), monotonic() - self._saved >= self._every
                if stop or due or at.step % LOOK == 0 or at.batch == len(batches):
                    at.loss_sum, total = at.loss_sum + float(total), torch.zeros_like(total)
                    self._look(steps)
                if (stop or due) and at.batch < len(batches):
                    self._save()
                if stop:
                    return "interrupted"
            # Time may have run out between two looks.
            at.loss_sum += float(total)
            ended = self._epoch_ended(steps)
            if ended:
                return ended
        return "epochs"

    def _progress(self, steps: int) -> float:
        return max(self.standing.step / steps, (monotonic() - self._began) / (self.training.seconds or math.inf))

    def _step(self, batch: Any, progress: float) -> Tensor:
        """Sum of the losses of a batch."""
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

    def _look(self, steps: int) -> None:
        at = self.standing
        loss = at.loss_sum / max(at.tokens, 1)
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {loss} in step {at.step}; a learning_rate below {self.training.learning_rate} or a "
                f"smaller clip than {self.training.clip} may help"
            )
        if self._watch is not None:
            spent = max(monotonic() - self._since, 1e-9)
            per_step = spent / max(at.step - self._steps_before, 1)
            left = min(per_step * (steps - at.step), (self.training.seconds or math.inf) - at.seconds)
            validation = at.validations[-1] if at.validations else math.nan
            rate = (at.all_tokens - self._tokens_before) / spent
            self._watch(
                Progress(at.epoch + 1, self.training.epochs, at.step, steps, loss, validation, rate, max(left, 0.0))
            )

    def _epoch_ended(self, steps: int) -> str:
        """Validate, remember the best, and say why it ends here, if it does."""
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
        self._look(steps)
        self._write_metrics(loss, validation)
        over = self._progress(steps) >= 1.0
        at.epoch, at.batch, at.loss_sum, at.tokens = at.epoch + 1, 0, 0.0, 0
        at.seconds = monotonic() - self._began
        patient = at.epoch - 1 - at.best_epoch < training.patience
        ended = "patience" if not patient else "seconds" if over and at.step < steps else ""
        if monotonic() - self._saved >= self._every or ended or at.epoch == training.epochs:
            self._save()
        return ended

    # ---- what is kept on disk

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
        save(self._folder / CHECKPOINT, Checkpoint(self._settings, self.standing.plain(), tensors))
        self._saved = monotonic()

    def _resume(self) -> None:
        if self._folder is None:
            raise ValueError("resume needs the folder of the training to be resumed")
        found = load(self._folder / CHECKPOINT, self._settings)
        self.standing = Standing(**{**found.standing, "best": float(found.standing["best"])})
        self.task.module.load_state_dict(found.tensors["model"])
        device = next(self.task.module.parameters()).device
        self._best = {name: part.to(device) for name, part in found.tensors.get("best", {}).items()}
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in found.tensors.get("adam", {}).items():
            number, _, what = name.partition(".")
            states.setdefault(int(number), {})[what] = value
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": states})
        torch.set_rng_state(found.tensors["random"]["cpu"])
        if torch.cuda.is_available() and "cuda" in found.tensors["random"]:
            torch.cuda.set_rng_state(found.tensors["random"]["cuda"])

    def _open_metrics(self) -> None:
        """Lines written after the checkpoint are written again."""
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
    """Ask whether Ctrl-C was pressed; a second one interrupts at once. Only the main thread hears it."""
    asked: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def heard(number: int, frame: Any) -> None:
        if asked:
            signal.default_int_handler(number, frame)
        asked.append(True)

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)

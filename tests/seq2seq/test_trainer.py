"""The trainer, on a task that is no translation: it ends when it should, and resumes to the last bit."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from regard.seq2seq.checkpoints import CheckpointError
from regard.seq2seq.trainer import CHECKPOINT, METRICS, DivergedError, Trainer, Training, TrainingProgress
from support.trainings import BATCHES, Line, same, weights

EPOCHS = 4


def trained(task: Line, folder: Path | None = None, *, resume: bool = False, every: float = 1e9, **options):
    training = Training(**{"epochs": EPOCHS, "warmup": 3, "learning_rate": 0.05, **options})
    return Trainer(task, training, folder=folder, every=every).run(resume=resume)


def test_it_learns_and_keeps_the_best() -> None:
    task = Line()
    task.module.eval()
    before = task.validate()
    outcome = trained(task, epochs=30, patience=30)
    assert outcome.ended == "epochs"
    assert outcome.steps == 30 * BATCHES
    assert len(outcome.losses) == len(outcome.validations) == 30
    assert outcome.best == min(outcome.validations) < 0.3 * before
    task.module.eval()
    assert task.validate() == pytest.approx(outcome.best)


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    found = []
    for seed in (0, 0, 1):
        task = Line()
        trained(task, seed=seed)
        found.append(weights(task.module))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def test_training_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    task = Line()
    torch.manual_seed(5)
    trained(task)
    assert torch.equal(torch.rand(3), wanted)


class Killed(Exception):
    pass


@pytest.mark.parametrize("schedule", ["cosine", "plateau"])
@pytest.mark.parametrize("at", [1, 2, BATCHES, BATCHES + 1, 2 * BATCHES + 3, EPOCHS * BATCHES])
def test_110_resumed_after_a_death_at_any_step_it_ends_the_same(tmp_path: Path, at: int, schedule: str) -> None:
    whole = Line()
    outcome = trained(whole, schedule=schedule)

    def die(call: int) -> None:
        if call == at + 1:
            raise Killed

    first = Line(hook=die)
    if at == EPOCHS * BATCHES:
        trained(first, tmp_path, every=0.0, schedule=schedule)
    else:
        with pytest.raises(Killed):
            trained(first, tmp_path, every=0.0, schedule=schedule)
    second = Line()
    again = trained(second, tmp_path, resume=True, schedule=schedule)
    # After the last step of an epoch the checkpoint is that of the step before: the epoch ends with its validation.
    assert second.calls <= EPOCHS * BATCHES - at + 1
    assert same(weights(whole.module), weights(second.module))
    assert (again.losses, again.validations, again.steps) == (outcome.losses, outcome.validations, outcome.steps)


def test_ctrl_c_saves_and_stops_and_a_resumed_training_ends_the_same(tmp_path: Path) -> None:
    whole = Line()
    trained(whole)
    first = Line(hook=lambda call: os.kill(os.getpid(), signal.SIGINT) if call == 9 else None)
    before = signal.getsignal(signal.SIGINT)
    assert trained(first, tmp_path).ended == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before
    assert first.calls == 9
    second = Line()
    trained(second, tmp_path, resume=True)
    assert same(weights(whole.module), weights(second.module))


def test_ctrl_c_twice_stops_at_once() -> None:
    def both(call: int) -> None:
        if call == 2:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trained(Line(hook=both))


def test_metrics_are_one_line_of_json_per_epoch_also_after_resuming(tmp_path: Path) -> None:
    def die(call: int) -> None:
        if call == 2 * BATCHES + 3:
            raise Killed

    with pytest.raises(Killed):
        trained(Line(hook=die), tmp_path, every=1e9)
    # No checkpoint was written: the training begins anew, and so do its metrics.
    assert not (tmp_path / CHECKPOINT).exists()
    outcome = trained(Line(), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, EPOCHS + 1))
    assert [line["loss"] for line in lines] == list(outcome.losses)
    assert [line["validation"] for line in lines] == list(outcome.validations)


def test_metrics_after_the_checkpoint_are_written_again(tmp_path: Path) -> None:
    stop = Line(hook=lambda call: os.kill(os.getpid(), signal.SIGINT) if call == BATCHES + 2 else None)
    trained(stop, tmp_path)
    with open(tmp_path / METRICS, "a") as file:
        file.write('{"epoch": 2, "half a li')
    trained(Line(), tmp_path, resume=True)
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, EPOCHS + 1))


def test_patience_ends_it_and_the_best_epoch_is_kept() -> None:
    outcome = trained(Line(validations=[3.0, 1.0, 2.0, 1.0, 1.5, 9.0]), epochs=20, patience=3)
    assert (outcome.ended, outcome.best, outcome.best_epoch, len(outcome.losses)) == ("patience", 1.0, 1, 5)


def test_plateau_halves_the_rate_after_two_epochs_without_better(tmp_path: Path) -> None:
    told = [3.0, 2.0, 2.5, 2.5, 2.5, 2.5, 1.0]
    trained(Line(validations=told), tmp_path, epochs=7, patience=9, schedule="plateau", warmup=0)
    rates = [json.loads(line)["learning_rate"] for line in (tmp_path / METRICS).read_text().splitlines()]
    assert rates == [0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.0125]


def test_seconds_end_it() -> None:
    outcome = trained(Line(), epochs=100_000, seconds=0.3, patience=10**9)
    assert outcome.ended == "seconds"
    assert 0 < outcome.steps < 100_000 * BATCHES
    assert outcome.best < math.inf


def test_an_epoch_that_time_cut_short_tells_the_loss_of_what_it_saw() -> None:
    seen: list[float] = []
    task = Line(hook=lambda _: time.sleep(0.05))
    loss = task.loss

    def watched(batch: int, progress: float):
        found, rows = loss(batch, progress)
        seen.append(float(found.detach()))
        return found, rows

    task.loss = watched
    outcome = trained(task, seconds=0.12)
    assert 1 <= len(seen) < BATCHES
    assert outcome.losses == (pytest.approx(sum(seen) / len(seen)),)


def test_one_batch_is_seen_however_short_the_time() -> None:
    task = Line()
    outcome = trained(task, seconds=1e-9)
    assert (outcome.ended, outcome.steps, task.calls) == ("seconds", 1, 1)
    assert outcome.losses[0] > 0.0


def test_resumed_after_its_time_was_over_it_ends_as_it_was(tmp_path: Path) -> None:
    first = trained(Line(hook=lambda _: time.sleep(0.05)), tmp_path, seconds=0.12)
    again = trained(Line(), tmp_path, seconds=0.12, resume=True)
    assert (again.ended, again.losses, again.validations) == ("seconds", first.losses, first.validations)


def test_no_gradient_is_longer_than_clip() -> None:
    task = Line()
    long: list[float] = []
    step = torch.optim.Adam.step

    def watched(self, *rest):
        long.append(float(torch.cat([p.grad.flatten() for p in task.module.parameters()]).norm()))
        return step(self, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.Adam, "step", watched)
        trained(task, clip=0.05)
    assert len(long) == EPOCHS * BATCHES
    assert max(long) <= 0.05 * (1 + 1e-5)


def test_a_loss_that_is_no_number_is_an_error() -> None:
    task = Line()
    task.y[2] = math.nan
    with pytest.raises(DivergedError, match=r"learning_rate below 0\.05"):
        trained(task)


def test_a_watcher_is_told_how_far_it_is() -> None:
    told: list[TrainingProgress] = []
    Trainer(Line(), Training(epochs=EPOCHS), watch=told.append).run()
    assert told[-1].epoch == told[-1].epochs == EPOCHS
    assert told[-1].step == told[-1].steps == EPOCHS * BATCHES
    assert told[-1].seconds_left == 0.0
    assert told[-1].tokens_per_second > 0.0
    assert math.isnan(told[0].validation)
    assert told[-1].validation > 0.0


def test_another_training_does_not_resume_this_one(tmp_path: Path) -> None:
    trained(Line(), tmp_path)
    with pytest.raises(CheckpointError, match=r"learning_rate = 0\.05, but learning_rate is now 0\.1"):
        trained(Line(), tmp_path, resume=True, learning_rate=0.1)


def test_there_must_be_something_to_resume(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        trained(Line(), tmp_path, resume=True)
    with pytest.raises(ValueError, match="folder"):
        trained(Line(), None, resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"patience": 0}, "patience must be a whole number of at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"clip": math.inf}, "clip must be positive and finite"),
        ({"warmup": -1}, "warmup must be at least 0"),
        ({"seconds": 0.0}, "seconds must be positive"),
        ({"schedule": "steps"}, "schedule must be one of 'cosine', 'plateau', got 'steps'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Training(**options)

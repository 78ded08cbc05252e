"""The trainer, on a task that is no translation: it ends when it should, and resumes to the last bit."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from regard.nn.loo_training import torch_threads
from regard.seq2seq.checkpoints import CheckpointError
from regard.seq2seq.trainer import CHECKPOINT, METRICS, DivergedError, Trainer, TrainingProgress
from regard.seq2seq.training_settings import Training
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


WAYS = {
    "cosine": {},
    "plateau": {"schedule": "plateau"},
    "averaged": {"schedule": "inverse", "average": 3, "optimizer": "adamw", "weight_decay": 0.1},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("at", [1, 2, BATCHES, BATCHES + 1, 2 * BATCHES + 3, EPOCHS * BATCHES])
def test_110_resumed_after_a_death_at_any_step_it_ends_the_same(tmp_path: Path, at: int, way: dict) -> None:
    whole = Line()
    outcome = trained(whole, **way)

    def die(call: int) -> None:
        if call == at + 1:
            raise Killed

    first = Line(hook=die)
    if at == EPOCHS * BATCHES:
        trained(first, tmp_path, every=0.0, **way)
    else:
        with pytest.raises(Killed):
            trained(first, tmp_path, every=0.0, **way)
    second = Line()
    again = trained(second, tmp_path, resume=True, **way)
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
    validations = [3.0, 2.0, 2.5, 2.5, 2.5, 2.5, 1.0]
    trained(Line(validations=validations), tmp_path, epochs=7, patience=9, schedule="plateau", warmup=0)
    rates = [json.loads(line)["learning_rate"] for line in (tmp_path / METRICS).read_text().splitlines()]
    assert rates == [0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.0125]


def test_seconds_end_it() -> None:
    outcome = trained(Line(), epochs=100_000, seconds=0.3, patience=10**9)
    assert outcome.ended == "seconds"
    assert 0 < outcome.steps < 100_000 * BATCHES
    assert outcome.best < math.inf


def test_an_epoch_cut_short_by_time_reports_the_loss_of_its_batches() -> None:
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


def test_a_callback_receives_the_progress() -> None:
    reports: list[TrainingProgress] = []
    Trainer(Line(), Training(epochs=EPOCHS), watch=reports.append).run()
    assert reports[-1].epoch == reports[-1].epochs == EPOCHS
    assert reports[-1].step == reports[-1].steps == EPOCHS * BATCHES
    assert reports[-1].seconds_left == 0.0
    assert reports[-1].tokens_per_second > 0.0
    assert math.isnan(reports[0].validation)
    assert reports[-1].validation > 0.0


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
        ({"schedule": "steps"}, "schedule must be one of 'cosine', 'plateau', 'inverse', got 'steps'"),
        ({"accumulate": 0}, "accumulate must be a whole number of at least 1, got 0"),
        ({"average": 0}, "average must be a whole number of at least 1"),
        ({"optimizer": "sgd"}, "optimizer must be one of 'adam', 'adamw', got 'sgd'"),
        ({"weight_decay": 0.1}, "0 unless optimizer is 'adamw', got 0.1 with 'adam'"),
        ({"beta2": 1.0}, "beta2 must be at least 0 and below 1, got 1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Training(**options)


def test_accumulated_batches_are_one_large_batch() -> None:
    """Of equal sizes: the gradient is that of the mean over all rows of the step."""
    found = []
    orders = {epoch: Line().batches(epoch) for epoch in range(EPOCHS)}
    for accumulate in (1, 3):
        task = Line()
        for part in task.module:
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        if accumulate == 1:
            task.batches = lambda epoch: [orders[epoch][:3], orders[epoch][3:]]
        outcome = trained(task, accumulate=accumulate, clip=1e9)
        assert outcome.steps == EPOCHS * 2
        found.append((weights(task.module), outcome.losses))
    for name, part in found[0][0].items():
        torch.testing.assert_close(part, found[1][0][name], rtol=1e-5, atol=1e-7)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-5)


def test_the_last_step_of_an_epoch_may_have_fewer_batches() -> None:
    outcome = trained(Line(), accumulate=4)
    assert outcome.steps == EPOCHS * 2


def test_averaged_weights_are_the_mean_of_the_last_epochs() -> None:
    task, ends = Line(), []
    validate = task.validate
    task.validate = lambda: ends.append(weights(task.module)) or validate()
    plain = Line()
    of_epochs: list[dict] = []
    check = plain.validate
    plain.validate = lambda: of_epochs.append(weights(plain.module)) or check()
    trained(plain)
    trained(task, average=3)
    for epoch, found in enumerate(ends):
        last = of_epochs[max(0, epoch - 2) : epoch + 1]
        for name, part in found.items():
            torch.testing.assert_close(part, torch.stack([one[name] for one in last]).mean(0))


def test_another_measure_chooses_the_epoch_and_ties_go_to_the_loss(tmp_path: Path) -> None:
    task = Line()
    found = iter([(5.0, 0.0), (4.0, 0.0), (6.0, 2.0), (3.0, 1.0), (2.0, 1.0)])
    task.validate = lambda: dict(zip(("loss", "goals"), next(found), strict=True))
    reports: list[TrainingProgress] = []
    training = Training(epochs=20, criterion="goals", patience=2)
    outcome = Trainer(task, training, folder=tmp_path, watch=reports.append).run()
    assert (outcome.ended, outcome.best, outcome.best_epoch, outcome.criterion) == ("patience", 2.0, 2, "goals")
    assert outcome.validations == (5.0, 4.0, 6.0, 3.0, 2.0)
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [line["goals"] for line in lines] == [0.0, 0.0, 2.0, 1.0, 1.0]
    assert reports[-1].measures == {"loss": 2.0, "goals": 1.0}
    with pytest.raises(ValueError, match="criterion must be one of 'loss', which the task measures, got 'goals'"):
        trained(Line(), criterion="goals")


def test_the_inverse_square_root() -> None:
    rate = Training(learning_rate=2.0, schedule="inverse", warmup=3)
    assert [rate.rate(step, 0.5, 0) for step in (0, 1, 3, 15, 63)] == [0.5, 1.0, 2.0, 1.0, 0.5]


def test_weight_decay_shrinks_the_weights() -> None:
    sizes = []
    for decay in (0.0, 1.0):
        task = Line()
        trained(task, optimizer="adamw", weight_decay=decay)
        sizes.append(sum(float(part.detach().square().sum()) for part in task.module.parameters()))
    assert sizes[1] < 0.9 * sizes[0]


def test_threads_are_measured_once_and_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.seq2seq.trainer.fastest_threads", lambda step: step() or 2)
    before, used = torch.get_num_threads(), []
    task = Line(hook=lambda _: used.append(torch.get_num_threads()))
    Trainer(task, Training(epochs=1), folder=tmp_path, threads="measured").run()
    # One step to measure, then those of the training.
    assert used == [before, *[2] * BATCHES]
    assert torch.get_num_threads() == before
    monkeypatch.setattr("regard.seq2seq.trainer.fastest_threads", lambda step: 1 / 0)
    again = Trainer(Line(), Training(epochs=1), folder=tmp_path, threads="measured")
    again.run(resume=True)
    assert again.standing.threads == 2, "a resumed training rounds as before"
    with pytest.raises(ValueError, match="threads must be a whole number of at least 1, got 0"):
        Trainer(Line(), Training(), threads=0)


def test_measuring_threads_leaves_the_training_alone() -> None:
    found = []
    for threads in (None, "measured"):
        task = Line()
        Trainer(task, Training(epochs=2), threads=threads).run()
        found.append(weights(task.module))
    assert same(*found)


def test_the_fastest_number_of_threads_is_chosen_and_fewer_if_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.seq2seq import thread_choice

    clock = [0.0]
    monkeypatch.setattr(thread_choice, "perf_counter", lambda: clock[0])
    for cost, chosen in (({1: 8.0, 2: 4.0, 4: 3.9}, 2), ({1: 1.0, 2: 20.0, 4: 30.0}, 1), ({1: 9.0, 2: 5.0, 4: 2.0}, 4)):

        def step(cost: dict[int, float] = cost) -> None:
            clock[0] += cost.get(torch.get_num_threads(), 0.0)

        with torch_threads(4):
            assert thread_choice.fastest_threads(step) == chosen
    with torch_threads(1):
        assert thread_choice.fastest_threads(lambda: 1 / 0) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops(tmp_path: Path, number: int) -> None:
    before = signal.getsignal(number)
    first = Line(hook=lambda call: os.kill(os.getpid(), number) if call == 4 else None)
    assert trained(first, tmp_path).ended == "interrupted"
    assert (tmp_path / CHECKPOINT).exists()
    assert signal.getsignal(number) is before


def test_tensorboard_is_written_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path / "tensorboard")

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            written.append(("closed", 0.0, 0))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=SummaryWriter))
    outcome = Trainer(Line(), Training(epochs=2), folder=tmp_path, tensorboard=True).run()
    assert [one[1:] for one in written if one[0] == "loss/validation"] == [
        (outcome.validations[0], BATCHES),
        (outcome.validations[1], 2 * BATCHES),
    ]
    assert {one[0] for one in written} == {"loss/train", "learning_rate", "loss/validation", "closed"}
    assert written[-1][0] == "closed"
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match="TensorBoard logs need tensorboard; run pip install tensorboard"):
        Trainer(Line(), Training(), folder=tmp_path, tensorboard=True)
    with pytest.raises(ValueError, match="tensorboard=True needs folder"):
        Trainer(Line(), Training(), tensorboard=True)

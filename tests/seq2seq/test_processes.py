"""Two processes by gloo learn what one learns from the same batches, and resume."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.seq2seq.checkpoints import load
from regard.seq2seq.pair_training import Lesson, learn
from regard.seq2seq.processes import Processes
from regard.seq2seq.trainer import CHECKPOINT, Trainer
from regard.seq2seq.training_settings import Training
from regard.seq2seq.transformer import TransformerArchitecture
from regard.seq2seq.translator import Translator
from support.trainings import Line, words

TESTS = Path(__file__).parents[1]
# An uneven number of batches: the last step of an epoch has one, for two processes.
SETTINGS = {
    "architecture": TransformerArchitecture(16, 16, 1, 2, dropout=0.0),
    "lesson": Lesson("characters", batch_size=32, label_smoothing=0.0),
    "training": Training(3, 5e-3, warmup=3, accumulate=2, patience=9),
}
PROGRAM = f"""
import os, sys
sys.path.insert(0, {str(TESTS)!r})
import torch
torch.set_num_threads(1)
from seq2seq.test_processes import SETTINGS
from regard.seq2seq.pair_training import learn
from regard.seq2seq.processes import process_group
from support.trainings import words
with process_group("cpu"):
    learn(*words(), **SETTINGS, folder=sys.argv[1], resume=sys.argv[2] == "resume", every=0.0)
"""


def together(folder: Path, how: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    shared["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, str(folder), how],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for one in processes:
        _, err = one.communicate(timeout=180)
        assert one.returncode == 0, err


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    alone, both = tmp_path / "one", tmp_path / "two"
    alone.mkdir()
    both.mkdir()
    one = learn(*words(), **SETTINGS, folder=alone)
    together(both, "anew")
    other = Translator.load(both / "model.regard")
    for name, part in one.translator.model.state_dict().items():
        torch.testing.assert_close(other.model.state_dict()[name], part, rtol=1e-3, atol=2e-4, msg=name)
    standing, tensors = load(both / CHECKPOINT, {**_settings(both)})
    assert standing["losses"] == pytest.approx(one.outcome.losses, rel=1e-4)
    assert standing["step"] == one.outcome.steps
    assert {"cpu", "cpu.1"} <= set(tensors["random"])
    before = (both / "model.regard").read_bytes()
    together(both, "resume")
    assert (both / "model.regard").read_bytes() == before, "a training that is over ends as it was"


def _settings(folder: Path) -> dict:
    from regard.data.sealed import read_sealed
    from regard.seq2seq.checkpoints import _KIND

    return read_sealed(folder / CHECKPOINT, _KIND)[0]["settings"]


def test_with_one_process_collective_operations_return_what_they_are_given() -> None:
    alone = Processes()
    assert (alone.rank, alone.count, alone.is_main) == (0, 1, True)
    assert alone.all_sum(2.0, 3.0) == [2.0, 3.0]
    assert alone.broadcast([1.0]) == [1.0]


def test_processes_must_divide_the_batches_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "__init__", lambda self: self.__dict__.update(rank=0, count=2))
    with pytest.raises(ValueError, match=r"accumulate must be a multiple of the 2 processes, .* got 3"):
        Trainer(Line(), Training(accumulate=3))

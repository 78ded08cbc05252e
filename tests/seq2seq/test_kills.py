"""A training killed at any moment leaves a checkpoint that loads, and resumed it ends with the same weights."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from regard.seq2seq.checkpoints import CheckpointError
from regard.seq2seq.translator import Translator
from support.soak import FULL
from support.trainings import same, taught

KILLS = 50 if FULL else 5
EPOCHS = 2
# Importing torch takes longer than the training: one process imports it, and forks for every training.
NURSERY = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch
torch.set_num_threads(1)
from support.trainings import taught
for line in sys.stdin:
    child = os.fork()
    if not child:
        code = 1
        try:
            taught(sys.argv[1], epochs={EPOCHS}, every=0.0, resume=line.strip() == "resume")
            code = 0
        finally:
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@contextmanager
def nursery(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def trained(process: subprocess.Popen[str], how: str, kill_after: float | None = None) -> int:
    """Exit code of one training, −9 if it was killed."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(how + "\n")
    process.stdin.flush()
    child = int(process.stdout.readline())
    if kill_after is not None:
        time.sleep(kill_after)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    return int(process.stdout.readline())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no kill -9 here")
def test_106_killed_at_random_moments(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    whole = taught(epochs=EPOCHS).translator.model.state_dict()
    checkpoint, model = tmp_path / "checkpoint.regard", tmp_path / "model.regard"
    with nursery(tmp_path) as process:
        # The first begins when torch is imported.
        assert trained(process, "anew") == 0
        began = time.monotonic()
        assert trained(process, "anew") == 0
        long = time.monotonic() - began
        assert same(Translator.load(model).model.state_dict(), whole)
        checkpoint.unlink()
        model.unlink()
        picks, kills = random.Random(0), 0
        while kills < KILLS:
            how = "resume" if checkpoint.exists() else "anew"
            code = trained(process, how, picks.uniform(0.0, 0.7 * long))
            # An unreadable checkpoint would end the next training with an error.
            assert code in (0, -signal.SIGKILL)
            kills += code != 0
            if code == 0:
                assert same(Translator.load(model).model.state_dict(), whole)
                checkpoint.unlink()
        assert trained(process, "resume" if checkpoint.exists() else "anew") == 0
    assert same(Translator.load(model).model.state_dict(), whole)


def test_a_checkpoint_half_written_is_not_one(tmp_path: Path) -> None:
    taught(tmp_path, epochs=1)
    content = (tmp_path / "checkpoint.regard").read_bytes()
    (tmp_path / "checkpoint.regard").write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError):
        taught(tmp_path, epochs=1, resume=True)

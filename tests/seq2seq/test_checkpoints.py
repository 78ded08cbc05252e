"""Checkpoints that something happened to: an error, never a training that goes on from something else (104 to 109)."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest
import torch

from regard.seq2seq.checkpoints import CheckpointError, load, save
from regard.seq2seq.trainer import CHECKPOINT
from support.trainings import taught

SETTINGS = {"epochs": 3, "unit": "words"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensors = {"model": {"a.weight": torch.arange(6.0).reshape(2, 3)}, "random": {"cpu": torch.get_rng_state()}}
    save(tmp_path / "c.regard", SETTINGS, {"step": 7}, tensors)
    return tmp_path / "c.regard"


def test_what_was_saved_is_loaded(path: Path) -> None:
    standing, tensors = load(path, SETTINGS)
    assert standing == {"step": 7}
    assert torch.equal(tensors["model"]["a.weight"], torch.arange(6.0).reshape(2, 3))
    assert torch.equal(tensors["random"]["cpu"], torch.get_rng_state())


def test_104_cut_short_anywhere(path: Path) -> None:
    content = path.read_bytes()
    for end in range(0, len(content), 97):
        path.write_bytes(content[:end])
        with pytest.raises(CheckpointError):
            load(path, SETTINGS)


def test_105_one_flipped_byte(path: Path) -> None:
    content, picks = path.read_bytes(), random.Random(0)
    for _ in range(100):
        damaged = bytearray(content)
        damaged[picks.randrange(len(content))] ^= 1 << picks.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load(path, SETTINGS)


def test_107_a_disk_that_is_full_leaves_the_old_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointError, match="no space left on device"):
        save(path, SETTINGS, {"step": 8}, {})
    monkeypatch.undo()
    assert path.read_bytes() == content
    assert [path] == list(path.parent.iterdir())


def test_108_another_kind_of_file(path: Path, tmp_path: Path) -> None:
    learned = taught()
    learned.translator.save(tmp_path / "m.regard")
    with pytest.raises(CheckpointError, match="is a zip file, but not a regard checkpoint"):
        load(tmp_path / "m.regard", SETTINGS)


def test_109_a_pickle_is_never_executed(path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return (Path.touch, (path.parent / "sprung",))

    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match="is not a regard checkpoint"):
        load(path, SETTINGS)
    assert not (path.parent / "sprung").exists()


@pytest.mark.parametrize("other", [{"epochs": 4, "unit": "words"}, {"epochs": 3}, {**SETTINGS, "lower": True}])
def test_a_checkpoint_of_other_settings_is_refused(path: Path, other: dict) -> None:
    with pytest.raises(CheckpointError, match="was written by a training with"):
        load(path, other)


def test_a_translator_resumes_only_with_its_own_pairs(tmp_path: Path) -> None:
    from regard.seq2seq.pair_training import learn
    from support.trainings import words

    taught(tmp_path, epochs=1)
    assert (tmp_path / CHECKPOINT).exists()
    train, valid = words(120)
    with pytest.raises(CheckpointError, match="was written by a training with"):
        learn(train, valid, folder=tmp_path, resume=True)

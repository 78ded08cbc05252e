"""Where model files may go and come from."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from regard.data import files
from regard.store.models import StoreError, load, load_with_metadata, save
from support.models import fitted


def test_what_is_there_stays_without_force(path: Path, tmp_path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(StoreError, match="already exists"):
        save(fitted(), path)
    assert path.read_text() == "precious"
    path.chmod(0o640)
    save(fitted(), path, force=True)
    assert load(path).bandwidth_ == 0.5
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_is_replaced_by_force_and_its_target_stays(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    path.symlink_to(target)
    with pytest.raises(StoreError, match="is a symbolic link"):
        save(fitted(), path)
    save(fitted(), path, force=True)
    assert not path.is_symlink()
    assert target.read_text() == "precious"


@pytest.mark.parametrize("force", [True, False])
def test_places_that_are_never_replaced(force: bool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for name, words in (
        ("pipe", "is a pipe"),
        ("device", "is a device"),
        (".", "is a directory"),
        ("absent/model", "there is no folder"),
        ("x" * 300, "cannot be written"),
        ("a\0b", "cannot be written"),
    ):
        place = tmp_path / name if name != "." else tmp_path
        with pytest.raises(StoreError, match=words):
            save(fitted(), place, force=force)
    assert sorted(os.listdir(tmp_path)) == ["device", "pipe"]


def test_a_name_taken_meanwhile_is_not_overwritten(path: Path, monkeypatch) -> None:
    real = os.fsync

    def meanwhile(descriptor: int) -> None:
        path.write_text("precious")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(StoreError, match="already exists"):
        save(fitted(), path)
    assert path.read_text() == "precious"


def without_links(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("links", [True, False])
def test_of_many_who_save_to_one_name_one_wins(links: bool, path: Path, monkeypatch) -> None:
    """All have written their bytes, and found the name free once more, before the first takes it."""
    count, model, check, mine = 16, fitted(), files.check_output, threading.local()
    together = threading.Barrier(count)

    def check_together(*given: object) -> None:
        check(*given)
        mine.checks = getattr(mine, "checks", 0) + 1
        if mine.checks <= 2:  # before writing and after; a third finds out who has the name
            together.wait(60)

    monkeypatch.setattr(files, "check_output", check_together)
    if not links:
        monkeypatch.setattr(os, "link", without_links)

    def attempt(number: int) -> str:
        try:
            save(model, path, metadata={"number": number})
        except StoreError as reason:
            return str(reason)
        return "saved"

    with ThreadPoolExecutor(count) as pool:
        outcomes = list(pool.map(attempt, range(count)))
    assert sorted(outcomes)[:-1] == [
        f"{path}: already exists; it is replaced only by force (--force, or force=True)"
    ] * (count - 1)
    assert load_with_metadata(path).metadata == {"number": outcomes.index("saved")}
    assert os.listdir(path.parent) == [path.name]


def test_a_name_that_cannot_be_taken_is_left_free(path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", without_links)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreError, match="no space left on device"):
        save(fitted(), path)
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is a directory"),
        (os.mkfifo, "is a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device"),
    ],
)
def test_only_regular_files_are_loaded(make, words: str, path: Path) -> None:
    make(path)
    with pytest.raises(StoreError, match=words):
        load(path)

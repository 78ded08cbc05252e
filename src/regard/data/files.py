"""Safe file access: only regular files are read, and files are written atomically.

All functions raise the error class of the caller, such as TableError or StoreError.
"""

from __future__ import annotations

import errno
import gzip
import os
import secrets
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

PathLike = str | os.PathLike[str]

# Errors of os.link on file systems without hard links (FAT, some network and container mounts).
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)


def open_regular(path: PathLike, error: type[ValueError]) -> BinaryIO:
    """An open regular file; directories, pipes and devices are refused without blocking."""
    path = Path(path)
    try:
        # Without O_NONBLOCK, opening a FIFO blocks until there is a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except OSError as reason:
        raise error(f"{path}: cannot be read ({_reason(reason)})") from None
    except ValueError:
        raise error(f"{str(path)!r}: not a file name") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        hint = "; redirect it to standard input and read from -" if stat.S_ISFIFO(mode) else ""
        raise error(f"{path}: is {_file_type(mode)}, not a regular file{hint}")
    return os.fdopen(descriptor, "rb")


@contextmanager
def opened(path: PathLike, error: type[ValueError]) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """A regular file, and its bytes, decompressed if its name ends in .gz; for "-" both are standard input."""
    if str(path) == "-":
        if sys.stdin is None:
            raise error("standard input is closed")
        yield sys.stdin.buffer, sys.stdin.buffer
        return
    with open_regular(path, error) as file:
        if not Path(path).name.lower().endswith(".gz"):
            yield file, file
            return
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as unzipped:
                yield file, cast(BinaryIO, unzipped)
        except (gzip.BadGzipFile, EOFError, zlib.error) as reason:
            raise error(f"{path}: is not a complete gzip file ({reason})") from None


def check_output(path: PathLike, force: bool, error: type[ValueError]) -> None:
    """Raise an error for a path that exists, unless ``force``, or is not a regular file.

    A symbolic link counts as existing; with ``force`` the link itself is replaced, never its target.
    """
    path = Path(path)
    if not path.name:
        raise error(f"{path}: is not a file name")
    try:
        here = path.lstat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise error(f"{path}: there is no folder {path.parent}") from None
        return
    except (OSError, ValueError) as reason:
        raise error(f"{path}: cannot be written ({_reason(reason)})") from None
    linked = stat.S_ISLNK(here.st_mode)
    with suppress(OSError):
        target = path.stat()
        if not stat.S_ISREG(target.st_mode):
            raise error(f"{path}: is {_file_type(target.st_mode)} and will not be replaced")
    if not force:
        what = "is a symbolic link" if linked else "already exists"
        raise error(f"{path}: {what}; it is replaced only by force (--force, or force=True)")


@contextmanager
def atomic_write(path: PathLike, *, force: bool, error: type[ValueError]) -> Iterator[BinaryIO]:
    """A file to write to, which gets its name when all of it is on the disk.

    The bytes go to a temporary file in the same folder, are synced, and then get the name in one step: of several
    writers without ``force`` exactly one succeeds, and the others raise. On any failure, including Ctrl-C, the
    temporary file is removed and an existing file is unchanged. So it is if the process is killed; then a hidden
    ``.regard-….part`` file may remain.
    """
    path = Path(path)
    check_output(path, force, error)
    part = path.parent / f".regard-{secrets.token_hex(8)}.part"
    try:
        with open(part, "x+b") as file:
            if path.is_file() and not path.is_symlink():
                os.chmod(part, stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        # Another process may have created the file in the meantime.
        check_output(path, force, error)
        if force:
            os.replace(part, path)
        elif not _take_name(part, path):
            check_output(path, force, error)
            raise error(f"{path}: was written by another process at the same time; nothing was changed")
    except BaseException as reason:
        _remove(part)
        if isinstance(reason, OSError):
            raise error(f"{path}: cannot be written ({_reason(reason)}); nothing was changed") from None
        raise
    _sync_folder(path.parent)


def _remove(part: Path) -> None:
    """Remove a file, even if Ctrl-C is pressed again."""
    while True:
        try:
            part.unlink(missing_ok=True)
        except KeyboardInterrupt:
            continue
        except OSError:
            pass
        return


def _take_name(part: Path, path: Path) -> bool:
    """Give a finished file a name in one step; False if the name exists.

    A hard link does that. On file systems without hard links the name is reserved by an empty file first, which the
    finished one then replaces: between these two steps a reader may find it empty.
    """
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    except OSError as reason:
        if reason.errno not in _NO_LINKS:
            raise
    else:
        part.unlink()
        return True
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    try:
        os.replace(part, path)
    except BaseException:
        _remove(path)
        raise
    return True


def _sync_folder(folder: Path) -> None:
    """Make the rename durable, if the system can sync folders."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    # The file has its name already: failing to sync the folder is not an error.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reason(reason: Exception) -> str:
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return str(text).lower()


def _file_type(mode: int) -> str:
    known = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    known |= dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")
    return known.get(stat.S_IFMT(mode), "a special file")

"""The ``program`` decorator: numba compilation with its own on-disk cache, and a notice when compiling takes time.

numba keys its cache by the file that defines a function, so editing a function it *calls* in another file leaves a
stale program behind. Here the key is a hash of all sources in this folder, of numba and of the CPU. numba also numbers
cache files in a shared index, where two processes that compile at the same time can give one number to two programs;
here each program has a file named by its own key, and there is no index.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import threading
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import llvmlite
import numba
from llvmlite import binding
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.serialize import dumps


@cache
def source_key() -> str:
    """Hash of everything that determines the compiled code."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    machine = (numba.__version__, llvmlite.__version__, binding.get_host_cpu_name(), sys.version)
    digest.update(repr((machine, binding.get_host_cpu_features().flatten())).encode())
    return digest.hexdigest()[:24]


def cache_folder() -> Path:
    """Folder of compiled programs: under NUMBA_CACHE_DIR if set, else the user's cache folder."""
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "regard" / source_key()


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Directs numba's cache to ``cache_folder()``."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._name = f"{Path(py_file).stem}.{py_func.__name__}"

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return source_key()

    def get_disambiguator(self) -> str:
        return self._name

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator | None:
        locator = cls(py_func, py_file)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator


class _Impl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _ProgramFiles:
    """One file per compiled program: a checksum, then the pickled pair (key, program).

    A file that is empty, truncated, damaged or of another key is ignored: the program is compiled again and its file
    replaced.
    """

    def __init__(self, folder: Path, function: str) -> None:
        self._folder = folder
        self._function = function

    def _path(self, key: object) -> Path:
        return self._folder / f"{self._function}.{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.program"

    def load(self, key: object) -> object | None:
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        checksum, payload = content[:32], content[32:]
        if hashlib.sha256(payload).digest() != checksum:
            return None
        found, data = pickle.loads(payload)
        return data if found == key else None

    def save(self, key: object, data: object) -> None:
        payload = dumps((key, data))
        path = self._path(key)
        unfinished = path.with_suffix(f".{uuid.uuid4().hex}")
        try:
            unfinished.write_bytes(hashlib.sha256(payload).digest() + payload)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


class _Cache(FunctionCache):  # type: ignore[misc]
    _impl_class = _Impl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _ProgramFiles(Path(self._cache_path), self._impl.filename_base)

    def save_overload(self, sig: object, data: object) -> None:
        # If the disk is full, the next process compiles again; this one is not affected.
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


_programs: set[str] = set()


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on first use, without the GIL, and cache the result on disk.

    Arithmetic is never reordered or contracted by the compiler: ties, masks and the exponential rely on it. Fused
    multiply-adds are requested explicitly.
    """
    dispatcher = numba.njit(nogil=True, error_model="numpy")(function)
    # Without a writable folder every process compiles for itself.
    with contextlib.suppress(RuntimeError):
        dispatcher._cache = _Cache(function)
    _programs.add(function.__qualname__)
    return dispatcher  # type: ignore[no-any-return]


class _CompileListener(event.Listener):  # type: ignore[misc]
    """Prints one notice per process if the first call has to compile at a terminal, and adds up the time taken."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.compiled: list[str] = []
        self._open: dict[int, list[float]] = {}
        self._shown = False

    def _name(self, ev: event.Event) -> str | None:
        name = getattr(getattr((ev.data or {}).get("dispatcher"), "py_func", None), "__qualname__", None)
        return name if name in _programs else None

    def on_start(self, ev: event.Event) -> None:
        name = self._name(ev)
        if name is None:
            return
        self._open.setdefault(threading.get_ident(), []).append(perf_counter())
        # Only at a terminal: piped output must not depend on the state of the cache.
        if not self._shown and sys.stderr is not None and sys.stderr.isatty():
            self._shown = True
            print(
                "regard: compiling programs for this machine; later calls and runs reuse them",
                file=sys.stderr,
                flush=True,
            )
        self.compiled.append(name)

    def on_end(self, ev: event.Event) -> None:
        if self._name(ev) is None:
            return
        # A program's callees compile inside it: only the outermost is counted.
        started = self._open[threading.get_ident()].pop()
        if not self._open[threading.get_ident()]:
            self.seconds += perf_counter() - started


notice = _CompileListener()
event.register("numba:compile", notice)

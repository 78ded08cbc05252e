"""The ``program`` decorator: numba with a cache that notices every change, and a word when compiling takes time.

numba's own cache is keyed by the file that defines a function, so editing a function it *calls* in another file
leaves a stale program behind. Here the key is a hash of all sources in this folder, of numba and of the CPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
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


@cache
def source_key() -> str:
    """Hash of everything that decides what the programs compile to."""
    digest = hashlib.sha256()
    # Programs for a GPU are another compiler's.
    for path in sorted(set(Path(__file__).parent.glob("*.py")) - set(Path(__file__).parent.glob("triton_*.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    machine = (numba.__version__, llvmlite.__version__, binding.get_host_cpu_name(), sys.version)
    digest.update(repr((machine, binding.get_host_cpu_features().flatten())).encode())
    return digest.hexdigest()[:24]


def cache_folder() -> Path:
    """Where compiled programs are kept: NUMBA_CACHE_DIR if set, else the user's cache folder."""
    root = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "regard" / source_key()


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Tells numba to keep programs in ``cache_folder()``."""

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


class _Cache(FunctionCache):  # type: ignore[misc]
    _impl_class = _Impl


_programs: set[str] = set()


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on first use, without the GIL, and keep the result for the next process.

    Arithmetic is never reordered or contracted behind our back: ties, masks and the exponential rely on it. Fused
    multiply-adds are asked for by name.
    """
    dispatcher = numba.njit(nogil=True, error_model="numpy")(function)
    # Where no folder can be written to, every process compiles for itself.
    with contextlib.suppress(RuntimeError):
        dispatcher._cache = _Cache(function)
    _programs.add(function.__qualname__)
    return dispatcher  # type: ignore[no-any-return]


class _Notice(event.Listener):  # type: ignore[misc]
    """Says once per process why the first call waits, and adds up how long compiling took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.compiled: list[str] = []
        self._open: dict[int, list[float]] = {}
        self._told = False

    def _name(self, ev: event.Event) -> str | None:
        name = getattr(getattr((ev.data or {}).get("dispatcher"), "py_func", None), "__qualname__", None)
        return name if name in _programs else None

    def on_start(self, ev: event.Event) -> None:
        name = self._name(ev)
        if name is None:
            return
        self._open.setdefault(threading.get_ident(), []).append(perf_counter())
        if not self._told:
            self._told = True
            print(
                "regard: compiling its programs for this machine; later calls and runs reuse them",
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


notice = _Notice()
event.register("numba:compile", notice)

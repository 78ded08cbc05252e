"""Lines of standard input as they arrive, and whether another one is there already."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from io import UnsupportedOperation
from typing import Any, cast

from regard.data.delimited import LONE_CARRIAGE_RETURN, lines_of
from regard.data.text_pairs import PairsError

_BLOCK = 1 << 16


class ArrivingLines:
    """Reads lines of a binary stream without waiting for more than the line asked for."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._buffer, self._ended = stream, b"", False
        try:
            self._descriptor: int | None = stream.fileno()
        except (UnsupportedOperation, AttributeError):
            self._descriptor = None

    def readline(self, limit: int) -> bytes:
        """The next line with its end, or its first ``limit`` bytes; empty at the end."""
        if self._descriptor is None:
            return cast(bytes, self._stream.readline(limit))
        while b"\n" not in self._buffer and len(self._buffer) < limit and not self._ended:
            self._receive(self._descriptor)
        end = self._buffer.find(b"\n") + 1 or len(self._buffer)
        line, self._buffer = self._buffer[: min(end, limit)], self._buffer[min(end, limit) :]
        return line

    def ready(self) -> bool:
        """Whether a line can be read without waiting."""
        if self._descriptor is None:
            return True
        while b"\n" not in self._buffer and not self._ended and _has_bytes(self._descriptor):
            self._receive(self._descriptor)
        return b"\n" in self._buffer or (self._ended and bool(self._buffer))

    def _receive(self, descriptor: int) -> None:
        received = os.read(descriptor, _BLOCK)
        self._buffer += received
        self._ended = not received


def arriving_blocks(most: int) -> Iterator[list[str]]:
    """Lines of standard input without their ends, in blocks of those that have arrived, at most ``most``."""
    if sys.stdin is None:
        raise PairsError("standard input is closed")
    stream = ArrivingLines(sys.stdin.buffer)
    block: list[str] = []
    # Each line is translated and dropped, so their number is not limited.
    for number, line in enumerate(lines_of(cast(Any, stream), "standard input", sys.maxsize), 1):
        text = line.removesuffix("\n").removesuffix("\r")
        if "\r" in text:
            raise PairsError(f"standard input: line {number}: {LONE_CARRIAGE_RETURN}")
        block.append(text)
        if len(block) == most or not stream.ready():
            yield block
            block = []
    if block:
        yield block


def _has_bytes(descriptor: int) -> bool:
    """Whether bytes or the end of the stream have arrived; False where the system cannot tell."""
    try:
        return bool(select.select([descriptor], [], [], 0.0)[0])
    except (OSError, ValueError):
        return False

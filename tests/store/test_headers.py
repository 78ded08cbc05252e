"""Headers of arrays, cut, changed and invented, in files whose checksums are right: all are refused by StoreError."""

from __future__ import annotations

import io
import random
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from regard.store import models as store
from regard.store.models import StoreError, load
from support.forgery import forged
from support.soak import FULL

CHANGES = 20_000 if FULL else 300
MAGIC = b"\x93NUMPY\x01\x00"
GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"


def with_header(text: bytes, data: bytes = b"\0" * 8, length: int | None = None) -> bytes:
    return MAGIC + (len(text) if length is None else length).to_bytes(2, "little") + text + data


# Each makes numpy's own reader raise another kind of exception, or evaluate what it should not.
HEADERS = {
    "cut in a bracket": "{'descr': '<f8', 'fortran_order': False, 'shape': (1,",
    "cut in a text": "{'descr': '<f8",
    "three quotes": "'''",
    "empty": "",
    "brackets without end": "(" * 9_000,
    "nested lists": "[" * 5_000 + "]" * 5_000,
    "many signs": "-" * 9_000 + "1",
    "no dict": "1",
    "unhashable key": "{[]: 1}",
    "NUL": "\0" + GOOD,
    "indented": "\n  " + GOOD,
    "long integer": GOOD.replace("(1,)", f"({'9' * 5_000},)"),
    "integer of another language": GOOD.replace("(1,)", "(1L,)"),
    "boolean size": GOOD.replace("(1,)", "(True,)"),
    "fractional size": GOOD.replace("(1,)", "(1.0,)"),
    "list as a shape": GOOD.replace("(1,)", "[1]"),
    "unknown dtype": GOOD.replace("<f8", "<q77"),
    "wide dtype": GOOD.replace("<f8", "<U999999999"),
    "odd width": GOOD.replace("<f8", "<f3"),
    "dtype of many fields": GOOD.replace("'<f8'", "[('a', '<f8')]"),
    "dtype with a comma": GOOD.replace("<f8", "f8,"),
    "numbers as a dtype": GOOD.replace("'<f8'", "1"),
    "old name of a dtype": GOOD.replace("<f8", "|a8"),
    "invalid escape": GOOD.replace("<f8", "\\d"),
    "two headers": GOOD + GOOD,
    "another key": GOOD.replace("descr", "descry"),
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("case", HEADERS)
def test_a_wrong_header_is_refused(case: str, mapped: bool, path: Path, content: bytes) -> None:
    path.write_bytes(forged(content, key_=with_header((HEADERS[case] + "\n").encode("latin-1"))))
    with pytest.raises(StoreError, match=r"model\.regard: "):
        load(path, mapped=mapped)


@pytest.mark.parametrize("length", [0, 1, 30, 65_535])
def test_a_wrong_length_of_a_header_is_refused(length: int, path: Path, content: bytes) -> None:
    path.write_bytes(forged(content, key_=with_header(GOOD.encode() + b"\n", length=length)))
    with pytest.raises(StoreError, match=r"fitted/key_\.npy has an unknown header"):
        load(path)


def test_random_headers_are_refused_or_harmless(path: Path, content: bytes) -> None:
    picks = random.Random(3)
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        array = old.read("fitted/key_.npy")
    end = array.index(b"\n") + 1
    text, data = array[len(MAGIC) + 2 : end], array[end:]
    pieces = [
        b"'",
        b"(",
        b")",
        b"{",
        b"}",
        b"[",
        b",",
        b"\\",
        b"\n",
        b"#",
        b"L",
        b"-",
        b"9" * 40,
        b"'''",
        b"\0",
        b"\xff",
    ]
    for _ in range(CHANGES):
        header = bytearray(text)
        for _ in range(picks.randrange(1, 4)):
            at, width = picks.randrange(len(header) + 1), picks.choice((0, 0, 1, 5, 60))
            header[at : at + width] = picks.choice((b"", *pieces))
        made = bytes(header) if picks.random() < 0.5 else bytes(header[: picks.randrange(len(header) + 1)])
        path.write_bytes(forged(content, key_=with_header(made, data)))
        # Any other exception than a StoreError fails the test; what loads has the shape that was saved.
        with suppress(StoreError):
            assert type(load(path)).__name__ in store.KINDS
            assert load(path).key_.shape == (50, 1)

"""Pairs of texts in memory and in files."""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import (
    Pairs,
    PairsError,
    dates,
    read_lines,
    read_pairs,
    read_parallel,
    reversal,
)

MULTI30K = Path(__file__).resolve().parents[3] / "shared" / "data" / "multi30k"


# ---- pairs in memory


def test_a_split_keeps_equal_sources_together_and_loses_nothing() -> None:
    pairs = reversal(4000, lengths=(1, 3))
    learn, held = pairs.split(0.25, seed=1)
    assert not set(learn.source) & set(held.source)
    rows = list(zip(pairs.source, pairs.target, pairs.alignment, strict=True))
    both = [row for part in (learn, held) for row in zip(part.source, part.target, part.alignment, strict=True)]
    assert sorted(both) == sorted(rows)
    assert 0.2 < len(held) / len(pairs) < 0.3
    assert (learn, held) == pairs.split(0.25, seed=1)
    assert held != pairs.split(0.25, seed=2)[1]
    # More pairs move none to the other side.
    assert set(pairs.take(range(1000)).split(0.25, seed=1)[1].source) <= set(held.source)


def test_a_split_by_target_holds_a_date_out_in_every_format() -> None:
    learn, held = dates(3000, years=[2020, 2021]).split(0.2, by="target")
    assert not set(learn.target) & set(held.target)
    assert not set(learn.source) & set(held.source)
    assert len(held) > 300


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share must be strictly between 0 and 1"):
        reversal(2).split(share)
    with pytest.raises(ValueError, match="by must be 'source' or 'target', got 'both'"):
        reversal(2).split(0.5, by="both")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((("a",), ()), "source has 1 texts, target has 0"),
        ((("a",), ("b",), ()), "alignment has 0 rows, target has 1 texts"),
        ((("a",), ("bc",), ((0,),)), "alignment of pair 1 has 1 positions, its target 2"),
        ((("a", "a"), ("b", "b"), ((0,), (1,))), "alignment of pair 2 must be between -1 and 0, got 1 to 1"),
        ((("a",), ("b",), ((-2,),)), "alignment of pair 1 must be between -1 and 0, got -2 to -2"),
    ],
)
def test_pairs_that_disagree_are_refused(given, words: str) -> None:
    with pytest.raises(PairsError, match=re.escape(words)):
        Pairs(*given)


def test_pairs_may_be_none() -> None:
    assert len(Pairs((), ())) == 0
    assert len(Pairs(("",), ("",), ((),))) == 1


# ---- pairs in files


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["fra.txt", "pairs.tsv", "pairs.tsv.gz", "noending"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_the_book_s_form_is_read(tmp_path: Path, name: str, end: str, bom: str) -> None:
    lines = ["Go.\tVa !\tCC-BY 2.0 #1", "Hi.\tSalut\u202f!", '"No"\t "Non" \t', "猫 \u2028x\tchat"]
    path = written(tmp_path, name, (bom + end.join(lines) + end + end).encode())
    pairs = read_pairs(path)
    assert pairs.source == ("Go.", "Hi.", '"No"', "猫 \u2028x")
    assert pairs.target == ("Va !", "Salut\u202f!", '"Non"', "chat")
    assert pairs.alignment is None


def test_parallel_files_are_read_line_by_line(tmp_path: Path) -> None:
    source = written(tmp_path, "a.de", "\ufeffEin Hund\r\n zwei\tKatzen \r\n".encode())
    target = written(tmp_path, "a.en.gz", b"a dog\ntwo cats\n\n\n")
    pairs = read_parallel(source, target)
    assert pairs == Pairs(("Ein Hund", "zwei\tKatzen"), ("a dog", "two cats"))


BAD_LINES = [
    (b"", "is empty"),
    (b"\n\r\n  \n", "is empty"),
    (b"a\tb\n\nc\td\n", "line 2 is blank, but text follows it"),
    (b"a\tb\nc\n", "line 2 must be source<TAB>target or source<TAB>target<TAB>attribution, got 0 tabs"),
    (b"a\tb\tc\td\n", "line 1 must be source<TAB>target or source<TAB>target<TAB>attribution, got 3 tabs"),
    (b"a\tb\n \tc\n", "line 2: the source is empty"),
    (b"a\t \tc\n", "line 1: the target is empty"),
    (b"a\tb\n\x00c\td\n", "line 2 has a NUL byte"),
    (b"a\tb\nc\t\xe9t\xe9\n", "line 2: byte 0xe9 is not UTF-8"),
    (b"a\t\xed\xa0\x80\n", "line 1: byte 0xed is not UTF-8"),
    ("a\tb\n".encode("utf-16"), "is UTF-16 text; save the file as UTF-8"),
    ("a\tb\n".encode("utf-32"), "is UTF-32 text; save the file as UTF-8"),
    (b"a\tb\rc\td\r", "line 1: a carriage return without a line feed"),
    (gzip.compress(b"a\tb\n", mtime=0), "is a gzip file; its name must end in .gz"),
    (b"a\t" + b"b" * (1 << 20), "line 1 is longer than 1,048,576 bytes"),
]


@pytest.mark.parametrize(("content", "words"), BAD_LINES)
def test_lines_that_cannot_be_used_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = written(tmp_path, "t.tsv", content)
    with pytest.raises(PairsError, match=re.escape(f"{path}: {words}")):
        read_pairs(path)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (b"a\nb\nc\n", b"a\nb\n", "s.txt has 3 lines, .*t.txt has 2"),
        (b"a\n", b"", "t.txt: is empty"),
        (b"a\n\nc\n", b"a\nb\nc\n", "s.txt: line 2 is blank"),
        (b"a\nb\n", b"a\n\xff\n", "t.txt: line 2: byte 0xff is not UTF-8"),
    ],
)
def test_parallel_files_that_do_not_match_are_refused(tmp_path: Path, source: bytes, target: bytes, words: str) -> None:
    paths = written(tmp_path, "s.txt", source), written(tmp_path, "t.txt", target)
    with pytest.raises(PairsError, match=words):
        read_parallel(*paths)


def test_files_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(PairsError, match="no such file"):
        read_pairs(tmp_path / "none.tsv")
    with pytest.raises(PairsError, match="is a directory, not a regular file"):
        read_lines(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PairsError, match="is a pipe, not a regular file"):
        read_lines(tmp_path / "pipe")
    with pytest.raises(PairsError, match="only one of source and target can be standard input"):
        read_parallel("-", "-")


def test_bombs_and_broken_gzip_files_are_refused(tmp_path: Path) -> None:
    bomb = written(tmp_path, "bomb.gz", b"a\tb\n" * 500_000)
    with pytest.raises(PairsError, match="decodes to more than 1,000,000 bytes, the limit"):
        read_pairs(bomb, max_bytes=1_000_000)
    whole = bomb.read_bytes()
    for content in (whole[: len(whole) // 2], b"a\tb\n", whole[:-8] + b"\0" * 8):
        bomb.write_bytes(content)
        with pytest.raises(PairsError, match="is not a complete gzip file"):
            read_pairs(bomb)


def test_standard_input(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"un\n\ndeux\r\n")))
    assert read_lines("-") == ("un", "", "deux")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\nc\n")))
    with pytest.raises(PairsError, match="standard input: line 2 must be source<TAB>target"):
        read_pairs("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(PairsError, match="standard input is closed"):
        read_lines("-")


TEXTS = st.text(st.characters(exclude_characters="\0\r\n\t", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8))
def test_any_texts_come_back(tmp_path_factory, rows) -> None:
    rows = [(f"a{source}a", f"b{target}b") for source, target in rows]
    folder = tmp_path_factory.mktemp("fuzz")
    tabbed = written(folder, "t.tsv", "".join(f"{source}\t{target}\n" for source, target in rows).encode())
    sides = [
        written(folder, name, "\n".join(row[side] for row in rows).encode()) for side, name in enumerate(("s", "t.gz"))
    ]
    assert read_pairs(tabbed) == read_parallel(*sides) == Pairs(*zip(*rows, strict=True))


@given(st.binary(max_size=100), st.sampled_from(["t.tsv", "t.tsv.gz"]))
def test_any_bytes_give_pairs_or_an_error_that_names_the_file(tmp_path_factory, content: bytes, name: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(content)
    message = str(path)
    try:
        pairs = read_pairs(path)
        assert all(text.strip() == text != "" for side in (pairs.source, pairs.target) for text in side)
    except PairsError as error:
        message = str(error)
    assert str(path) in message


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="multi30k is not beside the checkout")
def test_multi30k_is_read() -> None:
    pairs = read_parallel(MULTI30K / "val.de.gz", MULTI30K / "val.fr.gz")
    assert len(pairs) == 1014

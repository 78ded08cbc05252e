"""The pages about sequence to sequence: their code runs, and the commands they show have the options they name."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from regard.cli import main
from regard.seq2seq import date_model

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("seq2seq.md", "seq2seq.zh.md")


def read(name: str) -> str:
    if not (DOCS / name).exists():
        pytest.skip("the docs are not beside these tests")
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_the_page_runs(name, tmp_path, monkeypatch):
    text = read(name)
    monkeypatch.chdir(tmp_path)
    for constant, value in {"PAIRS": 300, "VALID": 30, "EPOCHS": 1}.items():
        monkeypatch.setattr(date_model, constant, value)
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    assert sorted(os.listdir(tmp_path)) == ["alignment.png", "dates.pt2"]


@pytest.mark.parametrize("name", PAGES)
def test_commands_have_the_options_named(name, capfd):
    lines = re.findall(r"regard translate (\w+) (.*)", "\n".join(re.findall(r"```sh\n(.*?)```", read(name), re.S)))
    assert {command for command, _ in lines} == {"train", "run", "eval", "align"}
    for command, rest in lines:
        assert main(["translate", command, "--help"]) == 0
        printed = capfd.readouterr().out
        for option in re.findall(r"--[\w-]+", rest.split("#")[0]):
            assert option in printed, (command, option)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", read(name)):
        assert (DOCS / target).exists(), target

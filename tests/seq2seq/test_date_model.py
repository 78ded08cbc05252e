"""The date model: what it learns from, that a seed is a model, and that Ctrl-C leaves nothing half done."""

from __future__ import annotations

import signal

import pytest
import torch

from regard.seq2seq import date_model


@pytest.fixture(autouse=True)
def few(monkeypatch):
    for name, value in {"PAIRS": 400, "VALID": 40, "EPOCHS": 1}.items():
        monkeypatch.setattr(date_model, name, value)


@pytest.mark.parametrize("seed", [0, 7])
def test_no_text_is_in_two_parts(seed):
    train, valid, test = (set(pairs.source) for pairs in date_model.date_pairs(seed))
    assert not train & valid
    assert not train & test
    assert not valid & test
    assert len(train) > 350
    assert min(len(valid), len(test)) > 15


def test_a_seed_is_a_model_whatever_the_threads():
    before = torch.get_num_threads()
    states = []
    for seed, threads in ((0, 2), (0, 1), (1, 1)):
        torch.set_num_threads(threads)
        states.append(date_model.learn_dates(seed).translator.model.state_dict())
        assert torch.get_num_threads() == threads, "left as it was found"
    torch.set_num_threads(before)
    same, other = (all(torch.equal(states[0][name], found[name]) for name in found) for found in states[1:])
    assert same
    assert not other


def test_ctrl_c_is_ctrl_c():
    with pytest.raises(KeyboardInterrupt):
        date_model.learn_dates(watch=lambda _: signal.raise_signal(signal.SIGINT))


def test_progress_is_reported():
    heard = []
    date_model.learn_dates(watch=heard.append)
    assert heard[-1].step == heard[-1].steps

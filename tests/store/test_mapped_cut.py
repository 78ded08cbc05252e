"""A mapped file that is cut short or written to: every use of its model is an error, and no signal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.store.models import StoreError
from support.models import fitted

# In a process of its own: reading beyond the end of a mapped file ends it by SIGBUS.
EVERY_USE = r"""
import copy, inspect, json, os, pickle, sys, warnings
import numpy as np
import regard

warnings.simplefilter("ignore")
folder = sys.argv[1]
X = np.random.default_rng(0).normal(size=(8, 2))
y = X[:, 0] - X[:, 1]
WIDE = [1.0, 1.0]
KINDS = [
    regard.AveragePoolingRegressor(), regard.NearestKeyRegressor(), regard.NadarayaWatsonRegressor(bandwidth=WIDE),
    regard.LocalLinearRegressor(bandwidth=WIDE), regard.NadarayaWatsonClassifier(bandwidth=WIDE),
    regard.KernelRegressor(), regard.KernelClassifier(), regard.AttentionRegressor(max_iter=1),
]
for estimator in KINDS:
    labels = hasattr(estimator, "predict_proba")
    target = (y > 0).astype(int) if labels else y
    path = os.path.join(folder, type(estimator).__name__)
    regard.save(estimator.fit(X, target), path)
    model = regard.load(path, mapped=True)
    assert np.isfinite(model.predict(X[:3])).all()
    uses = {"save": lambda: regard.save(model, path + " again"), "pickle": lambda: pickle.dumps(model)}
    for name, kind in inspect.getmembers(type(model)):
        if name.startswith(("_", "get_", "set_")) or name == "fit":
            continue
        if isinstance(kind, property):
            uses[name] = lambda name=name: getattr(model, name)
        elif callable(kind) and hasattr(model, name):
            arguments = {"X": X[:3], "y": target[:3], "multiples": [1.0], "ids": [0], "q": 0.5, "forget": [0]}
            taken = [
                arguments[one.name]
                for one in inspect.signature(getattr(model, name)).parameters.values()
                if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
            ]
            uses[name] = lambda name=name, taken=taken: getattr(model, name)(*taken)
    os.truncate(path, 0)
    for name, use in uses.items():
        print(json.dumps([type(model).__name__, name]), flush=True)
        try:
            use()
            outcome = "answered"
        except Exception as reason:
            outcome = f"{type(reason).__name__}: {reason}"
        print(json.dumps(outcome), flush=True)
"""


def test_every_use_of_a_model_whose_file_was_cut_is_an_error(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EVERY_USE, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0, (lines[-1:], ended.stderr)
    asked = dict(zip(map(tuple, lines[::2]), lines[1::2], strict=True))
    assert len(asked) > 80
    refused = ("bytes since it was mapped", "a mixture of heads has no single score")
    wrong = {use: outcome for use, outcome in asked.items() if not any(words in outcome for words in refused)}
    assert wrong == {}


@pytest.fixture
def mapped(path: Path):
    regard.save(fitted(), path)
    return regard.load(path, mapped=True)


def test_a_file_written_to_in_place_is_refused(path: Path, mapped) -> None:
    content = path.read_bytes()
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(0, 0))
    with pytest.raises(StoreError, match="was modified since it was mapped; load it again"):
        mapped.predict([[1.0]])


@pytest.mark.parametrize("change", ["replaced", "removed", "moved"])
def test_a_file_that_lost_its_name_is_still_there(change: str, path: Path, mapped) -> None:
    expected = fitted().predict([[1.0]])
    if change == "replaced":
        regard.save(regard.AveragePoolingRegressor().fit([[0.0]], [5.0]), path, force=True)
    elif change == "removed":
        path.unlink()
    else:
        path.rename(path.with_name("other"))
    assert np.array_equal(mapped.predict([[1.0]]), expected)


def test_a_model_that_was_fitted_anew_needs_no_file(path: Path, mapped) -> None:
    mapped.fit([[0.0], [1.0]], [1.0, 2.0])
    os.truncate(path, 0)
    assert np.isfinite(mapped.predict([[0.5]])).all()

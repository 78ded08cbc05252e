"""``import regard`` stays light, and each step further loads only what it needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    "sklearn",
    "numba",
    "llvmlite",
    "torch",
    "matplotlib",
    "dask",
    "polars",
    "pandas",
    "pyarrow",
    "typer",
    "rich",
    "starlette",
    "uvicorn",
    "scipy",
    "narwhals",
    "onnx",
)

#        code                                                                            what may be loaded
STEPS = [
    ("import regard", ()),
    ("import regard; dir(regard); regard.__version__; regard.__all__", ()),
    ("import regard; regard.scores.Gaussian(2.0); regard.pool; regard.Pooled", ()),
    ("from regard import pool; from regard.scores import Gaussian; pool([0.0], [1.0], [2.0], Gaussian())", ()),
    ("import regard; regard.explain_plan([[0.0]] * 999, [[0.0]] * 999, [0.0] * 999, regard.scores.Gaussian())", ()),
    ("import regard; regard.attention_weights([0.0], [1.0], regard.scores.Nearest())", ()),
    ("from regard import pool_batches, scores; pool_batches([0.0], [([1.0], [2.0])], scores.Gaussian())", ()),
    ("from regard.data import notes; notes()", ()),
    # scikit-learn's callbacks load rich where it is installed.
    ("from regard import NadarayaWatsonRegressor", ("sklearn", "scipy", "narwhals", "pandas", "pyarrow", "rich")),
]


def loaded_by(code: str) -> set[str]:
    report = f"import json, sys; print(json.dumps(sorted(set({HEAVY!r}) & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(("code", "allowed"), STEPS)
def test_what_is_loaded(code, allowed):
    assert loaded_by(code) <= set(allowed)


def test_the_check_finds_what_is_loaded():
    assert "scipy" in loaded_by("import scipy")


def test_an_unknown_name_is_an_attribute_error():
    import regard

    with pytest.raises(AttributeError, match="'regard' has no attribute 'nothing'"):
        _ = regard.nothing
    assert set(regard._PUBLIC) <= set(dir(regard))

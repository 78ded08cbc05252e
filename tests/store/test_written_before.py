"""Model files written by earlier code still load, and answer as they did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import regard

FOLDER = Path(__file__).parent / "written_before"
ANSWERS = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))
QUERIES = np.array(ANSWERS.pop("queries"))


@pytest.mark.parametrize("mapped", [False, True], ids=["in memory", "mapped"])
@pytest.mark.parametrize("name", ANSWERS)
def test_files_of_earlier_code_load(name: str, mapped: bool) -> None:
    model = regard.load(FOLDER / f"{name}.regard", mapped=mapped)
    found = model.predict_proba(QUERIES) if "classifier" in name else model.predict(QUERIES)
    np.testing.assert_allclose(found, ANSWERS[name], rtol=1e-10)
    model.explain(QUERIES[:2])
    if hasattr(model, "predict_interval"):
        assert np.isfinite(model.predict_interval(QUERIES)).all()

"""Pickle and joblib, as scikit-learn users expect them: every fitted model comes back and answers the same."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import regard
from support.models import FRAME, MODELS, NUMBERS, QUERIES, X

COLOURS = np.array(["red", "green", None, "blue"], object)
TABLE = pandas.DataFrame({"size": X[:, 0], "colour": COLOURS[np.arange(40) % 4], "hour": np.arange(40) % 24.0})
WHOLE = TABLE.fillna({"colour": "red"})
FITTED: dict[str, tuple[Any, Any]] = {
    **{name: (make, None) for name, make in MODELS.items()},
    "mixed table": (lambda: regard.NadarayaWatsonRegressor(bandwidth=0.3).fit(WHOLE, NUMBERS), WHOLE),
    "mixed line": (
        lambda: regard.LocalLinearRegressor({"hour": ("periodic", 24)}, bandwidth=0.3).fit(WHOLE, NUMBERS),
        WHOLE,
    ),
    "gaps": (lambda: regard.NadarayaWatsonRegressor(bandwidth=0.3, missing="ignore").fit(TABLE, NUMBERS), TABLE),
    "mixed classes": (
        lambda: regard.NadarayaWatsonClassifier(bandwidth=0.3, calibrate=True).fit(WHOLE, NUMBERS > 0),
        WHOLE,
    ),
    "heads of a mixed table": (lambda: regard.KernelRegressor().fit(WHOLE, NUMBERS), WHOLE),
    "calibrated": (lambda: regard.KernelClassifier(calibrate=True).fit(X, np.where(NUMBERS > 0, "up", "数")), None),
    "adaptive": (lambda: regard.NadarayaWatsonRegressor(bandwidth="adaptive").fit(X, NUMBERS), None),
}
WAYS = {
    "pickle": lambda model, path: pickle.loads(pickle.dumps(model)),
    "oldest pickle": lambda model, path: pickle.loads(pickle.dumps(model, 2)),
    "joblib": lambda model, path: joblib.load(joblib.dump(model, path)[0]),
    "joblib, compressed": lambda model, path: joblib.load(joblib.dump(model, path, compress=3)[0]),
    "joblib, mapped": lambda model, path: joblib.load(joblib.dump(model, path)[0], mmap_mode="r"),
    "deepcopy": lambda model, path: copy.deepcopy(model),
}


@pytest.mark.parametrize("case", FITTED)
def test_every_model_comes_back_by_every_way(case: str, tmp_path: Path, light_search: None) -> None:
    make, query = FITTED[case]
    model = make()
    if query is None:
        query = pandas.DataFrame(QUERIES, columns=FRAME.columns) if hasattr(model, "feature_names_in_") else QUERIES
    expected = model.predict(query), model.attend(query)
    for way, through in WAYS.items():
        back = through(model, tmp_path / "model.joblib")
        assert type(back) is type(model), way
        if (
            way == "joblib, mapped" and expected[0].dtype.kind == "f"
        ):  # arrays of another class may be pooled another way
            assert np.allclose(back.predict(query), expected[0], rtol=1e-14, atol=1e-14)
            continue
        assert np.array_equal(back.predict(query), expected[0]), way
        assert np.array_equal(back.attend(query), expected[1]), way
        if hasattr(model, "classes_"):
            assert np.array_equal(back.predict_proba(query), model.predict_proba(query)), way
    with pytest.raises(NotFittedError):
        clone(back).predict(query)


@pytest.mark.parametrize("case", ["mixed table", "mixed line", "gaps", "mixed classes", "heads of a mixed table"])
def test_saved_too(case: str, tmp_path: Path, light_search: None) -> None:
    make, query = FITTED[case]
    model = make()
    regard.save(model, tmp_path / "m.regard")
    for mapped in (False, True):
        back = regard.load(tmp_path / "m.regard", mapped=mapped)
        assert np.array_equal(back.predict(query), model.predict(query))
        assert np.array_equal(back.attend(query), model.attend(query))


def test_a_pickle_of_a_mapped_model_needs_no_file(tmp_path: Path) -> None:
    model = MODELS["number"]()
    regard.save(model, tmp_path / "m.regard")
    pickled = io.BytesIO()
    pickle.dump(regard.load(tmp_path / "m.regard", mapped=True), pickled)
    (tmp_path / "m.regard").unlink()
    assert np.array_equal(pickle.loads(pickled.getvalue()).predict(QUERIES), model.predict(QUERIES))

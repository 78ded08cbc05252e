"""Does a change of the code change an answer? Record every estimator's answers before, compare bit for bit after.

    python benchmarks/same_answers.py record before.npz
    python benchmarks/same_answers.py compare before.npz

Every problem is a small table, an estimator and everything that it says: predictions, weights, effects, intervals,
explanations, left-out answers, what was learned, and its answers after being saved and loaded.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas

import regard

rng = np.random.default_rng(20)
X, Q = rng.normal(size=(160, 3)), 1.4 * rng.normal(size=(23, 3))
y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=len(X))
Y = np.column_stack([y, np.cos(X[:, 2])])
labels = np.digitize(y, [-0.3, 0.6])
repeats, importances = rng.integers(0, 4, len(X)), rng.random(len(X))
groups = rng.integers(0, 40, len(X))


def table(rows: np.ndarray, gaps: bool) -> pandas.DataFrame:
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"])
    frame["town"] = np.array(["up", "down", "strange"])[np.digitize(rows[:, 1], [-0.5, 0.5])]
    if gaps:
        frame.loc[::9, "a"] = np.nan
    return frame


def streamed() -> Any:
    model = regard.NadarayaWatsonRegressor(bandwidth=0.4).partial_fit(X[:60], y[:60])
    return model.partial_fit(X[60:], y[60:], window=90, forgetting=0.99).forget([100, 101, 130])


NW, LL = regard.NadarayaWatsonRegressor, regard.LocalLinearRegressor
PROBLEMS: dict[str, Callable[[], Any]] = {
    "average": lambda: regard.AveragePoolingRegressor().fit(X, y),
    "nearest": lambda: regard.NearestKeyRegressor().fit(X, Y, importances),
    "number": lambda: NW(bandwidth=0.5).fit(X, y),
    "compact": lambda: NW(kernel="epanechnikov", bandwidth=0.7).fit(X, Y),
    "compact, nan": lambda: NW(kernel="tricube", bandwidth=[0.5, np.inf, 0.8], empty="nan").fit(X, y, repeats),
    "rule": lambda: NW(bandwidth="silverman").fit(X, y),
    "loo": lambda: NW(random_state=0).fit(X, y, importances),
    "loo, groups, float32": lambda: NW().fit(X.astype(np.float32), y, groups=groups),
    "aicc": lambda: NW(bandwidth="aicc").fit(X, y),
    "full metric": lambda: NW(metric="full").fit(X, y, repeats),
    "adaptive": lambda: NW(bandwidth="adaptive").fit(X, y),
    "absolute": lambda: NW(loss="absolute").fit(X, y),
    "recipe": lambda: NW(optimizer="sgd", metric="scalar", random_state=3).fit(X, y),
    "line": lambda: LL(bandwidth=0.6).fit(X, Y),
    "line, learned": lambda: LL(ridge="loo").fit(X, y, repeats),
    "line, adaptive": lambda: LL(bandwidth="adaptive", kernel="biweight").fit(X, y),
    "line, Laplace, float32": lambda: LL(kernel="laplace", bandwidth=0.6).fit(X.astype(np.float32), y, importances),
    "stream": streamed,
    "heads": lambda: regard.KernelRegressor().fit(X, y, importances),
    "heads, two targets": lambda: regard.KernelRegressor(random_state=1).fit(X, Y, groups=groups),
    "mixed": lambda: NW().fit(table(X, False), y),
    "mixed with gaps": lambda: NW(missing="ignore").fit(table(X, True), y),
    "line, gaps": lambda: LL(missing="ignore", bandwidth=0.8).fit(np.where(X > 2.0, np.nan, X), y),
    "heads, mixed with gaps": lambda: regard.KernelRegressor(missing="ignore").fit(table(X, True), y),
    "classes": lambda: regard.NadarayaWatsonClassifier(calibrate=True).fit(X, labels, importances),
    "classes, prior": lambda: regard.NadarayaWatsonClassifier("boxcar", 0.5, empty="prior").fit(X, labels),
    "classes, heads": lambda: regard.KernelClassifier(calibrate=True).fit(X, labels),
    "additive": lambda: regard.AttentionRegressor("additive", max_iter=2, random_state=0).fit(X, y),
    "dot": lambda: regard.AttentionRegressor("dot", max_iter=2, random_state=0).fit(X, Y),
    "deep kernel": lambda: regard.AttentionRegressor(embed="mlp", max_iter=2, random_state=0).fit(X, y, repeats),
    "bandwidths by Adam": lambda: regard.AttentionRegressor(max_iter=2, random_state=0).fit(X, y),
}
#         name               how it is asked
METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "predict": lambda model, at: model.predict(at),
    "predict float32": lambda model, at: model.predict(at.astype(np.float32)) if isinstance(at, np.ndarray) else None,
    "predict_proba": lambda model, at: model.predict_proba(at),
    "predict_set": lambda model, at: model.predict_set(at),
    "attend": lambda model, at: model.attend(at),
    "attend top": lambda model, at: model.attend(at, top=4),
    "effective_weights": lambda model, at: model.effective_weights(at),
    "marginal_effects": lambda model, at: model.marginal_effects(at),
    "effect_errors": lambda model, at: model.effect_errors(at),
    "average_effects": lambda model, _: model.average_effects()[:2],
    "slopes": lambda model, at: model.slopes(at),
    "standard deviation": lambda model, at: model.predict(at, return_std=True),
    "local interval": lambda model, at: model.predict_interval(at),
    "conformal interval": lambda model, at: model.predict_interval(at, method="conformal"),
    "jackknife interval": lambda model, at: model.predict_interval(at, method="jackknife"),
    "quantiles": lambda model, at: model.predict_quantiles(at, [0.1, 0.5], smoothed=True),
    "standard_error": lambda model, at: model.standard_error(at),
    "standard_error np": lambda model, at: model.standard_error(at, "np"),
    "confidence_interval": lambda model, at: model.confidence_interval(at, method="bootstrap", random_state=0),
    "explain": lambda model, at: _explained(model.explain(at)),
    "drift": lambda model, at: list(model.drift(at, model.predict(at))[1:6]),
    "diagnose": lambda model, _: [x for x in model.diagnose() if not isinstance(x, str)],
    "loss_path": lambda model, _: list(model.loss_path([0.5, 1.0, 2.0])),
    "relevance": lambda model, _: model.feature_relevance_,
    "row_ids": lambda model, _: model.row_ids_,
    "w": lambda model, _: model.w_,
    "bandwidth": lambda model, _: model.bandwidth_,
    "loo_predictions": lambda model, _: model.loo_predictions_,
    "loo_score": lambda model, _: model.loo_score_,
    "residuals": lambda model, _: model.residuals_,
    "loaded": lambda model, at: _loaded(model).predict(at),
}


def _explained(found: Any) -> list[Any]:
    seen = (found.weight, found.mass, found.neighbours, found.nearness, found.square, found.score, found.distance)
    return [found.prediction, found.index, found.row, found.effective, *seen, found.far, found.effective_weights]


def _loaded(model: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        regard.save(model, Path(folder) / "model.regard")
        return regard.load(Path(folder) / "model.regard")


def _flat(found: Any) -> Iterator[np.ndarray]:
    if isinstance(found, list | tuple):
        for part in found:
            yield from _flat(part)
    elif found is not None:
        array = np.asarray(found)
        yield array.astype(str) if array.dtype == object else array


def answers() -> Iterator[tuple[str, np.ndarray]]:
    """Every answer by name; what an estimator does not have, or refuses, is recorded as the error's type."""
    for problem, fit in PROBLEMS.items():
        model = fit()
        at = table(Q, hasattr(model, "missing") and model.missing == "ignore") if "mixed" in problem else Q
        for method, ask in METHODS.items():
            try:
                found = ask(model, at)
            except Exception as error:  # whatever it is, it must stay the same
                found = type(error).__name__
            for number, part in enumerate(_flat(found)):
                yield f"{problem}/{method}/{number}", part


def main(verb: str, path: str) -> int:
    warnings.simplefilter("ignore")
    now = dict(answers())
    if verb == "record":
        np.savez_compressed(path, **now)
        print(f"{len(now)} answers of {len(PROBLEMS)} problems recorded")
        return 0
    before = np.load(path)
    wrong = sorted(before.files ^ now.keys())
    for name in sorted(set(before.files) & now.keys()):
        old, new = before[name], now[name]
        if old.dtype != new.dtype or old.shape != new.shape or old.tobytes() != new.tobytes():
            size = np.abs(old - new).max() if old.shape == new.shape and old.dtype.kind == "f" else "other"
            wrong.append(f"{name}: {old.dtype} {old.shape} now {new.dtype} {new.shape}, off by {size}")
    print(f"{len(now)} answers of {len(PROBLEMS)} problems: {len(wrong)} differ bit for bit", *wrong, sep="\n  ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""A process that forks in every order; run as a script it prints what each child came to, as JSON.

python tests/support/forking.py all     every case: fork first, after torch alone, after every case ran in the parent
python tests/support/forking.py late    only torch ran in the parent, and only the child imports regard
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

ENGINES = ("reference", "tiled", "pruned", "graded", "sorted", "spectral", "dask")
MODELS: dict[str, dict[str, Any]] = {
    "AveragePoolingRegressor": {},
    "NearestKeyRegressor": {},
    "NadarayaWatsonRegressor": {},
    "LocalLinearRegressor": {"bandwidth": 0.2},
    "NadarayaWatsonClassifier": {"bandwidth": 0.2},
    "KernelRegressor": {},
    "KernelClassifier": {},
    "AttentionRegressor": {"score": "additive", "max_iter": 1, "batch_size": 64, "random_state": 0},
}
CASES = (*ENGINES, "auto", "tensors", *MODELS)
# Cases that enter OpenMP.
OPENMP = ("auto", "tensors", "AttentionRegressor")
# Those that do so inside regard: tensors of a child that has not imported regard are a matter of torch alone.
LATE = ("auto", "AttentionRegressor")
# Rows, where not 3,000: enough for a second thread, and few where that takes long.
ROWS = {
    "reference": 500,
    "spectral": 40_000,
    "auto": 40_000,
    "tensors": 700,  # plain torch
    "KernelRegressor": 60,
    "KernelClassifier": 60,
    "AttentionRegressor": 300,
}
# Seconds after which a child that said nothing is one that hangs; compiling takes some.
LIMIT = 120.0

RNG = np.random.default_rng(0)
X = RNG.random((40_000, 2))
Y = np.sin(6.0 * X[:, 0]) + X[:, 1]


def answer(case: str) -> list[float]:
    """A few numbers that the case computes, on several threads where it can."""
    import regard
    from regard.scores import Epanechnikov, Gaussian

    x, y = X[: ROWS.get(case, 3000)], Y[: ROWS.get(case, 3000)]
    if case == "AttentionRegressor":
        import regard.nn.loo_training

        # An epoch of one pass over the rows.
        regard.nn.loo_training.STEPS_PER_EPOCH = 1
    if case in MODELS:
        y = (y > 1.0).astype(int) if case.endswith("Classifier") else y
        return getattr(regard, case)(**MODELS[case]).fit(x, y).predict(x)[:20].tolist()
    if case == "tensors":
        import torch

        x, y, case = torch.tensor(x), torch.tensor(y), "auto"
    x, score = (x[:, :1], Epanechnikov(w=20.0)) if case == "sorted" else (x, Gaussian(w=20.0))
    return regard.pool(x, x, y, score, engine=case).output[:20].tolist()


def run_torch() -> None:
    """Torch alone, on all of its threads."""
    import torch

    torch.ones(3000, 3000).exp().sum()


class Child:
    """A forked process that answers cases, one after the other."""

    def __init__(self, cases: Iterable[str]) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=self._run, args=(tuple(cases), theirs), daemon=True)
        self._process.start()
        theirs.close()

    @staticmethod
    def _run(cases: tuple[str, ...], pipe: Any) -> None:
        for case in cases:
            try:
                pipe.send(answer(case))
            except Exception as error:
                pipe.send(repr(error))

    def next(self) -> Any:
        """The next answer; "hangs" if none comes, and then the child is killed. Killed children have "died"."""
        try:
            return self._pipe.recv() if self._pipe.poll(LIMIT) else self._killed("hangs")
        except EOFError:
            return self._killed("died")

    def _killed(self, why: str) -> str:
        self._process.kill()
        self._process.join()
        return why


def main(what: str) -> dict[str, dict[str, Any]]:
    if what == "late":
        run_torch()
        late = Child(LATE)
        return {"late": {case: late.next() for case in LATE}}
    import numba  # noqa: F401
    import torch  # noqa: F401

    import regard.estimators  # noqa: F401

    first = Child(CASES)
    run_torch()
    after_torch = Child(OPENMP)
    return {
        "torch ran": {case: after_torch.next() for case in OPENMP},
        "parent": {case: answer(case) for case in CASES},
        "fork first": {case: first.next() for case in CASES},
        "parent ran": {case: Child([case]).next() for case in CASES},
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))

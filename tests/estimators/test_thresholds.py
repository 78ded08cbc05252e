"""Every value of every parameter of every estimator, with as many rows as any threshold in the code, and with one more.

The thresholds are read from the code (``thresholds.py``). On both sides of each a model is fitted and asked: its
answers are finite, near those of the other side, and those of the reference engine. Searches take a few steps only:
this is about sizes, not minima. The suite searches with every value around one threshold, and as usual around those up
to 2,000 rows; ``make soak`` goes on from there.
"""

from __future__ import annotations

from copy import copy
from math import isqrt

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

import regard
from regard.bandwidth import CRITERIA, OPTIMIZERS, RULES, adaptive, descent, head_search, multistart, subsampling
from regard.bandwidth.losses import LOSSES
from regard.bandwidth.parametrization import METRICS
from regard.engines import ENGINES
from regard.estimators.parameters import MISSING, SCORES
from regard.model import residuals
from regard.model.intervals import CONFIDENCE, ERRORS, INTERVALS
from regard.pooling.planner import SMALL
from regard.scores import KERNELS
from support.soak import FULL
from support.thresholds import thresholds

FOUND = thresholds()
# Few rows and a kernel that ends.
pytestmark = pytest.mark.filterwarnings("ignore:.* have no training row within the bandwidth:UserWarning")
# As rows, and as pairs of a query and a key; larger ones are of clusters and of GPUs.
ROWS = sorted({value for value in FOUND.values() if value <= subsampling.MAX_ROWS_ALL_KEYS})
PAIRS = sorted({value for value in FOUND.values() if value <= (1 << 27 if FULL else 1 << 21)})


def rows_of(room, most):
    """Thresholds of a room, as rows."""
    return sorted({value for name, value in FOUND.items() if name.startswith(room) and value <= most})


RNG = np.random.default_rng(512)
X = RNG.uniform(-2.0, 2.0, (max(ROWS) + 1, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * RNG.normal(size=len(X))
AT = RNG.uniform(-1.9, 1.9, (8, 2))

MODELS = {name: getattr(regard, name)() for name, module in regard._PUBLIC.items() if module == "regard.estimators"}
MODELS["AttentionRegressor"].set_params(hidden_size=4, embed_size=2, max_iter=1, random_state=0)
WITH_BANDWIDTH = [name for name, model in MODELS.items() if "bandwidth" in model.get_params()]
WITHOUT_SEARCH = ["AveragePoolingRegressor", "NearestKeyRegressor"]
GIVEN = 0.3

# Of fewer rows a whole search takes a moment; a short one may end in another minimum when one row more is there.
SEARCHED_WHOLE = 200

# Every value that a parameter has a name for, and some of those that are numbers. Engines of GPUs and of clusters have
# tests of their own.
VALUES = {
    "kernel": [*KERNELS],
    "bandwidth": [*CRITERIA, "adaptive", *RULES, "plugin", GIVEN, [GIVEN, np.inf]],
    "metric": METRICS,
    "optimizer": OPTIMIZERS,
    "empty": ["nearest", "prior", "nan", "raise"],
    "engine": ["auto", *(engine for engine in ENGINES if engine not in ("fused", "dask"))],
    "tol": [None, 0.0, 1e-6],
    "random_state": [None, 1],
    "device": ["cpu"],
    "missing": MISSING,
    "loss": LOSSES,
    "ridge": ["loo", 0.0, 0.1],
    "calibrate": [False, True],
    "score": SCORES,
    "embed": [None, "mlp"],
    "hidden_size": [8],
    "embed_size": [3],
    "max_iter": [2],
    "learning_rate": [0.02],
    "batch_size": [64, 512],
    "early_stopping": ["auto", True, False],
    "validation_fraction": [0.2],
    "n_iter_no_change": [1],
    "progress": [False],
    "neighbours": [5, 0.25],
}
# What a value needs beside it.
NEEDED = {"neighbours": {"bandwidth": "adaptive"}}
# What an estimator refuses by name, whatever the rows.
REFUSED = {
    ("KernelRegressor", "kernel"): [*KERNELS],
    ("KernelClassifier", "kernel"): [*KERNELS],
    ("KernelRegressor", "engine"): ["sorted", "spectral"],
    ("KernelClassifier", "engine"): ["sorted", "spectral"],
    ("NearestKeyRegressor", "engine"): ["graded", "sorted", "spectral"],
    ("NadarayaWatsonClassifier", "bandwidth"): ["gcv", "aicc", "plugin"],
    ("NadarayaWatsonRegressor", "empty"): ["prior"],
    ("LocalLinearRegressor", "empty"): ["prior"],
    ("LocalLinearRegressor", "optimizer"): ["sgd"],
}


def cases(names):
    """Estimator and parameters: every value on its own."""
    for name in names:
        yield name, {}
        for parameter, default in MODELS[name].get_params().items():
            for value in VALUES[parameter]:
                if value not in REFUSED.get((name, parameter), []) and str(value) != str(default):
                    yield name, {parameter: value, **NEEDED.get(parameter, {})}


def is_search(name, options):
    """Whether ``fit`` learns, and there is time for it; values of a network and most engines are for soak."""
    network = isinstance(MODELS[name], regard.AttentionRegressor) and options
    if network or {"engine", "tol", "random_state"} & set(options):
        return FULL and not {"reference", "spectral"} & {*map(str, options.values())}
    return name not in WITHOUT_SEARCH and options.get("bandwidth", "loo") in (*CRITERIA, "adaptive")


def is_given(name, options):
    """Whether the value has a meaning where the bandwidth is given."""
    return name in WITHOUT_SEARCH or not (
        {"metric", "optimizer", "loss", "random_state", "calibrate"} & set(options)
        or "loo" in options.values()
        or options.get("bandwidth") in (*CRITERIA, "adaptive")
    )


def ids(case):
    name, options = case
    return "-".join([name, *(f"{parameter}={value}" for parameter, value in options.items())])


def table(found):
    return pytest.mark.parametrize("case", list(found), ids=ids)


def fitted(name, options, rows):
    # This engine is for one feature and kernels that end.
    one = options.get("engine") == "sorted"
    model = clone(MODELS[name]).set_params(**options, **({"kernel": "epanechnikov"} if one else {}))
    if "optimizer" in options:
        model.set_params(random_state=0)
    y = np.where(Y[:rows] > 0.0, "high", "low") if is_classifier(model) else Y[:rows]
    return model.fit(X[:rows, : 2 - one], y)


def answers(model, at=AT):
    ask = model.predict_proba if is_classifier(model) else model.predict
    return ask(at[:, : model.n_features_in_])


def by_reference(model, at=AT):
    model = copy(model)
    model.engine, model.tol = "reference", 0.0
    return answers(model, at)


def check_both_sides(case, rows):
    found = []
    for count in (rows, rows + 1):
        model = fitted(*case, count)
        found.append(answers(model))
        assert np.isfinite(found[-1]).all()
    np.testing.assert_allclose(found[-1], by_reference(model), atol=2e-6)
    # One answer may be far off: a line through three rows, by a search of three steps.
    assert np.median(np.abs(found[0] - found[1])) < 0.1


@pytest.fixture
def quick_search(monkeypatch, request):
    """Searches of a few steps from one start, where a whole one takes more than a moment."""
    if request.node.callspec.params.get("rows", SEARCHED_WHOLE) < SEARCHED_WHOLE:
        return
    request.getfixturevalue("brief_heads")
    for name, value in {
        "SCAN_DESCENTS": 1,
        "MULTISTART_MAX_PARAMETERS": 0,
        "SCAN_FACTOR": 3.0,
        "SCAN_FACTOR_MANY_ROWS": 3.0,
    }.items():
        monkeypatch.setattr(multistart, name, value)
    for name, value in {
        "START_ITERATIONS": 2,
        "FEATURE_ITERATIONS": 3,
        "FULL_ITERATIONS": 3,
        "FINAL_ITERATIONS": 2,
    }.items():
        monkeypatch.setattr(head_search, name, value)
    for options in (descent.FULL_DESCENT, descent.DESCENT_ACROSS_JUMPS):
        monkeypatch.setitem(options, "maxiter", 3)
        monkeypatch.setitem(options, "maxfun", 8)
    monkeypatch.setattr(adaptive, "NEIGHBOUR_RATIO", 4.0)


LINE = np.r_[np.linspace(-1.0, 1.0, 60), 5.0][:, None]
FAR = np.array([[0.3], [2.5], [9.0], [1e200]])
NAMED = {
    "sorted": [(name, {"kernel": "epanechnikov"}) for name in WITH_BANDWIDTH],
    "spectral": [(name, {}) for name in WITH_BANDWIDTH],
}


@pytest.mark.usefixtures("quick_search")
@pytest.mark.parametrize("bandwidth", [0.2, "loo"])
@pytest.mark.parametrize("engine", NAMED)
def test_what_an_engine_leaves_over(engine, bandwidth):
    """Rows out of reach, lines far outside and residuals averaged over all rows are for another engine to do."""
    for name, options in NAMED[engine]:
        kind, y = type(MODELS[name]), np.sin(3.0 * LINE[:, 0])
        y = y > 0.0 if is_classifier(MODELS[name]) else y
        named, usual = (kind(bandwidth=bandwidth, engine=one, **options).fit(LINE, y) for one in (engine, "auto"))
        close = {"atol": 1e-6, "rtol": 1e-5} if bandwidth == 0.2 else {"atol": 0.5}
        np.testing.assert_allclose(answers(named, FAR), answers(usual, FAR), **close)
        if bandwidth == 0.2 and not is_classifier(named):
            found, wanted = (model.predict(FAR[:2], return_std=True)[1] for model in (named, usual))
            np.testing.assert_allclose(found, wanted, **close)


def test_the_thresholds_are_found():
    for module, name in (
        (multistart, "SCAN_ROWS"),
        (head_search, "DESCENT_ROWS"),
        (subsampling, "MAX_ROWS_ALL_EVALUATED"),
        (subsampling, "MAX_ROWS_ALL_KEYS"),
    ):
        assert FOUND[f"bandwidth.{module.__name__.rpartition('.')[2]}.{name}"] == getattr(module, name)
    assert FOUND["pooling.planner.SMALL"] == SMALL
    assert FOUND["model.residuals.MAX_ROWS_TO_RELEARN"] == residuals.MAX_ROWS_TO_RELEARN


def test_every_parameter_has_values():
    assert {parameter for model in MODELS.values() for parameter in model.get_params()} == set(VALUES)


@pytest.mark.usefixtures("quick_search")
@pytest.mark.parametrize("rows", rows_of("bandwidth", head_search.DESCENT_ROWS) if FULL else [multistart.SCAN_ROWS])
@table(case for case in cases(MODELS) if is_search(*case))
def test_searches_with_every_value(case, rows):
    check_both_sides(case, rows)


def most_rows(name, options):
    """Rows up to which ``make soak`` searches: estimators of heads and networks evaluate all pairs many times."""
    if name not in WITH_BANDWIDTH:
        return head_search.FINAL_ROWS
    return (
        subsampling.MAX_ROWS_ALL_EVALUATED
        if options or name != "NadarayaWatsonRegressor"
        else subsampling.MAX_ROWS_ALL_KEYS
    )


USUAL = [(name, {}) for name in MODELS if name not in WITHOUT_SEARCH]
USUAL += [("NadarayaWatsonRegressor", {"bandwidth": name}) for name in ("gcv", "aicc")]
SIZES = [
    (case, rows)
    for case in USUAL
    for rows in rows_of("bandwidth", most_rows(*case) if FULL else head_search.DESCENT_ROWS)
    # The last threshold of heads takes a classifier a second, a regressor five.
    if FULL or (rows != multistart.SCAN_ROWS and (case[0], rows) != ("KernelRegressor", head_search.DESCENT_ROWS))
]


@pytest.mark.usefixtures("quick_search")
@pytest.mark.parametrize(("case", "rows"), SIZES, ids=[f"{ids(case)}-{rows}" for case, rows in SIZES])
def test_searches_of_every_size(case, rows):
    check_both_sides(case, rows)


@pytest.mark.parametrize("rows", ROWS if FULL else [subsampling.MAX_ROWS_ALL_EVALUATED])
@table((name, options) for name, options in cases([*WITH_BANDWIDTH, *WITHOUT_SEARCH]) if is_given(name, options))
def test_given_bandwidths_with_every_value(case, rows):
    name, options = case
    check_both_sides((name, ({} if name in WITHOUT_SEARCH else {"bandwidth": GIVEN}) | options), rows)


@pytest.mark.parametrize("rows", ROWS)
@table((name, {"bandwidth": GIVEN}) for name in WITH_BANDWIDTH)
def test_given_bandwidths_of_every_size(case, rows):
    check_both_sides(case, rows)


@pytest.mark.parametrize("pairs", PAIRS)
@table((name, {"bandwidth": GIVEN}) for name in WITH_BANDWIDTH)
def test_pairs_of_every_size(case, pairs):
    """Queries as many as make the pairs; what was asked for beside them does not matter to an answer."""
    rows = min(isqrt(pairs), 1 << 12)
    model = fitted(*case, rows)
    wanted = by_reference(model)
    for count in (pairs // rows, pairs // rows + 1):
        at = np.resize(AT, (count, 2))
        np.testing.assert_allclose(answers(model, at), np.resize(wanted, (count, *wanted.shape[1:])), atol=2e-6)


@pytest.mark.usefixtures("quick_search")
@pytest.mark.parametrize(
    "rows", rows_of("model", subsampling.MAX_ROWS_ALL_EVALUATED) if FULL else [residuals.MAX_ROWS_TO_RELEARN]
)
@table([(name, {"bandwidth": GIVEN}) for name in WITH_BANDWIDTH] + [("NadarayaWatsonRegressor", {})])
def test_what_follows_a_fit(case, rows):
    found = []
    for count in (rows, rows + 1):
        model = fitted(*case, count)
        diagnosis = model.diagnose()
        results = [
            [diagnosis.loo_loss, diagnosis.factor, *model.loss_path([0.5, 1.0]).left_out],
            model.attend(AT, top=3).weight,
        ]
        if is_classifier(model):
            results += [model.set_params(calibrate=True).predict_proba(AT)]
        else:
            results += [model.predict(AT, return_std=True)[1]]
            results += [model.predict_interval(AT, method=method) for method in INTERVALS]
            results += [model.confidence_interval(AT, method=method, draws=5, random_state=0) for method in CONFIDENCE]
            results += [model.standard_error(AT, method=method) for method in ERRORS]
        found.append(np.concatenate([np.ravel(part) for part in results]))
        assert np.isfinite(found[-1]).all()
    assert np.sqrt(np.mean((found[0] - found[1]) ** 2)) < 0.1

"""Estimators of dask arrays and dataframes: the numbers of one machine, and nothing but results comes here."""

from __future__ import annotations

import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import regard
from support.cuts import CUTS, cut

RNG = np.random.default_rng(1)
N = 60
X = RNG.normal(size=(N, 2)) * [1.0, 10.0] + [0.0, 100.0]
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=N)
LABELS = np.array(["cat", "dog", "emu"])[(Y > 0).astype(int) + (Y > 0.7)]
# Among the rows: a line far from them is a matter of the last bits, on one machine as well.
Q = X[:17] + 0.05 * RNG.normal(size=(17, 2))
H = [0.5, 5.0]

REGRESSORS = {
    "mean": regard.NadarayaWatsonRegressor(bandwidth=H, tol=0.0),
    "laplace": regard.NadarayaWatsonRegressor(kernel="laplace", bandwidth=H, tol=0.0),
    "compact": regard.NadarayaWatsonRegressor(kernel="epanechnikov", bandwidth=H, tol=0.0),
    "compact, nan": regard.NadarayaWatsonRegressor(kernel="biweight", bandwidth=H, tol=0.0, empty="nan"),
    "line": regard.LocalLinearRegressor(bandwidth=H, tol=0.0),
    "ridge": regard.LocalLinearRegressor(bandwidth=H, ridge=0.1, tol=0.0),
    "compact line": regard.LocalLinearRegressor(kernel="tricube", bandwidth=H, tol=0.0),
    "nearest": regard.NearestKeyRegressor(),
    "average": regard.AveragePoolingRegressor(),
}
CLASSIFIERS = {
    "mean": regard.NadarayaWatsonClassifier(bandwidth=H, tol=0.0),
    "prior": regard.NadarayaWatsonClassifier(kernel="epanechnikov", bandwidth=H, empty="prior", tol=0.0),
}
WEIGHTS = {
    "none": None,
    "repetitions": RNG.integers(0, 4, N),
    "importances": np.where(RNG.random(N) < 0.2, 0.0, RNG.random(N)),
}


def quietly(call, *arguments):
    """Without the warning about empty rows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* have no training row within the bandwidth")
        return call(*arguments)


def close(got, truth, rtol=1e-12):
    got = got.compute() if hasattr(got, "compute") else got
    assert got.dtype == truth.dtype
    assert got.shape == truth.shape
    assert np.array_equal(np.isnan(got), np.isnan(truth))
    assert np.nanmax(np.abs(got - truth)) <= rtol * max(1.0, np.nanmax(np.abs(truth)))


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name, weights):
    weight = WEIGHTS[weights]
    here = clone(REGRESSORS[name]).fit(X, Y, sample_weight=weight)
    there = clone(REGRESSORS[name])
    assert there.fit(cut(X, "ragged"), cut(Y, "halves"), None if weight is None else cut(weight, "ragged")) is there
    truth = quietly(here.predict, Q)
    close(quietly(there.predict, Q), truth)
    lazy = there.predict(cut(Q, "ragged"))
    assert isinstance(lazy, da.Array)
    close(lazy, truth)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name, weights):
    weight = WEIGHTS[weights]
    here = clone(CLASSIFIERS[name]).fit(X, LABELS, sample_weight=weight)
    there = clone(CLASSIFIERS[name])
    there.fit(cut(X, "ragged"), cut(LABELS, "halves"), None if weight is None else cut(weight, "ragged"))
    assert there.classes_.tolist() == here.classes_.tolist()
    close(there.predict_proba(cut(Q, "ragged")), quietly(here.predict_proba, Q))
    close(quietly(there.predict_proba, Q), quietly(here.predict_proba, Q))
    assert there.predict(cut(Q, "ragged")).compute().tolist() == quietly(here.predict, Q).tolist()


@pytest.mark.parametrize("keys", CUTS)
@pytest.mark.parametrize("unknown", [False, True])
def test_99_any_chunks(keys, unknown):
    model = regard.LocalLinearRegressor(bandwidth=H, tol=0.0)
    truth = clone(model).fit(X, Y).predict(Q)
    got = clone(model).fit(cut(X, keys, unknown=unknown), cut(Y, keys, unknown=unknown)).predict(cut(Q, "halves"))
    close(got, truth)


def test_several_outputs():
    y = np.stack([Y, 100.0 - Y], axis=1)
    for model in (
        regard.NadarayaWatsonRegressor(bandwidth=H, tol=0.0),
        regard.LocalLinearRegressor(bandwidth=H, tol=0.0),
    ):
        got = clone(model).fit(cut(X, "ragged"), cut(y, "ragged")).predict(cut(Q, "ragged"))
        close(got, clone(model).fit(X, y).predict(Q))


def test_single_precision_stays_single():
    single = X.astype(np.float32)
    model = regard.NadarayaWatsonRegressor(bandwidth=H).fit(cut(single, "ragged"), cut(Y.astype(np.float32), "ragged"))
    got = model.predict(cut(Q.astype(np.float32), "halves"))
    assert got.dtype == got.compute().dtype == np.float32
    close(got, clone(model).fit(single, Y.astype(np.float32)).predict(Q.astype(np.float32)), rtol=1e-5)


def test_dataframes_keep_their_names():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=Y)
    table = dd.from_pandas(frame, npartitions=3)
    model = regard.KernelRegressor().fit(table[["a", "b"]], table["y"])
    assert model.feature_names_in_.tolist() == ["a", "b"]
    truth = regard.KernelRegressor().fit(frame[["a", "b"]], frame["y"])
    close(model.predict(table[["a", "b"]]), truth.predict(frame[["a", "b"]]), rtol=1e-10)
    close(model.predict(frame[["a", "b"]]), truth.predict(frame[["a", "b"]]), rtol=1e-10)
    with pytest.raises(ValueError, match=r"same order, \['a', 'b'\], got \['b', 'a'\]"):
        model.predict(table[["b", "a"]])


OTHER_COLUMNS = {
    "text": (LABELS, "string"),
    "category": (pd.Categorical(LABELS), "category"),
    "date": (pd.date_range("2020-01-01", periods=N), "datetime64"),
    "date with a zone": (pd.date_range("2020-01-01", periods=N, tz="UTC"), "datetime64.*UTC"),
}


@pytest.mark.parametrize("kind", OTHER_COLUMNS)
def test_columns_that_are_not_numbers_are_named(kind):
    """Tables with text are learned from in memory; a dask dataframe names the column that is in the way."""
    column, dtype = OTHER_COLUMNS[kind]
    table = dd.from_pandas(pd.DataFrame({"a": X[:, 0], "town": column, "y": Y}), npartitions=2)
    message = rf"column 'town' must hold real numbers in a dask dataframe, got dtype {dtype}.*; encode or drop it, or"
    for model in (regard.NadarayaWatsonRegressor(bandwidth=H), regard.KernelRegressor()):
        with pytest.raises(ValueError, match=f"X {message} call X.compute"):
            model.fit(table[["a", "town"]], table["y"])
    in_memory = regard.NadarayaWatsonRegressor(bandwidth=H).fit(pd.DataFrame({"a": X[:, 0], "town": Y}), Y)
    with pytest.raises(ValueError, match=f"X {message} call X.compute"):
        in_memory.predict(table[["a", "town"]])
    with pytest.raises(ValueError, match=f"key {message} call key.compute"):
        regard.pool(Q, table[["a", "town"]], table["y"], regard.scores.Gaussian())


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "int64[pyarrow]"])
def test_numbers_that_may_be_missing(dtype):
    """Columns of pandas' own number types are numbers, and a missing one is an error that says where."""
    frame = pd.DataFrame({"a": X[:, 0], "b": pd.array((5.0 * X[:, 0]).round().astype(int), dtype=dtype), "y": Y})
    weight = pd.Series(np.arange(N) % 3, dtype="Int64", name="weight")
    model = regard.NadarayaWatsonRegressor(bandwidth=H)

    def fitted(frame, weight, queries):
        return clone(model).fit(frame[["a", "b"]], frame["y"], sample_weight=weight).predict(queries[["a", "b"]])

    table = dd.from_pandas(frame, npartitions=2)
    close(fitted(table, dd.from_pandas(weight, npartitions=2), table), fitted(frame, weight, frame))
    frame.loc[3, "b"] = pd.NA
    gap = dd.from_pandas(frame, npartitions=2)
    with pytest.raises(ValueError, match="chunk 0: X row 3 is not finite"):
        model.fit(gap[["a", "b"]], gap["y"])


@pytest.mark.parametrize(
    "model",
    [
        regard.NadarayaWatsonRegressor(),
        regard.LocalLinearRegressor(ridge="loo"),
        regard.NadarayaWatsonRegressor(bandwidth="silverman"),
        regard.NadarayaWatsonRegressor(bandwidth="aicc"),
        regard.KernelRegressor(),
        regard.NadarayaWatsonClassifier(),
        regard.KernelClassifier(),
    ],
    ids=lambda model: type(model).__name__ + str(getattr(model, "bandwidth", "")),
)
def test_few_rows_are_learned_from_as_on_one_machine(model):
    y = LABELS if hasattr(model, "predict_proba") else Y
    here, there = clone(model).fit(X, y), clone(model).fit(cut(X, "ragged"), cut(y, "ragged"))
    if hasattr(here, "loo_score_"):
        assert there.loo_score_ == here.loo_score_
        assert np.array_equal(there.loo_predictions_, here.loo_predictions_)
    if hasattr(here, "heads_"):
        assert [head.weight for head in there.heads_] == [head.weight for head in here.heads_]
    else:
        assert np.array_equal(there.w_, here.w_)
    ask = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    close(getattr(there, ask)(cut(Q, "halves")), getattr(here, ask)(Q), rtol=1e-9)


def test_a_model_in_memory_answers_lazy_queries():
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = regard.KernelRegressor().fit(frame, Y)
    got = model.predict(dd.from_pandas(pd.DataFrame(Q, columns=["a", "b"]), npartitions=3))
    assert isinstance(got, da.Array)
    close(got, model.predict(pd.DataFrame(Q, columns=["a", "b"])))
    labels = regard.KernelClassifier().fit(X, LABELS)
    assert labels.predict(cut(Q, "ragged")).compute().tolist() == labels.predict(Q).tolist()


def test_a_chunk_without_queries_asks_nothing():
    model = regard.NadarayaWatsonRegressor(kernel="boxcar", bandwidth=[1e-3, 1e-3], empty="raise").fit(X, Y)
    lazy = model.predict(da.from_array(X[:4], chunks=((0, 4, 0), (2,))))
    assert np.array_equal(lazy.compute(), model.predict(X[:4]))


def test_nothing_is_computed_before_it_is_asked_for():
    model = regard.NadarayaWatsonRegressor(bandwidth=H).fit(cut(X, "halves"), cut(Y, "halves"))
    lazy = model.predict(cut(Q, "halves"))
    assert isinstance(model.key_, da.Array)
    assert model.key_.shape == X.shape
    assert np.array_equal(model.key_.compute(), X)
    looks = [key for key in dict(lazy.__dask_graph__()) if str(key).startswith("regard-state-")]
    assert len(looks) == 4


def test_rows_are_gathered_nowhere():
    """What this process receives of a fit is small, however many rows there are."""
    seen = []

    class Watching(dask.callbacks.Callback):
        def _posttask(self, key, result, dsk, state, worker_id):
            if str(key).startswith("regard-"):
                seen.append(key)

    rows = 20 * N
    big = np.tile(X, (20, 1)) + RNG.normal(size=(rows, 2))
    asked = []
    from regard.engines import tasks as cluster

    plain = cluster.compute

    def counted(tasks):
        found = plain(tasks)
        asked.append(sum(_size(one) for one in found))
        return found

    from regard.cluster import blocked_rows, cluster_fit, cluster_objective

    with pytest.MonkeyPatch.context() as patch, Watching():
        for module in (cluster_objective, blocked_rows, cluster_fit):
            patch.setattr(module, "compute", counted)
        patch.setattr(cluster_fit, "MAX_ROWS_ON_ONE_WORKER", 0)
        model = regard.NadarayaWatsonRegressor(metric="scalar")
        model.fit(da.from_array(big, chunks=(400, 2)), da.from_array(np.sin(big[:, 0]), chunks=400))
    assert seen
    assert max(asked) < big.nbytes / 4


def _size(found):
    if isinstance(found, np.ndarray):
        return found.nbytes
    if isinstance(found, tuple | list):
        return sum(map(_size, found))
    return 8


@pytest.mark.parametrize(
    ("model", "fit", "message"),
    [
        (regard.NadarayaWatsonRegressor(bandwidth="adaptive"), {}, "bandwidth='adaptive' needs data in memory"),
        (regard.NadarayaWatsonRegressor(missing="ignore"), {}, "missing='ignore' needs data in memory"),
        (regard.NadarayaWatsonRegressor(kernel={"a": "gaussian"}), {}, "kernels per column need data in memory"),
        (regard.NadarayaWatsonClassifier(calibrate=True), {"y": LABELS}, "calibrate=True needs data in memory"),
        (regard.NadarayaWatsonRegressor(bandwidth=-0.0), {}, "bandwidth must be finite and not zero"),
        (regard.NadarayaWatsonRegressor(), {"X": np.zeros((0, 2)), "y": np.zeros(0)}, "X must have at least one row"),
        (regard.NadarayaWatsonRegressor(), {"y": Y[:-1]}, f"X has {N} rows but y has {N - 1}"),
        (
            regard.NadarayaWatsonRegressor(),
            {"X": np.where(np.arange(N)[:, None] == 3, np.nan, X)},
            "chunk 2: X row 2 is not finite",
        ),
        (regard.NadarayaWatsonRegressor(), {"sample_weight": np.zeros(N)}, "all sample weights are zero"),
        (regard.NadarayaWatsonRegressor(bandwidth=1.0), {"groups": np.arange(N)}, "groups are for learning"),
        (regard.NadarayaWatsonClassifier(), {"y": Y}, "y must hold labels"),
    ],
    ids=lambda part: part[:30] if isinstance(part, str) else None,
)
def test_errors_name_the_argument(model, fit, message):
    arguments = {"X": X, "y": Y, **fit}
    lazy = {name: cut(part, "ragged" if len(part) > 2 else "one") for name, part in arguments.items()}
    with pytest.raises((TypeError, ValueError), match=message):
        clone(model).fit(**lazy)


def test_predict_checks_what_it_is_given():
    model = regard.NadarayaWatsonRegressor(bandwidth=H)
    with pytest.raises(NotFittedError):
        model.predict(cut(Q, "halves"))
    model.fit(cut(X, "halves"), cut(Y, "halves"))
    with pytest.raises(ValueError, match="X has 3 features, but NadarayaWatsonRegressor is expecting 2"):
        model.predict(da.zeros((4, 3)))
    with pytest.raises(TypeError, match="return_std=True needs X in memory"):
        model.predict(cut(Q, "halves"), return_std=True)
    with pytest.raises(TypeError, match="is a dask collection"):
        model.attend(Q)


def test_what_needs_rows_in_memory_says_so():
    model = regard.NadarayaWatsonRegressor(bandwidth=H).fit(X, Y)
    for ask in (model.attend, model.predict_interval, model.explain, model.marginal_effects):
        with pytest.raises(TypeError, match="X is a dask collection, but this method needs data in memory"):
            ask(cut(Q, "halves"))
    with pytest.raises(TypeError, match="X is a dask collection, but AttentionRegressor needs data in memory"):
        regard.AttentionRegressor().fit(cut(X, "halves"), cut(Y, "halves"))


def test_empty_rows():
    far = np.array([[0.0, 100.0], [1e3, 1e3]])
    options = {"kernel": "boxcar", "bandwidth": H}
    with pytest.warns(UserWarning, match="1 of 2 rows of X .* the nearest training row will be used"):
        regard.NadarayaWatsonRegressor(**options).fit(cut(X, "halves"), cut(Y, "halves")).predict(far)
    model = regard.NadarayaWatsonRegressor(**options, empty="raise").fit(cut(X, "halves"), cut(Y, "halves"))
    lazy = model.predict(cut(far, "one"))
    with pytest.raises(ValueError, match="1 of 2 rows of a chunk of X have no training row within the bandwidth"):
        lazy.compute()


def test_fitting_again_forgets_the_cluster():
    model = regard.NadarayaWatsonRegressor(bandwidth=H).fit(cut(X, "halves"), cut(Y, "halves"))
    model.fit(X, Y)
    assert isinstance(model.key_, np.ndarray)
    assert np.array_equal(model.predict(Q), regard.NadarayaWatsonRegressor(bandwidth=H).fit(X, Y).predict(Q))


@pytest.mark.parametrize("small", [0, 20_000], ids=["map and reduce", "one worker"])
def test_saving_brings_the_rows_here(small, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.cluster.cluster_fit.MAX_ROWS_ON_ONE_WORKER", small)
    model = regard.NadarayaWatsonRegressor(metric="scalar").fit(cut(X, "halves"), cut(Y, "halves"))
    regard.save(model, tmp_path / "m.regard")
    assert isinstance(model.key_, da.Array)
    back = regard.load(tmp_path / "m.regard")
    assert np.array_equal(back.key_, X)
    assert back.loo_score_ == model.loo_score_
    close(back.predict(Q), model.predict(Q))


@pytest.mark.xdist_group("cluster")
def test_on_a_cluster_of_processes(on_cluster):
    model = regard.KernelRegressor().fit(cut(X, "ragged"), cut(Y, "ragged"))
    close(model.predict(cut(Q, "halves")), regard.KernelRegressor().fit(X, Y).predict(Q), rtol=1e-9)

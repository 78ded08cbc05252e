"""``regard fit`` of folders of Parquet files and on a cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import regard
from support.command import ok, refused

pytestmark = pytest.mark.xdist_group("cluster")
RNG = np.random.default_rng(7)
TABLE = pd.DataFrame({"a": RNG.normal(size=90), "b": RNG.normal(size=90), "town": ["x", "y", "z"] * 30})
TABLE["y"] = np.sin(2.0 * TABLE["a"])
TABLE["kind"] = np.where(TABLE["y"] > 0.0, "up", "down")


@pytest.fixture
def folder(here: Path) -> Path:
    (here / "parts").mkdir()
    for number in range(3):
        TABLE[number * 30 : (number + 1) * 30].to_parquet(here / "parts" / f"{number}.parquet")
    return here / "parts"


@pytest.fixture(scope="module")
def scheduler():
    from distributed import LocalCluster

    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster:
        yield cluster.scheduler_address


def test_a_folder_of_parquet(folder, capfd):
    _, printed = ok(capfd, "fit", "parts", "--target", "y", "--features", "a,b", "--out", "m.regard")
    assert "90 rows of parts" in printed
    model = regard.load("m.regard")
    truth = regard.KernelRegressor().fit(TABLE[["a", "b"]], TABLE["y"])
    assert np.allclose(model.predict(TABLE[["a", "b"]]), truth.predict(TABLE[["a", "b"]]))
    TABLE.to_csv("new.csv", index=False)
    ok(capfd, "predict", "m.regard", "new.csv", "--out", "answers.csv")


def test_on_a_cluster(folder, scheduler, capfd):
    _, printed = ok(capfd, "fit", "parts", "--target", "kind", "--out", "m.regard", "--scheduler", scheduler)
    assert "left out 'town'" in printed
    model = regard.load("m.regard")
    assert model.classes_.tolist() == ["down", "up"]
    assert model.feature_names_in_.tolist() == ["a", "b", "y"]
    _, again = ok(
        capfd,
        "fit",
        "parts/0.parquet",
        "--target",
        "y",
        "--features",
        "a",
        "--bandwidth",
        "0.5",
        "--out",
        "n.regard",
        "--scheduler",
        scheduler,
    )
    assert "30 rows of parts/0.parquet" in again


def test_what_is_refused(folder, scheduler, capfd):
    fit = ("fit", "parts", "--target", "y", "--features", "a", "--out", "m.regard")
    assert "has no column 'z'; its columns are" in refused(capfd, "fit", "parts", "--target", "z", "--out", "m.regard")
    assert "--report needs a table in memory" in refused(capfd, *fit, "--report", "r.html")
    on = ("--scheduler", scheduler)
    assert "whose names end in .parquet" in refused(
        capfd, "fit", "houses.csv", "--target", "price", "--out", "m.regard", *on
    )
    assert "no such file or folder" in refused(capfd, "fit", "nowhere", "--target", "y", "--out", "m.regard", *on)
    (folder / "9.parquet").write_bytes(b"not parquet at all")
    assert "cannot be read as Parquet" in refused(capfd, *fit)
    assert not Path("m.regard").exists()


def test_gaps_are_named(here, capfd):
    (here / "parts").mkdir()
    TABLE.assign(a=TABLE["a"].where(TABLE.index != 4)).to_parquet(here / "parts" / "0.parquet")
    message = refused(capfd, "fit", "parts", "--target", "y", "--features", "a,b", "--out", "m.regard")
    assert "chunk 0: X row 4 is not finite" in message


def test_a_scheduler_that_is_not_there(folder, capfd, monkeypatch):
    monkeypatch.setattr("regard.cli.dask_fit.SCHEDULER_TIMEOUT_SECONDS", 1)
    on = ("--scheduler", "tcp://127.0.0.1:9")
    assert "cannot connect to the dask scheduler at tcp://127.0.0.1:9" in refused(
        capfd, "fit", "parts", "--target", "y", "--out", "m.regard", *on
    )


def test_a_folder_without_parquet_is_a_folder(here, capfd):
    (here / "empty").mkdir()
    assert "empty" in refused(capfd, "fit", "empty", "--target", "y", "--out", "m.regard")

"""``regard predict`` and ``regard attend``: what they write for which model and table (line 64 of the list)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars
import pytest

import regard
from regard.data import Table, read_table, write_table
from support.command import HOUSES, ok, predictions, refused, rows, trained


def test_predict_writes_one_column_named_after_the_target(here: Path, capfd) -> None:
    model = trained(capfd)
    out, err = ok(capfd, "predict", model, "houses.csv")
    assert err == ""
    assert list(rows(out)[0]) == ["price"]
    assert [float(row["price"]) for row in rows(out)] == predictions(model).tolist()


def test_columns_are_matched_by_name(here: Path, model: str, capfd) -> None:
    straight, _ = ok(capfd, "predict", model, "houses.csv")
    table = read_table("houses.csv")
    names = (*reversed(table.names[:-1]), "extra")
    columns = {**table.columns, "extra": np.array(["text"] * len(table), object)}
    write_table(Table(names, {name: columns[name] for name in names}), "turned.csv")
    turned, _ = ok(capfd, "predict", model, "turned.csv")
    assert turned == straight


def test_predict_to_a_file_is_predict_to_stdout(here: Path, model: str, capfd) -> None:
    out, _ = ok(capfd, "predict", model, "houses.csv")
    for name in ("p.csv", "p.csv.gz"):
        assert ok(capfd, "predict", model, "houses.csv", "--out", name) == ("", "")
    assert Path("p.csv").read_text() == out
    assert read_table("p.csv.gz").columns["price"].tolist() == read_table("p.csv").columns["price"].tolist()


def test_64_missing_columns_list_those_there_are(here: Path, model: str, capfd) -> None:
    Path("new.csv").write_text("area,rooms\n1,2\n")
    err = refused(capfd, "predict", model, "new.csv")
    assert "new.csv: lacks 'age', 'distance'" in err
    assert "its columns are 'area', 'rooms'" in err


def test_bad_rows_to_predict_are_named(here: Path, capfd) -> None:
    Path("xy.csv").write_text("x,y\n1,2\n3,4\n")
    model = trained(capfd, "xy.csv", "y")
    Path("new.csv").write_text("x\n1\nmany\n")
    for command in ("predict", "attend"):
        assert "new.csv: row 1, column 'x': 'many'" in refused(capfd, command, model, "new.csv")


@pytest.mark.parametrize("command", ["predict", "attend"])
def test_what_is_no_model(command: str, here: Path, capfd) -> None:
    assert "houses.csv: is not a regard model" in refused(capfd, command, "houses.csv", "houses.csv")
    assert "no such file" in refused(capfd, command, "m.regard", "houses.csv")


def test_attend_shows_where_predictions_come_from(here: Path, model: str, capfd) -> None:
    out, _ = ok(capfd, "attend", model, "houses.csv", "--top", "60")
    found = rows(out)
    assert list(found[0]) == ["query", "rank", "key", "weight", "value", "mass"]
    predicted = predictions(model)
    for query in range(60):
        mine = [row for row in found if int(row["query"]) == query]
        assert [int(row["rank"]) for row in mine] == list(range(1, len(mine) + 1))
        weights = [float(row["weight"]) for row in mine]
        assert weights == sorted(weights, reverse=True)
        assert all(float(row["mass"]) == pytest.approx(1.0) for row in mine)
        assert all(float(row["value"]) == HOUSES.y[int(row["key"])] for row in mine)
        assert sum(float(row["weight"]) * float(row["value"]) for row in mine) == pytest.approx(predicted[query])


@pytest.mark.parametrize(("data", "target"), [("houses.csv", "price"), ("kinds.csv", "kind")])
def test_attend_mixes_the_heads(data: str, target: str, here: Path, capfd) -> None:
    loaded = regard.load(trained(capfd, data, target))
    weights = loaded.attend(polars.DataFrame(HOUSES.X, schema=list(HOUSES.feature_names)))
    found = rows(ok(capfd, "attend", "m.regard", data, "--top", "2")[0])
    assert len(loaded.heads_) > 1
    assert len(found) == 2 * 60
    for row in found:
        assert float(row["weight"]) == pytest.approx(weights[int(row["query"]), int(row["key"])])
    best = [float(row["weight"]) for row in found if row["rank"] == "1"]
    assert best == pytest.approx(weights.max(axis=1))


def test_attend_keeps_to_top(here: Path, model: str, capfd) -> None:
    found = rows(ok(capfd, "attend", model, "houses.csv")[0])
    assert len(found) == 5 * 60
    for number in range(0, len(found), 5):
        shown = found[number : number + 5]
        assert float(shown[0]["mass"]) == pytest.approx(sum(float(row["weight"]) for row in shown))
    assert "--top" in refused(capfd, "attend", model, "houses.csv", "--top", "0")
    assert len(rows(ok(capfd, "attend", model, "houses.csv", "--top", "1000")[0])) <= 60 * 60


def test_attend_leaves_out_keys_without_weight(here: Path, capfd) -> None:
    Path("xy.csv").write_text("x,y\n0,1\n1,2\n5,3\n")
    ok(capfd, "fit", "xy.csv", "--target", "y", "--out", "m.regard", "--kernel", "boxcar", "--bandwidth", "1")
    found = rows(ok(capfd, "attend", "m.regard", "xy.csv")[0])
    assert [(row["query"], row["key"]) for row in found] == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1"), ("2", "2")]


def test_attend_shows_labels(here: Path, capfd) -> None:
    model = trained(capfd, "kinds.csv", "kind")
    found = rows(ok(capfd, "attend", model, "kinds.csv", "--top", "1")[0])
    kinds = np.where(HOUSES.y > 200.0, "dear", "cheap")
    assert all(row["value"] == kinds[int(row["key"])] for row in found)


def test_a_warning_is_one_line_on_stderr(here: Path, capfd) -> None:
    Path("xy.csv").write_text("x,y\n0,1\n1,2\n")
    ok(capfd, "fit", "xy.csv", "--target", "y", "--out", "m.regard", "--kernel", "boxcar", "--bandwidth", "1")
    Path("new.csv").write_text("x\n0\n100\n")
    out, err = ok(capfd, "predict", "m.regard", "new.csv")
    assert out == "y\n1.5\n2.0\n"
    assert err.startswith("regard: warning: 1 of 2 rows")
    assert err.count("\n") == 1


def test_models_saved_in_python(here: Path, capfd) -> None:
    pairs = np.column_stack([HOUSES.y, -HOUSES.y])
    regard.save(regard.NearestKeyRegressor().fit(HOUSES.X[:, :2], pairs), "two.regard")
    Path("new.csv").write_text(f"p,q\n{HOUSES.X[0, 0]},{HOUSES.X[0, 1]}\n")
    out, _ = ok(capfd, "predict", "two.regard", "new.csv")
    assert out == f"prediction_1,prediction_2\n{HOUSES.y[0]},{-HOUSES.y[0]}\n"
    out, _ = ok(capfd, "attend", "two.regard", "new.csv")
    assert out == f"query,rank,key,weight,value_1,value_2,mass\n0,1,0,1.0,{HOUSES.y[0]},{-HOUSES.y[0]},1.0\n"
    assert "must have exactly 2 columns; it has 8" in refused(capfd, "predict", "two.regard", "houses.csv")
    regard.save(regard.AveragePoolingRegressor().fit(HOUSES.X[:, :2], HOUSES.y), "mean.regard")
    out, _ = ok(capfd, "predict", "mean.regard", "new.csv")
    assert float(rows(out)[0]["prediction"]) == pytest.approx(HOUSES.y.mean())

"""Drift: new rows that are predicted worse, or that lie elsewhere, are noticed; others are not."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from regard import (
    AttentionRegressor,
    LocalLinearRegressor,
    NadarayaWatsonClassifier,
    NadarayaWatsonRegressor,
)
from regard.model.formatting import numbered_columns


class TestDrift:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 3))
    Y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=300)

    def new(self, rows=60, shift=0.0, offset=0.0, noise=0.2, seed=0):
        rng = np.random.default_rng(seed)
        at = rng.normal(size=(rows, 3)) + np.array([0.0, shift, 0.0])
        return at, np.sin(at[:, 0]) + 0.5 * at[:, 1] + noise * rng.normal(size=rows) + offset

    def test_no_change_is_seldom_called_one(self):
        model = LocalLinearRegressor(bandwidth=0.8).fit(self.X, self.Y)
        drifts = [model.drift(*self.new(seed=seed)) for seed in range(60)]
        probability = np.array([one.probability for one in drifts])
        assert (probability < 0.1).mean() < 0.25
        assert 0.3 < probability.mean() < 0.7
        assert sum(one.worse for one in drifts) <= 3
        assert sum((one.moved.probability < 0.01).any() for one in drifts) <= 3
        assert np.mean([one.ratio for one in drifts]) == pytest.approx(1.0, abs=0.15)

    def test_more_noise_is_worse(self):
        found = LocalLinearRegressor(bandwidth=0.8).fit(self.X, self.Y).drift(*self.new(noise=0.6))
        assert found.worse
        assert found.ratio > 1.8
        assert (found.moved.probability > 0.01).all()
        assert "Worse than before" in str(found)
        assert "No feature has moved" in str(found)

    def test_an_offset_is_a_bias(self):
        found = NadarayaWatsonRegressor().fit(self.X, self.Y).drift(*self.new(offset=1.0))
        assert found.worse
        assert found.bias[0] == pytest.approx(1.0, abs=4.0 * found.bias_error[0])
        assert "have become too low" in str(found)

    def test_a_feature_that_moved(self):
        frame = pandas.DataFrame(self.X, columns=["a", "b", "c"])
        at, y = self.new(shift=1.5)
        found = (
            LocalLinearRegressor(bandwidth=0.8).fit(frame, self.Y).drift(pandas.DataFrame(at, columns=list("abc")), y)
        )
        assert (found.moved.probability < 0.01).tolist() == [False, True, False]
        assert found.moved.shift[1] == pytest.approx(1.5, abs=0.5)
        assert found.names == ("a", "b", "c")
        assert any(line.split()[:1] == ["b"] for line in str(found).splitlines())

    def test_classes_outputs_weights_and_learned_scores(self):
        at, y = self.new()
        label = np.where(self.Y > 0, "up", "down")
        model = NadarayaWatsonClassifier(bandwidth=0.6, calibrate=True).fit(self.X, label)
        assert not model.drift(at, np.where(y > 0, "up", "down")).worse
        wrong = model.drift(at, np.where(y > 0, "down", "up"))
        assert wrong.worse
        assert len(wrong.bias) == 0
        assert model.drift(at, ["sideways"] * 60).error == pytest.approx(1.0)
        both = NadarayaWatsonRegressor(bandwidth=0.6).fit(self.X, np.column_stack([self.Y, 100.0 * self.Y]))
        found = both.drift(at, np.column_stack([y, 100.0 * y]))
        assert found.usual == pytest.approx(1.0)
        assert not found.worse
        counted = NadarayaWatsonRegressor(bandwidth=0.6).fit(self.X, self.Y, sample_weight=np.full(300, 2))
        again = NadarayaWatsonRegressor(bandwidth=0.6).fit(np.repeat(self.X, 2, axis=0), np.repeat(self.Y, 2))
        one, two = (m.drift(at, y, sample_weight=np.full(60, 3)) for m in (counted, again))
        assert one.probability == pytest.approx(two.probability, rel=1e-9)
        three = again.drift(np.repeat(at, 3, axis=0), np.repeat(y, 3))
        assert three.error == pytest.approx(two.error)
        learned = AttentionRegressor(max_iter=2, random_state=0).fit(self.X, self.Y).forget([0, 1])
        assert learned.drift(at, y + 2.0).worse

    def test_what_it_refuses(self):
        model = NadarayaWatsonRegressor("boxcar", bandwidth=0.5, empty="nan").fit(self.X, self.Y)
        with pytest.raises(ValueError, match=r"y must be finite numbers of shape \(60,\)"):
            model.drift(self.new()[0], self.Y)
        with pytest.raises(ValueError, match="there are no errors to compare"):
            model.drift([[50.0, 0.0, 0.0]], [1.0])
        assert model.drift([[50.0, 0.0, 0.0], self.X[0]], [1.0, self.Y[0]]).far == 0.5
        assert len(model.key_) == 300  # nothing was learned


@pytest.mark.parametrize(("moved", "shift"), [(0.0, 0.0), (2.0, np.inf), (-2.0, -np.inf)])
def test_a_column_that_never_varied(moved: float, shift: float) -> None:
    """Any new value of a constant column is infinitely many standard deviations away; a drift of error has no unit."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=40), np.full(40, 5.0)])
    model = NadarayaWatsonRegressor(bandwidth=0.5).fit(X, np.zeros(40))
    found = model.drift(X + np.array([0.0, moved]), np.zeros(40))
    assert found.moved.shift[1] == shift
    assert found.ratio == 1.0


def test_several_outputs_are_numbered() -> None:
    assert list(numbered_columns("y", np.zeros((2, 2)))) == ["y_0", "y_1"]

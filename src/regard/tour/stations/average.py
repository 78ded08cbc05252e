"""Average pooling: the mean of all values, whatever the query."""

from __future__ import annotations

from regard import pool
from regard.core.scores import Gaussian
from regard.model.naive_answers import root_mean_square
from regard.plot import plot_kernel_reg
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/average")


def compute(visit: Visit) -> Findings:
    x_train, y_train, x_test, y_truth = visit.data
    # With w = 0 every key is equally near, so every weight is 1/n: the mean is attention that ignores the query.
    mean = pool(x_test, x_train, y_train, Gaussian(w=0.0)).output
    error = root_mean_square(mean - y_truth)
    figure = plot_kernel_reg(x_test, y_truth, mean, x_train, y_train, labels=visit.lines)
    return findings(TEXTS, {"average": figure}, mean=mean[0], error=error, n_test=len(x_test))


STATION = Station("average", TEXTS, compute)

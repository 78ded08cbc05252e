"""Nonparametric attention pooling: Nadaraya and Watson's weighted average at the notes' h = 1."""

from __future__ import annotations

from regard import pool
from regard.core.scores import Gaussian, Nearest
from regard.model.naive_answers import root_mean_square
from regard.plot import plot_kernel_reg
from regard.tour.station import Findings, Station, Visit, findings
from regard.tour.texts import read_texts

TEXTS = read_texts("stations/soft")


def compute(visit: Visit) -> Findings:
    x_train, y_train, x_test, y_truth = visit.data
    predicted = pool(x_test, x_train, y_train, Gaussian(w=1.0)).output
    error = root_mean_square(predicted - y_truth)
    mean_error = root_mean_square(pool(x_test, x_train, y_train, Gaussian(w=0.0)).output - y_truth)
    hard_error = root_mean_square(pool(x_test, x_train, y_train, Nearest()).output - y_truth)
    figure = plot_kernel_reg(x_test, y_truth, predicted, x_train, y_train, labels=visit.lines)
    better = error < hard_error  # which one is depends on the seed
    return findings(
        TEXTS,
        {"soft": figure},
        error=error,
        mean_error=mean_error,
        hard_error=hard_error,
        percent=100 * (1 - error / mean_error),
        comparison=TEXTS["better_than_hard" if better else "worse_than_hard"],
    )


STATION = Station("soft", TEXTS, compute)

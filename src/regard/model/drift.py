"""Drift: is a new batch predicted worse than left-out training rows were, and which features have moved?

*Worse* is tested by the ranks of the new rows' errors among the left-out ones (Mann–Whitney). If nothing has changed,
their mean is ½ with standard deviation √((1/n + 1/m)/12) for n left-out and m new rows, corrected for ties, whatever
the distribution of the errors. *Moved* is tested feature by feature by the largest difference between the two
distribution functions (Kolmogorov–Smirnov), with Holm's correction for several features. Importances w are worth
(Σw)²/Σw² rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import kolmogorov, ndtr

from regard.bandwidth.rules import counts_repetitions
from regard.core.arrays import Array
from regard.model.formatting import format_number, format_percent, format_table
from regard.model.smoother import TrainingRows

# Significance level: p-values below it are reported as a change.
SIGNIFICANCE = 0.01


class Sample(NamedTuple):
    """Normalised weights of some rows, and the effective number of rows."""

    share: Array  # (n,)  summing to 1
    size: float

    @classmethod
    def of(cls, weight: Array | None, rows: int) -> Sample:
        """From repetitions, which are rows, or importances w, which are worth (Σw)²/Σw² rows."""
        if weight is None:
            return cls(np.full(rows, 1.0 / rows), float(rows))
        share = weight / weight.max()
        share = share / share.sum()
        return cls(share, float(weight.sum()) if counts_repetitions(weight) else float(1.0 / (share @ share)))

    def among(self, rows: Array) -> Sample:
        """The same for some of the rows, given as booleans (n,)."""
        total = float(self.share[rows].sum())
        return Sample(self.share[rows] / total if total > 0.0 else self.share[rows], self.size * total)


class Moved(NamedTuple):
    """How far each of C columns has moved."""

    distance: Array  # (C,)  largest difference between the two distribution functions, 0 to 1
    probability: Array  # (C,)  p-value with Holm's correction
    shift: Array  # (C,)  new mean minus old, in old standard deviations; NaN for categories


class Errors(NamedTuple):
    """Errors of new rows and of left-out training rows."""

    new: Array  # (m,)  NaN for rows without a prediction
    signed: Array  # (m, P)  y − prediction; (m, 0) for classes
    old: Array  # (n,)
    old_signed: Array  # (n, P)
    before: Sample  # weights of the left-out rows


class Drift(NamedTuple):
    """Result of ``drift``; ``print`` gives a readable summary."""

    rows: int  # new rows
    error: float  # their mean error: |y − prediction|, or 1 − the probability of the right class
    usual: float  # that of left-out training rows
    probability: float  # p-value: of errors that rank as high or higher if nothing had changed
    bias: Array  # (P,)  mean of y − prediction, minus that of left-out rows; empty for classes
    bias_error: Array  # (P,)  its standard error
    moved: Moved
    names: tuple[str, ...]  # (C,)
    far: float  # fraction of the new rows that are far from every training row

    @property
    def ratio(self) -> float:
        """Mean error of the new rows over that of left-out training rows."""
        if self.usual == 0.0:
            return 1.0 if self.error == 0.0 else np.inf
        return self.error / self.usual

    @property
    def worse(self) -> bool:
        """Whether the new errors are significantly larger, at the 1 % level."""
        return self.probability < SIGNIFICANCE

    def __str__(self) -> str:
        probability = "< 0.001" if self.probability < 0.001 else f"{self.probability:.2g}"
        times = f"{format_number(self.ratio)} times the usual {format_number(self.usual)}"
        verdict = "Worse than before" if self.worse else "No worse than before"
        lines = [
            f"{verdict}: the mean error of {self.rows:,} new rows is {format_number(self.error)}, {times}.",
            f"  Probability of errors that rank as high if nothing had changed: {probability}.",
        ]
        for output, (bias, error) in enumerate(zip(self.bias, self.bias_error, strict=True)):
            if abs(bias) > 3.0 * error:
                side, which = ("low" if bias > 0.0 else "high"), f" of output {output}" * (len(self.bias) > 1)
                size = f"{format_number(abs(bias))} ± {format_number(error)}"
                lines.append(f"  Predictions{which} have become too {side} by {size} on average.")
        if self.far:
            lines.append(f"  {format_percent(self.far)} of the rows are far from every training row.")
        changed = np.flatnonzero(self.moved.probability < SIGNIFICANCE)
        if not len(changed):
            return "\n".join([*lines, "  No feature has moved."])
        order = changed[np.argsort(-self.moved.distance[changed], kind="stable")]
        distance, shift = map(format_percent, self.moved.distance[order]), map(format_number, self.moved.shift[order])
        body = list(zip([self.names[j] for j in order], distance, shift, strict=True))
        head = ["feature", "distribution moved by", "mean moved by (deviations)"]
        return "\n".join([*lines, "  These features have moved:", *format_table(head, body)])


def compare(rows: TrainingRows, query: Array, batch: Sample, errors: Errors, far: Array) -> Drift:
    """Whether new rows (m, d) are predicted worse than left-out ones, and which features have moved."""
    known = ~np.isnan(errors.new)
    now = batch.among(known)
    if not now.size:
        raise ValueError("no row of X has a training row within the bandwidth, so there are no errors to compare")
    bias, bias_error = _mean_and_error(errors.signed[known], now.share)
    usual_bias, usual_error = _mean_and_error(errors.old_signed, errors.before.share)
    names, fold = rows.fold
    trained = Sample.of(rows.sample_weight, len(rows.key))
    return Drift(
        rows=len(query),
        error=float(now.share @ errors.new[known]),
        usual=float(errors.before.share @ errors.old),
        probability=rank_probability(errors.old, errors.before, errors.new[known], now),
        bias=bias - usual_bias,
        bias_error=np.hypot(bias_error, usual_error),
        moved=moved(rows.key.astype(np.float64), trained, query.astype(np.float64), batch, fold),
        names=names,
        far=float(batch.share @ far),
    )


def _mean_and_error(values: Array, share: Array) -> tuple[Array, Array]:
    """Weighted mean (P,) of values (m, P), and its standard error."""
    mean = share @ values
    return mean, np.sqrt(share**2 @ (values - mean) ** 2)


def rank_probability(old: Array, before: Sample, new: Array, now: Sample) -> float:
    """p-value of new numbers (m,) ranking as high or higher among old ones (n,); O((n + m)·log n).

    >>> round(rank_probability(np.arange(50.0), Sample.of(None, 50), np.full(5, 25.0), Sample.of(None, 5)), 2)
    0.47
    """
    n, m = before.size, now.size
    values, place = np.unique(np.concatenate([old, new]), return_inverse=True)
    share = np.bincount(place[: len(old)], before.share, len(values))
    ranks = (np.cumsum(share) - 0.5 * share)[place[len(old) :]]
    mean = float(now.share @ ranks)
    both = share * n + np.bincount(place[len(old) :], now.share * m, len(values))
    ties = 1.0 - float((both**3 - both).clip(0.0).sum()) / max((n + m) ** 3 - (n + m), 1.0)
    deviation = np.sqrt(max(ties, 0.0) * (1.0 / n + 1.0 / m) / 12.0)
    return float(ndtr((0.5 - mean) / deviation)) if deviation > 0.0 else 1.0


def moved(old: Array, before: Sample, new: Array, now: Sample, fold: Array) -> Moved:
    """How far features have moved from ``old`` (n, d) to ``new`` (m, d); ``fold`` (d, C) adds them up to columns.

    NaN entries are left out. *Cost*: O((n + m)·log(n + m)·d).
    """
    each = [_compare_feature(old[:, j], before, new[:, j], now) for j in range(old.shape[1])]
    distance, probability, shift = (np.array(part) for part in zip(*each, strict=True))
    inside = fold > 0.0  # (d, C)
    per_column = inside.sum(axis=0)
    distance = np.where(inside, distance[:, None], 0.0).max(axis=0)
    probability = np.minimum(np.where(inside, probability[:, None], 1.0).min(axis=0) * per_column, 1.0)
    shift = np.where(per_column == 1, np.where(inside, shift[:, None], 0.0).sum(axis=0), np.nan)
    order = np.argsort(probability, kind="stable")
    holm = np.minimum(np.maximum.accumulate(probability[order] * np.arange(len(order), 0, -1)), 1.0)
    corrected = np.empty(len(order))
    corrected[order] = holm
    return Moved(distance, corrected, shift)


def _compare_feature(old: Array, before: Sample, new: Array, now: Sample) -> tuple[float, float, float]:
    """Distance of two distributions, its p-value, and the shift of the mean in old standard deviations."""
    had, has = ~np.isnan(old), ~np.isnan(new)
    old, before, new, now = old[had], before.among(had), new[has], now.among(has)
    n, m = before.size, now.size
    if not (n > 0.0 and m > 0.0):
        return 0.0, 1.0, 0.0
    values, place = np.unique(np.concatenate([old, new]), return_inverse=True)
    parts = (place[: len(old)], before.share), (place[len(old) :], now.share)
    shares = [np.bincount(part, share, len(values)) for part, share in parts]
    gap = float(np.abs(np.cumsum(shares[0] - shares[1])).max())
    # Stephens' correction for samples of moderate size.
    root = np.sqrt(n * m / (n + m))
    probability = float(kolmogorov((root + 0.12 + 0.11 / root) * gap))
    centre, mean = float(shares[0] @ values), float(shares[1] @ values)
    if old.min() < old.max():
        deviation = float(np.sqrt(shares[0] @ (values - centre) ** 2))
        return gap, probability, (mean - centre) / deviation
    # The old value is known without the rounding of a mean.
    away = float(shares[1] @ (values - old[0]))
    return gap, probability, float(np.sign(away) * np.inf) if away else 0.0

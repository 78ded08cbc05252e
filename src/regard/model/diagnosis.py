"""The diagnosis: is attention too thin, too thick or about right, by how much, and what to do about it.

The notes read it off the diagonal of the heatmap. Too thin, like a needle: w is too large, a row only looks at itself,
over-fitting. Too thick, like a river: w is too small, a row looks at everybody, under-fitting. Here the judge is the
error of left-out rows: how far is it from that of the best w, and on which side of that does w lie?
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from regard.bandwidth.losses import LogLoss
from regard.bandwidth.rules import counts_repetitions
from regard.bandwidth.shapes import spreads
from regard.core.arrays import Array
from regard.core.scores import Gaussian
from regard.model.attention_summary import straightness, summarise
from regard.model.optimum import left_out_error, optimum
from regard.model.smoother import Head, HeadObjective, Smoother
from regard.model.words import number

# Rows looked at where there are more.
ROWS = 2000
# About right: a left-out loss this close to the best, or a w this close to the best.
CLOSE_LOSS, CLOSE_W = 0.02, 1.5
# Losses below this share of the mean's are all the same.
FINEST = 1e-6
# Gains over the mean that chance alone may give: one part in a hundred, and a few rows' worth.
CHANCE, CHANCE_ROWS = 0.01, 3.0
# From how many rows on it is X that says nothing, and not that there are too few rows.
ENOUGH_ROWS = 10
# Fewer effective neighbours than these are hardly anybody.
FEW = 2.0
# Beyond this a factor only means "much".
MUCH = 100.0

PICTURES = {
    "too thin": "too thin, like a needle: w is too large",
    "too thick": "too thick, like a river: w is too small",
    "about right": "about right",
}


class Diagnosis(NamedTuple):
    """Numbers of a fitted attention; ``verdict``, ``why`` and ``advice`` are drawn from them, and printing tells all.

    Losses are mean squared errors in the units of y², with several outputs relative to each one's variance; in a
    classifier they are log-losses.
    """

    neighbours: float  # effective neighbours of a row, 1/Σα²: the median over rows, …
    neighbours_low: float  # … the 10 % quantile, …
    neighbours_high: float  # … and the 90 % quantile
    entropy: float  # −Σ α·log α, the mean over rows
    straightness: float  # rank correlation of where rows stand with where they look, along ``feature``
    feature: str  # the feature that decides most about nearness
    freedom: float  # degrees of freedom, tr H
    rows: float  # training rows, repetitions counted
    rows_looked_at: float  # where there are many, a sample
    training_loss: float  # every row looking at all rows, itself among them
    loo_loss: float  # every row looking at the others
    best_loss: float  # the same at the best w
    mean_loss: float  # every row answered by the mean, or the class frequencies, of the others
    factor: float  # best w over fitted w
    classifier: bool
    rows_with_gaps: float = 0.0  # training rows that were not judged, for they lack something
    # The last three losses with y scaled to unit variance: y² may leave float64, and the verdict is drawn from these.
    scaled_loo_loss: float | None = None
    scaled_best_loss: float | None = None
    scaled_mean_loss: float | None = None

    @property
    def gap(self) -> float:
        """How much larger the left-out loss is than the training loss."""
        return self.loo_loss - self.training_loss

    @property
    def excess(self) -> float:
        """How much larger the left-out loss is than at the best w, as a share of that."""
        left_out, best, mean = self._losses
        least = max(best, FINEST * mean)
        return (left_out - best) / least if least > 0.0 else 0.0

    @property
    def says_nothing(self) -> bool:
        """No w predicts left-out rows better than the mean does, but for chance."""
        chance = CHANCE + CHANCE_ROWS / max(self.rows, 2.0 * CHANCE_ROWS)
        _, best, mean = self._losses
        return best >= (1.0 - chance) * mean

    @property
    def verdict(self) -> str:
        """ "too thin", "too thick" or "about right"."""
        if self.excess <= CLOSE_LOSS or 1.0 / CLOSE_W <= self.factor <= CLOSE_W:
            return "about right"
        if self.factor < 1.0:
            return "too thin"
        # Where only chance gains by looking closer, looking everywhere alike is right.
        return "about right" if self.says_nothing else "too thick"

    @property
    def why(self) -> str:
        """One sentence for the verdict."""
        if self._constant:
            return "y does not vary, so every bandwidth gives the same answers."
        seen = f"A row looks at {number(self.neighbours)} of {self.rows:,.0f} rows"
        if self.verdict == "too thin":
            alone = "hardly at any but itself" if self.neighbours < FEW else "too few for a steady mean"
            return f"{seen}, {alone}; left out, it errs {self._worse()}."
        if self.verdict == "too thick":
            return f"{seen}, near or not; left out, it errs {self._worse()}."
        if self.says_nothing:
            few = "there are too few rows to tell" if self.rows < ENOUGH_ROWS else "X says nothing about y"
            return f"No bandwidth predicts left-out rows better than the mean of the others: {few}."
        return f"{seen}; left out, it errs {self._worse()}."

    @property
    def advice(self) -> str:
        """One sentence on what to do."""
        if self._constant:
            return "Nothing: there is nothing to learn here."
        if self.says_nothing:
            if self.rows < ENOUGH_ROWS:
                return "Collect more rows."
            return "No bandwidth helps, the mean is as good: look for features that say more about y."
        if self.verdict == "about right":
            return "Nothing: neither wider nor narrower is better."
        if np.isinf(self.factor):
            return "Give it a bandwidth, for now it looks at no feature; better, learn one by leave-one-out."
        times = max(self.factor, 1.0 / self.factor)
        told = f"{times:.2g}" if times < MUCH else f"{MUCH:g} or more"
        change = "Widen" if self.factor < 1.0 else "Narrow"
        return f"{change} the bandwidth by a factor of {told}, or learn it by leave-one-out."

    @property
    def _constant(self) -> bool:
        # Of one class, the probability is 1 but for rounding.
        return self._losses[2] <= (1e-12 if self.classifier else 0.0)

    @property
    def _losses(self) -> tuple[float, float, float]:
        """Left out, at the best w and of the mean; scaled where that is known."""
        if self.scaled_loo_loss is None or self.scaled_best_loss is None or self.scaled_mean_loss is None:
            return self.loo_loss, self.best_loss, self.mean_loss
        return self.scaled_loo_loss, self.scaled_best_loss, self.scaled_mean_loss

    def _worse(self) -> str:
        if self.excess == 0.0:
            return "no more than at any other width"
        if self.excess < 2.0:
            return f"{max(self.excess, 0.001):.{1 if self.excess < 0.1 else 0}%} more than at the best width"
        return f"{number(round(self.excess + 1.0))} times as much as at the best width"

    def __str__(self) -> str:
        kind, error = ("log-loss", "loss") if self.classifier else ("mean squared error", "error")
        lines = [
            (
                "effective neighbours",
                self.neighbours,
                f"median; 10 % of rows have fewer than {number(self.neighbours_low)}, "
                f"10 % more than {number(self.neighbours_high)}",
            ),
            ("entropy of attention", self.entropy, f"at most {number(np.log(self.rows))}, looking everywhere alike"),
            ("straightness", self.straightness, f"rank correlation of {self.feature} with where a row looks"),
            ("degrees of freedom", self.freedom, f"of {self.rows:,.0f} rows"),
            (f"training {error}", self.training_loss, f"{kind}, rows see themselves"),
            (f"left-out {error}", self.loo_loss, "no row sees itself"),
            ("  gap", self.gap, "left-out less training"),
            ("  at the best w", self.best_loss, f"w times {number(self.factor)}"),
            ("  of the mean", self.mean_loss, "looking at no feature at all"),
        ]
        table = [f"  {name:<21} {number(figure):>9}  {meaning}" for name, figure, meaning in lines]
        looked = []
        if self.rows_with_gaps:
            there = self.rows + self.rows_with_gaps
            looked.append(f"  (judged by the rows without gaps, {self.rows:,.0f} of {there:,.0f})")
        if self.rows_looked_at < self.rows:
            looked.append(f"  (from {self.rows_looked_at:,.0f} of the rows, drawn at random)")
        return "\n".join([PICTURES[self.verdict], f"  {self.why}", f"  What to do: {self.advice}", *table, *looked])


def diagnose(smoother: Smoother) -> Diagnosis:
    """Diagnosis of a fitted model, along the feature that decides most about nearness.

    *Cost*: O(min(n, 2,000)·n·d) for each of some 10 passes and each head, d² at degree 1; memory O(n·d) and a tile.
    """
    heads, rows = smoother.objectives(), smoother.rows
    feature = int(np.argmax(relevance(smoother)))
    position = rows.whole.key[rows.whole.counted, feature].astype(np.float64)
    lacking, weight = rows.gaps & np.isnan(rows.key).any(axis=1), rows.sample_weight
    gaps = lacking if weight is None else (weight if counts_repetitions(weight) else weight > 0)[lacking]
    first = heads[0].objective
    n = len(first.key)
    # In an order of chance, so that the first ones are a sample too; always the same one.
    some = np.random.default_rng(0).permutation(n)[:ROWS]
    seen = summarise(heads, some, position)
    found = optimum(heads, some)
    mean = left_out_error([HeadObjective(Head(1.0, Gaussian(0.0)), replace(first, degree=0))], some)
    counts = first.counts[some]
    low, middle, high = np.quantile(seen.neighbours, [0.1, 0.5, 0.9], weights=counts, method="inverted_cdf")
    unit = first.loss.unit
    return Diagnosis(
        neighbours=float(middle),
        neighbours_low=float(low),
        neighbours_high=float(high),
        entropy=float(counts @ seen.entropy / counts.sum()),
        straightness=straightness(position[some], seen.attended, counts),
        feature=rows.features[feature],
        freedom=float(seen.leverage.sum()) * n / len(some),
        rows=first.size,
        rows_looked_at=first.size if len(some) == n else float(counts.sum()),
        training_loss=seen.error * unit,
        loo_loss=found.fitted * unit,
        best_loss=found.best * unit,
        mean_loss=mean * unit,
        factor=found.factor,
        classifier=isinstance(first.loss, LogLoss),
        rows_with_gaps=float(gaps.sum()),
        scaled_loo_loss=found.fitted,
        scaled_best_loss=found.best,
        scaled_mean_loss=mean,
    )


def relevance(smoother: Smoother) -> Array:
    """How much each feature decides about nearness, (d,), adding up to 1: its share of Σ (w·spread)², head by head.

    0 for a feature that was smoothed out or does not vary; all 0 where attention ignores every one.
    """
    rows = smoother.rows.whole
    counts = np.ones(len(rows.key)) if rows.sample_weight is None else rows.sample_weight.astype(np.float64)
    total: Any = 0.0
    for head in smoother.heads:
        key = head.transform.keys(rows.key.astype(np.float64))
        size = np.linalg.norm(head.w, axis=1) if head.w.ndim == 2 else np.broadcast_to(head.w, key.shape[1])
        reach = (size * spreads(key, counts)) ** 2
        total = total + head.mix * (reach / reach.sum() if reach.any() else reach)
    return np.asarray(total)

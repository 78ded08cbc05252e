"""The diagnosis: is attention too thin, too thick or about right, by how much, and what to do about it.

The notes read it off the diagonal of the heatmap. Too thin, like a needle: w is too large, a row attends to itself
only, and the model over-fits. Too thick, like a river: w is too small, a row attends to all rows, and the model
under-fits. Here the criterion is the leave-one-out loss: how far is it from that of the best w, and is w larger or
smaller than that?
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from regard.bandwidth.losses import LogLoss
from regard.bandwidth.parametrization import feature_scales
from regard.bandwidth.rules import counts_repetitions
from regard.core.arrays import Array
from regard.core.scores import Gaussian
from regard.model.attention_summary import straightness, summarise
from regard.model.formatting import format_number
from regard.model.loss_path import best_multiple, left_out_error
from regard.model.smoother import Head, HeadObjective, Smoother

# Rows that are evaluated if there are more.
MAX_EVALUATED_ROWS = 2000
# About right: a left-out loss within this fraction of the best, or a w within this factor of the best.
ACCEPTED_EXCESS_LOSS = 0.02
ACCEPTED_FACTOR = 1.5
# Losses below this fraction of the loss of the mean are treated as equal.
LOSS_RESOLUTION = 1e-6
# Gains over the mean that may be due to chance: this fraction of its loss, and the loss of this many rows.
CHANCE_GAIN = 0.01
CHANCE_ROWS = 3.0
# From this many rows on, the conclusion is that X does not predict y rather than that rows are too few.
MIN_ROWS_TO_JUDGE = 10
# With fewer effective neighbours than this, a row attends to hardly any row but itself.
FEW_NEIGHBOURS = 2.0
# Larger factors are reported as "100 or more".
MAX_REPORTED_FACTOR = 100.0

VERDICT_TEXTS = {
    "too thin": "too thin, like a needle: w is too large",
    "too thick": "too thick, like a river: w is too small",
    "about right": "about right",
}


class Diagnosis(NamedTuple):
    """Figures of a fitted model, from which ``verdict``, ``why`` and ``advice`` follow; ``print`` shows all of it.

    Losses are mean squared errors in units of y², or relative to the variance of each output if there are several; for
    a classifier they are log-losses.
    """

    neighbours: float  # effective neighbours of a row, 1/Σα²: the median over rows, …
    neighbours_low: float  # … the 10 % quantile, …
    neighbours_high: float  # … and the 90 % quantile
    entropy: float  # −Σ α·log α, the mean over rows
    straightness: float  # rank correlation of a row's position with the mean position it attends to, along ``feature``
    feature: str  # the feature of the largest relevance
    freedom: float  # degrees of freedom, tr H
    rows: float  # training rows, repetitions counted
    rows_looked_at: float  # rows that were evaluated: a sample if there are many
    training_loss: float  # every row predicted from all rows, itself included
    loo_loss: float  # every row predicted from the others
    best_loss: float  # the same at the best w
    mean_loss: float  # every row predicted by the mean, or the class frequencies, of the others
    factor: float  # best w over fitted w
    classifier: bool
    rows_with_gaps: float = 0.0  # training rows with missing entries, which are not evaluated
    # The last three losses with y scaled to unit variance: y² may overflow, and the verdict follows from these.
    scaled_loo_loss: float | None = None
    scaled_best_loss: float | None = None
    scaled_mean_loss: float | None = None

    @property
    def gap(self) -> float:
        """Left-out loss minus training loss."""
        return self.loo_loss - self.training_loss

    @property
    def excess(self) -> float:
        """How much larger the left-out loss is than at the best w, relative to the latter."""
        left_out, best, mean = self._losses
        least = max(best, LOSS_RESOLUTION * mean)
        return (left_out - best) / least if least > 0.0 else 0.0

    @property
    def says_nothing(self) -> bool:
        """Whether no w predicts left-out rows better than their mean does, beyond chance."""
        chance = CHANCE_GAIN + CHANCE_ROWS / max(self.rows, 2.0 * CHANCE_ROWS)
        _, best, mean = self._losses
        return best >= (1.0 - chance) * mean

    @property
    def verdict(self) -> str:
        """ "too thin", "too thick" or "about right"."""
        if self.excess <= ACCEPTED_EXCESS_LOSS or 1.0 / ACCEPTED_FACTOR <= self.factor <= ACCEPTED_FACTOR:
            return "about right"
        if self.factor < 1.0:
            return "too thin"
        # If the gain of a larger w is within chance, uniform attention is right.
        return "about right" if self.says_nothing else "too thick"

    @property
    def why(self) -> str:
        """One sentence that justifies the verdict."""
        if self._constant:
            return "y does not vary, so every bandwidth gives the same predictions."
        verdict = self.verdict
        if verdict == "about right" and self.says_nothing:
            reason = "there are too few rows to tell" if self.rows < MIN_ROWS_TO_JUDGE else "X says nothing about y"
            return f"No bandwidth predicts left-out rows better than the mean of the others: {reason}."
        alone = "hardly any but itself" if self.neighbours < FEW_NEIGHBOURS else "too few for a stable mean"
        judged = {"too thin": f", {alone}", "too thick": ", whether near or not"}.get(verdict, "")
        attended = f"A row attends to {format_number(self.neighbours)} of {self.rows:,.0f} rows"
        return f"{attended}{judged}; the left-out {self._loss_name} is {self._excess_text()}."

    @property
    def advice(self) -> str:
        """One sentence on what to do."""
        if self._constant:
            return "Nothing: there is nothing to learn here."
        if self.says_nothing:
            if self.rows < MIN_ROWS_TO_JUDGE:
                return "Collect more rows."
            return "No bandwidth helps, the mean is as good: find features that say more about y."
        if self.verdict == "about right":
            return "Nothing: neither wider nor narrower is better."
        if np.isinf(self.factor):
            return "Set a finite bandwidth, for w = 0 ignores every feature; or learn one by leave-one-out."
        times = max(self.factor, 1.0 / self.factor)
        factor = f"{times:.2g}" if times < MAX_REPORTED_FACTOR else f"{MAX_REPORTED_FACTOR:g} or more"
        change = "Widen" if self.factor < 1.0 else "Narrow"
        return f"{change} the bandwidth by a factor of {factor}, or learn it by leave-one-out."

    @property
    def _loss_name(self) -> str:
        return "loss" if self.classifier else "error"

    @property
    def _constant(self) -> bool:
        # With a single class, the probability is 1 up to rounding.
        return self._losses[2] <= (1e-12 if self.classifier else 0.0)

    @property
    def _losses(self) -> tuple[float, float, float]:
        """Losses left out, at the best w and of the mean; with y scaled if those are known."""
        if self.scaled_loo_loss is None or self.scaled_best_loss is None or self.scaled_mean_loss is None:
            return self.loo_loss, self.best_loss, self.mean_loss
        return self.scaled_loo_loss, self.scaled_best_loss, self.scaled_mean_loss

    def _excess_text(self) -> str:
        if self.excess == 0.0:
            return "no larger than at any other w"
        if self.excess < 2.0:
            return f"{max(self.excess, 0.001):.{1 if self.excess < 0.1 else 0}%} above that at the best w"
        return f"{format_number(round(self.excess + 1.0))} times that at the best w"

    def __str__(self) -> str:
        kind, error = "log-loss" if self.classifier else "mean squared error", self._loss_name
        lines = [
            (
                "effective neighbours",
                self.neighbours,
                f"median; 10 % of rows have fewer than {format_number(self.neighbours_low)}, "
                f"10 % more than {format_number(self.neighbours_high)}",
            ),
            ("entropy of attention", self.entropy, f"at most {format_number(np.log(self.rows))}, if uniform"),
            ("straightness", self.straightness, f"rank correlation of {self.feature} with its attended mean"),
            ("degrees of freedom", self.freedom, f"of {self.rows:,.0f} rows"),
            (f"training {error}", self.training_loss, f"{kind}, each row predicted from all rows"),
            (f"left-out {error}", self.loo_loss, "each row predicted from the others"),
            ("  gap", self.gap, "left-out minus training"),
            ("  at the best w", self.best_loss, f"w times {format_number(self.factor)}"),
            ("  of the mean", self.mean_loss, "ignoring every feature"),
        ]
        table = [f"  {name:<21} {format_number(figure):>9}  {meaning}" for name, figure, meaning in lines]
        notes = []
        if self.rows_with_gaps:
            total = self.rows + self.rows_with_gaps
            notes.append(f"  (evaluated on the rows without missing entries, {self.rows:,.0f} of {total:,.0f})")
        if self.rows_looked_at < self.rows:
            notes.append(f"  (evaluated on a random sample of {self.rows_looked_at:,.0f} rows)")
        return "\n".join([VERDICT_TEXTS[self.verdict], f"  {self.why}", f"  What to do: {self.advice}", *table, *notes])


def diagnose(smoother: Smoother) -> Diagnosis:
    """Diagnosis of a fitted model, along its most relevant feature.

    *Cost*: O(min(n, 2,000)·n·d) for each of some 10 passes and each head, d² at degree 1; memory O(n·d) and a tile.
    """
    heads, rows = smoother.objectives(), smoother.rows
    feature = int(np.argmax(relevance(smoother)))
    position = rows.whole.key[rows.whole.counted, feature].astype(np.float64)
    missing, weight = rows.gaps & np.isnan(rows.key).any(axis=1), rows.sample_weight
    gaps = missing if weight is None else (weight if counts_repetitions(weight) else weight > 0)[missing]
    first = heads[0].objective
    n = len(first.key)
    # In a fixed random order, so that the first ones are a sample too.
    some = np.random.default_rng(0).permutation(n)[:MAX_EVALUATED_ROWS]
    summary = summarise(heads, some, position)
    found = best_multiple(heads, some)
    mean = left_out_error([HeadObjective(Head(1.0, Gaussian(0.0)), replace(first, degree=0))], some)
    counts = first.counts[some]
    low, middle, high = np.quantile(summary.neighbours, [0.1, 0.5, 0.9], weights=counts, method="inverted_cdf")
    unit = first.loss.unit
    return Diagnosis(
        neighbours=float(middle),
        neighbours_low=float(low),
        neighbours_high=float(high),
        entropy=float(counts @ summary.entropy / counts.sum()),
        straightness=straightness(position[some], summary.attended, counts),
        feature=rows.features[feature],
        freedom=float(summary.leverage.sum()) * n / len(some),
        rows=first.size,
        rows_looked_at=first.size if len(some) == n else float(counts.sum()),
        training_loss=summary.error * unit,
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
    """Relevance of each feature for nearness, (d,), summing to 1: its fraction of Σ (w·standard deviation)² per head.

    0 for a feature that was smoothed out or is constant; all 0 if attention ignores every feature.
    """
    rows = smoother.rows.whole
    counts = np.ones(len(rows.key)) if rows.sample_weight is None else rows.sample_weight.astype(np.float64)
    total: Any = 0.0
    for head in smoother.heads:
        key = head.transform.keys(rows.key.astype(np.float64))
        size = np.linalg.norm(head.w, axis=1) if head.w.ndim == 2 else np.broadcast_to(head.w, key.shape[1])
        reach = (size * feature_scales(key, counts)) ** 2
        total = total + head.mix * (reach / reach.sum() if reach.any() else reach)
    return np.asarray(total)

"""Attention whose score is learned: additive, dot product or Gaussian, over the features or over an embedding."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state

from regard.bandwidth.distinct import Distinct, distinct, spread_out
from regard.bandwidth.losses import SquaredError
from regard.bandwidth.search import Progress
from regard.bandwidth.shapes import spreads
from regard.estimators.bar import bar
from regard.estimators.base import Array
from regard.estimators.callbacks import watched
from regard.estimators.learned_score import LearnedScore, standardised, torch_part
from regard.estimators.left_out import LeftOut
from regard.pooling import pool

SCORES = ("gaussian", "additive", "dot")
# From this many rows on, early_stopping="auto" holds some out.
MANY = 1000


class History(NamedTuple):
    """How learning went; losses are parts of the variance of y, so that always answering the mean is 1."""

    loss: Array  # (epochs,)  left-out squared error, the mean over an epoch's minibatches as they came
    validation: Array | None  # (epochs,)  the same for rows held out, after each epoch
    best: int  # number of the epoch whose parameters were kept, from 0
    interrupted: bool


class _Score:
    """``score`` is a parameter where it is set, and scikit-learn's method where it is called."""

    def __get__(self, model: Any, owner: Any) -> Any:
        return RegressorMixin.score if model is None else RegressorMixin.score.__get__(model)

    def __set__(self, model: Any, value: Any) -> None:
        vars(model)["score"] = value


class AttentionRegressor(LearnedScore):
    """A weighted average of y whose weights come from a learned score; in short, attention over the training rows.

    predict(x) = Σ_k softmax_k(score(embed(x), embed(x_k))) y_k

    ==========  =====================================  ==================================================
    gaussian    −½‖w∘(q − k)‖², w per feature          with ``embed``, a deep kernel; without, the
                                                       bandwidths of ``NadarayaWatsonRegressor``
    additive    w_vᵀ tanh(W_q q + W_k k)               the notes' ``AdditiveAttentionReg``
    dot         qᵀ W k, at first q·k/√r                without ``embed`` it can lean, but not look closely
    ==========  =====================================  ==================================================

    Everything is learned by leaving out: each training row is answered by all others (never by itself, nor by its
    group), and Adam walks down the squared error in minibatches, its rate falling along a cosine. X and y are
    standardised inside. Needs torch: ``pip install 'regard[nn]'``.

    Parameters
    ----------
    score : "gaussian", "additive" or "dot". ``get_params`` tells it; ``model.score(X, y)`` is R², as everywhere.
    embed : None compares the standardised features; "mlp" adds to them what a network with two hidden layers makes of
        them; or a torch module from rows (n, d) to (n, r). A copy of it is trained, starting from its weights.
    hidden_size : units of a hidden layer, in the additive score and in "mlp".
    embed_size : features that "mlp" adds.
    max_iter : epochs at most. An epoch walks through all rows; through a small table as often as fits into 32 steps.
    learning_rate : of Adam at the start; the logarithm of a Gaussian's w moves ten times as fast.
    batch_size : queries in a minibatch; each looks at all keys.
    early_stopping : True holds out ``validation_fraction`` of the rows while learning, keeps the epoch that answers
        them best and stops after ``n_iter_no_change`` epochs without a better one. False learns on all rows for
        ``max_iter`` epochs and keeps the one with the least left-out error. "auto" is True from 1,000 rows on. Once
        learning is over, rows held out are keys like all others.
    validation_fraction, n_iter_no_change : see ``early_stopping``.
    random_state : seed of the start, the order of rows and the rows held out. On a CPU the same seed gives the same
        model to the last bit.
    device : "cpu" or "cuda", where it learns and answers; which rows were looked at is computed on the CPU.
    progress : True shows a bar.

    Attributes
    ----------
    history_ : ``History(loss, validation, best, interrupted)``; n_iter_ : epochs walked.
    parameters_ : what was learned, name → array: "score.…" and "embed.…", for standardised features.
    mean_, scale_ : (d,) of X; the scale of a feature that does not vary is inf, which ignores it.
    embedding_ : (K, r) the training rows as the score sees them.
    w_, bandwidth_ : (d,) in the units of X, for a Gaussian score without ``embed``.
    loo_predictions_, loo_score_ : every row as the others predict it, and the R² of that. The parameters have seen
        these rows: with an embedding, expect a little less of new ones.
    key_, value_, sample_weight_ : the training rows, (K, d), (K,) or (K, P), and (K,) or None.
    n_features_in_, feature_names_in_ : what ``fit`` saw; names only where X is a dataframe with text names.

    *Empty rows*: there are none. *Cost*: an epoch takes O(K²·r) time (times ``hidden_size`` for an additive score) and
    O(batch·K) memory; ``predict`` takes O(Q·K·r) time, O(Q + K) memory and a tile.

    >>> import numpy as np
    >>> x = np.linspace(0.0, 6.0, 60)[:, None]
    >>> model = AttentionRegressor(max_iter=5, random_state=0).fit(x, np.sin(x[:, 0]))
    >>> bool(model.loo_score_ > 0.95)
    True
    """

    score: Any = _Score()
    history_: History
    loo_predictions_: Array
    loo_score_: float

    def __init__(
        self,
        score: str = "gaussian",
        embed: Any = None,
        *,
        hidden_size: int = 64,
        embed_size: int = 8,
        max_iter: int = 15,
        learning_rate: float = 0.01,
        batch_size: int = 512,
        early_stopping: Any = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        random_state: Any = None,
        device: str = "cpu",
        progress: bool = False,
    ) -> None:
        self.score = score
        self.embed = embed
        self.hidden_size = hidden_size
        self.embed_size = embed_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as scikit-learn asks for them."""
        return {**super().get_params(deep), "score": vars(self)["score"]}

    def _learn(self, key: Array, value: Array, sample_weight: Array | None, groups: Any) -> None:
        nn = torch_part("left_out")
        table = distinct(key, value, sample_weight, groups)
        left_out = LeftOut.of(table)
        rows = table.key.astype(np.float64)
        mean = left_out.counts / left_out.counts.sum() @ rows
        scale = spreads(rows, left_out.counts)
        scale = np.where(scale > 0.0, scale, np.inf)
        target = SquaredError.of(table.value.astype(np.float64), left_out.counts)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        train, held = self._split(len(rows), random)
        inputs = standardised(rows, mean, scale)
        parts = [_rows(nn, inputs, target.columns, left_out, part) if len(part) else None for part in (train, held)]
        with watched(self) as heard, bar(self.progress, "Learning attention", self.max_iter) as drawn:
            learned = nn.learn(*parts, self._settings(nn, len(train), seed), _both(heard, drawn))
        for name in ("w_", "bandwidth_"):
            self.__dict__.pop(name, None)  # what an earlier fit learned
        self._remember(key, value, sample_weight)
        self.mean_, self.scale_, self.parameters_ = mean, scale, learned.parameters
        validation = np.array(learned.validation) if len(held) else None
        self.history_ = History(np.array(learned.loss), validation, learned.best, learned.interrupted)
        self.n_iter_ = len(learned.loss)
        self.embedding_ = self._placed(key)
        if vars(self)["score"] == "gaussian" and self.embed is None:
            w = np.exp(learned.parameters["score.log_w"].astype(np.float64))
            with np.errstate(over="ignore"):
                self.w_, self.bandwidth_ = w / scale, scale / w
        self._look_back(table, left_out, target)

    def _look_back(self, table: Distinct, left_out: LeftOut, target: SquaredError) -> None:
        """Every training row as the others answer it."""
        place = self._placed(table.key)
        answer, _ = pool(
            self._as_queries(place),
            place[left_out.key],
            target.columns[left_out.key],
            self.attention_score_,
            sample_weight=left_out.key_weight,
            exclude=(left_out.label, left_out.key_label),
            engine=self._engine,
        )
        loss = target(answer, np.arange(len(place)), left_out.counts).value
        answers = spread_out(target.in_units_of_y(answer), table.place)
        self.loo_predictions_ = answers[:, 0] if self.value_.ndim == 1 else answers
        self.loo_score_ = 1.0 - loss

    def _split(self, rows: int, random: Any) -> tuple[Array, Array]:
        """Numbers of the rows to learn from, and of those to hold out."""
        wanted = self.early_stopping is True or (self.early_stopping == "auto" and rows >= MANY)
        order = random.permutation(rows) if wanted else np.arange(rows)
        count = max(1, round(self.validation_fraction * rows)) if wanted else 0
        if wanted and rows - count < 2:
            raise ValueError(f"early_stopping=True needs rows to learn from beside those held out, got {rows} rows")
        return np.sort(order[count:]), np.sort(order[:count])

    def _settings(self, nn: Any, rows: int, seed: int) -> Any:
        return nn.Settings(
            vars(self)["score"],
            self.embed,
            int(self.hidden_size),
            int(self.embed_size),
            int(self.max_iter),
            float(self.learning_rate),
            min(self.batch_size, rows),
            int(self.n_iter_no_change),
            self.device,
            seed,
        )

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if vars(self)["score"] not in SCORES:
            raise ValueError(f"score must be one of {', '.join(map(repr, SCORES))}, got {vars(self)['score']!r}")
        if isinstance(self.embed, str):
            if self.embed != "mlp":
                raise ValueError(f"embed must be None, 'mlp' or a torch module, got {self.embed!r}")
        elif self.embed is not None and not isinstance(self.embed, torch_part("network").nn.Module):
            raise TypeError(f"embed must be None, 'mlp' or a torch module, got {self.embed!r}")
        for name in ("hidden_size", "embed_size", "max_iter", "batch_size", "n_iter_no_change"):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {given!r}")
        for name, end in (("learning_rate", np.inf), ("validation_fraction", 1.0)):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, Real) or not 0.0 < float(given) < end:
                raise ValueError(f"{name} must be a number between 0 and {end:g}, got {given!r}")
        if not isinstance(self.early_stopping, bool) and str(self.early_stopping) != "auto":
            raise ValueError(f"early_stopping must be True, False or 'auto', got {self.early_stopping!r}")


def _rows(nn: Any, inputs: Array, columns: Array, left_out: LeftOut, part: Array) -> Any:
    """Some of the rows, as ``learn`` takes them."""
    counts, label, key, key_label, weight = left_out.among(part)
    log_weight = None if weight is None else np.log(weight)
    return nn.Rows(inputs[part], columns[part], counts / left_out.counts.mean(), label, key, key_label, log_weight)


def _both(*told: Progress | None) -> Progress:
    """Progress told to everybody who wants to know."""

    def progress(step: int, value: float) -> None:
        for one in told:
            if one is not None:
                one(step, value)

    return progress

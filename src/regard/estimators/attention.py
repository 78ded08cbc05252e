"""Attention whose score is learned: additive, dot product or Gaussian, over the features or over an embedding."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state

from regard.bandwidth.distinct import Distinct, distinct, expand_rows
from regard.bandwidth.losses import SquaredError
from regard.bandwidth.parametrization import feature_scales
from regard.core.arrays import Array
from regard.core.scores import Additive, DotProduct, Gaussian, Score
from regard.estimators.callbacks import bar, watched
from regard.estimators.regressor import SmoothingRegressor
from regard.model.leave_one_out import LeaveOneOutKeys
from regard.model.residual_scale import row_counts
from regard.model.smoother import Embedded, Head, RunOptions, Smoother, standardised, torch_part

# From this many rows on, early_stopping="auto" holds some out.
ROWS_TO_HOLD_OUT = 1000


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


class AttentionRegressor(SmoothingRegressor):
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
    embed: Any
    history_: History
    parameters_: dict[str, Array]  # "embed.…" and "score.…"
    embedding_: Array  # (K, r)
    mean_: Array  # (d,)
    scale_: Array  # (d,)
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
        self._set(locals())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as scikit-learn asks for them."""
        return {**super().get_params(deep), "score": vars(self)["score"]}

    @property
    def _BANDWIDTH(self) -> bool:  # type: ignore[override]
        """A Gaussian score of the features themselves has one."""
        return vars(self)["score"] == "gaussian" and self.embed is None

    def _learn(self, key: Array, value: Array, weight: Array | None, groups: Any, classes: int | None) -> None:  # noqa: ARG002
        nn = torch_part("loo_training")
        table = distinct(key, value, weight, groups)
        left_out = LeaveOneOutKeys.of(table)
        mean, scale = _mean_and_scale(table, left_out.counts)
        target = SquaredError.of(table.value.astype(np.float64), left_out.counts)
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        train, held = self._split(len(table.key), random)
        inputs = standardised(table.key, mean, scale)
        parts = [_rows(nn, inputs, target.columns, left_out, part) if len(part) else None for part in (train, held)]
        with watched(self) as heard, bar(self.progress, "Learning attention", self.max_iter) as drawn:

            def progress(step: int, value: float) -> None:
                for one in (heard, drawn):
                    if one is not None:
                        one(step, value)

            learned = nn.learn(*parts, self._settings(nn, len(train), seed), progress)
        self._remember(key, value, weight)
        self.parameters_ = learned.parameters
        validation = np.array(learned.validation) if len(held) else None
        self.history_ = History(np.array(learned.loss), validation, learned.best, learned.interrupted)
        self.n_iter_ = len(learned.loss)
        self._place(mean, scale)
        self._leave_out(table, left_out, target)

    def _place(self, mean: Array, scale: Array) -> None:
        """All rows as the score takes them, and the bandwidths where it has some."""
        for name in ("w_", "bandwidth_"):
            self.__dict__.pop(name, None)
        self.mean_, self.scale_ = mean, scale
        self.embedding_ = self._transform().keys(self.key_)
        if self._BANDWIDTH:
            w = np.exp(self.parameters_["score.log_w"].astype(np.float64))
            with np.errstate(over="ignore"):
                self.w_, self.bandwidth_ = w / scale, scale / w

    def _leave_out(self, table: Distinct, left_out: LeaveOneOutKeys, target: SquaredError) -> None:
        """Every training row as the others answer it."""
        transform = self._transform()
        place = transform.keys(table.key)
        engine = RunOptions(device=self.device).options["engine"]
        answer = left_out.answers(transform.turned(place), place, target.columns, self._score(), engine)
        loss = target(answer, np.arange(len(table.key)), left_out.counts).value
        answers = expand_rows(target.in_units_of_y(answer), table.place)
        self.loo_predictions_ = answers[:, 0] if self.value_.ndim == 1 else answers
        self.loo_score_ = 1.0 - loss

    def _rescale(self) -> None:
        table = distinct(self.key_, self.value_, self.sample_weight_)
        counts = row_counts(table.weight, len(table.key))
        self._place(*_mean_and_scale(table, counts))
        if len(table.key) > 1:
            self._leave_out(table, LeaveOneOutKeys.of(table), SquaredError.of(table.value.astype(np.float64), counts))

    def _heads(self) -> tuple[Head, ...]:
        return (Head(1.0, self._score(), self._transform()),)

    def _make_smoother(self) -> Smoother:
        smoother = super()._make_smoother()
        # The network has placed the rows already.
        smoother.rows._placed[smoother.heads[0].transform] = self.embedding_
        return smoother

    def _score(self) -> Score:
        """The score between rows as ``embedding_`` has them."""
        learned = {name: array.astype(np.float64) for name, array in self._learned("score.").items()}
        if "log_w" in learned:
            return Gaussian(np.exp(learned["log_w"]))
        if "W" in learned:
            return DotProduct(np.sqrt(len(learned["W"])))
        return Additive(learned["W_q.weight"], learned["W_k.weight"], learned["w_v.weight"][0])

    def _transform(self) -> Embedded:
        return Embedded(self.mean_, self.scale_, self.embed, self._learned("embed."), self.parameters_.get("score.W"))

    def _learned(self, part: str) -> dict[str, Array]:
        """The learned arrays of "embed." or "score.", by their names within."""
        return {name.removeprefix(part): array for name, array in self.parameters_.items() if name.startswith(part)}

    def _split(self, rows: int, random: Any) -> tuple[Array, Array]:
        """Numbers of the rows to learn from, and of those to hold out."""
        wanted = self.early_stopping is True or (self.early_stopping == "auto" and rows >= ROWS_TO_HOLD_OUT)
        order = random.permutation(rows) if wanted else np.arange(rows)
        count = max(1, round(self.validation_fraction * rows)) if wanted else 0
        if wanted and rows - count < 2:
            raise ValueError(f"early_stopping=True needs rows to learn from beside those held out, got {rows} rows")
        return np.sort(order[count:]), np.sort(order[:count])

    def _settings(self, nn: Any, rows: int, seed: int) -> Any:
        return nn.LearningSettings(
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

    # ---- files

    def _plain_params(self, deep: bool = False) -> dict[str, Any]:
        """Parameters as a file can hold them: of a module its recipe, or its name where it is of no known layers."""
        params: dict[str, Any] = self.get_params(deep)
        if not (self.embed is None or isinstance(self.embed, str)):
            kind = type(self.embed)
            described = torch_part("recipes").recipe(self.embed)
            params["embed"] = {"class": f"{kind.__module__}.{kind.__qualname__}"} if described is None else described
        return params

    def _rebuild(self, embed: Any) -> None:
        """Put back the module that ``_plain_params`` described, or a copy of the one given, with its learned arrays."""
        if self.embed is None or isinstance(self.embed, str):
            if embed is not None:
                raise ValueError(f"embed is for models fitted with a module; this one has embed={self.embed!r}")
            return
        recipes, learned = torch_part("recipes"), self._learned("embed.")
        if embed is not None:
            if not isinstance(embed, recipes.nn.Module):
                raise TypeError(f"embed must be a torch module, got {embed!r}")
            self.embed = recipes.with_parameters(deepcopy(embed).cpu(), learned)
        elif isinstance(self.embed, dict):
            raise ValueError(
                f"embed was a {str(self.embed.get('class'))[:100]}, which a file cannot hold; "
                "make one in the same way and pass it: regard.load(path, embed=…)"
            )
        else:
            self.embed = recipes.with_parameters(recipes.made(self.embed), learned)


def _mean_and_scale(table: Distinct, counts: Array) -> tuple[Array, Array]:
    """Mean (d,) of the features, and their scale: inf for one that does not vary, which ignores it."""
    rows = table.key.astype(np.float64)
    scale = feature_scales(rows, counts)
    return counts / counts.sum() @ rows, np.where(scale > 0.0, scale, np.inf)


def _rows(nn: Any, inputs: Array, columns: Array, left_out: LeaveOneOutKeys, part: Array) -> Any:
    """Some of the rows, as ``learn`` takes them."""
    counts, label, key, key_label, weight = left_out.among(part)
    log_weight = None if weight is None else np.log(weight)
    return nn.LabelledRows(
        inputs[part], columns[part], counts / left_out.counts.mean(), label, key, key_label, log_weight
    )

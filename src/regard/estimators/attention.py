"""Attention with a learned score: additive, dot product or Gaussian, over the features or over an embedding."""

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
from regard.estimators.callbacks import callback_progress, progress_bar
from regard.estimators.regressor import SmoothingRegressor
from regard.model.leave_one_out import LeaveOneOutKeys
from regard.model.residual_scale import row_counts
from regard.model.smoother import Embedded, Head, RunOptions, Smoother, standardised, torch_part

# From this many rows on, early_stopping="auto" holds out a validation set.
MIN_ROWS_TO_HOLD_OUT = 1000


class History(NamedTuple):
    """Course of the training; losses are relative to the variance of y, so that predicting the mean has loss 1."""

    loss: Array  # (epochs,)  leave-one-out squared error, the mean over the minibatches of an epoch
    validation: Array | None  # (epochs,)  the same for the validation rows, after each epoch
    best: int  # the epoch whose parameters were selected, from 0
    interrupted: bool


class _Score:
    """``score`` is a parameter when set, and scikit-learn's method when read."""

    def __get__(self, model: Any, owner: Any) -> Any:
        return RegressorMixin.score if model is None else RegressorMixin.score.__get__(model)

    def __set__(self, model: Any, value: Any) -> None:
        vars(model)["score"] = value


class AttentionRegressor(SmoothingRegressor):
    """Attention over the training rows: a weighted average of y, with weights from a learned score.

    predict(x) = Σ_k softmax_k(score(embed(x), embed(x_k))) y_k

    ==========  =====================================  ==================================================
    gaussian    −½‖w∘(q − k)‖², w per feature          with ``embed``, a deep kernel; without, the
                                                       bandwidths of ``NadarayaWatsonRegressor``
    additive    w_vᵀ tanh(W_q q + W_k k)               the notes' ``AdditiveAttentionReg``
    dot         qᵀ W k, initially q·k/√r               without ``embed`` it fits trends, but nothing local
    ==========  =====================================  ==================================================

    The leave-one-out squared error is minimised: each training row is predicted from all others, excluding itself and
    its group. The optimiser is Adam on minibatches with a cosine schedule. X and y are standardised internally. Needs
    torch: ``pip install 'regard[nn]'``.

    Parameters
    ----------
    score : {"gaussian", "additive", "dot"}, default="gaussian"
        ``get_params`` returns it; the method ``model.score(X, y)`` is R², as in scikit-learn.
    embed : None, "mlp" or torch.nn.Module, default=None
        None uses the standardised features; "mlp" appends the output of a network with two hidden layers; a module maps
        rows (n, d) to (n, r). A copy of the module is trained, starting from its weights.
    hidden_size : int, default=64
        Units of a hidden layer, in the additive score and in "mlp".
    embed_size : int, default=8
        Number of features that "mlp" appends.
    max_iter : int, default=15
        Maximum number of epochs. An epoch passes over all rows, over a small table as often as fits into 32 steps.
    learning_rate : float, default=0.01
        Initial learning rate of Adam; that of the logarithm of a Gaussian's w is ten times as large.
    batch_size : int, default=512
        Queries in a minibatch; each attends to all keys.
    early_stopping : bool or "auto", default="auto"
        True holds out ``validation_fraction`` of the rows during training, selects the epoch with the least validation
        error and stops after ``n_iter_no_change`` epochs without improvement. False trains on all rows for ``max_iter``
        epochs and selects the one with the least leave-one-out error. "auto" is True from 1,000 rows on. After
        training, the validation rows are keys like all others.
    validation_fraction, n_iter_no_change : float, default=0.1, and int, default=10
        See ``early_stopping``.
    random_state : int, RandomState or None, default=None
        Seed of the initialisation, the order of rows and the validation set. On a CPU results are reproducible bit for
        bit.
    device : {"cpu", "cuda"}, default="cpu"
        Device for learning and predicting; ``attend`` is always computed on the CPU.
    progress : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    history_ : History(loss, validation, best, interrupted)
        Course of the training.
    n_iter_ : int
        Number of epochs.
    parameters_ : dict of arrays
        The learned parameters, "score.…" and "embed.…", for standardised features.
    mean_, scale_ : arrays of shape (d,)
        Mean and standard deviation of X; the scale of a constant feature is inf, which ignores it.
    embedding_ : array of shape (K, r)
        The training rows in the coordinates of the score.
    w_, bandwidth_ : arrays of shape (d,)
        In the units of X, for a Gaussian score without ``embed``.
    loo_predictions_, loo_score_ : array of the shape of y, float
        Leave-one-out predictions, and their R². The parameters were learned from these rows: with an embedding, the R²
        of new rows is somewhat lower.
    key_, value_, sample_weight_ : arrays of shapes (K, d), (K,) or (K, P), and (K,) or None
        The training rows.
    n_features_in_, feature_names_in_ : int, array of shape (d,)
        As in scikit-learn.

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
        self._set_parameters(locals())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as scikit-learn's ``get_params``.

        Parameters
        ----------
        deep : bool, default=True
            Also those of parameters that are estimators.

        Returns
        -------
        dict
        """
        return {**super().get_params(deep), "score": vars(self)["score"]}

    @property
    def _HAS_BANDWIDTH(self) -> bool:  # type: ignore[override]
        """A Gaussian score without an embedding has a bandwidth."""
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
        with (
            callback_progress(self) as callback,
            progress_bar(self.progress, "Learning attention", self.max_iter) as bar,
        ):

            def progress(step: int, value: float) -> None:
                for report in (callback, bar):
                    if report is not None:
                        report(step, value)

            settings = vars(self) | {"batch_size": min(self.batch_size, len(train)), "seed": seed}
            settings["learning_rate"] = float(self.learning_rate)
            learned = nn.learn(
                *parts, nn.LearningSettings(*(settings[name] for name in nn.LearningSettings._fields)), progress
            )
        self._set_training_rows(key, value, weight)
        self.parameters_ = learned.parameters
        validation = np.array(learned.validation) if len(held) else None
        self.history_ = History(np.array(learned.loss), validation, learned.best, learned.interrupted)
        self.n_iter_ = len(learned.loss)
        self._place(mean, scale)
        self._leave_out(table, left_out, target)

    def _place(self, mean: Array, scale: Array) -> None:
        """Set the coordinates of all rows, and the bandwidth if there is one."""
        for name in ("w_", "bandwidth_"):
            self.__dict__.pop(name, None)
        self.mean_, self.scale_ = mean, scale
        self.embedding_ = self._transform().keys(self.key_)
        if self._HAS_BANDWIDTH:
            w = np.exp(self.parameters_["score.log_w"].astype(np.float64))
            with np.errstate(over="ignore"):
                self.w_, self.bandwidth_ = w / scale, scale / w

    def _leave_out(self, table: Distinct, left_out: LeaveOneOutKeys, target: SquaredError) -> None:
        """Set the leave-one-out predictions and their R²."""
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
        # The embedding of the rows is known already.
        smoother.rows._placed[smoother.heads[0].transform] = self.embedding_
        return smoother

    def _score(self) -> Score:
        """The score in the coordinates of ``embedding_``."""
        learned = {name: array.astype(np.float64) for name, array in self._learned("score.").items()}
        if "log_w" in learned:
            return Gaussian(np.exp(learned["log_w"]))
        if "W" in learned:
            return DotProduct(np.sqrt(len(learned["W"])))
        return Additive(learned["W_q.weight"], learned["W_k.weight"], learned["w_v.weight"][0])

    def _transform(self) -> Embedded:
        return Embedded(self.mean_, self.scale_, self.embed, self._learned("embed."), self.parameters_.get("score.W"))

    def _learned(self, part: str) -> dict[str, Array]:
        """The learned arrays of "embed." or "score.", by their names without that prefix."""
        return {name.removeprefix(part): array for name, array in self.parameters_.items() if name.startswith(part)}

    def _split(self, rows: int, random: Any) -> tuple[Array, Array]:
        """Positions of the training rows, and of the validation rows."""
        wanted = self.early_stopping is True or (self.early_stopping == "auto" and rows >= MIN_ROWS_TO_HOLD_OUT)
        order = random.permutation(rows) if wanted else np.arange(rows)
        count = max(1, round(self.validation_fraction * rows)) if wanted else 0
        if wanted and rows - count < 2:
            raise ValueError(f"early_stopping=True needs at least 3 rows, got {rows}")
        return np.sort(order[count:]), np.sort(order[:count])

    # ---- files

    def _plain_params(self, deep: bool = False) -> dict[str, Any]:
        """Parameters for a file: a module as its recipe, or as the name of its class if it has other layers."""
        params: dict[str, Any] = self.get_params(deep)
        if not (self.embed is None or isinstance(self.embed, str)):
            kind = type(self.embed)
            described = torch_part("recipes").recipe(self.embed)
            params["embed"] = {"class": f"{kind.__module__}.{kind.__qualname__}"} if described is None else described
        return params

    def _rebuild(self, embed: Any) -> None:
        """Restore the module that ``_plain_params`` described, or a copy of ``embed``, with the learned arrays."""
        if self.embed is None or isinstance(self.embed, str):
            if embed is not None:
                raise ValueError(f"embed must be None, since this model was fitted with embed={self.embed!r}")
            return
        recipes, learned = torch_part("recipes"), self._learned("embed.")
        if embed is not None:
            if not isinstance(embed, recipes.nn.Module):
                raise TypeError(f"embed must be a torch module, got {embed!r}")
            self.embed = recipes.with_parameters(deepcopy(embed).cpu(), learned)
        elif isinstance(self.embed, dict):
            raise ValueError(
                f"embed was a {str(self.embed.get('class'))[:100]}, which is not stored in the file; "
                "pass a module made in the same way: regard.load(path, embed=…)"
            )
        else:
            self.embed = recipes.with_parameters(recipes.made(self.embed), learned)


def _mean_and_scale(table: Distinct, counts: Array) -> tuple[Array, Array]:
    """Mean (d,) of the features, and their scale: the standard deviation, or inf for a constant feature."""
    rows = table.key.astype(np.float64)
    scale = feature_scales(rows, counts)
    return counts / counts.sum() @ rows, np.where(scale > 0.0, scale, np.inf)


def _rows(nn: Any, inputs: Array, columns: Array, left_out: LeaveOneOutKeys, part: Array) -> Any:
    """Some of the rows as input of ``learn``."""
    counts, label, key, key_label, weight = left_out.among(part)
    log_weight = None if weight is None else np.log(weight)
    return nn.LabelledRows(
        inputs[part], columns[part], counts / left_out.counts.mean(), label, key, key_label, log_weight
    )

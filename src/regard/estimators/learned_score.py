"""Answers by a learned score: rows are standardised and embedded, and ``pool`` does the rest."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from regard.estimators.base import Array
from regard.estimators.learning import LearningRegressor
from regard.estimators.modules import packed, unpacked
from regard.forks import limit_torch
from regard.pooling import attention_weights, pool
from regard.scores import Additive, DotProduct, Gaussian, Score

# Farther from the mean than this many standard deviations, everything is equally far.
FAR = 1e100


class LearnedScore(LearningRegressor):
    """``predict`` and ``attend`` from learned arrays; torch is needed only where there is an embedding."""

    embed: Any  # None, "mlp" or a module
    parameters_: dict[str, Array]  # "embed.…" and "score.…"
    embedding_: Array  # (K, r)
    mean_: Array  # (d,)
    scale_: Array  # (d,)

    @property
    def attention_score_(self) -> Score:  # type: ignore[override]
        """The score of ``regard.scores`` between rows as ``embedding_`` has them; those of "dot" ask through W."""
        check_is_fitted(self)
        learned = {name: array.astype(np.float64) for name, array in self._learned("score.").items()}
        if "log_w" in learned:
            return Gaussian(np.exp(learned["log_w"]))
        if "W" in learned:
            return DotProduct(np.sqrt(len(learned["W"])))
        return Additive(learned["W_q.weight"], learned["W_k.weight"], learned["w_v.weight"][0])

    def _averages(self, query: Array, value: Array) -> tuple[Array, Array]:
        pooled = pool(
            self._as_queries(self._placed(query)),
            self.embedding_,
            value.astype(np.float64),
            self.attention_score_,
            sample_weight=self.sample_weight_,
            engine=self._engine,
        )
        return pooled.output.astype(query.dtype), np.isneginf(pooled.logsumexp)

    def _weights(self, query: Array) -> tuple[Array, Array]:
        asked = self._as_queries(self._placed(query))
        weights = attention_weights(asked, self.embedding_, self.attention_score_, sample_weight=self.sample_weight_)
        return weights.astype(query.dtype, copy=False), np.zeros(len(query), bool)

    def _placed(self, rows: Array) -> Array:
        """Rows of X as ``embedding_`` has them, (Q, r) in float64."""
        place = standardised(rows, self.mean_, self.scale_)
        if self.embed is None:
            return place
        nn = torch_part("network")
        return np.asarray(nn.embedded(nn.embedding(self.embed, self._learned("embed.")), place))

    def _as_queries(self, place: Array) -> Array:
        """Embedded rows as the score takes queries."""
        W = self.parameters_.get("score.W")
        return place if W is None else place @ W.astype(np.float64)

    def _learned(self, part: str) -> dict[str, Array]:
        """The learned arrays of "embed." or "score.", by their names within."""
        return {name.removeprefix(part): array for name, array in self.parameters_.items() if name.startswith(part)}

    def _plain_params(self, deep: bool = False) -> dict[str, Any]:
        """Parameters as a file can hold them."""
        params: dict[str, Any] = self.get_params(deep)
        if not (self.embed is None or isinstance(self.embed, str)):
            params["embed"] = packed(self.embed, torch_part("recipes"))
        return params

    def _rebuild(self, embed: Any) -> None:
        """Put back the module that ``_plain_params`` described."""
        if not (self.embed is None or isinstance(self.embed, str)):
            self.embed = unpacked(self.embed, self._learned("embed."), embed, torch_part("recipes"))
        elif embed is not None:
            raise ValueError(f"embed is for models fitted with a module; this one has embed={self.embed!r}")


def standardised(rows: Array, mean: Array, scale: Array) -> Array:
    """(rows − mean)/scale in float64; a scale of inf gives 0."""
    with np.errstate(over="ignore"):
        return np.clip((rows.astype(np.float64) - mean) / scale, -FAR, FAR)


def torch_part(name: str) -> Any:
    """A module of ``regard.nn``, which needs torch; in a forked process torch uses one thread from here on."""
    try:
        part = import_module(f"regard.nn.{name}")
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ModuleNotFoundError(
            "AttentionRegressor needs torch, which is not installed; pip install 'regard[nn]' brings it", name="torch"
        ) from missing
    limit_torch()
    return part

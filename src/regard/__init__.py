"""regard: attention pooling as a practical tool.

Values are pooled with weights that come from a score between a query and a key:

    f(q) = Σᵢ softmaxᵢ(score(q, kᵢ)) vᵢ

Public names load when first used (PEP 562), so ``import regard`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# name → module that defines it
_PUBLIC = {
    "Batch": "regard.pooling.streaming",
    "Pooled": "regard.pooling.functions",
    "attention_weights": "regard.public",
    "batches_of": "regard.pooling.streaming",
    "explain_plan": "regard.public",
    "pool": "regard.public",
    "pool_batches": "regard.pooling.streaming",
    "PoolState": "regard.pooling.pool_states",
    "pool_queries": "regard.pooling.streaming",
    "pool_state": "regard.pooling.pool_states",
    "AttentionRegressor": "regard.estimators",
    "AveragePoolingRegressor": "regard.estimators",
    "KernelClassifier": "regard.estimators",
    "KernelRegressor": "regard.estimators",
    "LocalLinearRegressor": "regard.estimators",
    "NadarayaWatsonClassifier": "regard.estimators",
    "NadarayaWatsonRegressor": "regard.estimators",
    "NearestKeyRegressor": "regard.estimators",
    "export_onnx": "regard.store.onnx",
    "load": "regard.store.models",
    "report": "regard.reporting",
    "save": "regard.store.models",
    "watching": "regard.core.progress",
}
_MODULES = ("bandwidth", "data", "nn", "plot", "scores", "seq2seq")

__all__ = ["__version__", *_MODULES, *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        # Kept, so that the next access takes no time.
        globals()[name] = found = getattr(import_module(_PUBLIC[name]), name)
        return found
    if name in _MODULES:
        return import_module(f"regard.{name}")
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

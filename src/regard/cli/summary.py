"""What ``regard fit`` says about the model it made: how good, how far it reaches, and its heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# Features with less than this share in deciding what is near, and heads with less in the mix, hardly matter.
HARDLY = 0.005


def told(model: Any, names: Sequence[str], target: str, source: str) -> Iterator[str]:
    """Lines about a fitted model; ``source`` says how many rows of what."""
    goal = f"{target} ({len(model.classes_)} classes)" if hasattr(model, "classes_") else target
    yield f"{type(model).__name__}: {goal} from {len(names)} features, {source}"
    if hasattr(model, "search_") and model.search_.interrupted:
        yield "stopped early by Ctrl-C: this is the best so far"
    if hasattr(model, "loo_score_"):
        yield _score(model)
    yield from _reach(model, names)
    yield from _heads(model)


def _score(model: Any) -> str:
    """How well rows are predicted by the others."""
    if hasattr(model, "classes_"):
        return f"leave-one-out log-loss {-model.loo_score_:.4g} (0 is perfect)"
    return f"leave-one-out R² {model.loo_score_:.4f} (1 is perfect, 0 no better than the mean)"


def _reach(model: Any, names: Sequence[str]) -> Iterator[str]:
    import numpy as np

    heads = hasattr(model, "heads_")
    if heads:
        yield "bandwidth at each feature's median, in its own units, and its share in deciding what is near:"
    else:
        rule = f", by {model.bandwidth}" if isinstance(model.bandwidth, str) else ""
        yield f"bandwidth of the {model.kernel} kernel, in each feature's own units{rule}, and its share:"
    widths = np.broadcast_to(model.bandwidth_, len(names))
    kinds = _categories(model)
    numbers = [f"{'λ ' if name in kinds else ''}{width:.4g}" for name, width in zip(names, widths, strict=True)]
    name_width, number_width = max(map(len, names)), max(map(len, numbers))
    # A line may still lean on a feature that does not decide who is near.
    ignored = "smoothed out" + ": at most a straight line in it" * (heads and model._DEGREE > 0)
    for name, number, share, varies in zip(names, numbers, model.feature_relevance_, _varying(model), strict=True):
        told = f" ({ignored})" * bool(share < HARDLY) if varies else " (does not vary, ignored)"
        yield f"  {name:<{name_width}}  {number:>{number_width}}  {share:>4.0%}{told}{kinds.get(name, '')}"


def _varying(model: Any) -> list[bool]:
    """Which columns of the table vary."""
    import numpy as np

    features = np.nanmax(model.key_, axis=0) > np.nanmin(model.key_, axis=0)
    return [bool(one) for one in (model.coding_.any_of(features) if hasattr(model, "coding_") else features)]


def _categories(model: Any) -> dict[str, str]:
    """What else there is to say of columns of categories: λ = 0 looks at its own alone, the largest at all alike."""
    parts = model.coding_.parts if hasattr(model, "coding_") else ()
    return {
        part.names[0]: f", λ of at most {part.widest:.3g}, {len(part.levels)} categories"
        for part in parts
        if part.levels
    }


def gaps_in_words(model: Any) -> str | None:
    """A line about training rows with empty cells, if there are any."""
    import numpy as np

    gaps = int(np.isnan(model.key_).any(axis=1).sum())
    if not gaps:
        return None
    rows = len(model.key_)
    return (
        f"{gaps:,} of {rows:,} rows have empty cells: learned from the other {rows - gaps:,}; rows are compared by the "
        "columns that both have"
    )


def _heads(model: Any) -> Iterator[str]:
    heads = getattr(model, "heads_", ())
    if not heads:
        return
    yield "1 head:" if len(heads) == 1 else f"{len(heads)} heads, mixed:"
    shown = [head for head in sorted(heads, key=lambda head: -head.weight) if head.weight >= HARDLY]
    for head in shown:
        t = float(head.share.mean())
        scaling = "standard scores" if t == 1.0 else "normal scores of ranks" if t == 0.0 else f"{t:.0%} standard"
        metric = "a full matrix w" if head.w.ndim == 2 else "one w per feature"
        ridge = f", ridge {head.ridge:.2g}" if model._DEGREE else ""
        yield f"  {head.weight:>4.0%}  {scaling}, {metric}{ridge}"
    if len(shown) < len(heads):
        yield f"  {len(heads) - len(shown)} more with hardly any weight"

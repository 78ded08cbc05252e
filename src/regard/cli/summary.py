"""What ``regard fit`` prints about a model: its leave-one-out error, its bandwidths and its heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# Features of less relevance are reported as smoothed out, and heads of less weight are not listed.
MIN_SHARE = 0.005
# Ridge from which on a local line is a mean, and up to which it is the same line everywhere, since w is tiny.
RIDGE_OF_MEANS = 1e3
RIDGE_OF_GLOBAL_LINES = 1e-7


def summary_lines(model: Any, names: Sequence[str], target: str, source: str) -> Iterator[str]:
    """Lines about a fitted model; ``source`` says how many rows of which table."""
    goal = f"{target} ({len(model.classes_)} classes)" if hasattr(model, "classes_") else target
    yield f"{type(model).__name__}: {goal} from {len(names)} features, {source}"
    if hasattr(model, "search_") and model.search_.interrupted:
        yield "stopped early by Ctrl-C: this is the best model so far"
    if hasattr(model, "loo_score_"):
        yield _score(model)
    yield from _bandwidths(model, names)
    yield from _heads(model)


def _score(model: Any) -> str:
    """The leave-one-out score."""
    if hasattr(model, "classes_"):
        return f"leave-one-out log-loss {-model.loo_score_:.4g} (0 is perfect)"
    return f"leave-one-out R² {model.loo_score_:.4f} (1 is perfect, 0 is no better than the mean)"


def _bandwidths(model: Any, names: Sequence[str]) -> Iterator[str]:
    import numpy as np

    heads = hasattr(model, "heads_")
    if heads:
        yield "bandwidth at each feature's median, in its own units, and relevance (share in the distance):"
    else:
        rule = f", by {model.bandwidth}" if isinstance(model.bandwidth, str) else ""
        yield f"bandwidth of the {model.kernel} kernel, in each feature's own units{rule}, and relevance:"
    widths = np.broadcast_to(model.bandwidth_, len(names))
    categories = _categories(model)
    numbers = [f"{'λ ' if name in categories else ''}{width:.4g}" for name, width in zip(names, widths, strict=True)]
    name_width, number_width = max(map(len, names)), max(map(len, numbers))
    # A local line may still use a feature that has no part in the distance.
    ignored = "smoothed out" + ": enters at most linearly" * (heads and model._DEGREE > 0)
    for name, number, share, varies in zip(names, numbers, model.feature_relevance_, _varying(model), strict=True):
        remark = f" ({ignored})" * bool(share < MIN_SHARE) if varies else " (constant, ignored)"
        yield f"  {name:<{name_width}}  {number:>{number_width}}  {share:>4.0%}{remark}{categories.get(name, '')}"


def _varying(model: Any) -> list[bool]:
    """Which columns of the table vary."""
    import numpy as np

    features = np.nanmax(model.key_, axis=0) > np.nanmin(model.key_, axis=0)
    return [bool(one) for one in (model.coding_.any_of(features) if hasattr(model, "coding_") else features)]


def _categories(model: Any) -> dict[str, str]:
    """Remarks on categorical columns; λ = 0 separates all categories, the largest λ treats them alike."""
    parts = model.coding_.parts if hasattr(model, "coding_") else ()
    return {
        part.names[0]: f", {len(part.levels)} categories, λ at most {part.max_lambda:.3g}"
        for part in parts
        if part.levels
    }


def missing_cells_line(model: Any) -> str | None:
    """A line about training rows with empty cells; None if there are none."""
    import numpy as np

    gaps = int(np.isnan(model.key_).any(axis=1).sum())
    if not gaps:
        return None
    rows, verb = len(model.key_), "has" if gaps == 1 else "have"
    return (
        f"{gaps:,} of {rows:,} rows {verb} empty cells: bandwidths are learned from the other {rows - gaps:,}; in "
        "predictions a row is compared with the rows that have all columns it has"
    )


def _heads(model: Any) -> Iterator[str]:
    """The heads with their weights; heads of the same kind, learned without one fold each, are one line."""
    heads = getattr(model, "heads_", ())
    if not heads:
        return
    kinds: dict[str, list[Any]] = {}
    for head in heads:
        kinds.setdefault(_kind(model, head), []).append(head)
    yield "1 head:" if len(heads) == 1 else f"{len(heads)} heads, with their weights in the mixture:"
    weight = {kind: sum(head.weight for head in group) for kind, group in kinds.items()}
    shown = [kind for kind in sorted(kinds, key=lambda kind: -weight[kind]) if weight[kind] >= MIN_SHARE]
    for kind in shown:
        group = kinds[kind]
        ridges = sorted(head.ridge for head in group)
        learned = model._DEGREE and "w" in kind.split()
        ridge = f", ridge {ridges[len(ridges) // 2]:.2g}" if learned else ""
        count = f" ({len(group)} heads)" if len(group) > 1 else ""
        yield f"  {weight[kind]:>4.0%}  {kind}{ridge}{count}"
    more = sum(len(group) for kind, group in kinds.items() if kind not in shown)
    if more:
        yield f"  {more} more with weights below {MIN_SHARE:.1%}"


def _kind(model: Any, head: Any) -> str:
    """The scaling, and what a head learned, in words."""
    t = float(head.share.mean())
    mixed = f"{t:.0%} standard scores, {1 - t:.0%} normal scores of ranks"
    scaling = "standard scores" if t == 1.0 else "normal scores of ranks" if t == 0.0 else mixed
    if not model._DEGREE and not head.w.any():
        return "class frequencies"
    if not model._DEGREE and head.w.ndim == 2 and head.w.shape[1] < len(head.w):
        return f"{scaling}; {head.w.shape[1]} combinations of features"
    if model._DEGREE and head.ridge >= RIDGE_OF_MEANS:
        return f"{scaling}; local means"
    if model._DEGREE and head.ridge <= RIDGE_OF_GLOBAL_LINES:
        return f"{scaling}; one line for all rows"
    return f"{scaling}; {'a full matrix w' if head.w.ndim == 2 else 'one w per feature'}"

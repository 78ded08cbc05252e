"""The numbers that docs/notes.md states, computed from the package and from the notes' own formulas."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from regard import NadarayaWatsonRegressor, NearestKeyRegressor, attention_weights, pool
from regard.data import houses, notes, notes_truth
from regard.data.synthetic import NOISE
from regard.model.naive_answers import root_mean_square
from regard.scores import Gaussian

# The largest sample that stands for "enough data".
ENOUGH = 20_000


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights over the last axis, as the formula has them."""
    powers = np.exp(scores)
    return powers / powers.sum(-1, keepdims=True)


def roughness(curve: NDArray[np.float64]) -> float:
    """Sum of squared second differences."""
    return float((np.diff(curve, 2) ** 2).sum())


def noise_slopes(query: NDArray[np.float64], w: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard deviation of the slope that noise gives to the curve at each query, and the largest weight there."""
    keys = notes().x_train
    weights = attention_weights(query, keys, Gaussian(w=w))
    pull = w**2 * (keys - query[:, None])  # ∂score/∂query
    slopes = weights * (pull - (weights * pull).sum(1, keepdims=True))
    return NOISE * np.sqrt((slopes**2).sum(1)), weights.max(1)


def numbers() -> dict[str, float]:
    """Every number of the page by name; those that end in ``gap`` are rounding errors."""
    return {**_data_and_mean(), **_weights(), **_formulas(), **_learned(), **_more_data(), **_scores()}


def _data_and_mean() -> dict[str, float]:
    data = notes()
    finely = np.linspace(0.0, 5.0, 5001)
    return {
        "n_train": len(data.x_train),
        "n_test": len(data.x_test),
        "last_query": data.x_test[-1],
        "noise": NOISE,
        "noise_as_variance": np.sqrt(NOISE),
        "noise_variance": NOISE**2,
        "top": notes_truth(finely).max(),
        "mean": data.y_train.mean(),
        "mean_error": root_mean_square(data.y_train.mean() - data.y_truth),
    }


def _weights() -> dict[str, float]:
    """The nonparametric pooling at h = 1: its error, its weights, and the same data in another order."""
    data = notes()
    rng = np.random.default_rng(0)
    keys, queries = rng.permutation(data.x_train), rng.permutation(data.x_test)
    weights = attention_weights(data.x_test, data.x_train, Gaussian(w=1.0))
    mixed = attention_weights(queries, keys, Gaussian(w=1.0))
    curve = weights @ data.y_train
    order = rng.permutation(len(data.x_train))
    reordered = pool(data.x_test, data.x_train[order], data.y_train[order], Gaussian(w=1.0)).output
    nearest = NearestKeyRegressor().fit(data.x_train[:, None], data.y_train).predict(data.x_test[:, None])
    narrow = pool(data.x_test, data.x_train, data.y_train, Gaussian(w=1e4)).output
    rows = np.arange(len(queries))
    return {
        "soft_error": root_mean_square(curve - data.y_truth),
        "nearest_error": root_mean_square(nearest - data.y_truth),
        "nearest_gap": np.abs(narrow - nearest).max(),
        "order_gap": np.abs(curve - reordered).max(),
        "sum_gap": np.abs(weights.sum(1) - 1.0).max(),
        "sorted_places": spearmanr(rows, weights.argmax(1)).statistic,
        "shuffled_places": spearmanr(rows, mixed.argmax(1)).statistic,
        "shuffled_numbers": spearmanr(queries, keys[mixed.argmax(1)]).statistic,
    }


def _formulas() -> dict[str, float]:
    """The notes' formulas as printed and as meant, on the notes' data."""
    data = notes()
    difference = data.x_test[:, None] - data.x_train
    kernel = np.exp(-0.5 * difference**2) / np.sqrt(2.0 * np.pi)
    ratio = kernel / kernel.sum(1, keepdims=True)
    printed = kernel / (len(data.x_train) * kernel)  # the sum over j of a term without j
    query, key = np.random.default_rng(0).normal(size=(2, 40, 3))
    unit = key / np.linalg.norm(key, axis=1, keepdims=True)
    distances, unit_distances = (((query[:, None] - k) ** 2).sum(-1) for k in (key, unit))
    feature_w = np.array([2.0, 0.5, 1.0])
    weighted = ((feature_w * (query[:, None] - key)) ** 2).sum(-1)
    return {
        "ratio_gap": np.abs(ratio - softmax(-0.5 * difference**2)).max(),
        "printed_gap": np.abs(printed @ data.y_train - data.y_train.mean()).max(),
        "kernel_area": np.trapezoid(np.exp(-0.5 * np.linspace(-9, 9, 2001) ** 2), dx=0.009) / np.sqrt(2 * np.pi),
        "of_kernel": np.abs(softmax(kernel) - ratio).max() / ratio.max(),
        "unit_gap": np.abs(softmax(query @ unit.T) - softmax(-0.5 * unit_distances)).max(),
        "key_term_gap": np.abs(softmax(query @ key.T - 0.5 * (key**2).sum(1)) - softmax(-0.5 * distances)).max(),
        "no_key_term": np.abs(softmax(query @ key.T) - softmax(-0.5 * distances)).sum(1).mean() / 2.0,
        "feature_gap": np.abs(attention_weights(query, key, Gaussian(w=feature_w)) - softmax(-0.5 * weighted)).max(),
    }


def _learned() -> dict[str, float]:
    """The notes' recipe: five steps on one w."""
    data = notes()
    X, at = data.x_train[:, None], data.x_test[:, None]
    recipe = NadarayaWatsonRegressor(metric="scalar", optimizer="sgd", random_state=0).fit(X, data.y_train)
    best = NadarayaWatsonRegressor(metric="scalar").fit(X, data.y_train)
    fixed = NadarayaWatsonRegressor(bandwidth=1.0).fit(X, data.y_train)
    curves = [model.predict(at) for model in (fixed, recipe)]
    sharp = [attention_weights(data.x_test, data.x_train, Gaussian(w=w)) for w in (1.0, float(recipe.w_))]
    finely = np.linspace(data.x_train[0], data.x_train[-1], 1001)
    slope = np.abs(np.gradient(recipe.predict(finely[:, None]), finely))
    largest = attention_weights(finely, data.x_train, Gaussian(w=float(recipe.w_))).max(1)
    noisy, most = noise_slopes(finely, float(best.w_))
    dark = most > np.median(most)
    row = NadarayaWatsonRegressor(bandwidth=1e-4).fit(X, data.y_train)
    needle, river = (NadarayaWatsonRegressor(bandwidth=h).fit(X, data.y_train).diagnose() for h in (0.01, 3.0))
    return {
        "w_start": float(recipe.search_.places[0, 0]),
        "w_learned": float(recipe.w_),
        "loss_first": recipe.search_.path[0],
        "loss_last": recipe.search_.path[-1],
        "loss_after": len(X) * recipe.search_.value,
        "w_best": float(best.w_),
        "loss_best": len(X) * best.search_.value,
        "learned_error": root_mean_square(curves[1] - data.y_truth),
        "best_error": root_mean_square(best.predict(at) - data.y_truth),
        "rough_fixed": roughness(curves[0]),
        "rough_learned": roughness(curves[1]),
        "rough_truth": roughness(data.y_truth),
        "noise_ratio": root_mean_square(noisy[dark]) / root_mean_square(noisy[~dark]),
        "slope_dominated": slope[largest > 0.9].mean(),
        "slope_shared": slope[largest < 0.6].mean(),
        "keys_fixed": np.median(1.0 / (sharp[0] ** 2).sum(1)),
        "keys_learned": np.median(1.0 / (sharp[1] ** 2).sum(1)),
        "itself_gap": root_mean_square(row.predict(X) - data.y_train),
        "needle_with": needle.training_loss,
        "needle_without": needle.loo_loss,
        "river_with": river.training_loss,
        "river_without": river.loo_loss,
        "largest_dense": largest.min(),
        "largest_sparse": largest.max(),
    }


def _more_data() -> dict[str, float]:
    """A fixed and a shrinking bandwidth with little and with much data."""
    few, many = notes(), notes(ENOUGH)
    grid = (np.arange(5000) + 0.5) / 1000
    limit = pool(few.x_test, grid, notes_truth(grid), Gaussian(w=1.0)).output
    found: dict[str, float] = {"enough": ENOUGH, "bias": root_mean_square(limit - few.y_truth)}
    for name, data in (("few", few), ("many", many)):
        n = len(data.x_train)
        for kind, h in (("fixed", 1.0), ("shrinking", n ** (-1 / 5))):
            curve = pool(data.x_test, data.x_train, data.y_train, Gaussian(w=1.0 / h)).output
            found[f"{kind}_{name}"] = root_mean_square(curve - data.y_truth)
        weights = attention_weights([2.5], data.x_train, Gaussian(w=1.0))
        found[f"deviation_{name}"] = NOISE * np.sqrt((weights**2).sum())
    sold = houses()
    one = NadarayaWatsonRegressor(metric="scalar").fit(sold.X, sold.y)
    each = NadarayaWatsonRegressor().fit(sold.X, sold.y)
    found["houses_one"], found["houses_each"] = (np.sqrt(model.search_.value) for model in (one, each))
    return found


def _scores() -> dict[str, float]:
    """Dot products of independent entries of mean 0 and variance 1, here ±1, all equally likely."""
    d = 4
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * d)).reshape(d, -1).T
    products = signs @ signs.T
    return {
        "d": d,
        "product_mean": products.mean(),
        "product_variance": products.var(),
        "scaled_variance": (products / np.sqrt(d)).var(),
    }


if __name__ == "__main__":
    for name, value in numbers().items():
        print(f"{name:20} {value:.6g}")

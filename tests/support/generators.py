"""Inputs by table: random problems of every score and option, and problems that know their closed-form answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.scores import RADIAL, Additive, DotProduct, Gaussian, Laplace, Nearest, Score

Array = NDArray[Any]

DTYPES = (np.float32, np.float64)
OPTIONS = ("plain", "mask", "additive", "weights", "tiny weights", "exclude", "everything")
# The first queries are keys, and leave themselves out.
OWN_ROWS = "own rows"
W_KINDS = ("scalar", "feature", "matrix")


def dyadic(array: Array, steps: int = 64) -> Array:
    """Rounded to multiples of 1/steps: differences, and with short w their products, are then exact."""
    return np.round(array * steps) / steps


def make_w(kind: str, d: int) -> Any:
    """A moderate w with short binary expansions."""
    if kind == "scalar":
        return 0.75
    if kind == "feature":
        return np.resize([0.5, 1.25, 0.75, 0.25, 1.0], d)
    base = np.resize([0.75, 0.25, -0.5, 0.5, 1.0, -0.25, 0.125], (d, max(1, d - 1)))
    return base + 0.5 * np.eye(d, max(1, d - 1))


def score_table(d: int) -> dict[str, Score]:
    """Every score there is, with every kind of w, for d features."""
    rng = np.random.default_rng(d)
    table: dict[str, Score] = {
        f"{name}-{kind}": score(make_w(kind, d)) for name, score in RADIAL.items() for kind in W_KINDS
    }
    table |= {f"nearest-{kind}": Nearest(make_w(kind, d)) for kind in W_KINDS}
    table["dot"] = DotProduct(1.5)
    table["additive"] = Additive(rng.normal(size=(5, d)), rng.normal(size=(5, d)), rng.normal(size=5) * 2.0)
    return table


class Inputs(NamedTuple):
    """Arguments of ``pool`` other than the score."""

    query: Array
    key: Array
    value: Array
    options: dict[str, Any]


def make_inputs(option: str, Q: int, K: int, P: int, d: int = 3, dtype: Any = np.float64, seed: int = 0) -> Inputs:
    """A random problem of the given sizes; with a mask the first of several queries may attend to no key."""
    rng = np.random.default_rng([seed, Q, K, P, d])
    query = dyadic(rng.normal(size=(Q, d)))
    key = dyadic(rng.normal(size=(K, d)))
    value = rng.normal(size=(K, P)) + 0.5
    options: dict[str, Any] = {}
    if option == "mask":
        options["mask"] = rng.random((Q, K)) < 0.7
        if Q > 1:
            options["mask"][0] = False
    if option in ("additive", "everything"):
        options["mask"] = np.where(rng.random((Q, K)) < 0.8, rng.normal(size=(Q, K)), -np.inf).astype(dtype)
        if Q > 1:
            options["mask"][0] = -np.inf
    if option in ("weights", "everything"):
        options["sample_weight"] = rng.random(K) + 0.25
        options["sample_weight"][1 : K // 2 : 3] = 0.0
    if option == "tiny weights":
        options["sample_weight"] = (rng.random(K) + 0.25) * 1e-200
    if option in ("exclude", "everything"):
        options["exclude"] = rng.integers(0, 6, Q), rng.integers(0, 6, K)
    if option == OWN_ROWS:
        own = min(Q, K)
        query[:own] = key[:own]
        options["exclude"] = np.r_[np.arange(own), -1 - np.arange(Q - own)], np.arange(K)
    return Inputs(query.astype(dtype), key.astype(dtype), value.astype(dtype), options)


class Known(NamedTuple):
    """A problem that knows its answer."""

    name: str
    query: Array
    key: Array
    value: Array
    score: Score
    output: Array
    logsumexp: Array


def known() -> list[Known]:
    """Closed forms: a fine regular grid of keys turns sums over keys into integrals (to 1e-16 for these steps)."""
    step = 0.125
    grid = (np.arange(1200) - 600) * step  # (K,), all of ±75
    q = np.linspace(-2.0, 2.0, 41)
    w = 0.75
    mass = np.log(np.sqrt(2.0 * np.pi) / (w * step))
    constant = np.full(len(q), mass)
    plane = np.stack(np.meshgrid(grid[524:677], grid[524:677]), -1).reshape(-1, 2)
    steep = 2.0
    q2 = np.stack([q[10:31], -q[10:31] / 2], -1)
    rows = [
        Known("gaussian of a constant", q, grid, np.full(1200, 3.5), Gaussian(w), np.full(41, 3.5), constant),
        Known("gaussian of a line", q, grid, 2.0 * grid - 1.0, Gaussian(w), 2.0 * q - 1.0, constant),
        Known("gaussian of a square", q, grid, grid**2, Gaussian(w), q**2 + 1.0 / w**2, constant),
        Known(
            "gaussian of a wave",
            q,
            grid,
            np.cos(1.5 * grid),
            Gaussian(w),
            np.exp(-0.5 * (1.5 / w) ** 2) * np.cos(1.5 * q),
            constant,
        ),
        Known(
            "gaussian of a bump",
            q,
            grid,
            np.exp(-0.5 * grid**2),
            Gaussian(w),
            w / np.sqrt(1 + w**2) * np.exp(-0.5 * q**2 * w**2 / (1 + w**2)),
            constant,
        ),
        Known(
            "gaussian in the plane",
            q2,
            plane,
            plane[:, 0] * plane[:, 1] + plane[:, 0] ** 2,
            Gaussian([steep, steep / 2]),
            q2[:, 0] * q2[:, 1] + q2[:, 0] ** 2 + 1.0 / steep**2,
            np.full(21, np.log(2.0 * np.pi / (steep * steep / 2 * step**2))),
        ),
    ]
    # At a grid point a geometric series: Σ exp(−w|i|step) = coth(w·step/2), and antisymmetric values cancel.
    at = grid[592:609:4]
    rows.append(
        Known("laplace of a line", at, grid, grid, Laplace(4.0), at, np.full(len(at), -np.log(np.tanh(2.0 * step))))
    )
    # Two keys: the logistic function of the score gap.
    two = np.array([-1.0, 1.0])
    rows.append(
        Known(
            "two keys",
            q,
            two,
            np.array([0.0, 1.0]),
            Gaussian(1.0),
            1.0 / (1.0 + np.exp(-2.0 * q)),
            np.logaddexp(-0.5 * (q + 1) ** 2, -0.5 * (q - 1) ** 2),
        )
    )
    return rows


def uneven(n: int, d: int, seed: int = 0) -> tuple[Array, Array]:
    """X (n, d) of features in very different units, and y (n,): a wave in each of them, with noise."""
    rng = np.random.default_rng([n, d, seed])
    X = rng.normal(size=(n, d)) * np.exp(2.0 * rng.normal(size=d))
    return X, np.sin(X / X.std(axis=0)).sum(axis=1) + 0.3 * rng.normal(size=n)

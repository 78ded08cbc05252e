"""Synthetic data with a known truth: the study notes' curve and a small house-price table.

Both are a formula plus noise, so that a fit can be compared with the truth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

NOISE = 0.5
HOUSE_NOISE = 15.0
HOUSE_FEATURES = ("area", "age", "rooms", "distance", "latitude", "longitude", "door_number")
CENTRE = (30.25, 120.16)  # latitude, longitude
LAKE = (30.22, 120.12)
# One degree in kilometres, north and east, at the latitude of the town.
_NORTH, _EAST = 111.2, 96.1


class NotesData(NamedTuple):
    """The notes' training and test data, float64.

    Attributes
    ----------
    x_train : array (n_train,)
        Sorted, in [0, 5).
    y_train : array (n_train,)
        Truth plus noise.
    x_test : array (50,)
        0, 0.1, …, 4.9.
    y_truth : array (50,)
        Truth at ``x_test``, without noise.

    >>> isinstance(notes(), NotesData)
    True
    """

    x_train: Array  # (n_train,)  sorted, in [0, 5)
    y_train: Array  # (n_train,)  truth plus noise
    x_test: Array  # (50,)       0, 0.1, …, 4.9
    y_truth: Array  # (50,)       truth at x_test, without noise


class HousesData(NamedTuple):
    """A house-price table, float64.

    Attributes
    ----------
    X : array (n, 7)
        One row for each house.
    y : array (n,)
        Price, in thousands.
    feature_names : tuple of str
        Names of the columns of X.
    target_name : str
        Name of y, "price".

    >>> houses(3).feature_names[-1]
    'door_number'
    """

    X: Array  # (n, 7)
    y: Array  # (n,)  price, in thousands
    feature_names: tuple[str, ...]
    target_name: str


def notes_truth(x: ArrayLike) -> Array:
    """2 sin x + x^0.8, the curve behind the notes' data.

    Parameters
    ----------
    x : array
        Not negative.

    Returns
    -------
    array of the shape of x

    Raises
    ------
    ValueError
        If an x is negative.

    >>> notes_truth([0.0, 1.0]).round(4).tolist()
    [0.0, 2.6829]
    """
    x = np.asarray(x, np.float64)
    if (x < 0.0).any():
        raise ValueError(f"x must not be negative, since x^0.8 has no real value there; got {x.min()}")
    return np.asarray(2.0 * np.sin(x) + x**0.8)


def notes(n_train: int = 50, seed: int = 0) -> NotesData:
    """The study notes' data set: sorted uniform inputs in [0, 5) and y = 2 sin x + x^0.8 + N(0, 0.5²).

    Parameters
    ----------
    n_train : int, default=50
        How many training points, at least 1; the test inputs are always 0, 0.1, …, 4.9.
    seed : int, default=0
        The same seed gives the same numbers.

    Returns
    -------
    NotesData

    >>> data = notes()
    >>> data.x_train.shape, data.x_test.shape, float(data.y_truth[0])
    ((50,), (50,), 0.0)
    """
    _at_least_one("n_train", n_train)
    rng = np.random.default_rng(seed)
    x_train = np.sort(rng.random(n_train) * 5.0)
    y_train = notes_truth(x_train) + NOISE * rng.standard_normal(n_train)
    x_test = np.arange(0, 5, 0.1)
    return NotesData(x_train, y_train, x_test, notes_truth(x_test))


def houses_truth(X: ArrayLike) -> Array:
    """Mean price (n,), in thousands, of houses X (n, 7) with the columns of ``HOUSE_FEATURES``.

    price = 80 + 3·area·exp(−distance/8) + 12·min(rooms, 5) − 2.4·age + 0.024·age²
            + 90·exp(−½(d_lake/1.5)²)

    The price per area decreases with the distance; a sixth room adds nothing; houses lose value until they are 50 years
    old and gain value afterwards; houses near the lake cost more. ``d_lake`` is the distance in km to the lake,
    computed from the coordinates. The door number has no effect.

    Parameters
    ----------
    X : array (n, 7)
        Houses, with the columns that ``houses`` gives.

    Returns
    -------
    array (n,)

    >>> houses_truth([[100.0, 0.0, 4.0, 8.0, 30.25, 120.16, 7.0]]).round(1).tolist()
    [238.6]
    """
    area, age, rooms, distance, latitude, longitude, _ = np.asarray(X, np.float64).T
    lake2 = (_NORTH * (latitude - LAKE[0])) ** 2 + (_EAST * (longitude - LAKE[1])) ** 2
    return np.asarray(
        80.0
        + 3.0 * area * np.exp(-distance / 8.0)
        + 12.0 * np.minimum(rooms, 5.0)
        - 2.4 * age
        + 0.024 * age**2
        + 90.0 * np.exp(-0.5 * lake2 / 1.5**2)
    )


def houses(n: int = 400, seed: int = 0) -> HousesData:
    """A synthetic house-price table: ``houses_truth`` plus N(0, 15²).

    Columns: area (m², 30–220), age (years, 0–100), rooms (1–8, grows with area), distance (km to the centre),
    latitude and longitude (degrees, within about 12 km of the centre), door_number (1–200, without effect).

    Parameters
    ----------
    n : int, default=400
        How many houses, at least 1.
    seed : int, default=0
        The same seed gives the same numbers.

    Returns
    -------
    HousesData

    >>> data = houses()
    >>> data.X.shape, data.target_name, data.feature_names[:2]
    ((400, 7), 'price', ('area', 'age'))
    """
    _at_least_one("n", n)
    rng = np.random.default_rng(seed)
    area = np.round(np.clip(rng.lognormal(4.5, 0.4, n), 30.0, 220.0), 1)
    age = np.floor(rng.uniform(0.0, 101.0, n))
    rooms = np.clip(np.round(area / 25.0 + rng.normal(0.0, 0.8, n)), 1.0, 8.0)
    out, turn = 12.0 * np.sqrt(rng.random(n)), 2.0 * np.pi * rng.random(n)
    latitude = np.round(CENTRE[0] + out * np.sin(turn) / _NORTH, 5)
    longitude = np.round(CENTRE[1] + out * np.cos(turn) / _EAST, 5)
    north, east = _NORTH * (latitude - CENTRE[0]), _EAST * (longitude - CENTRE[1])
    distance = np.round(np.hypot(north, east), 2)
    door_number = np.floor(rng.uniform(1.0, 201.0, n))
    X = np.column_stack([area, age, rooms, distance, latitude, longitude, door_number])
    y = np.round(houses_truth(X) + HOUSE_NOISE * rng.standard_normal(n), 2)
    return HousesData(X, y, HOUSE_FEATURES, "price")


def _at_least_one(name: str, count: int) -> None:
    if count < 1:
        raise ValueError(f"{name} must be at least 1, got {count}")

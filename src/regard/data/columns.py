"""Columns of a mixed table as features of a Gaussian score, so that their log-kernels add up.

Every kernel here depends on a squared distance between codes, so a product over columns is one Gaussian kernel of all
features with one w per column:

    number          x                                     exp(−½(δ/h)²)
    categories      one-hot, ‖·‖² = 2 if they differ      1 if equal, else ρ = exp(−w²)
    ordered         thermometer code, ‖·‖² = steps apart  λ^steps, λ = exp(−½w²)
    periodic        a circle of that circumference        exp(−½(chord/h)²)
    great circle    a sphere of the Earth's radius        exp(−½(chord/h)²), in kilometres

Aitchison and Aitken's kernel is 1 − λ if equal, λ/(c − 1) if not, for c categories: ρ = λ/((c − 1)(1 − λ)) times a
constant, which cancels in the weights. Wang and van Ryzin's is 1 − λ, or ½(1 − λ)λ^steps: a thermometer code and a
fixed ρ = ½.
"""

from __future__ import annotations

from math import exp, inf, isfinite, log, pi, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Kernels of a column, by their public names.
NUMBER = "gaussian"
CATEGORIES = "aitchison-aitken"
LI_RACINE = "li-racine"
ORDERED = "li-racine-ordered"
WANG_VAN_RYZIN = "wang-van-ryzin"
PERIODIC = "periodic"
LATITUDE = "latitude"
LONGITUDE = "longitude"
UNORDERED_KERNELS = (CATEGORIES, LI_RACINE)
ORDERED_KERNELS = (ORDERED, WANG_VAN_RYZIN)
COLUMN_KERNELS = (NUMBER, *UNORDERED_KERNELS, *ORDERED_KERNELS, PERIODIC, LATITUDE, LONGITUDE)
# Mean radius, in kilometres.
EARTH_RADIUS = 6371.0088
# Most categories of one column: each is a feature.
MAX_CATEGORIES = 64
# From this w on, rows of another category have weight exp(−w²) = 0.
MAX_CATEGORY_W = sqrt(750.0)


class Part(NamedTuple):
    """One column, or latitude and longitude together: its kernel and its coding."""

    kernel: str
    columns: tuple[int, ...]  # positions in the table
    names: tuple[str, ...]
    levels: tuple[Any, ...] = ()  # categories, in their order; text or numbers
    period: float = 0.0

    @property
    def width(self) -> int:
        """Number of features."""
        if self.kernel in UNORDERED_KERNELS:
            return 1 if len(self.levels) <= 2 else len(self.levels)
        if self.kernel in ORDERED_KERNELS:
            steps = max(len(self.levels) - 1, 1)
            return steps + (len(self.levels) if self.kernel == WANG_VAN_RYZIN else 0)
        return {PERIODIC: 2, LATITUDE: 3}.get(self.kernel, 1)

    @property
    def features(self) -> tuple[str, ...]:
        """A name for every feature."""
        name = self.names[0]
        if self.kernel in UNORDERED_KERNELS and self.width > 1:
            return tuple(f"{name} = {level}" for level in self.levels)
        if self.kernel in ORDERED_KERNELS and self.width > 1:
            steps = [f"{name} ≥ {level}" for level in self.levels[1:]] or [name]
            return (*steps, *(f"{name} = {level}" for level in self.levels[: self.width - len(steps)]))
        if self.kernel == PERIODIC:
            return f"cos {name}", f"sin {name}"
        if self.kernel == LATITUDE:
            return tuple(f"{axis} of {' and '.join(self.names)}" for axis in "xyz")
        return (name,)

    @property
    def fixed(self) -> tuple[bool, ...]:
        """Features whose w is fixed at 1."""
        steps = max(len(self.levels) - 1, 1)
        return tuple(self.kernel == WANG_VAN_RYZIN and number >= steps for number in range(self.width))

    def coded(self, values: list[Array]) -> Array:
        """Columns (n,) → features (n, width); NaN, or None in text, is missing and has NaN in every feature."""
        if self.kernel == NUMBER:
            return values[0].astype(np.float64)[:, None]
        if self.kernel == PERIODIC:
            turn = 2.0 * pi * (values[0].astype(np.float64) % self.period) / self.period
            return np.column_stack([np.cos(turn), np.sin(turn)]) * (self.period / (2.0 * pi))
        if self.kernel == LATITUDE:
            return self._sphere(*(np.asarray(column, np.float64) for column in values))
        place, unknown, missing = self._places(values[0])
        if self.kernel in ORDERED_KERNELS:
            if unknown.any():
                raise ValueError(
                    f"X column {self.names[0]!r} must hold one of the {len(self.levels)} ordered categories of fit, "
                    f"got {values[0][unknown.argmax()]!r}"
                )
            steps = (place[:, None] > np.arange(max(len(self.levels) - 1, 1))) * np.sqrt(self._gaps())
            out = steps if self.kernel == ORDERED else np.column_stack([steps, self._hot(place) * sqrt(log(2.0))])
        else:
            out = self._hot(place)
            # A category unknown to fit is equally far from all others.
            out[unknown] = 0.0 if self.width > 1 else 0.5 * sqrt(2.0)
        out[missing] = np.nan
        return out

    def w_of(self, bandwidth: float) -> float:
        """w from a bandwidth of the column: h, or λ."""
        if self.kernel in UNORDERED_KERNELS or self.kernel in ORDERED_KERNELS:
            most = self.max_lambda
            if not 0.0 <= bandwidth <= most * (1.0 + 1e-12):
                raise ValueError(
                    f"bandwidth of column {self.names[0]!r}, the λ of a {self.kernel} kernel, must be between 0 and "
                    f"{most:g}, got {bandwidth!r}"
                )
            rho = bandwidth
            if self.kernel == CATEGORIES:
                others = max(len(self.levels) - 1, 1)
                rho = bandwidth / (others * (1.0 - bandwidth)) if bandwidth < 1.0 else 1.0
            rho = min(rho, 1.0)
            return (
                MAX_CATEGORY_W
                if rho <= exp(-(MAX_CATEGORY_W**2))
                else sqrt(-log(rho) * (1.0 if self.kernel in UNORDERED_KERNELS else 2.0))
            )
        if not bandwidth > 0.0:
            raise ValueError(f"bandwidth of column {self.names[0]!r} must be above 0, got {bandwidth!r}")
        return 1.0 / bandwidth

    def bandwidth_of(self, w: float) -> float:
        """The inverse of ``w_of``."""
        if self.kernel in UNORDERED_KERNELS:
            rho = exp(-(min(w, MAX_CATEGORY_W) ** 2))
            others = max(len(self.levels) - 1, 1)
            return others * rho / (1.0 + others * rho) if self.kernel == CATEGORIES else rho
        if self.kernel in ORDERED_KERNELS:
            return exp(-0.5 * w * w)
        return 1.0 / w if w else inf

    def slopes(self, coded: Array) -> Array | None:
        """Derivatives of the features by the columns, (n, width, columns); None for categories."""
        if self.kernel == NUMBER:
            return np.ones((len(coded), 1, 1))
        if self.kernel == PERIODIC:
            return np.stack([-coded[:, 1], coded[:, 0]], 1)[:, :, None] * (2.0 * pi / self.period)
        if self.kernel == LATITUDE:
            x, y, z = coded.T
            across = np.hypot(x, y)
            safe = np.where(across > 0.0, across, 1.0)
            north = np.column_stack([-z * x / safe, -z * y / safe, across])
            east = np.column_stack([-y, x, np.zeros(len(x))])
            return np.stack([north, east], 2) * (pi / 180.0)
        return None

    @property
    def max_lambda(self) -> float:
        """The λ at which the category has no effect."""
        count = max(len(self.levels), 2)
        return (count - 1.0) / count if self.kernel == CATEGORIES else 1.0

    def _hot(self, place: Array) -> Array:
        if self.kernel in UNORDERED_KERNELS and self.width == 1:
            return np.asarray(place[:, None] * sqrt(2.0))
        return np.asarray(place[:, None] == np.arange(len(self.levels)), np.float64)

    def _gaps(self) -> Array:
        """Steps between neighbouring levels: 1 between texts, their difference between numbers."""
        if len(self.levels) < 2 or isinstance(self.levels[0], str):
            return np.ones(max(len(self.levels) - 1, 1))
        return np.diff(np.array(self.levels, np.float64))

    def _places(self, values: Array) -> tuple[Array, Array, Array]:
        """Number of the level of each value (n,), and masks of unknown and of missing values."""
        known = {level: number for number, level in enumerate(self.levels)}
        place = np.array([known.get(value, -1) for value in values.tolist()], np.int64)
        missing = is_missing(values)
        return place, (place < 0) & ~missing, missing

    def _sphere(self, latitude: Array, longitude: Array) -> Array:
        if (np.abs(latitude) > 90.0).any():
            row = int((np.abs(latitude) > 90.0).argmax())
            raise ValueError(
                f"X column {self.names[0]!r} must hold latitudes, −90 to 90 degrees, got {latitude[row]} in row {row}"
            )
        a, b = np.radians(latitude), np.radians(longitude)
        return EARTH_RADIUS * np.column_stack([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)])


class Coding(NamedTuple):
    """The coding of the columns of a table as features."""

    parts: tuple[Part, ...]

    @property
    def columns(self) -> int:
        return sum(len(part.columns) for part in self.parts)

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.features)

    @property
    def part_of(self) -> Array:
        """Number of the part of every feature (D,)."""
        return np.repeat(np.arange(len(self.parts)), [part.width for part in self.parts])

    @property
    def firsts(self) -> Array:
        """The first feature of every part (parts,)."""
        return np.cumsum([0, *(part.width for part in self.parts[:-1])])

    @property
    def fixed(self) -> Array:
        """Features (D,) whose w is 1."""
        return np.array([fixed for part in self.parts for fixed in part.fixed], bool)

    @property
    def numbers(self) -> Array:
        """Features (D,) that are plain columns of numbers."""
        return np.repeat([part.kernel == NUMBER for part in self.parts], [part.width for part in self.parts])

    def coded(self, columns: list[Array]) -> Array:
        """Columns (n,) each → features (n, D)."""
        return np.column_stack([part.coded([columns[j] for j in part.columns]) for part in self.parts])

    def per_feature(self, w: Array) -> Array:
        """w of every feature (D,) from one w per part (parts,), or one for all ()."""
        each = np.broadcast_to(np.asarray(w, np.float64), len(self.parts))
        return np.where(self.fixed, 1.0, each[self.part_of])

    def sum_per_part(self, grad: Array) -> Array:
        """The adjoint of ``per_feature``: sums over the features of each part (parts,)."""
        return np.bincount(self.part_of, np.where(self.fixed, 0.0, grad), len(self.parts))

    def by_column(self, of_parts: Array) -> Array:
        """A number for every column of the table from one for every part."""
        out = np.empty(self.columns)
        for part, number in zip(self.parts, of_parts, strict=True):
            out[list(part.columns)] = number
        return out

    def any_of(self, features: Array) -> Array:
        """Columns of the table with a feature (D,) for which this is true."""
        parts = np.bincount(self.part_of, features, len(self.parts))
        return np.asarray(self.by_column(parts), bool)

    def w_of(self, bandwidth: Array) -> Array:
        """w (parts,) from one bandwidth per column."""
        return np.array([part.w_of(float(bandwidth[part.columns[0]])) for part in self.parts])

    def bandwidth_of(self, w: Array) -> Array:
        """One bandwidth per column of the table, from w (parts,)."""
        return self.by_column(
            np.array([part.bandwidth_of(float(size)) for part, size in zip(self.parts, w, strict=True)])
        )


def part_of(kernel: Any, column: int, name: str, values: Array, levels: tuple[Any, ...] | None) -> Part:
    """The part of one column (n,) with a kernel, or ("periodic", period); ``levels`` if the table states them."""
    period = 0.0
    if isinstance(kernel, tuple | list) and len(kernel) == 2 and kernel[0] == PERIODIC:
        kernel, period = PERIODIC, kernel[1]
        if isinstance(period, bool) or not isinstance(period, int | float) or not (isfinite(period) and period > 0.0):
            raise ValueError(f"kernel of column {name!r}: the period must be a positive number, got {period!r}")
    elif kernel == PERIODIC:
        raise ValueError(
            f"kernel of column {name!r} must be ('periodic', period), such as ('periodic', 24), got 'periodic'"
        )
    if kernel not in COLUMN_KERNELS:
        raise ValueError(
            f"kernel of column {name!r} must be one of {', '.join(map(repr, COLUMN_KERNELS))}, "
            f"or ('periodic', period), got {kernel!r}"
        )
    if kernel in UNORDERED_KERNELS or kernel in ORDERED_KERNELS:
        if levels is None:
            levels = tuple(sorted(set(values[~is_missing(values)].tolist())))
        if len(levels) > MAX_CATEGORIES:
            raise ValueError(
                f"X column {name!r} must have at most {MAX_CATEGORIES} categories, got {len(levels):,}, such as "
                f"{str(levels[0])!r:.40}; drop the column, merge categories, or convert dates to numbers of days"
            )
        return Part(kernel, (column,), (name,), levels)
    if values.dtype == object:
        raise ValueError(f"X column {name!r} is text, but kernel {kernel!r} takes numbers; use {CATEGORIES!r}")
    return Part(kernel, (column,), (name,), period=float(period))


def coding_of_parts(parts: list[Part]) -> Coding:
    """The coding of columns; latitude and longitude become one part."""
    found = {kernel: [part for part in parts if part.kernel == kernel] for kernel in (LATITUDE, LONGITUDE)}
    if not any(found.values()):
        return Coding(tuple(parts))
    if [len(each) for each in found.values()] != [1, 1]:
        given = {kernel: [part.names[0] for part in each] for kernel, each in found.items()}
        raise ValueError(f"kernel must name one column 'latitude' and one 'longitude', or none, got {given}")
    latitude, longitude = found[LATITUDE][0], found[LONGITUDE][0]
    sphere = Part(LATITUDE, latitude.columns + longitude.columns, latitude.names + longitude.names)
    return Coding(tuple(sphere if part is latitude else part for part in parts if part is not longitude))


def is_missing(values: Array) -> Array:
    """Missing entries of a column (n,): None in text, NaN in numbers."""
    if values.dtype == object:
        return np.array([value is None for value in values.tolist()], bool)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)

"""Numbers of twice the precision: the unevaluated sum of a rounded number and what rounding took from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array


class Twice(NamedTuple):
    """head + tail, of float64 arrays; about 104 bits.

    >>> bool(two_product(1.0 + 2.0**-30, 1.0 - 2.0**-30).plus(Twice(-1.0)).rounded() == -(2.0**-60))
    True
    """

    head: Array
    tail: Array | float = 0.0

    def plus(self, other: Twice) -> Twice:
        head, tail = two_sum(self.head, other.head)
        return Twice(head, self.tail + other.tail + tail)

    def times(self, factor: Array | float) -> Twice:
        head, tail = two_product(self.head, factor)
        return Twice(head, self.tail * factor + tail)

    def squared(self) -> Twice:
        head, tail = two_product(self.head, self.head)
        return Twice(head, 2.0 * self.head * self.tail + tail)

    def rounded(self) -> Array:
        return np.asarray(self.head + self.tail)


def two_sum(x: Any, y: Any) -> Twice:
    """x + y, nothing lost."""
    total = x + y
    back = total - x
    return Twice(total, (x - (total - back)) + (y - back))


def two_product(x: Any, y: Any) -> Twice:
    """x·y, nothing lost, for factors below 1e300 whose product neither overflows nor underflows."""
    product = x * y
    (a, b), (c, d) = _halves(x), _halves(y)
    return Twice(product, ((a * c - product) + a * d + b * c) + b * d)


def _halves(x: Any) -> tuple[Any, Any]:
    """x as two numbers of half its digits each, whose products are exact."""
    large = x * 134217729.0
    high = large - (large - x)
    return high, x - high

"""Double-double arithmetic: a number as the unevaluated sum of a float64 and its rounding error."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.core.arrays import Array


class DoubleDouble(NamedTuple):
    """head + tail, of float64 arrays; about 104 bits.

    >>> bool(two_product(1.0 + 2.0**-30, 1.0 - 2.0**-30).plus(DoubleDouble(-1.0)).rounded() == -(2.0**-60))
    True
    """

    head: Array
    tail: Array | float = 0.0

    def plus(self, other: DoubleDouble) -> DoubleDouble:
        head, tail = two_sum(self.head, other.head)
        return DoubleDouble(head, self.tail + other.tail + tail)

    def times(self, factor: Array | float) -> DoubleDouble:
        head, tail = two_product(self.head, factor)
        return DoubleDouble(head, self.tail * factor + tail)

    def squared(self) -> DoubleDouble:
        head, tail = two_product(self.head, self.head)
        return DoubleDouble(head, 2.0 * self.head * self.tail + tail)

    def rounded(self) -> Array:
        return np.asarray(self.head + self.tail)


def two_sum(x: Any, y: Any) -> DoubleDouble:
    """x + y without rounding error."""
    total = x + y
    back = total - x
    return DoubleDouble(total, (x - (total - back)) + (y - back))


def two_product(x: Any, y: Any) -> DoubleDouble:
    """x·y without rounding error, for factors below 1e300 whose product neither overflows nor underflows."""
    product = x * y
    (a, b), (c, d) = _halves(x), _halves(y)
    return DoubleDouble(product, ((a * c - product) + a * d + b * c) + b * d)


def _halves(x: Any) -> tuple[Any, Any]:
    """x as the sum of two numbers with half its digits each, so that products are exact."""
    large = x * 134217729.0
    high = large - (large - x)
    return high, x - high

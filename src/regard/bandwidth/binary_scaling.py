"""Features divided by powers of two while a bandwidth is learned, so that squares neither overflow nor underflow.

Division by a power of two rounds nothing, and a search takes the same steps whatever the units.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.bandwidth import Width
from regard.core.arrays import Array
from regard.core.bounds import Bounds


def powers_of_two(ends: Bounds, *, common: bool) -> Array:
    """Exponents (d,) of the powers of two nearest to each feature's range, or one for all features if ``common``."""
    half = ends.high / 2.0 - ends.low / 2.0
    half = np.full(len(half), half.max(initial=0.0)) if common else half
    return np.asarray(np.where(half > 0.0, np.frexp(half)[1], 0))


def unscaled(width: Width, power: Array) -> Width:
    """A width learned from features divided by 2^power, in the units of X."""
    assert width.search is not None
    with np.errstate(over="ignore"):
        w = unscaled_w(width.search.w, power)
        if not np.isfinite(w).all():
            raise ValueError("features of X vary too little: 1/bandwidth is not finite; rescale X")
        shape = (len(width.search.places), *w.shape)
        places = np.stack([unscaled_w(place, power).ravel() for place in width.search.places.reshape(shape)])
    return Width.of(w, width.ridge, width.search._replace(w=w, places=places))


def unscaled_w(w: Any, power: Array) -> Array:
    """The w of features divided by 2^power, in the units of X."""
    w = np.asarray(w)
    return np.asarray(np.ldexp(w, -(power[0] if w.ndim == 0 else power if w.ndim == 1 else power[:, None])))

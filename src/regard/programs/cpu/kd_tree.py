"""Sorting rows into the leaves of a kd-tree, so that rows close in space are close in memory."""

from __future__ import annotations

from regard.programs.cpu.compiled import program


@program
def kd_sort(points, w, tile, lanes, order):
    """Sort points (n, d) and order (n,) together, in place, so that consecutive rows are neighbours under w (d,).

    A range is split across the feature with the largest spread of w∘x, near its median: into whole tiles while it
    exceeds one tile, then into whole blocks of lanes. Every tile but the last is a leaf, and so is every block.
    """
    stack = [(0, points.shape[0])]
    while len(stack) > 0:
        start, stop = stack.pop()
        count = stop - start
        unit = tile if count > tile else lanes
        if count <= unit:
            continue
        f = _widest(points, w, start, stop)
        if f < 0:
            continue  # all rows are equal
        middle = start + (-(-count // unit) // 2) * unit
        _select(points, order, f, start, stop - 1, middle)
        stack.append((start, middle))
        stack.append((middle, stop))


@program
def _widest(points, w, start, stop):
    """The feature with the largest mean absolute deviation of w∘x; −1 if all rows are equal.

    Not the one with the largest range: a few outliers would have the bulk split where it is already narrow.
    """
    best, widest, inverse_count = -1, 0.0, 1.0 / (stop - start)
    for f in range(points.shape[1]):
        mean = width = 0.0
        for i in range(start, stop):
            mean += points[i, f] * inverse_count
        for i in range(start, stop):
            width += abs(points[i, f] - mean) * inverse_count
        width *= w[f]
        if width > widest:
            best, widest = f, width
    return best


@program
def _select(points, order, f, first, last, k):
    """Quickselect: reorder rows first … last so that row k is in its sorted place by feature f."""
    while last > first:
        middle = (first + last) // 2
        a, b, c = points[first, f], points[middle, f], points[last, f]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = first, last
        while i <= j:
            while points[i, f] < pivot:
                i += 1
            while points[j, f] > pivot:
                j -= 1
            if i <= j:
                _swap(points, order, i, j)
                i += 1
                j -= 1
        if k <= j:
            last = j
        elif k >= i:
            first = i
        else:
            return


@program
def _swap(points, order, i, j):
    for f in range(points.shape[1]):
        points[i, f], points[j, f] = points[j, f], points[i, f]
    order[i], order[j] = order[j], order[i]

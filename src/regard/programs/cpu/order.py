"""An order in which rows that are close together stand close together: the leaves of a kd-tree, one after another."""

from __future__ import annotations

from regard.programs.cpu.compiled import program


@program
def kd_order(points, w, tile, lanes, order):
    """Sort points (n, d) and order (n,) alike, in place, so that consecutive rows are neighbours under w (d,).

    A set is cut across the feature that is widest in w∘x, near the median: into whole tiles while it has more than one,
    then into whole blocks of lanes. So every tile but the last is a leaf, and every block too.
    """
    todo = [(0, points.shape[0])]
    while len(todo) > 0:
        start, stop = todo.pop()
        count = stop - start
        unit = tile if count > tile else lanes
        if count <= unit:
            continue
        f = _widest(points, w, start, stop)
        if f < 0:
            continue  # all rows are the same
        middle = start + (-(-count // unit) // 2) * unit
        _select(points, order, f, start, stop - 1, middle)
        todo.append((start, middle))
        todo.append((middle, stop))


@program
def _widest(points, w, start, stop):
    """The feature in which w∘x strays most from its mean; −1 if none does.

    Not the one of the largest range: a few far rows would have the bulk cut where it is already narrow.
    """
    best, widest, share = -1, 0.0, 1.0 / (stop - start)
    for f in range(points.shape[1]):
        mean = width = 0.0
        for i in range(start, stop):
            mean += points[i, f] * share
        for i in range(start, stop):
            width += abs(points[i, f] - mean) * share
        width *= w[f]
        if width > widest:
            best, widest = f, width
    return best


@program
def _select(points, order, f, first, last, k):
    """Move rows first … last so that those before k are at most, those from k on at least, row k in feature f."""
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

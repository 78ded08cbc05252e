"""Eigenvalues and eigenvectors of symmetric matrices as ONNX nodes: Jacobi rotations of disjoint pairs at once.

In a round every index p has a partner q. The rotation that annihilates the entry (p, q) has

    t = tan = ±2a_pq / (|a_qq − a_pp| + √((a_qq − a_pp)² + 4a_pq²)),  cos = 1/√(1 + t²),  sin = t·cos

and a sweep of d − 1 rounds, d if odd, covers all pairs. Convergence is quadratic: each sweep about squares the
off-diagonal entries.
"""

from __future__ import annotations

import numpy as np

from regard.core.arrays import Array
from regard.store.onnx.onnx_graph import Graph, Value

SWEEPS = 12


def eigen(matrices: Value, d: int) -> tuple[Value, Value]:
    """Eigenvalues (n, d, 1) and eigenvectors (n, d, d), as columns, of symmetric matrices (n, d, d) of norm about 1."""
    partners, side = _rounds(d)
    start = matrices * 0.0 + np.eye(d)
    if d == 1:
        return matrices, start

    def rotate(graph: Graph, step: Value, a: Value, vector: Value) -> list[Value]:
        here = graph.node("Mod", step, graph.constant(np.array(len(partners), np.int64)))
        partner = graph.constant(partners).take(here, 0)  # (d, d): 1 where the column is the row's partner
        first = graph.constant(side).take(here, 0)  # (d, 1): 1 for p, −1 for q, 0 for an index without a partner
        diagonal, off = (a * np.eye(d)).sum(2), (a * partner).sum(2)  # (n, d, 1)
        gap = (partner @ diagonal - diagonal) * first
        tangent = off * 2.0 / (gap.of("Abs") + (gap * gap + off * off * 4.0).sqrt()).maximum(1e-300)
        tangent = tangent * (gap >= 0.0).where(1.0, -1.0)
        cosine = 1.0 / (tangent * tangent + 1.0).sqrt()
        turn = cosine * np.eye(d) + partner * (first * tangent * cosine)
        return [turn.of("Transpose", perm=[0, 2, 1]) @ a @ turn, vector @ turn]

    a, vector = matrices.graph.loop(SWEEPS * len(partners), [matrices, start], rotate)
    return (a * np.eye(d)).sum(2), vector


def _rounds(d: int) -> tuple[Array, Array]:
    """Partners (rounds, d, d) and sides (rounds, d, 1) of a round-robin tournament.

    >>> _rounds(3)[0].sum(axis=0).tolist()
    [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    seats = d + d % 2
    circle = list(range(seats))
    partners, side = np.zeros((max(seats - 1, 1), d, d)), np.zeros((max(seats - 1, 1), d, 1))
    for number in range(seats - 1):
        for p, q in zip(circle[: seats // 2], reversed(circle[seats // 2 :]), strict=True):
            p, q = sorted((p, q))
            if q < d:
                partners[number, p, q] = partners[number, q, p] = 1.0
                side[number, p], side[number, q] = 1.0, -1.0
        circle = [*circle[1:-1], circle[0], circle[-1]]
    return partners, side

"""Compiled programs: the inner loops of the engines, in numba. Nothing outside ``engines/`` calls them.

A program works on plain arrays, is told its tile, releases the GIL and knows nothing of threads or plans. The
score stage (``pairs``) writes the scores of one cache-sized row of pairs, the next stage (``averages``,
``adjoint``) reduces it; only the common case, a Gaussian mass and one value column, is fused (``fused``).
"""

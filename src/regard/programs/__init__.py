"""Compiled programs: the inner loops of the engines. Nothing outside ``engines/`` calls them.

A program works on plain arrays and a given tile, releases the GIL and does not depend on threads or plans. Queries lie
along the lanes of vector registers (``lanes``), in blocks. The score stage fills a tile of pairs (``pair_scores``); the
reduce and backward stages (``tile_moments``, ``backward_sums``) are vector loops over such a tile (``tile_loops``).
Only the common case, a Gaussian mass and one value column, is fused into one loop (``gaussian_sums``).
"""

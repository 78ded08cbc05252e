"""Compiled programs: the inner loops of the engines. Nothing outside ``engines/`` calls them.

A program works on plain arrays, is told its tile, releases the GIL and knows nothing of threads or plans. Queries
lie along the lanes of vector registers (``lanes``), in blocks. The score stage fills a tile of pairs (``pairs``), the
reduce and adjoint stages (``averages``, ``adjoint``) are made of vector loops over such a tile (``tiles``). Only the
common case, a Gaussian mass and one value column, is fused into one loop (``fused``).
"""

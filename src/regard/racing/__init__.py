"""Races: ways to compute the same averages, timed in turns. ``regard bench`` and the benchmarks share them."""

"""Timing of methods that compute the same averages, used by ``regard bench`` and the benchmarks."""

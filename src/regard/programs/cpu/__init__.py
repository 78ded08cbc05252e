"""Programs compiled by numba for the CPU."""

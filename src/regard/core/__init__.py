"""Kernels, scores, the associative state, problems and local fits from moments: numpy and the standard library only."""

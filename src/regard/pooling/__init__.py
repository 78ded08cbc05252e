"""Pooling of arrays in memory: the planner, the runner, and the functions that users call."""

"""Engines that run on any CPU: numpy, and compiled programs."""

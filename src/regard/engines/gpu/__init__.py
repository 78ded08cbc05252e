"""The engine that runs on a GPU, and the host side of its Triton programs."""

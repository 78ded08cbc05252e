"""Arrays of dask: queries, keys and values in blocks that may lie on many machines.

Every block of keys gives a state for a block of queries, and states merge in a tree (``regard.folds``): the same
answer as one machine gives, whatever the cut.
"""

from __future__ import annotations

from regard.chunks.plan import explain_chunks
from regard.chunks.pooling import pool_chunks

__all__ = ["explain_chunks", "pool_chunks"]

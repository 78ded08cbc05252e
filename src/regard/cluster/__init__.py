"""Arrays of dask: queries, keys and values in blocks that may lie on many machines.

Every block of keys gives a state for a block of queries, and states merge in a tree
(``regard.pooling.mergeable_state``): the same answer as one machine gives, whatever the cut.
"""

from __future__ import annotations

from regard.cluster.chunked_plan import explain_chunks
from regard.cluster.chunked_pooling import pool_chunks
from regard.engines.tasks import ClusterError

__all__ = ["ClusterError", "explain_chunks", "pool_chunks"]

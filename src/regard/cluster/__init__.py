"""Dask collections: queries, keys and values in blocks on many machines.

Every pair of blocks gives a state of the queries over the keys, and states merge in a tree
(``regard.pooling.mergeable_state``): the same answer as on one machine, for any blocks.
"""

from __future__ import annotations

from regard.cluster.chunked_plan import explain_chunks
from regard.cluster.chunked_pooling import pool_chunks
from regard.engines.tasks import ClusterError

__all__ = ["ClusterError", "explain_chunks", "pool_chunks"]

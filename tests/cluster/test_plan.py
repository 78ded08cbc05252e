"""What the plan says of bytes between workers: it knows where chunks lie."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import regard
from regard.scores import Gaussian

pytestmark = [pytest.mark.xdist_group("cluster")]
RNG = np.random.default_rng(5)
N = 8000


def placed(client, where):
    """Keys and values in chunks, each in the memory of the worker of this number."""
    names = sorted(client.scheduler_info()["workers"])
    keys, values = (
        [
            client.persist(da.from_array(part, chunks=part.shape, name=False), workers=[names[number]])
            for number in where
        ]
        for part in (RNG.random((N, 2)), RNG.random(N))
    )
    return da.concatenate(keys), da.concatenate(values), names[0]


@pytest.mark.parametrize(
    ("where", "apart"), [((0, 0, 0, 0), 0), ((0, 0, 1, 1), 1), ((0, 1, 0, 1), 2), ((0, 1, 1, 0), 3)]
)
def test_states_move_where_neighbours_lie_apart(on_cluster, where, apart):
    key, value, home = placed(on_cluster, where)
    query = on_cluster.persist(da.from_array(RNG.random((500, 2)), chunks=(500, 2)), workers=[home])
    plan = regard.explain_plan(query, key, value, Gaussian(1.0))
    state = 500 * 8 * 4
    assert plan.states == apart * state
    assert plan.moved - plan.states == (500 * 2 * 8 if 1 in where else 0)

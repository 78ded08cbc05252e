"""Attention over pieces of the data adds up to attention over all of it."""

import numpy as np

from regard.core.state import finish, lift, merge
from regard.scores import Gaussian

rng = np.random.default_rng(0)
query, key, value = rng.normal(size=(3, 1)), rng.normal(size=(10, 1)), rng.normal(size=(10, 1))
score = Gaussian(w=2.0)

whole = lift(score(query, key), value)
halves = merge(lift(score(query, key[:5]), value[:5]), lift(score(query, key[5:]), value[5:]))
print("whole ", finish(whole).output[:, 0])
print("halves", finish(halves).output[:, 0])

"""One function under everything: weighted averages of values, one per query."""

import numpy as np

from regard import data, explain_plan, pool
from regard.scores import Gaussian

notes = data.notes(seed=0)
for w in (0.1, 1.0, 3.0, 1e6):
    pooled = pool(notes.x_test, notes.x_train, notes.y_train, Gaussian(w))
    print(f"w = {w:<9g} RMSE against the truth {np.sqrt(np.mean((pooled.output - notes.y_truth) ** 2)):.3f}")
print(explain_plan(notes.x_test, notes.x_train, notes.y_train, Gaussian(1.0)))

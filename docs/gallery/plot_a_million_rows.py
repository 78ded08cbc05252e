"""
A million rows
==============

The bandwidth of a million rows, learned from all of them, and the curve at a million places: seconds on a laptop. A
matrix of these weights would have eight terabytes. No place loses more than 1e-9 of its attention.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np

from regard import NadarayaWatsonRegressor, explain_plan
from regard.scores import Gaussian

rng = np.random.default_rng(0)
n = 1_000_000
x = np.where(rng.random(n) < 0.7, rng.uniform(0, 10, n), rng.normal(6.5, 0.5, n)) % 10
y = np.sin(x) + 0.35 * np.sin(14 * x) * (x > 4) + 0.6 * rng.normal(size=n)

begin = perf_counter()
model = NadarayaWatsonRegressor().fit(x[:, None], y)
learned = perf_counter()
curve = model.predict(x[:, None])
predicted = perf_counter()

h = float(model.bandwidth_[0])
print(explain_plan(x, x, y, Gaussian(1 / h)))

# %%
# Left, the million points as counts, with the curve through them. Right, a close look: the ripple is less than half
# the size of the noise.

order = np.argsort(x)[::50]
truth = np.sin(x) + 0.35 * np.sin(14 * x) * (x > 4)

fig, (far, near) = plt.subplots(1, 2, figsize=(10, 4.2), width_ratios=[1.5, 1], layout="constrained")
far.hexbin(x, y, gridsize=(160, 60), cmap="Blues", bins="log", extent=(0, 10, -3, 3), linewidths=0)
far.plot(x[order], curve[order], color="#d55e00", linewidth=1.5)
far.set(xlabel="x", ylabel="y", xlim=(0, 10), ylim=(-3, 3))
far.set_title(f"learned in {learned - begin:.1f} s, predicted in {predicted - learned:.1f} s; h = {h:.3f}", fontsize=10)

few = rng.choice(n, 40_000, replace=False)
near.scatter(x[few], y[few], s=1, color="#9ccbe6", linewidth=0)
near.plot(x[order], truth[order], color="#22303c", linestyle=":", linewidth=1.5, label="truth")
near.plot(x[order], curve[order], color="#d55e00", linewidth=1.5, label="predicted")
near.set(xlabel="x", xlim=(5, 7), ylim=(-1.7, 1.7), title="close")
near.legend(loc="upper right")
plt.show()

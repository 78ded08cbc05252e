"""
Needle and river
================

Fifty points, three bandwidths. Above, the curve; below, who attends to whom: a row is a query, a column a key. Too
narrow, and every point has its weight on itself: a needle. Too wide, and every point averages over all: a river.
About right is a line with a halo, and leave-one-out finds it.
"""

import matplotlib.pyplot as plt
import numpy as np

import regard

data = regard.data.notes(seed=0)
x, fine = data.x_train[:, None], np.linspace(0, 5, 400)[:, None]
learned = regard.NadarayaWatsonRegressor().fit(x, data.y_train).bandwidth_[0]

fig, axes = plt.subplots(2, 3, figsize=(9.5, 5.8), height_ratios=[1, 1.25], layout="constrained")
widths = {"needle": learned / 12, "about right": learned, "river": 8 * learned}
for (curve, heat), (name, h) in zip(axes.T, widths.items(), strict=True):
    model = regard.NadarayaWatsonRegressor(bandwidth=float(h)).fit(x, data.y_train)
    weights = model.attend(x)
    rows = np.arange(50)
    left_out = regard.pool(x, x, data.y_train, regard.scores.Gaussian(1 / h), exclude=(rows, rows)).output
    error = np.sqrt(np.mean((left_out - data.y_train) ** 2))
    neighbours = np.median(1 / (weights**2).sum(axis=1))

    curve.scatter(data.x_train, data.y_train, s=10, color="#22303c", alpha=0.7, linewidth=0)
    curve.plot(fine[:, 0], regard.data.notes_truth(fine[:, 0]), color="#66727f", linestyle=":")
    curve.plot(fine[:, 0], model.predict(fine), color="#0072b2", linewidth=2)
    curve.set_title(f"{name}\nh = {h:.2g}, error left out {error:.2f}", fontsize=10)
    curve.set(xlim=(0, 5), ylim=(-1, 6.5))

    heat.imshow(weights / weights.max(axis=1, keepdims=True), cmap="Blues", vmin=0, vmax=1, aspect="equal")
    heat.set_xlabel(f"keys, by x; {neighbours:.2g} neighbours")
    heat.set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("y")
axes[1, 0].set_ylabel("queries, by x")
plt.show()

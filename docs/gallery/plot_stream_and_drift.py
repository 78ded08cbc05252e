"""
A stream, and its drift
=======================

Rows arrive in batches. A window of the last 400 is kept; the batch is tested before it is learned from. On batch 12
the world changes, and `drift` says so.
"""

import matplotlib.pyplot as plt
import numpy as np

import regard

rng = np.random.default_rng(0)
model = regard.NadarayaWatsonRegressor(bandwidth=0.25)
frozen = regard.NadarayaWatsonRegressor(bandwidth=0.25)


def batch(number):
    x = rng.uniform(0, 5, (100, 1))
    turned = np.sin(2 * x[:, 0]) if number < 12 else np.cos(2 * x[:, 0]) + 0.5
    return x, turned + 0.3 * rng.normal(size=100)


errors, stale, alarms = [], [], []
for number in range(24):
    x, y = batch(number)
    if number >= 4:
        drift = model.drift(x, y)
        alarms.append(drift.worse)
        errors.append(np.sqrt(np.mean((model.predict(x) - y) ** 2)))
        stale.append(np.sqrt(np.mean((frozen.predict(x) - y) ** 2)))
    model.partial_fit(x, y, window=400)
    if number < 4:
        frozen.partial_fit(x, y)
    elif number == 12:
        print(drift)

# %%
# The window forgets the old world within four batches. A model that stays as it was does not.

batches = np.arange(4, 24)
alarms = np.array(alarms)
fig, ax = plt.subplots(figsize=(8.5, 4), layout="constrained")
ax.axvspan(11.5, 23.5, color="#e69f00", alpha=0.12, linewidth=0)
ax.text(11.7, 1.33, "the world has changed", color="#8a5f00", fontsize=9)
ax.axhline(0.3, color="#66727f", linestyle=":", label="noise")
ax.plot(batches, stale, color="#d55e00", linestyle="--", marker="s", markersize=4, label="never learns again")
ax.plot(batches, errors, color="#0072b2", marker="o", markersize=4, label="window of 400 rows")
ring = {"s": 160, "facecolor": "none", "edgecolor": "#d55e00", "linewidth": 1.8, "zorder": 3}
ax.scatter(batches[alarms], np.array(errors)[alarms], label="drift reported", **ring)
ax.set(xlabel="batch of 100 rows", ylabel="error on the new batch", xticks=range(4, 24, 2))
ax.set(ylim=(0, 1.45), xlim=(3.5, 23.5))
ax.legend(loc="upper left", fontsize=8)
plt.show()

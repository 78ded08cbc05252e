"""
Forgetting a row
================

A customer asks to be removed. `forget` takes the row out of the model: predictions are those of a model that never
had it, at the same bandwidth, and a saved file no longer contains it.
"""

import matplotlib.pyplot as plt
import numpy as np

import regard

rng = np.random.default_rng(4)
x = np.sort(rng.uniform(0, 5, 40))
y = np.sin(1.5 * x) + 0.15 * rng.normal(size=40)
gone = 23
y[gone] += 1.6  # the customer who asked

model = regard.NadarayaWatsonRegressor(bandwidth=0.25).fit(x[:, None], y)
fine = np.linspace(0, 5, 500)[:, None]
before, weight = model.predict(fine), model.attend(fine)[:, gone]

model.forget([gone])
after = model.predict(fine)
never = regard.NadarayaWatsonRegressor(bandwidth=0.25).fit(np.delete(x, gone)[:, None], np.delete(y, gone))
assert np.allclose(after, never.predict(fine), rtol=1e-12)
print("rows left:", model.row_ids_)

# %%
# What changes is what the row held: its weight at every place, times its distance from the others' answer.

assert np.allclose(before - after, weight * (y[gone] - after))

fig, (upper, lower) = plt.subplots(2, 1, figsize=(8, 5.6), sharex=True, height_ratios=[2, 1], layout="constrained")
upper.fill_between(fine[:, 0], before, after, color="#d55e00", alpha=0.2, linewidth=0)
upper.plot(fine[:, 0], before, color="#d55e00", linestyle="--", label="before")
upper.plot(fine[:, 0], after, color="#0072b2", linewidth=2, label="after, as if the row had never been there")
keep = np.arange(40) != gone
upper.scatter(x[keep], y[keep], s=22, color="#22303c", linewidth=0)
upper.scatter(x[gone], y[gone], s=110, marker="X", color="#d55e00", label=f"row {gone}, forgotten", zorder=3)
upper.set(ylabel="y", xlim=(0, 5))
upper.legend(loc="lower left", fontsize=9)

lower.fill_between(fine[:, 0], 0, weight, color="#d55e00", alpha=0.35, linewidth=0)
lower.set(xlabel="x", ylabel=f"attention\nto row {gone}", ylim=(0, None))
plt.show()

"""
A deep kernel
=============

Rings: near in the plane is not near in y. `AttentionRegressor` learns a network in front of the kernel, so that
distances are taken where they mean something. A prediction is still an average of training rows, and they can be
named.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import regard

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (300, 2))


def rings(X):
    return np.sin(5 * np.hypot(X[:, 0], X[:, 1]))


y = rings(X) + 0.1 * rng.normal(size=300)
plain = regard.NadarayaWatsonRegressor().fit(X, y)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # more epochs would help a little
    deep = regard.AttentionRegressor(embed="mlp", max_iter=30, random_state=0).fit(X, y)

# %%
# Third, where the prediction at the cross comes from. The kernel in the plane uses what lies around; the deep
# kernel uses the ring.

side = np.linspace(-2, 2, 90)
grid = np.column_stack([part.ravel() for part in np.meshgrid(side, side)])
query = np.array([[1.2, 0.2]])
truth = rings(grid)

style = {"origin": "lower", "extent": (-2, 2, -2, 2), "cmap": "cividis", "vmin": -1, "vmax": 1}

fig, axes = plt.subplots(2, 3, figsize=(9.5, 6.2), layout="constrained")
axes[0, 0].imshow(truth.reshape(90, 90), **style)
axes[0, 0].set(title="truth")
axes[1, 0].scatter(*X.T, c=y, s=14, cmap="cividis", vmin=-1, vmax=1, linewidth=0)
axes[1, 0].set(title="training rows", xlim=(-2, 2), ylim=(-2, 2), aspect="equal")
for row, (name, model) in zip(axes, (("kernel in the plane", plain), ("deep kernel", deep)), strict=True):
    error = np.sqrt(np.mean((model.predict(grid) - truth) ** 2))
    row[1].imshow(model.predict(grid).reshape(90, 90), **style)
    attention = model.attend(query)[0]
    row[2].scatter(*X.T, s=8, color="#d5dbe1", linewidth=0)
    row[2].scatter(*X.T, s=1500 * attention, color="#0072b2", alpha=0.7, linewidth=0)
    row[2].plot(*query[0], marker="x", color="#d55e00", markersize=11, markeredgewidth=2.5)
    row[2].set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal", title="attention of the cross")
    row[1].set(title=f"{name}, error {error:.2f}")
    for ax in row:
        ax.set(xticks=[], yticks=[])
plt.show()

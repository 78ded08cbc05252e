"""
House prices on a map
=====================

A price for every place, from 1,500 sales of a made town: two centres and a river. Longitude and latitude are one
column of places, with a bandwidth in kilometres. Where the nearest sale is far away, `explain` says so, and the map
stays blank.
"""

# %%
# The town. Prices fall with the distance from two centres, and are lower south of the river.

import matplotlib.pyplot as plt
import numpy as np

import regard

rng = np.random.default_rng(0)


def river(longitude):
    return 52.50 + 0.02 * np.sin(25 * (longitude - 13.30))


def price(longitude, latitude):
    """In thousands."""
    from_centre = np.hypot((longitude - 13.32) / 1.6, latitude - 52.53)
    from_harbour = np.hypot((longitude - 13.52) / 1.6, latitude - 52.46)
    near = 260 * np.exp(-((from_centre / 0.03) ** 2)) + 180 * np.exp(-((from_harbour / 0.02) ** 2))
    return 150 + near + 40 * (latitude > river(longitude))


places = rng.normal([13.42, 52.50], [0.075, 0.032], (1500, 2))
sold = price(*places.T) + rng.normal(0, 35, 1500)

# %%
# One bandwidth for the place, learned by leaving sales out.

kernel = {0: "longitude", 1: "latitude"}
model = regard.NadarayaWatsonRegressor(kernel=kernel).fit(places, sold)
kilometres = float(model.bandwidth_[0])

east, north = np.meshgrid(np.linspace(13.18, 13.66, 200), np.linspace(52.40, 52.60, 160))
grid = np.column_stack([east.ravel(), north.ravel()])
surface = np.where(model.explain(grid, top=1).far, np.nan, model.predict(grid)).reshape(east.shape)

fig, ax = plt.subplots(figsize=(8, 5.2), layout="constrained")
image = ax.pcolormesh(east, north, surface, cmap="cividis", vmin=120, vmax=430, shading="gouraud")
ax.contour(east, north, surface, levels=[200, 250, 300, 350, 400], colors="white", linewidths=0.7, alpha=0.8)
ax.scatter(*places.T, s=3, color="white", alpha=0.45, linewidth=0)
ax.plot(east[0], river(east[0]), color="#56b4e9", linewidth=4, solid_capstyle="round", label="river")
ax.set(xlim=(13.18, 13.66), ylim=(52.40, 52.60), xlabel="longitude", ylabel="latitude")
ax.set_title(f"Price by place, learned bandwidth {kilometres:.2f} km")
ax.set_aspect(1 / np.cos(np.radians(52.5)))
ax.legend(loc="lower right")
fig.colorbar(image, label="price, thousands")
plt.show()

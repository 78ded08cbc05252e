"""
Sensors with intervals
======================

Three sensors, each noisier in its own way, one of them silent for a while. Where a model has no data it should say
so: the interval is about the next reading, and the band of the mean about the curve. Both come from readings that
were left out, so neither knows what happens where there are none: `explain` marks these places.
"""

import matplotlib.pyplot as plt
import numpy as np

import regard

rng = np.random.default_rng(1)
day = np.linspace(0, 10, 500)[:, None]


def temperature(t):
    return 18 + 4 * np.sin(2 * np.pi * t / 5) + 0.4 * t


def steady(t):
    return 0.5 + 0 * t


def ageing(t):
    return 0.2 + 0.25 * t


sensors = {"steady": (steady, 160, ()), "ageing": (ageing, 160, ()), "silent from day 4 to 6": (steady, 120, (4, 6))}

fig, axes = plt.subplots(3, 1, figsize=(8, 7), sharex=True, sharey=True, layout="constrained")
for ax, (name, (noise, count, silent)) in zip(axes, sensors.items(), strict=True):
    t = np.sort(rng.uniform(0, 10, count))
    if silent:
        t = t[(t < silent[0]) | (t > silent[1])]
    reading = temperature(t) + noise(t) * rng.normal(size=len(t))
    model = regard.LocalLinearRegressor(bandwidth="aicc").fit(t[:, None], reading)

    low, high = model.predict_interval(day, coverage=0.9).T
    mean_low, mean_high = model.confidence_interval(day, 0.9, "bootstrap", random_state=0).T
    ax.fill_between(day[:, 0], low, high, color="#0072b2", alpha=0.15, linewidth=0, label="90 % of readings")
    ax.fill_between(day[:, 0], mean_low, mean_high, color="#0072b2", alpha=0.35, linewidth=0, label="the mean, 90 %")
    ax.plot(day[:, 0], temperature(day[:, 0]), color="#22303c", linestyle=":", linewidth=1.2, label="truth")
    ax.plot(day[:, 0], model.predict(day), color="#0072b2", linewidth=2, label="predicted")
    ax.scatter(t, reading, s=8, color="#22303c", alpha=0.6, linewidth=0)

    far = model.explain(day, top=1).far
    ax.fill_between(day[:, 0], 0, 1, where=far, transform=ax.get_xaxis_transform(), color="#e69f00", alpha=0.25,
                    linewidth=0, label="far from every reading" if far.any() else None)  # fmt: skip
    ax.set(ylabel="°C", ylim=(10, 32))
    ax.set_title(name, loc="left", fontsize=10)
    ax.legend(loc="upper left", ncols=5, fontsize=7, frameon=False)
axes[-1].set_xlabel("day")
plt.show()

"""
A mixed table
=============

Three cities, an hour on the clock, a temperature with gaps, and a column of nothing: one model, with one bandwidth
for each column. Cities borrow from one another as far as they are alike, and the bandwidth learns how far that is.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import regard

rng = np.random.default_rng(0)
n = 500
X = pd.DataFrame(
    {
        "city": rng.choice(["Bremen", "Split", "Turku"], n, p=[0.6, 0.3, 0.1]),
        "hour": rng.uniform(0, 24, n),
        "temperature": rng.normal(12, 6, n),
        "lottery": rng.normal(size=n),
    }
)
base = X["city"].map({"Bremen": 30.0, "Split": 42.0, "Turku": 18.0})
rush = 16 * np.exp(-((X["hour"] - 8) ** 2) / 5) + 20 * np.exp(-((X["hour"] - 17.5) ** 2) / 7)
bikes = base + rush + 0.8 * X["temperature"] + rng.normal(0, 3, n)
X.loc[rng.random(n) < 0.1, "temperature"] = np.nan

kernel = {"hour": ("periodic", 24)}
model = regard.NadarayaWatsonRegressor(kernel=kernel, missing="ignore").fit(X, bikes)
for name, width in zip(X.columns, model.bandwidth_, strict=True):
    print(f"{name:12} bandwidth {width:.3g}")

# %%
# One curve for each city, at 12 degrees. In Turku there are fifty rows; its curve is quieter, and its band wider.

hours = np.linspace(0, 24, 200)
fig, (curves, bars) = plt.subplots(1, 2, figsize=(10, 4.2), width_ratios=[2, 1], layout="constrained")
for city, colour, dash in (("Split", "#d55e00", "--"), ("Bremen", "#0072b2", "-"), ("Turku", "#009e73", "-.")):
    at = pd.DataFrame({"city": city, "hour": hours, "temperature": 12.0, "lottery": 0.0})
    low, high = model.confidence_interval(at, 0.9).T
    here = X["city"] == city
    curves.fill_between(hours, low, high, color=colour, alpha=0.18, linewidth=0)
    curves.plot(hours, model.predict(at), color=colour, linestyle=dash, label=f"{city}, {here.sum()} rows")
    curves.scatter(X["hour"][here], bikes[here], s=6, color=colour, alpha=0.5, linewidth=0)
curves.set(xlabel="hour", ylabel="bikes", xlim=(0, 24), xticks=range(0, 25, 6), title="at 12 °C")
curves.legend(loc="upper left", fontsize=8)
regard.plot.FeatureRelevanceDisplay.from_estimator(model, ax=bars)
plt.show()

"""
One prediction, explained
=========================

A price is a weighted sum of prices that were paid. Which houses, how alike they are, and by which columns: all of
it is in `explain`, and `ExplanationDisplay` draws it.
"""

# %%
# Four hundred houses that come with the package, and a new one.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import regard

houses = regard.data.houses(400, seed=0)
X = pd.DataFrame(houses.X, columns=houses.feature_names)
model = regard.KernelRegressor().fit(X, houses.y)
new = pd.DataFrame(regard.data.houses(1, seed=5).X, columns=houses.feature_names)
print(model.explain(new, top=5))

# %%
# Left, the houses with the largest weights; right, what made them near. Below, every house: its price, how near it
# is to the new one, and how much it adds to the prediction.

fig = plt.figure(figsize=(9, 8), layout="constrained")
upper, lower = fig.subfigures(2, 1, height_ratios=[1.15, 1])
axes = upper.subplots(1, 2)
regard.plot.ExplanationDisplay.from_estimator(model, new, ax=axes)
axes[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, fontsize=8, frameon=False)

price = model.predict(new)[0]
low, high = model.predict_interval(new, coverage=0.9)[0]
attention = model.attend(new)[0]
order = np.argsort(attention)

ax = lower.subplots()
points = ax.scatter(X["area"].iloc[order], houses.y[order], c=attention[order], cmap="Blues", s=40, edgecolor="#66727f",
                    linewidth=0.4, vmin=0)  # fmt: skip
ax.errorbar(
    new["area"], [price], yerr=[[price - low], [high - price]], fmt="D", color="#d55e00", markersize=8, capsize=5
)
line = {"arrowstyle": "-", "color": "#d55e00"}
words, at = f"predicted {price:.0f}\n90 %: {low:.0f} to {high:.0f}", (new["area"].iloc[0], high)
ax.annotate(words, at, (-70, 60), textcoords="offset points", color="#d55e00", arrowprops=line)
ax.set(xlabel="area, m²", ylabel="price, thousands")
lower.colorbar(points, label="attention")
plt.show()

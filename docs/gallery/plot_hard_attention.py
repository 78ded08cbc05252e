"""
Hard attention learns where to look
===================================

Eight boxes, one of them may be opened, and the query names the one with the prize. Hard attention draws a box; its
score learns from the costs alone, by reinforcement. A draw has no derivative, so the gradient is estimated, and the
mean cost of the other draws as a baseline makes the estimate quiet enough to learn.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from regard.nn import BilinearScore, HardAttention, LeaveOneOut

BOXES, STEPS = 8, 120
torch.set_num_threads(1)


def train(baseline):
    """Cost before each step, and the weights of all boxes for all names at four of them."""
    torch.manual_seed(0)
    score = BilinearScore(BOXES, BOXES)
    torch.nn.init.zeros_(score.W)
    hard = HardAttention(score, "reinforce", samples=4, baseline=baseline)
    adam = torch.optim.Adam(score.parameters(), lr=0.05)
    names, costs, maps = torch.eye(BOXES), [], {}
    for step in range(STEPS + 1):
        weights = score.W.detach().softmax(-1)
        costs.append(1 - weights.diagonal().mean().item())  # the chance of the wrong box
        if step in (0, 15, 40, STEPS):
            maps[step] = weights.numpy().copy()
        queries = names[torch.randint(BOXES, (32, 1))]
        drawn = hard(queries, names.expand(32, -1, -1), names.expand(32, -1, -1))
        cost = 0.5 * (drawn.output - queries).square().sum(-1)  # 0 for the right box, 1 for a wrong one
        adam.zero_grad()
        drawn.objective(cost).mean().backward()
        adam.step()
    return np.array(costs), maps


with_baseline, maps = train(LeaveOneOut())
without, _ = train(None)

fig = plt.figure(figsize=(9.5, 5.2), layout="constrained")
upper, lower = fig.subfigures(2, 1, height_ratios=[1, 1.15])
for ax, (step, weights) in zip(upper.subplots(1, 4), maps.items(), strict=True):
    ax.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    ax.set(title=f"after {step} steps", xticks=[], yticks=[], xlabel="box")
upper.axes[0].set_ylabel("name in the query")
ax = lower.subplots()
ax.plot(with_baseline, color="#0072b2", linewidth=2, label="baseline: mean of the other draws")
ax.plot(without, color="#d55e00", linestyle="--", label="no baseline")
ax.set(xlabel="step", ylabel="chance of the wrong box", ylim=(0, 1), xlim=(0, STEPS))
ax.legend()
plt.show()

"""
Demand by hour
==============

An hour is a point on a circle: 23:59 is next to 0:00. With a periodic kernel the curve closes at midnight; an
ordinary one treats both ends as edges, and its two answers for the same moment differ.
"""

import matplotlib.pyplot as plt
import numpy as np

import regard

rng = np.random.default_rng(3)
hour = np.r_[rng.uniform(0, 24, 220), rng.normal(0.6, 1.2, 60) % 24]


def truth(hour):
    late = np.exp(2.5 * (np.cos(2 * np.pi * (hour - 0.8) / 24) - 1))
    commute = np.exp(-((hour - 8.2) ** 2) / 2) + 0.8 * np.exp(-((hour - 17.5) ** 2) / 4)
    return 12 + 30 * late + 18 * commute


taxis = truth(hour) + rng.normal(0, 4, len(hour))
circle = regard.NadarayaWatsonRegressor(kernel={0: ("periodic", 24)}).fit(hour[:, None], taxis)
line = regard.NadarayaWatsonRegressor().fit(hour[:, None], taxis)

at = np.linspace(0, 24, 400)[:, None]
low, high = circle.predict_interval(at, coverage=0.9).T
angle = at[:, 0] / 24 * 2 * np.pi
jump = abs(np.diff(line.predict([[0.0], [24.0]]))[0])

fig = plt.figure(figsize=(9, 4.4), layout="constrained")
clock = fig.add_subplot(1, 2, 1, projection="polar", theta_direction=-1, theta_offset=np.pi / 2)
clock.fill_between(angle, low, high, color="#0072b2", alpha=0.15, linewidth=0)
clock.plot(angle, circle.predict(at), color="#0072b2", linewidth=2)
clock.scatter(hour / 24 * 2 * np.pi, taxis, s=6, color="#22303c", alpha=0.5, linewidth=0)
clock.set_xticks(np.arange(8) * np.pi / 4, [f"{3 * k}:00" for k in range(8)])
clock.set(ylim=(0, 55), title="Taxis by hour, with 90 % intervals")
clock.set_rlabel_position(250)

flat = fig.add_subplot(1, 2, 2)
around = np.linspace(-3, 3, 300)
flat.scatter((hour + 12) % 24 - 12, taxis, s=10, color="#22303c", alpha=0.4, linewidth=0)
flat.plot(around, truth(around % 24), color="#66727f", linestyle=":", label="truth")
for side in (around[around < 0], around[around >= 0]):
    label = f"ordinary kernel: jumps by {jump:.1f}" if side[0] < 0 else None
    flat.plot(side, line.predict(side[:, None] % 24), color="#d55e00", linestyle="--", label=label)
flat.plot(around, circle.predict(around[:, None] % 24), color="#0072b2", linewidth=2, label="periodic kernel")
flat.set(xlim=(-3, 3), ylim=(15, 55), xlabel="hours from midnight", ylabel="taxis", title="Around midnight")
flat.legend(loc="lower right", fontsize=8)
plt.show()

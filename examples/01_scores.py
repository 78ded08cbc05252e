"""A score says how much a query cares about a key; softmax turns scores into weights."""

import numpy as np

from regard import attention_weights
from regard.scores import KERNELS, RADIAL

key = np.linspace(-2.0, 2.0, 9)
print(f"{'kernel':14}" + "".join(f"{k:7.1f}" for k in key))
for name in KERNELS:
    weights = attention_weights([0.0], key, RADIAL[name](w=0.5))
    print(f"{name:14}" + "".join(f"{w:7.3f}" for w in weights[0]))

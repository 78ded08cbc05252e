"""The tour's story, told a second time in plain numpy."""

from __future__ import annotations

import re

import numpy as np

NAMES = ["cues", "average", "hard", "soft", "kernel", "heatmap", "batch", "softmax", "moredata"]
CJK = re.compile(r"[\u4e00-\u9fff]")


def error(predicted, truth):
    return np.sqrt(np.mean((predicted - truth) ** 2))


def attention(query, key, w=1.0):
    e = np.exp(-0.5 * (w * (query[:, None] - key[None, :])) ** 2)
    return e / e.sum(axis=1, keepdims=True)

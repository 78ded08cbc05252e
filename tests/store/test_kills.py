"""A save killed at any moment leaves the old model or the new one, whole (line 106 of the list)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.soak import FULL

KILLS = 500 if FULL else 50

# One process imports and fits, and forks for every save that is to be killed. A fork waits for a byte before it begins,
# so that the moment is measured from the save's own start.
KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
import regard

path, kills = Path(sys.argv[1]), int(sys.argv[2])
X = np.random.default_rng(0).normal(size=(20_000, 8))
models = [regard.NadarayaWatsonRegressor(bandwidth=float(h)).fit(X, X[:, 0]) for h in (1, 2)]
contents = []
for model in models:
    regard.save(model, path, force=True)
    contents.append(path.read_bytes())
began = time.monotonic()
for model in (*models, *models):
    regard.save(model, path, force=True)
long = (time.monotonic() - began) / 4

picks, now, left, results = random.Random(0), 1, 0, {"old": 0, "new": 0}
for _ in range(kills):
    other = 1 - now
    ready, begin = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        regard.save(models[other], path, force=True)
        time.sleep(60)
        os._exit(1)
    os.write(begin, b"x")
    time.sleep(picks.uniform(0.0, 1.3 * long))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    os.close(ready), os.close(begin)
    found = contents.index(path.read_bytes())  # the old file or the new one, to the last byte
    assert regard.load(path).bandwidth_ == regard.load(path, mapped=True).bandwidth_ == found + 1.0
    results["new" if found == other else "old"] += 1
    # A busy disk makes saves longer or shorter than they were: half of the kills shall come too late.
    long *= 0.9 if found == other else 1.1
    now = found
    # What a killed save leaves behind bears our name, is no larger than a model, and is in the way of nothing.
    parts = [one for one in path.parent.iterdir() if one != path]
    assert len(parts) <= 1 and all(one.name.startswith(".regard-") and one.suffix == ".part" for one in parts), parts
    for one in parts:
        assert one.stat().st_size <= len(contents[other])
        one.unlink()
        left += 1
print(results["old"], results["new"], left)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no kill -9 here")
def test_106_killed_while_saving(tmp_path: Path) -> None:
    path = tmp_path / "model.regard"
    command = [sys.executable, "-c", KILLER, str(path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    old, new, left = map(int, done.stdout.split())
    assert old + new == KILLS
    # Some came before the end, some after it, and some in the middle of writing.
    assert min(old, new, left) > 0, done.stdout
    assert os.listdir(tmp_path) == [path.name]

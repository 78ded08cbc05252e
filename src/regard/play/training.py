"""Learning w for the points of a page: the library's own leave-one-out training, with every step told as it happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regard.bandwidth import OPTIMIZERS, Objective, learned
from regard.bandwidth.objective import Evaluation
from regard.core.kernels import KERNELS
from regard.play.fair import Job
from regard.play.messages import Fields
from regard.play.security import Refused
from regard.pooling.runner import small_matrices

MOST_POINTS = 1000
SECONDS = 30.0
# The starts that pages may choose.
W_RANGE = (1e-3, 1e5)

Tell = Callable[[dict[str, Any]], None]


class Lesson(NamedTuple):
    """What a page asks to have learned."""

    x: np.ndarray[Any, np.dtype[np.float64]]  # (n,)
    y: np.ndarray[Any, np.dtype[np.float64]]  # (n,)
    kernel: str
    optimizer: str
    w: float  # where "sgd" starts; "lbfgs" looks everywhere

    @classmethod
    def of(cls, given: Fields) -> Lesson:
        x, y = (np.array(given.numbers(name, 2, MOST_POINTS)) for name in ("x", "y"))
        if len(x) != len(y):
            raise Refused(422, "x and y must be of one length")
        if not np.ptp(x) > 0.0:
            raise Refused(422, "x must vary for a bandwidth to be learned")
        kernel, optimizer = given.choice("kernel", KERNELS), given.choice("optimizer", OPTIMIZERS)
        return cls(x, y, kernel, optimizer, given.number("w", *W_RANGE))


@dataclass(frozen=True, eq=False, kw_only=True)
class Watched(Objective):
    """An objective that tells of every w it is asked about, and of its value there, with y scaled to unit variance.

    Where its job is over it ends the search as Ctrl-C would, which keeps the best so far.
    """

    step: Callable[[float, float], None]
    job: Job

    def __call__(self, w: ArrayLike, ridge: float = 0.0, *, gradient: bool = False) -> Evaluation:
        if self.job.halt():
            raise KeyboardInterrupt
        found = super().__call__(w, ridge, gradient=gradient)
        self.step(float(np.ravel(w)[0]), found.value)
        return found


def train(lesson: Lesson, job: Job, tell: Tell) -> None:
    """Learn one w, telling ``{"did": "step", "w", "loss"}`` at every evaluation and ``{"did": "trained", …}`` last.

    Stopped in the middle, the best so far is what was learned; before the first step, nothing was.
    """
    told: list[tuple[float, float]] = []

    def step(w: float, value: float) -> None:
        told.append((w, value))
        tell({"did": "step", "w": w, "loss": objective.in_units_of_y(value)})

    plain = Objective.of(lesson.x[:, None], lesson.y, kernel=lesson.kernel)
    objective = Watched(**{each.name: getattr(plain, each.name) for each in fields(plain)}, step=step, job=job)
    start = lesson.w if lesson.optimizer == "sgd" else None
    try:
        with small_matrices():
            found = learned(objective, metric="scalar", optimizer=lesson.optimizer, start=start).search
        assert found is not None
        w, loss = float(found.w), found.value
    except KeyboardInterrupt:
        if not told:
            tell({"did": "stopped"})
            return
        w, value = min(told, key=lambda each: each[1])
        loss = objective.in_units_of_y(value)
    tell({"did": "trained", "w": w, "loss": loss, "steps": len(told), "stopped": job.halted})

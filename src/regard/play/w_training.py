"""Learns w for the points of a page with the library's own leave-one-out training, and reports every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from regard.bandwidth import OPTIMIZERS, Objective, learned
from regard.bandwidth.objective import Evaluation
from regard.core.kernels import KERNELS
from regard.play.job_queue import Job
from regard.play.messages import Fields
from regard.play.security import Refused
from regard.pooling.runner import small_matrices

MAX_POINTS = 1000
MAX_SECONDS = 30.0
# The values of w that pages may start from.
W_RANGE = (1e-3, 1e5)

SendMessage = Callable[[dict[str, Any]], None]


class TrainingRequest(NamedTuple):
    """A page's request to learn w from its points."""

    x: np.ndarray[Any, np.dtype[np.float64]]  # (n,)
    y: np.ndarray[Any, np.dtype[np.float64]]  # (n,)
    kernel: str
    optimizer: str
    w: float  # where "sgd" starts; "lbfgs" searches everywhere

    @classmethod
    def of(cls, given: Fields) -> TrainingRequest:
        x, y = (np.array(given.numbers(name, 2, MAX_POINTS)) for name in ("x", "y"))
        if len(x) != len(y):
            raise Refused(422, "x and y must have the same length")
        if not np.ptp(x) > 0.0:
            raise Refused(422, "x must not be constant: a bandwidth cannot be learned from it")
        kernel, optimizer = given.choice("kernel", KERNELS), given.choice("optimizer", OPTIMIZERS)
        return cls(x, y, kernel, optimizer, given.number("w", *W_RANGE))


@dataclass(frozen=True, eq=False, kw_only=True)
class ObservedObjective(Objective):
    """An objective that reports every w it is evaluated at, with its value there, for y scaled to unit variance.

    Once its job is over it ends the search as Ctrl-C would, which returns the best w so far.
    """

    step: Callable[[float, float], None]
    job: Job

    def __call__(self, w: ArrayLike, ridge: float = 0.0, *, gradient: bool = False) -> Evaluation:
        if self.job.halt():
            raise KeyboardInterrupt
        found = super().__call__(w, ridge, gradient=gradient)
        self.step(float(np.ravel(w)[0]), found.value)
        return found


def train(request: TrainingRequest, job: Job, send: SendMessage) -> None:
    """Learn one w, sending ``{"did": "step", "w", "loss"}`` at every evaluation and ``{"did": "trained", …}`` last.

    If it is stopped, the result is the best w so far; before the first step there is no result.
    """
    steps: list[tuple[float, float]] = []

    def step(w: float, value: float) -> None:
        steps.append((w, value))
        send({"did": "step", "w": w, "loss": objective.in_units_of_y(value)})

    plain = Objective.of(request.x[:, None], request.y, kernel=request.kernel)
    objective = ObservedObjective(
        **{each.name: getattr(plain, each.name) for each in fields(plain)}, step=step, job=job
    )
    start = request.w if request.optimizer == "sgd" else None
    try:
        with small_matrices():
            found = learned(objective, metric="scalar", optimizer=request.optimizer, start=start).search
        assert found is not None
        w, loss = float(found.w), found.value
    except KeyboardInterrupt:
        if not steps:
            send({"did": "stopped"})
            return
        w, value = min(steps, key=lambda each: each[1])
        loss = objective.in_units_of_y(value)
    send({"did": "trained", "w": w, "loss": loss, "steps": len(steps), "stopped": job.halted})

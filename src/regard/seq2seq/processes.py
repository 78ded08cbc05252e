"""The processes of one training: this one alone, or all those of ``torch.distributed``.

``process_group`` joins the processes that ``torchrun`` has started; ``Processes`` is how a training exchanges numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch import distributed as dist


class Processes:
    """Rank and number of the processes, and collective operations; a single process gets back what it gives."""

    def __init__(self) -> None:
        joined = dist.is_available() and dist.is_initialized()
        self.rank, self.count = (dist.get_rank(), dist.get_world_size()) if joined else (0, 1)

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    def all_sum(self, *values: float) -> list[float]:
        """The sum over all processes of each value."""
        if self.count == 1:
            return list(values)
        return self._gathered(values).sum(0).tolist()  # type: ignore[no-any-return]

    def broadcast(self, values: Sequence[float]) -> list[float]:
        """The values of the main process, so that all take the same decisions."""
        return list(values) if self.count == 1 else self._gathered(values)[0].tolist()

    def all_gather(self, part: Tensor) -> list[Tensor]:
        """A tensor of every process, on the CPU; all have the same shape."""
        if self.count == 1:
            return [part.cpu()]
        sent = part.to(_device())
        received = [torch.empty_like(sent) for _ in range(self.count)]
        dist.all_gather(received, sent)
        return [one.cpu() for one in received]

    def _gathered(self, values: Sequence[float]) -> Tensor:
        """The values of all processes, (processes, values)."""
        return torch.stack(self.all_gather(torch.tensor(values, dtype=torch.float64)))


@contextmanager
def process_group(device: str) -> Iterator[str]:
    """Join the processes started by ``torchrun``, if there are any; yields the device of this one.

    On "cuda" each has a GPU of its own and they communicate by NCCL, on "cpu" by gloo.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def _device() -> torch.device:
    """Where the tensors of a collective operation must be."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")

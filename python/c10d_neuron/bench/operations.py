"""The operations that can be measured: how to write their inputs, run them, and check their outputs exactly."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
from torch import Tensor

# Values are whole numbers so small that sums over the ranks are exact in every dtype, bfloat16 (up to 256) included.
_PATTERN = 11
_ROUNDS = 5


class Operation(ABC):
    """One operation at one size on one rank. A resource: holds the tensors."""

    reduce_op = "none"

    def __init__(self, size: int, dtype: torch.dtype, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.count = max(1, size // dtype.itemsize)  # elements, as the table shows them
        self.prepare(dtype)

    @abstractmethod
    def prepare(self, dtype: torch.dtype) -> None:
        """Makes the tensors for `self.count` elements, which may be rounded up."""

    @abstractmethod
    def write(self, iteration: int) -> None:
        """Rewrites what the operation reads, differently in each iteration."""

    @abstractmethod
    def run(self, group: dist.ProcessGroup) -> None: ...

    @abstractmethod
    def errors(self, iteration: int) -> int:
        """Reads the output: how many elements are wrong."""

    def bus_factor(self) -> float:
        """From algorithm bandwidth to the bytes that cross each rank's link, as in nccl-tests' PERFORMANCE.md."""
        return (self.world - 1) / self.world

    def pattern(self, count: int, dtype: torch.dtype) -> Tensor:
        return (torch.arange(count) % _PATTERN).to(dtype)

    def shift(self, iteration: int, rank: int) -> int:
        return (iteration + rank) % _ROUNDS

    def round_up(self) -> int:
        """Makes the count a multiple of the world's size; returns one rank's share."""
        share = -(-self.count // self.world)
        self.count = share * self.world
        return share


def differing(actual: Tensor, expected: Tensor) -> int:
    return 0 if torch.equal(actual, expected) else int((actual != expected).sum())


class AllReduce(Operation):
    reduce_op = "sum"

    def prepare(self, dtype: torch.dtype) -> None:
        if self.world * (_PATTERN + _ROUNDS) > 256 and dtype == torch.bfloat16:
            raise ValueError(f"sums over {self.world} ranks are not exact in bfloat16; take float32")
        self.base = self.pattern(self.count, dtype)
        self.total = self.base * self.world
        self.tensor = torch.empty_like(self.base)

    def write(self, iteration: int) -> None:
        torch.add(self.base, self.shift(iteration, self.rank), out=self.tensor)

    def run(self, group: dist.ProcessGroup) -> None:
        dist.all_reduce(self.tensor, group=group)

    def errors(self, iteration: int) -> int:
        added = sum(self.shift(iteration, rank) for rank in range(self.world))
        return differing(self.tensor - added, self.total)

    def bus_factor(self) -> float:
        return 2 * (self.world - 1) / self.world


class AllGather(Operation):
    def prepare(self, dtype: torch.dtype) -> None:
        self.base = self.pattern(self.round_up(), dtype)
        self.input = torch.empty_like(self.base)
        self.output = torch.empty(self.count, dtype=dtype)

    def write(self, iteration: int) -> None:
        torch.add(self.base, self.shift(iteration, self.rank), out=self.input)

    def run(self, group: dist.ProcessGroup) -> None:
        dist.all_gather_single(self.output, self.input, group=group)

    def errors(self, iteration: int) -> int:
        parts = enumerate(self.output.chunk(self.world))
        return sum(differing(part, self.base + self.shift(iteration, rank)) for rank, part in parts)


class ReduceScatter(AllReduce):
    def prepare(self, dtype: torch.dtype) -> None:
        share = self.round_up()
        super().prepare(dtype)
        self.output = torch.empty(share, dtype=dtype)
        self.total = self.total.chunk(self.world)[self.rank]

    def run(self, group: dist.ProcessGroup) -> None:
        dist.reduce_scatter_single(self.output, self.tensor, group=group)

    def errors(self, iteration: int) -> int:
        added = sum(self.shift(iteration, rank) for rank in range(self.world))
        return differing(self.output - added, self.total)

    def bus_factor(self) -> float:
        return (self.world - 1) / self.world


class Broadcast(Operation):
    def prepare(self, dtype: torch.dtype) -> None:
        self.base = self.pattern(self.count, dtype)
        self.tensor = torch.empty_like(self.base)

    def write(self, iteration: int) -> None:
        torch.add(self.base, self.shift(iteration, self.rank), out=self.tensor)

    def run(self, group: dist.ProcessGroup) -> None:
        dist.broadcast(self.tensor, src=0, group=group)

    def errors(self, iteration: int) -> int:
        return differing(self.tensor, self.base + self.shift(iteration, 0))

    def bus_factor(self) -> float:
        return 1.0


class AllToAll(Operation):
    def prepare(self, dtype: torch.dtype) -> None:
        self.share = self.round_up()
        self.base = self.pattern(self.count, dtype)
        self.input, self.output = torch.empty_like(self.base), torch.empty_like(self.base)

    def write(self, iteration: int) -> None:
        torch.add(self.base, self.shift(iteration, self.rank), out=self.input)

    def run(self, group: dist.ProcessGroup) -> None:
        dist.all_to_all_single(self.output, self.input, group=group)

    def errors(self, iteration: int) -> int:
        mine = self.base.chunk(self.world)[self.rank]
        parts = enumerate(self.output.chunk(self.world))
        return sum(differing(part, mine + self.shift(iteration, rank)) for rank, part in parts)


class SendReceive(Broadcast):
    """Ping-pong between rank 0 and the last rank: there and back again, so that half of the time is one way."""

    def run(self, group: dist.ProcessGroup) -> None:
        last = self.world - 1
        if self.rank == 0:
            dist.send(self.tensor, last, group=group)
            dist.recv(self.tensor, last, group=group)
        elif self.rank == last:
            dist.recv(self.tensor, 0, group=group)
            dist.send(self.tensor, 0, group=group)

    def errors(self, iteration: int) -> int:
        return super().errors(iteration) if self.rank in (0, self.world - 1) else 0

    def bus_factor(self) -> float:
        return 2.0


CLASSES: dict[str, type[Operation]] = {
    "all_reduce": AllReduce,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "broadcast": Broadcast,
    "all_to_all": AllToAll,
    "send_recv": SendReceive,
}

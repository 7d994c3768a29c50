"""Every entry point of the backend against a reference in plain torch: one function per entry, run on each rank.

Each rank knows the values of all ranks (they follow from seed, label and rank), so it can compute what must come out.
`group` is a ProcessGroup or our Backend: both have the same methods.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

SIZES = (0, 1, 7, 1000, 100_000)
SERIES = 100_003  # where a stretch of values may begin
FEW_SIZES = (1, 1000)
REDUCED = (torch.float32, torch.bfloat16, torch.int32, torch.int64)
MOVED = (*REDUCED, torch.uint8, torch.bool, torch.float16, torch.float64, torch.complex64, torch.int16)
LAYOUTS = ("plain", "strided", "transposed")
OPS = (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MIN, dist.ReduceOp.MAX)


@functools.cache
def series(seed: int, dtype: torch.dtype) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    length = SERIES + SIZES[-1]
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(length, generator=random).to(dtype)
    high = {torch.bool: 2, torch.uint8: 256}.get(dtype, 1000)
    return torch.randint(0, high, (length,), generator=random).to(dtype)


@dataclass
class Checker:
    """One rank's view of one entry point: makes values, compares, and remembers what all ranks must have bit by bit."""

    group: Any
    rank: int
    world: int
    seed: int
    digests: list[str] = field(default_factory=list)

    def values(self, label: str, size: int, dtype: torch.dtype, rank: int) -> Tensor:
        """A stretch of one random series per dtype: where it begins follows from seed, label and rank."""
        digest = hashlib.blake2b(f"{self.seed}/{label}/{rank}".encode(), digest_size=7).digest()
        begin = int.from_bytes(digest, "little") % SERIES
        return series(self.seed, dtype)[begin : begin + size].clone()

    def all_values(self, label: str, size: int, dtype: torch.dtype) -> list[Tensor]:
        return [self.values(label, size, dtype, rank) for rank in range(self.world)]

    def same(self, label: str, got: Tensor, wanted: Tensor, *, terms: int = 0) -> None:
        """terms > 0: a floating-point reduction of so many; otherwise bit by bit."""
        assert got.dtype == wanted.dtype or terms, f"{label}: {got.dtype}, not {wanted.dtype}"
        assert got.shape == wanted.shape, f"{label}: {tuple(got.shape)}, not {tuple(wanted.shape)}"
        if terms and got.dtype.is_floating_point:
            # Not torch.testing: its first use imports half of torch, in every rank of every test.
            precision = torch.finfo(got.dtype).eps
            allowed = 2 * precision * wanted.double().abs() + 4 * terms * precision
            differs = (got.double() - wanted.double()).abs() > allowed
        else:
            differs = got != wanted.to(got.dtype)
        if bool(differs.any()):
            first = differs.nonzero()[0].tolist()
            found = f"{got[tuple(first)]} instead of {wanted[tuple(first)]}"
            raise AssertionError(
                f"{label} on rank {self.rank}: {int(differs.sum())} of {got.numel()} differ, at {first} {found}"
            )

    def replicated(self, tensor: Tensor) -> None:
        exact = tensor.float() if tensor.dtype == torch.bfloat16 else tensor  # numpy has none
        raw = exact.numpy().tobytes()
        self.digests.append(hashlib.blake2b(raw, digest_size=8).hexdigest())


def place(source: Tensor, layout: str) -> Tensor:
    """A tensor with the values of `source` (flat) and the given layout."""
    if layout == "strided":
        target = torch.empty(2 * source.numel() + 1, dtype=source.dtype)[1::2]
    elif layout == "transposed" and source.numel() % 2 == 0:
        target = torch.empty(2, source.numel() // 2, dtype=source.dtype).t()
        return target.copy_(source.view(target.shape))
    else:
        target = torch.empty_like(source)
    return target.copy_(source)


def empty(size: int, dtype: torch.dtype, layout: str) -> Tensor:
    return place(torch.zeros(size, dtype=dtype), layout)


def reduced(parts: list[Tensor], op: dist.ReduceOp) -> Tensor:
    """What `op` over all parts gives, in double precision where it is not exact."""
    exact = not parts[0].dtype.is_floating_point
    stacked = torch.stack(parts) if exact else torch.stack(parts).double()
    if op == dist.ReduceOp.SUM:
        return stacked.sum(0).to(parts[0].dtype) if exact else stacked.sum(0)
    if op == dist.ReduceOp.AVG:
        return stacked.mean(0)
    return stacked.amin(0) if op == dist.ReduceOp.MIN else stacked.amax(0)


def reductions() -> Iterator[tuple[torch.dtype, Any, int, str]]:
    """dtype, op, size, layout: all sizes with SUM, all ops at two sizes, all layouts at two sizes."""
    for dtype in REDUCED:
        for size in SIZES if dtype in (torch.float32, torch.bfloat16) else SIZES[:-1]:
            yield dtype, dist.ReduceOp.SUM, size, "plain"
        for op, size in itertools.product(OPS[1:], (7, 1000)):
            if op != dist.ReduceOp.AVG or dtype.is_floating_point:
                yield dtype, op, size, "plain"
    for layout, size in itertools.product(LAYOUTS[1:], FEW_SIZES):
        yield torch.float32, dist.ReduceOp.SUM, size, layout


def movements() -> Iterator[tuple[torch.dtype, int, str]]:
    for dtype in MOVED:
        for size in SIZES if dtype == torch.float32 else (7,):
            yield dtype, size, "plain"
    for layout, size in itertools.product(LAYOUTS[1:], FEW_SIZES):
        yield torch.float32, size, layout


def options_for(kind: type, **fields: Any) -> Any:
    options = kind()
    for name, value in fields.items():
        setattr(options, name, value)
    return options


def all_reduce(to: Checker) -> None:
    for dtype, op, size, layout in reductions():
        label = f"all_reduce {dtype} {op} {size} {layout}"
        parts = to.all_values(label, size, dtype)
        tensor = place(parts[to.rank], layout)
        to.group.allreduce([tensor], options_for(dist.AllreduceOptions, reduceOp=op)).wait()
        to.same(label, tensor.reshape(-1), reduced(parts, op), terms=to.world)
        to.replicated(tensor)


def all_reduce_coalesced(to: Checker) -> None:
    parts = [to.all_values(f"coalesced {size}", size, torch.float32) for size in SIZES]
    tensors = [part[to.rank].clone() for part in parts]
    work = to.group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions())
    work.wait()
    for tensor, part in zip(tensors, parts, strict=True):
        to.same("all_reduce_coalesced", tensor, reduced(part, dist.ReduceOp.SUM), terms=to.world)


def broadcast(to: Checker) -> None:
    for index, (dtype, size, layout) in enumerate(movements()):
        root = index % to.world
        label = f"broadcast {dtype} {size} {layout} from {root}"
        wanted = to.values(label, size, dtype, root)
        tensor = place(wanted, layout) if to.rank == root else empty(size, dtype, layout)
        to.group.broadcast([tensor], options_for(dist.BroadcastOptions, rootRank=root)).wait()
        to.same(label, tensor.reshape(-1), wanted)


def reduce(to: Checker) -> None:
    for index, (dtype, op, size, layout) in enumerate(reductions()):
        root = index % to.world
        label = f"reduce {dtype} {op} {size} {layout} to {root}"
        parts = to.all_values(label, size, dtype)
        tensor = place(parts[to.rank], layout)
        to.group.reduce([tensor], options_for(dist.ReduceOptions, reduceOp=op, rootRank=root)).wait()
        if to.rank == root:
            to.same(label, tensor.reshape(-1), reduced(parts, op), terms=to.world)
        else:
            to.same(label + ", input untouched", tensor.reshape(-1), parts[to.rank])


def all_gather(to: Checker) -> None:
    for dtype, size, layout in movements():
        label = f"all_gather {dtype} {size} {layout}"
        parts = to.all_values(label, size, dtype)
        mine = place(parts[to.rank], layout)
        outputs = [empty(size, dtype, layout) for _ in parts]
        to.group.allgather([outputs], [mine]).wait()
        for output, part in zip(outputs, parts, strict=True):
            to.same(label, output.reshape(-1), part)


def all_gather_into_tensor(to: Checker) -> None:
    for dtype, size, layout in movements():
        label = f"all_gather_into_tensor {dtype} {size} {layout}"
        parts = to.all_values(label, size, dtype)
        output = empty(size * to.world, dtype, layout)
        to.group._allgather_base(output, place(parts[to.rank], layout)).wait()
        to.same(label, output.reshape(-1), torch.cat(parts))


def all_gather_in_place(to: Checker) -> None:
    """As FSDP2 does it: the input is a view of the output where it belongs; and a view of it elsewhere."""
    for size, shift in itertools.product(SIZES[1:], (0, 1)):
        label = f"all_gather in place {size} {shift}"
        parts = to.all_values(label, size, torch.float32)
        output = torch.zeros(size * to.world)
        mine = output.narrow(0, (to.rank + shift) % to.world * size, size).copy_(parts[to.rank])
        to.group._allgather_base(output, mine).wait()
        to.same(label, output, torch.cat(parts))


def all_gather_coalesced(to: Checker) -> None:
    parts = [to.all_values(f"gather coalesced {size}", size, torch.float32) for size in SIZES]
    outputs = [torch.zeros(size * to.world) for size in SIZES]
    to.group.allgather_into_tensor_coalesced(outputs, [part[to.rank].clone() for part in parts]).wait()
    for output, part in zip(outputs, parts, strict=True):
        to.same("all_gather coalesced", output, torch.cat(part))


def gather(to: Checker) -> None:
    for index, (dtype, size, layout) in enumerate(movements()):
        root = index % to.world
        label = f"gather {dtype} {size} {layout} to {root}"
        parts = to.all_values(label, size, dtype)
        outputs = [[empty(size, dtype, layout) for _ in parts]] if to.rank == root else []
        to.group.gather(outputs, [place(parts[to.rank], layout)], options_for(dist.GatherOptions, rootRank=root)).wait()
        for output, part in zip(outputs[0] if outputs else [], parts, strict=False):
            to.same(label, output.reshape(-1), part)


def scatter(to: Checker) -> None:
    for index, (dtype, size, layout) in enumerate(movements()):
        root = index % to.world
        label = f"scatter {dtype} {size} {layout} from {root}"
        parts = to.all_values(label, size, dtype)
        output = empty(size, dtype, layout)
        inputs = [[place(part, layout) for part in parts]] if to.rank == root else []
        to.group.scatter([output], inputs, options_for(dist.ScatterOptions, rootRank=root)).wait()
        to.same(label, output.reshape(-1), parts[to.rank])


def reduce_scatter(to: Checker) -> None:
    for dtype, op, size, layout in reductions():
        label = f"reduce_scatter {dtype} {op} {size} {layout}"
        table = [to.all_values(f"{label} piece {piece}", size, dtype) for piece in range(to.world)]
        output = empty(size, dtype, layout)
        inputs = [place(table[piece][to.rank], layout) for piece in range(to.world)]
        to.group.reduce_scatter([output], [inputs], options_for(dist.ReduceScatterOptions, reduceOp=op)).wait()
        to.same(label, output.reshape(-1), reduced(table[to.rank], op), terms=to.world)


def reduce_scatter_tensor(to: Checker) -> None:
    for dtype, op, size, layout in reductions():
        label = f"reduce_scatter_tensor {dtype} {op} {size} {layout}"
        table = [to.all_values(f"{label} piece {piece}", size, dtype) for piece in range(to.world)]
        whole = place(torch.cat([pieces[to.rank] for pieces in table]), layout)
        output = empty(size, dtype, layout)
        to.group._reduce_scatter_base(output, whole, options_for(dist.ReduceScatterOptions, reduceOp=op)).wait()
        to.same(label, output.reshape(-1), reduced(table[to.rank], op), terms=to.world)


def reduce_scatter_in_place(to: Checker) -> None:
    for size, shift in itertools.product(SIZES[1:], (0, 1)):
        label = f"reduce_scatter in place {size} {shift}"
        table = [to.all_values(f"{label} piece {piece}", size, torch.float32) for piece in range(to.world)]
        whole = torch.cat([pieces[to.rank] for pieces in table])
        output = whole.narrow(0, (to.rank + shift) % to.world * size, size)
        to.group._reduce_scatter_base(output, whole, dist.ReduceScatterOptions()).wait()
        to.same(label, output, reduced(table[to.rank], dist.ReduceOp.SUM), terms=to.world)


def reduce_scatter_coalesced(to: Checker) -> None:
    pieces_of = range(to.world)
    table = {
        size: [to.all_values(f"scatter coalesced {size} {piece}", size, torch.float32) for piece in pieces_of]
        for size in SIZES
    }
    outputs = [torch.zeros(size) for size in SIZES]
    inputs = [torch.cat([pieces[to.rank] for pieces in table[size]]) for size in SIZES]
    to.group.reduce_scatter_tensor_coalesced(outputs, inputs, dist.ReduceScatterOptions()).wait()
    for output, size in zip(outputs, SIZES, strict=True):
        to.same("coalesced", output, reduced(table[size][to.rank], dist.ReduceOp.SUM), terms=to.world)


def uneven(size: int, source: int, destination: int) -> int:
    return (size + 3 * source + 5 * destination) % (size + 3)


def all_to_all(to: Checker) -> None:
    for (dtype, size, layout), even in itertools.product(movements(), (True, False)):
        label = f"all_to_all {dtype} {size} {layout} even={even}"
        length = (lambda s, d, n=size: n) if even else (lambda s, d, n=size: uneven(n, s, d))

        def piece(
            source: int, destination: int, label: str = label, dtype: torch.dtype = dtype, length: Any = length
        ) -> Tensor:
            return to.values(f"{label} to {destination}", length(source, destination), dtype, source)

        inputs = [place(piece(to.rank, peer), layout) for peer in range(to.world)]
        outputs = [empty(length(peer, to.rank), dtype, layout) for peer in range(to.world)]
        to.group.alltoall(outputs, inputs).wait()
        for peer, output in enumerate(outputs):
            to.same(label, output.reshape(-1), piece(peer, to.rank))


def all_to_all_single(to: Checker) -> None:
    for (dtype, size, layout), even in itertools.product(movements(), (True, False)):
        label = f"all_to_all_single {dtype} {size} {layout} even={even}"
        lengths = [[size if even else uneven(size, s, d) for d in range(to.world)] for s in range(to.world)]
        pieces = [
            [to.values(f"{label} to {d}", lengths[s][d], dtype, s) for d in range(to.world)] for s in range(to.world)
        ]
        whole = torch.cat(pieces[to.rank])
        given = place(whole, "strided" if layout == "strided" else "plain")
        incoming = [lengths[s][to.rank] for s in range(to.world)]
        output = empty(sum(incoming), dtype, "strided" if layout == "strided" else "plain")
        splits = ([], []) if even else (incoming, lengths[to.rank])
        to.group.alltoall_base(output, given, *splits).wait()
        to.same(label, output, torch.cat([pieces[s][to.rank] for s in range(to.world)]))


def send_and_receive(to: Checker) -> None:
    """Everybody to everybody, all sends before any receive, two messages of one tag in order, tags out of order."""
    for dtype, size, layout in movements():
        label = f"send {dtype} {size} {layout}"
        works, received = [], []
        for peer in range(to.world):
            if peer == to.rank:
                continue
            for tag in (5, 5, 6):
                message = to.values(f"{label} to {peer} {len(works) % 3}", size, dtype, to.rank)
                works.append(to.group.send([place(message, layout)], peer, tag))
        for peer in range(to.world):
            if peer == to.rank:
                continue
            for index, tag in ((2, 6), (0, 5), (1, 5)):
                target = empty(size, dtype, layout)
                work = to.group.recv([target], peer, tag)
                works.append(work)
                received.append((target, to.values(f"{label} to {to.rank} {index}", size, dtype, peer)))
        for work in works:
            work.wait()
        for target, wanted in received:
            to.same(label, target.reshape(-1), wanted)


def barrier(to: Checker) -> None:
    for _ in range(20):
        to.group.barrier().wait()


def mixed(to: Checker) -> None:
    """Asynchronous operations of several kinds in flight, waited for in another order."""
    parts = to.all_values("mixed", 1000, torch.float32)
    tensors = [parts[to.rank].clone() for _ in range(10)]
    gathered = [torch.zeros(1000 * to.world) for _ in range(10)]
    works = []
    for tensor, output in zip(tensors, gathered, strict=True):
        works.append(to.group._allgather_base(output, parts[to.rank].clone()))
        works.append(to.group.allreduce([tensor]))
        works.append(to.group.barrier())
    for work in reversed(works):
        work.wait()
    for tensor, output in zip(tensors, gathered, strict=True):
        to.same("mixed all_reduce", tensor, reduced(parts, dist.ReduceOp.SUM), terms=to.world)
        to.same("mixed all_gather", output, torch.cat(parts))


ENTRIES = {
    entry.__name__: entry
    for entry in (
        all_reduce, all_reduce_coalesced, broadcast, reduce, all_gather, all_gather_into_tensor, all_gather_in_place,
        all_gather_coalesced, gather, scatter, reduce_scatter, reduce_scatter_tensor, reduce_scatter_in_place,
        reduce_scatter_coalesced, all_to_all, all_to_all_single, send_and_receive, barrier, mixed,
    )
}  # fmt: skip


def check_entry(group: Any, rank: int, world: int, name: str, seed: int) -> list[str]:
    """Runs one entry point on this rank; returns digests of what must be bit-identical on all ranks."""
    checker = Checker(group, rank, world, seed)
    ENTRIES[name](checker)
    return checker.digests

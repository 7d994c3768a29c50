"""One rank of the benchmark.

In an iteration each rank rewrites its input, meets the others at a barrier of the side that is measured, and times the
blocking call alone: from the moment the last rank has entered it until the last one has left. (A barrier of one side
for both would favour that side: its threads and caches are warm afterwards.) Both sides run in alternating blocks, so
that whatever else the machine does meets both.
"""

from __future__ import annotations

import functools
import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

from c10d_neuron.bench.operations import CLASSES, Operation
from c10d_neuron.bench.options import Options, size_text
from c10d_neuron.bench.table import Row, Side, header, line, write_csv, write_json

BLOCKS = 8  # per size and side


@dataclass
class Contender:
    """A backend, its group, and what it has taken at the present size: when this rank entered and left each call."""

    name: str
    group: dist.ProcessGroup
    entered: list[int] = field(default_factory=list)  # nanoseconds
    left: list[int] = field(default_factory=list)
    errors: int = 0

    def forget(self) -> None:
        self.entered.clear()
        self.left.clear()
        self.errors = 0


def run_rank(options: Options) -> int:
    """Measures what `options` says on this rank; rank 0 prints and writes. Returns the exit code."""
    if options.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    try:
        if options.idle is not None:
            return run_idle(options)
        return run_sizes(options)
    finally:
        dist.destroy_process_group()


def run_sizes(options: Options) -> int:
    contenders = [Contender(options.backend, dist.group.WORLD)]
    if options.against is not None:
        contenders.append(Contender(options.against, dist.new_group(backend=options.against)))
    speaks = dist.get_rank() == 0 and not options.quiet
    if speaks:
        print(header(options), flush=True)
    rows = []
    for size in options.sizes:
        rows.append(measure(options, size, contenders))
        if speaks:
            print(line(rows[-1]), flush=True)
    if dist.get_rank() == 0:
        if options.json:
            write_json(options.json, {"setting": setting(options), "rows": [asdict(row) for row in rows]})
        if options.csv:
            write_csv(options.csv, rows)
    return 1 if any(side.errors for row in rows for side in row.sides) else 0


def measure(options: Options, size: int, contenders: Sequence[Contender]) -> Row:
    dtype = getattr(torch, options.dtype)
    operation = CLASSES[options.operation](size, dtype, dist.get_rank(), dist.get_world_size())
    iterations = options.iterations_at(size)
    counter = itertools.count()
    for contender in contenders:
        contender.forget()
        run_block(operation, contender, itertools.islice(counter, options.warmup))
        contender.forget()
    blocks = min(BLOCKS, iterations)
    for block in range(blocks):
        share = iterations * (block + 1) // blocks - iterations * block // blocks
        # First one side leads, then the other.
        for contender in contenders if block % 2 == 0 else reversed(contenders):
            run_block(operation, contender, itertools.islice(counter, share))
        show_progress(options, size, block + 1, blocks)
    sides = tuple(summary(operation, contender, size) for contender in contenders)
    return Row(options.operation, size, operation.count, options.dtype, operation.reduce_op, iterations, sides)


def run_block(operation: Operation, contender: Contender, iterations: Iterator[int]) -> None:
    for iteration in iterations:
        operation.write(iteration)
        dist.barrier(group=contender.group)
        contender.entered.append(time.monotonic_ns())
        operation.run(contender.group)
        contender.left.append(time.monotonic_ns())
        contender.errors += operation.errors(iteration)


def summary(operation: Operation, contender: Contender, size: int) -> Side:
    errors = torch.tensor([contender.errors], dtype=torch.int64)
    dist.all_reduce(errors)
    ordered = sorted(durations(contender))
    p50 = statistics.median(ordered) / 1000
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))] / 1000
    algorithm = size / p50 / 1000  # bytes per microsecond / 1000 = GB/s
    return Side(contender.name, p50, p95, algorithm, algorithm * operation.bus_factor(), int(errors))


def durations(contender: Contender) -> list[int]:
    """Nanoseconds of each iteration, over all ranks."""
    entered, left = (torch.tensor(times, dtype=torch.int64) for times in (contender.entered, contender.left))
    if not on_one_machine():  # no common clock: the slowest rank's own time
        slowest = left - entered
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return slowest.tolist()
    for times in (entered, left):
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return (left - entered).tolist()


@functools.cache
def on_one_machine() -> bool:
    """Whether all ranks read the same monotonic clock, that of one boot of one machine. First called by all at once."""
    boot = int(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:15], 16)
    least, greatest = (torch.tensor([boot], dtype=torch.int64) for _ in range(2))
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(greatest, op=dist.ReduceOp.MAX)
    return torch.equal(least, greatest)


def run_idle(options: Options) -> int:
    """How much of a core each rank needs while it does nothing, after it has worked; the worst rank counts."""
    assert options.idle is not None
    tensor = torch.zeros(1 << 18)
    for _ in range(20):
        dist.all_reduce(tensor)
    time.sleep(1)  # what was busy may calm down
    cpu, wall = time.process_time_ns(), time.monotonic_ns()
    time.sleep(options.idle)
    share = (time.process_time_ns() - cpu) / (time.monotonic_ns() - wall)
    worst = torch.tensor([int(share * 1e9)], dtype=torch.int64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    percent = int(worst) / 1e7
    if dist.get_rank() == 0:
        if not options.quiet:
            print(f"idle: {percent:.3f}% of a core")
        if options.json:
            write_json(options.json, {"setting": setting(options), "idle_percent": percent})
    return 0


def setting(options: Options) -> dict[str, object]:
    return {
        "operation": options.operation,
        "dtype": options.dtype,
        "ranks": dist.get_world_size(),
        "hosts": options.hosts,
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
    }


def show_progress(options: Options, size: int, done: int, blocks: int) -> None:
    if dist.get_rank() != 0 or options.quiet or not sys.stderr.isatty():
        return
    bar = "#" * (20 * done // blocks)
    end = "\r\033[K" if done == blocks else ""
    print(f"\r{size_text(size):>9} [{bar:<20}] {done}/{blocks}{end}", end="", file=sys.stderr, flush=True)

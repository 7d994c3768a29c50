"""What the benchmark is asked to do. Imports nothing heavy: the command line loads it always."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
DTYPES = ("float32", "bfloat16", "int32", "int64")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MOST_ITERATIONS = 400
FEWEST_ITERATIONS = 20
BYTES_PER_SIZE = 1 << 28  # what one backend moves at one size, unless -n says otherwise


@dataclass(frozen=True)
class Options:
    """A value."""

    operation: str = "all_reduce"
    dtype: str = "float32"
    sizes: tuple[int, ...] = ()  # bytes
    iterations: int | None = None  # per size; None: fewer for larger sizes
    warmup: int = 5
    ranks: int = 2
    hosts: int = 1
    cores: int | None = None  # that all ranks of a machine share; None: all it has
    backend: str = "neuron_fabric"
    against: str | None = "gloo"
    json: Path | None = None
    csv: Path | None = None
    check_bars: bool = False
    idle: float | None = None  # seconds: measure what an idle group costs instead
    quiet: bool = False

    def iterations_at(self, size: int) -> int:
        if self.iterations is not None:
            return self.iterations
        return max(FEWEST_ITERATIONS, min(MOST_ITERATIONS, BYTES_PER_SIZE // max(size, 1)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measures an operation at several sizes. Each size runs in alternating blocks of both backends in the same "
        "ranks; inputs are rewritten, and outputs checked, outside of the timing. Starts its own ranks, or is started "
        "by torchrun."
    )
    parser.add_argument(
        "-b", "--min-bytes", type=parse_size, default=4, help="smallest size, as 4, 64K, 1M (default: 4)"
    )
    parser.add_argument("-e", "--max-bytes", type=parse_size, default=1 << 26, help="largest size (default: 64M)")
    parser.add_argument("-f", "--factor", type=int, default=4, help="from one size to the next (default: 4)")
    parser.add_argument("-n", "--iterations", type=int, help="per size (default: fewer for larger sizes)")
    parser.add_argument("-w", "--warmup", type=int, default=5, help="iterations before the timing (default: 5)")
    parser.add_argument(
        "--ranks", type=int, default=2, help="in all (default: 2); torchrun decides when it starts them"
    )
    parser.add_argument(
        "--hosts", type=int, default=1, help="that the ranks are split over: network namespaces if root"
    )
    parser.add_argument("--cores", type=int, help="let all ranks share so many cores (default: all)")
    parser.add_argument("--op", choices=OPERATIONS, default="all_reduce", help="(default: all_reduce)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="(default: float32)")
    parser.add_argument("--backend", default="neuron_fabric", help="to measure (default: neuron_fabric)")
    parser.add_argument("--against", default="gloo", help='to compare with (default: gloo), or "none"')
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows as CSV")
    parser.add_argument(
        "--check-bars", action="store_true", help="measure what the project promises, and say pass or fail"
    )
    parser.add_argument("--idle", type=float, metavar="SECONDS", help="measure the CPU time of ranks that do nothing")
    parser.add_argument("--quiet", action="store_true", help="print no table")


def from_arguments(args: argparse.Namespace) -> Options:
    """Raises SystemExit with a message for values that make no sense."""
    if args.factor < 2:
        raise SystemExit(f"c10d-neuron bench: --factor {args.factor}: it takes 2 or more")
    if args.min_bytes > args.max_bytes:
        raise SystemExit(f"c10d-neuron bench: nothing lies between {args.min_bytes} and {args.max_bytes} bytes")
    if not 1 <= args.hosts <= args.ranks:
        raise SystemExit(f"c10d-neuron bench: {args.ranks} ranks cannot be split over {args.hosts} hosts")
    if (args.iterations is not None and args.iterations < 1) or args.warmup < 0:
        raise SystemExit("c10d-neuron bench: --iterations takes 1 or more, --warmup 0 or more")
    sizes = [args.min_bytes]
    while sizes[-1] * args.factor <= args.max_bytes:
        sizes.append(sizes[-1] * args.factor)
    return Options(
        operation=args.op,
        dtype=args.dtype,
        sizes=tuple(sizes),
        iterations=args.iterations,
        warmup=args.warmup,
        ranks=args.ranks,
        hosts=args.hosts,
        cores=args.cores,
        backend=args.backend,
        against=None if args.against == "none" else args.against,
        json=args.json,
        csv=args.csv,
        check_bars=args.check_bars,
        idle=args.idle,
        quiet=args.quiet,
    )


def to_command_line(options: Options) -> list[str]:
    """The arguments from which `from_arguments` makes the same options, for the ranks. Sizes are a geometric row."""
    factor = options.sizes[1] // options.sizes[0] if len(options.sizes) > 1 else 2
    line = [f"--op={options.operation}", f"--dtype={options.dtype}", f"--factor={factor}"]
    line += [f"--min-bytes={options.sizes[0]}", f"--max-bytes={options.sizes[-1]}", f"--warmup={options.warmup}"]
    line += [f"--ranks={options.ranks}", f"--hosts={options.hosts}"]
    line += [f"--backend={options.backend}", f"--against={options.against or 'none'}"]
    given = {name: getattr(options, name) for name in ("iterations", "cores", "idle", "json", "csv")}
    line += [f"--{name}={value}" for name, value in given.items() if value is not None]
    return line + (["--quiet"] if options.quiet else [])


def parse_size(text: str) -> int:
    """4, 64K, 1M, 1G, in units of 1,024; at least 1 byte."""
    match = re.fullmatch(r"(\d+)([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f'"{text}" is no size; write 4, 64K, 1M or 1G')
    return int(match[1]) * UNITS[match[2].upper()]


def size_text(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"

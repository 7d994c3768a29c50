"""How results are shown and saved."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from c10d_neuron.bench.options import Options


@dataclass(frozen=True)
class Side:
    """One backend at one size. A value. Times in microseconds, bandwidths in GB/s (1e9 bytes)."""

    backend: str
    p50: float
    p95: float
    algbw: float  # size / p50
    busbw: float  # algbw times what crosses each rank's link per byte
    errors: int  # wrong elements, over all iterations and ranks


@dataclass(frozen=True)
class Row:
    """One size. A value. `sides` holds the measured backend, then the one that it is compared with, if any."""

    operation: str
    size: int  # bytes
    count: int  # elements
    dtype: str
    reduce_op: str
    iterations: int
    sides: tuple[Side, ...]

    @property
    def ratio(self) -> float | None:
        """How many times faster the measured backend is."""
        return self.sides[1].p50 / self.sides[0].p50 if len(self.sides) > 1 else None


def header(options: Options) -> str:
    names = [options.backend] + ([options.against] if options.against else [])
    shown = [
        f"# {options.operation}; {options.warmup} iterations of warm-up; "
        "times from the last rank's entry to the last rank's exit"
    ]
    shape = f"{'':>10} {'':>10} {'':>8} {'':>5}"
    columns = f"{'size':>10} {'count':>10} {'type':>8} {'redop':>5}"
    units = f"{'(B)':>10} {'(elements)':>10} {'':>8} {'':>5}"
    for name in names:
        shape += f"  |{name:^46}"
        columns += f"  | {'p50':>10} {'p95':>10} {'algbw':>7} {'busbw':>7} {'errors':>7}"
        units += f"  | {'(us)':>10} {'(us)':>10} {'(GB/s)':>7} {'(GB/s)':>7} {'':>7}"
    if len(names) > 1:
        columns += f"  | {'ratio':>6}"
    return "\n".join([*shown, shape, columns, units])


def line(row: Row) -> str:
    text = f"{row.size:>10} {row.count:>10} {row.dtype:>8} {row.reduce_op:>5}"
    for side in row.sides:
        text += f"  | {side.p50:>10.2f} {side.p95:>10.2f} {side.algbw:>7.3f} {side.busbw:>7.3f} {side.errors:>7}"
    return text if row.ratio is None else f"{text}  | {row.ratio:>6.2f}"


def write_json(path: Path, document: dict[str, object]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")


def write_csv(path: Path, rows: list[Row]) -> None:
    """One line per size and backend."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["op", "size", "count", "type", "redop", "iterations", *Side.__dataclass_fields__])
        for row in rows:
            for side in row.sides:
                start = [row.operation, row.size, row.count, row.dtype, row.reduce_op, row.iterations]
                writer.writerow([*start, *asdict(side).values()])


def read_rows(path: Path) -> list[Row]:
    """What `write_json` has written for a run over sizes."""
    rows = json.loads(path.read_text())["rows"]
    return [Row(**{**row, "sides": tuple(Side(**side) for side in row["sides"])}) for row in rows]

"""What the project promises about speed, measured: `c10d-neuron bench --check-bars`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from c10d_neuron.bench.launch import start
from c10d_neuron.bench.options import Options, size_text
from c10d_neuron.bench.table import Row, read_rows, write_json

SIZES = tuple(4 << exponent for exponent in range(0, 25, 2))  # 4 B to 64 MiB
KIB, MIB = 1 << 10, 1 << 20
CORES = 2
IDLE_SECONDS = 5.0
MOST_IDLE_PERCENT = 0.2


@dataclass(frozen=True)
class Bar:
    """One promise and what was measured. A value."""

    what: str
    wanted: float
    measured: float
    at_least: bool = True  # False: at most

    @property
    def passed(self) -> bool:
        return self.measured >= self.wanted if self.at_least else self.measured <= self.wanted


def ratio_on_one_host(size: int) -> float | None:
    """How much faster than the other backend two ranks of one host are at this size; None: nothing is promised."""
    if size == 4:
        return 10
    if size == 64 * KIB:
        return 4
    return 2 if size >= MIB else None


def check(options: Options) -> int:
    """Prints each bar with what was measured. Returns 0 if all were reached."""
    bars = measure_all(options)
    print()
    print("\n".join(table(bars)))
    if options.json:
        write_json(options.json, {"bars": [vars(bar) | {"passed": bar.passed} for bar in bars]})
    return 0 if all(bar.passed for bar in bars) else 1


def measure_all(options: Options) -> list[Bar]:
    base = replace(options, operation="all_reduce", sizes=SIZES, cores=CORES, check_bars=False, csv=None, idle=None)
    if base.against is None:
        raise SystemExit("c10d-neuron bench: --check-bars compares with another backend; leave --against alone")
    bars = []
    settings: list[tuple[str, int, int, Callable[[int], float | None]]] = [
        ("2 ranks, one host", 2, 1, ratio_on_one_host),
        ("2 ranks, two hosts", 2, 2, lambda _: 1),
        (f"4 ranks on {CORES} cores, one host", 4, 1, lambda _: 1),
    ]
    for name, ranks, hosts, promise in settings:
        for row in rows_of(replace(base, ranks=ranks, hosts=hosts)):
            wanted = promise(row.size)
            if wanted is not None and row.ratio is not None:
                what = f"{name}, {size_text(row.size)}: times {base.against}'s speed"
                bars.append(Bar(what, wanted, row.ratio))
    # Also between hosts: there, sleeping depends on what the libfabric provider tells.
    for name, hosts in (("one host", 1), ("two hosts", 2)):
        percent = idle_percent(replace(base, ranks=2, hosts=hosts, idle=IDLE_SECONDS, against=None))
        bars.append(Bar(f"idle, {name}: percent of a core", MOST_IDLE_PERCENT, percent, at_least=False))
    return bars


def rows_of(options: Options) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="c10d-neuron-bench-") as folder:
        path = Path(folder) / "rows.json"
        run_or_exit(replace(options, json=path))
        return read_rows(path)


def idle_percent(options: Options) -> float:
    import json

    with tempfile.TemporaryDirectory(prefix="c10d-neuron-bench-") as folder:
        path = Path(folder) / "idle.json"
        run_or_exit(replace(options, json=path))
        return json.loads(path.read_text())["idle_percent"]


def run_or_exit(options: Options) -> None:
    if code := start(options):
        raise SystemExit(f"c10d-neuron bench: the ranks ended with {code}; no bar can be checked")


def table(bars: list[Bar]) -> list[str]:
    width = max(len(bar.what) for bar in bars)
    lines = []
    for bar in bars:
        sign = ">=" if bar.at_least else "<="
        state = "ok" if bar.passed else "FAILED"
        lines.append(f"{state:<8}{bar.what:<{width}}  {bar.measured:>8.2f}  wanted {sign} {bar.wanted:g}")
    reached = sum(bar.passed for bar in bars)
    return [*lines, f"\n{reached} of {len(bars)} bars reached"]

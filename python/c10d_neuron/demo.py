"""The main job: trains a small model with DistributedDataParallel on two hosts, and checks what came out.

    python -m c10d_neuron.demo

The script that trains (python/examples/train_digits.py) is an ordinary one and is started by torchrun on each host, as
on a real cluster. The checks compare it with a single process that sees the same batches.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c10d_neuron.hosts import Hosts, free_port, hosts

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "train_digits.py"
LEAST_ACCURACY = 0.96
LONGEST_RUN = 180.0  # seconds
COMPARED_LOSSES = 20
LOSS_TOLERANCE = 1e-5  # relative; later losses drift apart by rounding
ACCURACY_TOLERANCE = 0.01
HEADER_BYTES = 64
SHARED_MEMORY = "shared_memory"


@dataclass(frozen=True)
class Check:
    """One line of the final table. A value."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Run:
    """What the ranks of one run have reported. A value."""

    reports: list[dict[str, Any]]  # per rank, as the script writes them
    traffic: list[list[dict[str, Any]]]  # per rank; empty for a backend that is not ours
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that the hosts are removed
    if not SCRIPT.exists():
        sys.exit(f"{SCRIPT} is missing: the demo runs from a clone of the repository")
    with tempfile.TemporaryDirectory(prefix="c10d-neuron-demo-") as folder, hosts(2, namespaces=args.namespaces) as two:
        print(f"Two hosts: {two.kind}; {args.ranks} ranks on each; backend {args.backend}", flush=True)
        print("First, for comparison, a single process on the same batches:", flush=True)
        alone = run_alone(args, Path(folder) / "alone")
        print(f"Now {2 * args.ranks} ranks, started by torchrun on each host:", flush=True)
        run = run_on(two, args, Path(folder) / "ranks")
    checks = [*check_training(run, alone), *check_time(run)]
    if run.traffic:
        placement = [rank // args.ranks for rank in range(2 * args.ranks)]
        checks += check_traffic(run.traffic, placement)
        print("\n" + traffic_table(run.traffic, placement))
    else:
        print(f"\nBackend {args.backend} is not ours: no traffic to check")
    print("\n" + check_table(checks), flush=True)
    return 0 if all(check.passed for check in checks) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="neuron", help="of torch.distributed (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=2, help="on each host (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=15, help="(default: %(default)s)")
    parser.add_argument(
        "--namespaces",
        action=argparse.BooleanOptionalAction,
        help="network namespaces as hosts, which need root; by default, where possible",
    )
    return parser.parse_args(arguments)


def run_alone(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), "--epochs", str(args.epochs), "--report", str(folder)]
    outside_of_launchers = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    subprocess.run(command, check=True, timeout=LONGEST_RUN, env=outside_of_launchers)
    return json.loads((folder / "rank0.json").read_text())


def run_on(two: Hosts, args: argparse.Namespace, folder: Path) -> Run:
    """Starts torchrun on each host and waits for all of them.

    Raises:
        SystemExit: A host's torchrun failed, or the time was up.
    """
    folder.mkdir()
    ours = args.backend.startswith("neuron")
    port = 29500 if two.separate else free_port()
    script = ["--backend", args.backend, "--epochs", str(args.epochs), "--report", str(folder)]
    # The thin module in front of the script only writes down what each rank has sent.
    program = ["-m", "c10d_neuron.demo_rank", str(folder), str(SCRIPT)] if ours else [str(SCRIPT)]
    started = time.monotonic()
    launchers = []
    try:
        for host in two.members:
            rendezvous = ["--rdzv-backend", "c10d", "--rdzv-id", f"demo-{os.getpid()}"]
            rendezvous += ["--rdzv-endpoint", f"{two.members[0].address}:{port}", "--local-addr", host.address]
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(two.members))]
            torchrun += ["--nproc-per-node", str(args.ranks), *rendezvous, *program, *script]
            launchers.append(host.popen(torchrun, env=os.environ | {"OMP_NUM_THREADS": "1"}))
        wait_for(launchers, started + LONGEST_RUN)
    finally:
        stop(launchers)
    seconds = time.monotonic() - started
    ranks = range(len(two.members) * args.ranks)
    reports = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in ranks]
    traffic = [json.loads((folder / f"traffic{rank}.json").read_text()) for rank in ranks] if ours else []
    return Run(reports, traffic, seconds)


def wait_for(launchers: list[subprocess.Popen[bytes]], deadline: float) -> None:
    waiting = dict(enumerate(launchers))
    while waiting:
        for index, launcher in list(waiting.items()):
            if launcher.poll() is None:
                continue
            if launcher.returncode != 0:
                sys.exit(f"torchrun on host {index} ended with {launcher.returncode}; its messages are above")
            del waiting[index]
        if time.monotonic() > deadline:
            sys.exit(f"The training took more than {LONGEST_RUN:.0f} s on hosts {sorted(waiting)}")
        time.sleep(0.05)


def stop(launchers: list[subprocess.Popen[bytes]]) -> None:
    for launcher in launchers:
        if launcher.poll() is None:
            launcher.terminate()
    for launcher in launchers:
        try:
            launcher.wait(timeout=10)
        except subprocess.TimeoutExpired:
            launcher.kill()


def check_training(run: Run, alone: dict[str, Any]) -> list[Check]:
    replicas = {report["parameters"] for report in run.reports}
    detail = f"SHA-256 {next(iter(replicas))[:12]}" if len(replicas) == 1 else f"{len(replicas)} different ones"
    checks = [Check("parameters bit-identical on all ranks", len(replicas) == 1, detail)]

    mine, theirs = run.reports[0]["losses"], alone["losses"]
    apart = [abs(a - b) / abs(b) for a, b in zip(mine, theirs, strict=False)][:COMPARED_LOSSES]
    enough = len(apart) == COMPARED_LOSSES and len(mine) == len(theirs)
    detail = f"at most {max(apart, default=0):.1e} apart, of {LOSS_TOLERANCE:.0e} allowed"
    passed = enough and all(difference <= LOSS_TOLERANCE for difference in apart)
    checks.append(Check(f"first {COMPARED_LOSSES} losses equal to a single process", passed, detail))

    reached, reference = run.reports[0]["accuracy"], alone["accuracy"]
    detail = f"{reached:.2%} here, {reference:.2%} there"
    passed = abs(reached - reference) <= ACCURACY_TOLERANCE
    checks.append(Check("test accuracy within a point of a single process", passed, detail))
    checks.append(Check(f"test accuracy at least {LEAST_ACCURACY:.0%}", reached >= LEAST_ACCURACY, f"{reached:.2%}"))
    return checks


def check_time(run: Run) -> list[Check]:
    return [Check("in under three minutes", run.seconds < LONGEST_RUN, f"{run.seconds:.1f} s")]


def check_traffic(traffic: list[list[dict[str, Any]]], host_of: list[int]) -> list[Check]:
    """Whether each pair went the way it should, and sent what the schedules say.

    Args:
        traffic: Per rank, the rows of `c10d_neuron.traffic()`.
        host_of: Per rank, the number of its host.
    """
    moved = {"inside": 0, "between": 0}  # bytes by the right transport
    astray, odd = [], []
    for rank, rows in enumerate(traffic):
        for peer in sorted({row["peer"] for row in rows} - {rank}):
            mine = [row for row in rows if row["peer"] == peer]
            inside = host_of[rank] == host_of[peer]
            for row in mine:
                if (row["transport"] == SHARED_MEMORY) == inside:
                    moved["inside" if inside else "between"] += row["bytes"]
                elif row["bytes"]:
                    astray.append(f"{rank} to {peer} by {row['transport']}")
            sent, messages = sum(row["bytes"] for row in mine), sum(row["messages"] for row in mine)
            wanted = max(row["scheduled_bytes"] for row in mine)
            if not wanted <= sent <= wanted + HEADER_BYTES * messages:
                odd.append(f"{rank} to {peer}: {sent:,} bytes instead of {wanted:,}")
    return [
        Check("inside a host: shared memory moved bytes", moved["inside"] > 0, f"{moved['inside']:,} bytes"),
        Check("between hosts: the fabric moved bytes", moved["between"] > 0, f"{moved['between']:,} bytes"),
        Check("every pair used the transport it should", not astray, "; ".join(astray[:3]) or "all"),
        Check("bytes as the schedules say, up to headers", not odd, "; ".join(odd[:3]) or "all pairs"),
    ]


def traffic_table(traffic: list[list[dict[str, Any]]], host_of: list[int]) -> str:
    lines = [f"{'from':>4} {'to':>4}  {'hosts':<8}{'transport':<16}{'messages':>10}{'bytes':>14}{'scheduled':>14}"]
    for rank, rows in enumerate(traffic):
        for row in rows:
            way = f"{host_of[rank]} -> {host_of[row['peer']]}"
            lines.append(
                f"{rank:>4} {row['peer']:>4}  {way:<8}{row['transport']:<16}"
                f"{row['messages']:>10,}{row['bytes']:>14,}{row['scheduled_bytes']:>14,}"
            )
    return "\n".join(lines)


def check_table(checks: list[Check]) -> str:
    width = max(len(check.name) for check in checks)
    lines = [f"{'ok' if check.passed else 'FAILED':<8}{check.name:<{width}}  {check.detail}" for check in checks]
    failed = sum(not check.passed for check in checks)
    lines.append(f"\n{len(checks) - failed} of {len(checks)} checks passed" + (": FAILED" if failed else ""))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""Starts the ranks of a benchmark, or is one of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from c10d_neuron.bench.options import Options, to_command_line
from c10d_neuron.hosts import Hosts, free_port, hosts


def run(options: Options) -> int:
    """Returns the exit code: 1 when a result was wrong or a bar was missed."""
    if options.check_bars:
        from c10d_neuron.bench.bars import check

        return check(options)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:  # a launcher's, or our own
        from c10d_neuron.bench.measure import run_rank

        return run_rank(options)
    return start(options)


def start(options: Options) -> int:
    """Runs the ranks as processes of this machine, to the end. Returns the exit code of the first that failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the hosts are removed
    with hosts(options.hosts) as places:
        if not options.quiet:
            print(f"# {options.ranks} ranks on {places.kind}", flush=True)
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            command = [sys.executable, "-m", "c10d_neuron.cli", "bench", *to_command_line(options)]
            port = 29500 if places.separate else free_port()
            for rank in range(options.ranks):
                host = rank * options.hosts // options.ranks
                environment = rank_environment(options, places, rank, host, port)
                ranks.append(places.members[host].popen(command, env=environment))
            return wait_for(ranks)
        finally:
            stop(ranks)


def rank_environment(options: Options, places: Hosts, rank: int, host: int, port: int) -> dict[str, str]:
    first = next(other for other in range(options.ranks) if other * options.hosts // options.ranks == host)
    return os.environ | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank - first),
        "WORLD_SIZE": str(options.ranks),
        "MASTER_ADDR": places.members[0].address,
        "MASTER_PORT": str(port),
    }


def wait_for(ranks: list[subprocess.Popen[bytes]]) -> int:
    while True:
        codes = [rank.poll() for rank in ranks]
        if failed := [code for code in codes if code]:
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        if None not in codes:
            return 0
        time.sleep(0.05)


def stop(ranks: list[subprocess.Popen[bytes]]) -> None:
    # A rank that failed has left its message; the others may end by themselves, as after wrong results.
    deadline = time.monotonic() + 2
    for rank in ranks:
        try:
            rank.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()

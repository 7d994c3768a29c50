"""Runs one function on several ranks: forked processes that form a real job, or threads over the loopback transport.

Forking from a Python that has imported torch makes a job cost a tenth of a second. A rank that does not answer in time
prints its stacks and is killed by its pid. Nothing here is a test.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

GROUP_TIMEOUT = timedelta(seconds=30)
CLONE_NEWNET = 0x40000000


@dataclass
class Outcome:
    """What became of one rank. A value."""

    rank: int
    value: Any = None
    error: str = ""  # type and message of what it raised
    trace: str = ""
    exit_code: int | None = None


class RankFailedError(AssertionError):
    """At least one rank raised, died or did not answer."""


@dataclass(frozen=True)
class Place:
    """Where a rank runs: a network namespace, and environment variables. A value."""

    namespace: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    def enter(self) -> None:
        os.environ.update(self.environment)
        if not self.namespace:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(self.namespace, os.O_RDONLY | os.O_CLOEXEC)
        if libc.setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {self.namespace}")
        os.close(descriptor)


@dataclass
class Job:
    """Forked ranks of one job, still running. A resource; `collect` ends it."""

    pids: list[int]
    pipes: list[int]
    store: str

    def collect(self, timeout: float) -> list[Outcome]:
        """Waits for all ranks; those that do not end in time are told to print their stacks, then killed."""
        outcomes = [Outcome(rank) for rank in range(len(self.pids))]
        answers: list[bytes] = [b""] * len(self.pids)
        open_pipes = {pipe: rank for rank, pipe in enumerate(self.pipes)}
        deadline = time.monotonic() + timeout
        while open_pipes:
            ready, _, _ = select.select(list(open_pipes), [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self._kill(list(open_pipes.values()))
                for rank in open_pipes.values():
                    outcomes[rank].error = f"no answer within {timeout} s"
                break
            for pipe in ready:
                chunk = os.read(pipe, 1 << 16)
                if chunk:
                    answers[open_pipes[pipe]] += chunk
                else:
                    del open_pipes[pipe]
        for rank, pid in enumerate(self.pids):
            os.close(self.pipes[rank])
            _, status = os.waitpid(pid, 0)
            if answers[rank] and not outcomes[rank].error:
                outcomes[rank] = pickle.loads(answers[rank])
            outcomes[rank].exit_code = os.waitstatus_to_exitcode(status)
            if outcomes[rank].exit_code != 0 and not outcomes[rank].error:
                outcomes[rank].error = f"exit code {outcomes[rank].exit_code}"  # perhaps after it had answered
        Path(self.store).unlink(missing_ok=True)
        return outcomes

    def _kill(self, ranks: list[int]) -> None:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], signal.SIGUSR1)
        time.sleep(0.3)
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], signal.SIGKILL)


def start(world: int, body: Callable[..., Any], *args: Any, places: Sequence[Place] = (), init: bool = True,
          timeout: timedelta = GROUP_TIMEOUT, backend: str = "neuron") -> Job:  # fmt: skip
    """Forks `world` ranks that each run body(group, rank, world, *args); without init the group is the store's path."""
    descriptor, path = tempfile.mkstemp(prefix="c10d-neuron-store-")
    os.close(descriptor)
    Path(path).unlink()
    pids, pipes = [], []
    sys.stdout.flush()
    sys.stderr.flush()
    for rank in range(world):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            place = places[rank % len(places)] if places else Place()
            _be_rank(writer, path, rank, world, body, args, place, init, timeout, backend)
        os.close(writer)
        pids.append(pid)
        pipes.append(reader)
    return Job(pids, pipes, path)


def _be_rank(pipe: int, path: str, rank: int, world: int, body: Callable[..., Any], args: Sequence[Any], place: Place,
             init: bool, timeout: timedelta, backend: str) -> None:  # fmt: skip
    outcome = Outcome(rank)
    try:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        torch.set_num_threads(1)
        place.enter()
        if init:
            init_group(path, rank, world, timeout, backend)
            outcome.value = body(dist.group.WORLD, rank, world, *args)
            if dist.is_initialized():
                dist.destroy_process_group()
        else:
            outcome.value = body(path, rank, world, *args)
    except BaseException as error:
        outcome.error = f"{type(error).__name__}: {error}"
        outcome.trace = traceback.format_exc()
    try:
        with os.fdopen(pipe, "wb") as stream:
            pickle.dump(outcome, stream)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(1 if outcome.error else 0)


def init_group(path: str, rank: int, world: int, timeout: timedelta = GROUP_TIMEOUT, backend: str = "neuron") -> None:
    dist.init_process_group(backend, store=dist.FileStore(path, world), rank=rank, world_size=world, timeout=timeout)


def values(outcomes: list[Outcome]) -> list[Any]:
    """What the ranks returned; raises with every rank's error if one failed."""
    failed = [outcome for outcome in outcomes if outcome.error]
    if failed:
        raise RankFailedError("\n".join(f"rank {each.rank}: {each.error}\n{each.trace}" for each in failed))
    return [outcome.value for outcome in outcomes]


def run(world: int, body: Callable[..., Any], *args: Any, wait: float = 60, **options: Any) -> list[Any]:
    """start, collect and values in one."""
    return values(start(world, body, *args, **options).collect(wait))


def errors(world: int, body: Callable[..., Any], *args: Any, wait: float = 60, **options: Any) -> list[str]:
    """What each rank raised; empty where it did not."""
    return [outcome.error for outcome in start(world, body, *args, **options).collect(wait)]


def loopback_groups(world: int, seed: int = 1, personality: str = "efa_direct", hosts: Sequence[str] = ()) -> list[Any]:
    """One ProcessGroup per rank, all in this process."""
    from c10d_neuron import _C

    groups = []
    for rank, backend in enumerate(_C._make_loopback_groups(world, seed, personality, list(hosts), GROUP_TIMEOUT)):
        group = dist.ProcessGroup(dist.HashStore(), rank, world)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
        groups.append(group)
    return groups


def run_threads(world: int, body: Callable[..., Any], *args: Any, seed: int, personality: str = "efa_direct",
                hosts: Sequence[str] = (), wait: float = 60) -> list[Any]:  # fmt: skip
    """As run, with ranks as threads of this process over the loopback transport."""
    groups = loopback_groups(world, seed, personality, hosts)
    outcomes = [Outcome(rank) for rank in range(world)]

    def be_rank(rank: int) -> None:
        try:
            outcomes[rank].value = body(groups[rank], rank, world, *args)
        except BaseException as error:
            outcomes[rank].error = f"{type(error).__name__}: {error}"
            outcomes[rank].trace = traceback.format_exc()

    threads = [threading.Thread(target=be_rank, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + wait
    for rank, thread in enumerate(threads):
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            faulthandler.dump_traceback(all_threads=True)
            outcomes[rank].error = f"no answer within {wait} s"
    return values(outcomes)


def eventually(condition: Callable[[], bool], limit: float = 10.0) -> bool:
    """Polls until the condition holds; False at the limit."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


@contextlib.contextmanager
def two_hosts() -> Iterator[list[Place]]:
    """Two hosts as root makes them (network namespaces), otherwise two host names on this machine."""
    from c10d_neuron.hosts import hosts

    with hosts(2) as made:
        places = []
        for host in made.members:
            entering = [word for word in host.prefix if word.startswith("--net=")]
            places.append(Place(entering[0].removeprefix("--net=") if entering else "", dict(host.environment)))
        yield places

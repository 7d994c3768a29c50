"""Groups come and go: sub-groups, splits, destroying in any order, many times, forks, and exits without destroying."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import harness
import pytest
import torch
import torch.distributed as dist

CPU = torch.device("cpu")


def backend_of(group: Any) -> Any:
    return group._get_backend(CPU)


def summed(group: Any, value: float) -> float:
    tensor = torch.full((3,), value)
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


@pytest.mark.parametrize("name", ["neuron", "neuron_fabric"])
def test_name_and_options(name: str) -> None:
    def body(group: Any, rank: int, world: int) -> None:
        backend = backend_of(group)
        assert backend.name() == name
        assert backend.supports_splitting and backend.supports_coalescing
        options = copy.deepcopy(backend.options)
        assert options.backend == name
        assert options._timeout == timedelta(seconds=30)
        assert options.global_ranks_in_group == [0, 1]
        backend._set_default_timeout(timedelta(seconds=7))
        assert backend.options._timeout == timedelta(seconds=7)
        assert options._timeout == timedelta(seconds=30), "the copy must be one"
        backend.perform_nocolor_split(CPU)
        assert "SUCCESS" in str(backend.get_error())

    harness.run(2, body, backend=name)


def test_subgroups() -> None:
    def body(group: Any, rank: int, world: int) -> list[float]:
        groups = [dist.new_group(ranks) for ranks in ([0, 1], [3, 1, 2], [0, 1, 2, 3], [2])]
        sums = [summed(each, float(rank + 1)) if each != dist.GroupMember.NON_GROUP_MEMBER else 0.0 for each in groups]
        sums.append(summed(group, 1.0))
        return sums

    assert harness.run(4, body) == [
        [3, 0, 10, 0, 4], [3, 9, 10, 0, 4], [0, 9, 10, 3, 4], [0, 9, 10, 0, 4],
    ]  # fmt: skip


def test_group_ranks_are_those_of_the_group() -> None:
    def body(group: Any, rank: int, world: int) -> Any:
        part = dist.new_group([2, 1])
        if rank == 0:
            return None
        tensor = torch.full((2,), float(rank))
        dist.broadcast(tensor, src=2, group=part)
        return tensor[0].item(), dist.get_rank(part)

    assert harness.run(3, body) == [None, (2.0, 0), (2.0, 1)]


def test_hashed_names_may_come_again() -> None:
    """With local synchronisation a group's name follows from its ranks; after destroying it, the name is free again."""

    def body(group: Any, rank: int, world: int) -> list[float]:
        sums = []
        for _ in range(3):
            if rank < 2:
                part = dist.new_group([0, 1], use_local_synchronization=True)
                sums.append(summed(part, 1.0))
                dist.destroy_process_group(part)
        summed(group, 1.0)
        return sums

    assert harness.run(3, body)[:2] == [[2.0] * 3] * 2


def test_split() -> None:
    def body(group: Any, rank: int, world: int) -> Any:
        backend = backend_of(group)
        ranks = [0, 2] if rank % 2 == 0 else [1, 3]
        options = copy.deepcopy(backend.options)
        options.group_name = f"part-{rank % 2}"
        child = group.split_group(ranks, opts=options, group_name=f"part-{rank % 2}")
        tensor = torch.full((3,), float(rank))
        child.allreduce([tensor]).wait()
        backend_of(child)._set_sequence_number_for_group() if hasattr(
            backend_of(child), "_set_sequence_number_for_group") else None  # fmt: skip
        assert backend.comm_split_count() == 1
        assert backend_of(child).options.global_ranks_in_group == ranks
        return child.rank(), tensor[0].item()

    assert harness.run(4, body) == [(0, 2.0), (0, 4.0), (1, 2.0), (1, 4.0)]


def test_subgroups_of_a_foreign_default_group() -> None:
    """The default group is gloo's: our groups join jobs of their own, and reuse one that covers them."""

    def body(path: str, rank: int, world: int) -> list[float]:
        harness.init_group(path, rank, world, backend="gloo")
        sums = []
        for ranks in ([0, 1], [1, 2], [0, 1, 2], [0, 2]):
            part = dist.new_group(ranks, backend="neuron")
            sums.append(summed(part, 1.0) if rank in ranks else 0.0)
        dist.barrier()
        dist.destroy_process_group()
        return sums

    assert harness.run(3, body, init=False) == [[2, 0, 3, 2], [2, 2, 3, 0], [0, 2, 3, 2]]


def test_beside_gloo() -> None:
    def body(path: str, rank: int, world: int) -> float:
        harness.init_group(path, rank, world, backend="neuron")
        other = dist.new_group([0, 1], backend="gloo")
        value = summed(other, 1.0) + summed(dist.group.WORLD, 1.0)
        dist.destroy_process_group()
        return value

    assert harness.run(2, body, init=False) == [4.0, 4.0]


def test_a_hundred_times() -> None:
    """init and destroy on one store: neither descriptors nor threads pile up."""

    def body(path: str, rank: int, world: int) -> Any:
        store = dist.FileStore(path, world)
        counts = []
        for round_ in range(100):
            dist.init_process_group("neuron", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=20))
            assert summed(None, float(round_)) == 2.0 * round_
            dist.destroy_process_group()
            if round_ in (9, 99):
                counts.append([len([*Path("/proc/self", each).iterdir()]) for each in ("fd", "task")])
        return counts

    for early, late in harness.run(2, body, init=False, wait=120):
        assert late[0] <= early[0] + 8, (early, late)
        assert late[1] <= early[1] + 4, (early, late)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_destroy_in_any_order(order: tuple[int, ...]) -> None:
    def body(group: Any, rank: int, world: int) -> None:
        groups = [dist.new_group([0, 1]), dist.new_group([0, 1]), group]
        assert [summed(each, 1.0) for each in groups] == [2.0, 2.0, 2.0]
        if rank == 1:
            time.sleep(0.3)  # the other is gone by then
        for index in order:
            if dist.is_initialized():
                dist.destroy_process_group(groups[index])

    harness.run(2, body)


def test_destroy_on_one_rank_with_an_operation_in_flight() -> None:
    def body(group: Any, rank: int, world: int) -> str:
        group.barrier().wait()
        if rank == 0:
            work = group.allreduce([torch.ones(1_000_000)])
            start = time.monotonic()
            dist.destroy_process_group()
            assert time.monotonic() - start < 3
            with pytest.raises(RuntimeError) as raised:
                work.wait()
            return str(raised.value)
        time.sleep(0.2)
        with pytest.raises(RuntimeError) as raised:
            group.allreduce([torch.ones(1_000_000)]).wait()
        return str(raised.value)

    first, second = harness.run(2, body, timeout=timedelta(seconds=10))
    assert "closed on this rank" in first or "destroyed" in first, first
    assert "rank 0" in second, second


@pytest.mark.parametrize("shared_memory", ["1", "0"])
def test_last_messages_arrive_though_the_sender_destroys_at_once(shared_memory: str) -> None:
    def body(group: Any, rank: int, world: int) -> None:
        if rank == 0:
            group.send([torch.full((100_000,), 7.0)], 1, 0).wait()
            group.send([torch.full((10,), 8.0)], 1, 0).wait()
        else:
            time.sleep(0.3)
            large, small = torch.zeros(100_000), torch.zeros(10)
            group.recv([large], 0, 0).wait()
            group.recv([small], 0, 0).wait()
            assert bool((large == 7).all()) and bool((small == 8).all())

    harness.run(2, body, places=[harness.Place("", {"C10D_NEURON_SHARED_MEMORY": shared_memory})])


def test_leaving_alone_takes_no_longer_than_a_second(hosts: list[harness.Place]) -> None:
    def body(group: Any, rank: int, world: int) -> float:
        group.barrier().wait()
        if rank == 1:
            time.sleep(2)
        start = time.monotonic()
        dist.destroy_process_group()
        return time.monotonic() - start

    first, second = harness.run(2, body, places=hosts)
    assert first < 1.7 and second < 1.7, (first, second)


def test_forked_child_gets_a_clear_error() -> None:
    def body(group: Any, rank: int, world: int) -> str:
        group.barrier().wait()
        pending = group.recv([torch.ones(2)], 1 - rank, 9)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            messages = []
            for call in (lambda: group.allreduce([torch.ones(3)]), pending.wait):
                try:
                    call()
                    messages.append("nothing")
                except RuntimeError as error:
                    messages.append(str(error).splitlines()[0])
            os.write(writer, "\n".join(messages).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            text = stream.read().decode()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        group.send([torch.ones(2)], 1 - rank, 9).wait()
        pending.wait()
        assert summed(group, 1.0) == 2.0
        return text

    for text in harness.run(2, body):
        lines = text.splitlines()
        assert len(lines) == 2 and all("forked" in line for line in lines), text


PROGRAM = """
import os, sys, torch, torch.distributed as dist
from datetime import timedelta
sys.path[:0] = {path!r}
import c10d_neuron; c10d_neuron.register()
rank = int(sys.argv[1])
store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group("neuron", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=20))
tensor = torch.ones(4)
dist.all_reduce(tensor)
{ending}
"""
ENDINGS = {
    "nothing": "print('ok')",
    "pending future": """
work = dist.all_reduce(torch.ones(5), async_op=True)
work.get_future().then(lambda done: None)
print('ok')
""",
    "work in a global": """
work = dist.irecv(torch.ones(5), src=1 - rank)
print('ok')
""",
    "sys.exit": "print('ok'); sys.exit(0)",
    "destroy on one rank": """
if rank == 0: dist.destroy_process_group()
print('ok')
""",
    "threads": """
import threading
threading.Thread(target=lambda: dist.barrier(), daemon=True).start()
print('ok')
""",
}


@pytest.mark.parametrize(
    ("ending", "shared_memory"),
    [*((each, "1") for each in ENDINGS), ("nothing", "0"), ("threads", "0"), ("destroy on one rank", "0")],
)
def test_exit_without_destroying(ending: str, shared_memory: str, tmp_path: Path) -> None:
    code = PROGRAM.format(path=sys.path, ending=ENDINGS[ending])
    store = str(tmp_path / "store")
    environment = os.environ | {"C10D_NEURON_SHARED_MEMORY": shared_memory}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), store],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    for process in started:
        try:
            out, err = process.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            for each in started:
                each.kill()
            raise
        assert process.returncode == 0, err
        assert out == "ok\n", (out, err)
        assert not re.search(r"terminate|Fatal|Aborted|Traceback", err), err


def test_unknown_knob_is_warned_about_once(capfd: pytest.CaptureFixture[str]) -> None:
    def body(group: Any, rank: int, world: int) -> None:
        dist.new_group([0])

    harness.run(1, body, places=[harness.Place("", {"C10D_NEURON_SHARED_MEMROY": "0"})])
    text = capfd.readouterr().err
    assert text.count("C10D_NEURON_SHARED_MEMROY") == 1, text
    assert "C10D_NEURON_SHARED_MEMORY" in text, text


def test_accounting() -> None:
    def body(group: Any, rank: int, world: int) -> Any:
        from c10d_neuron import _C

        size = 1 << 20
        before = {(row["peer"], row["transport"]): row["bytes"] for row in _C.traffic()}
        if rank == 0:
            group.send([torch.zeros(size, dtype=torch.uint8)], 1, 0).wait()
        else:
            group.recv([torch.zeros(size, dtype=torch.uint8)], 0, 0).wait()
        rows = [row for row in _C.traffic() if row["peer"] == 1 - rank]
        records = _C.flight_records()
        assert records[-1]["collective"] == ("send" if rank == 0 else "receive")
        assert records[-1]["state"] == "done"
        assert _C.knobs_markdown().count("C10D_NEURON_") >= 6
        return [(row["transport"], row["bytes"] - before.get((row["peer"], row["transport"]), 0)) for row in rows]

    sent, _ = harness.run(2, body)
    by_transport = dict(sent)
    assert (1 << 20) <= by_transport["shared_memory"] <= (1 << 20) + 65536, sent


def test_two_hosts_use_both_transports(hosts: list[harness.Place]) -> None:
    def body(group: Any, rank: int, world: int) -> Any:
        from c10d_neuron import _C

        dist.all_reduce(torch.ones(1_000_000))
        dist.barrier()
        return [(row["peer"], row["transport"], row["bytes"] > 0) for row in _C.traffic() if row["bytes"] > 0]

    for rank, rows in enumerate(harness.run(4, body, places=[hosts[0], hosts[0], hosts[1], hosts[1]])):
        transports = {peer: transport for peer, transport, _ in rows}
        neighbour = rank ^ 1
        assert transports.get(neighbour, "shared_memory") == "shared_memory", rows
        assert all(transport != "shared_memory" for peer, transport in transports.items() if peer // 2 != rank // 2), (
            rows
        )
        assert len({*transports.values()}) >= 1, rows


def train(rank: int, world: int, ddp: bool) -> tuple[list[float], list[float]]:
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 4))
    trained = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1) if ddp else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(6):
        random = torch.Generator().manual_seed(step)
        inputs, wanted = torch.randn(24, 20, generator=random), torch.randint(0, 4, (24,), generator=random)
        share = slice(rank * 24 // world, (rank + 1) * 24 // world)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(trained(inputs[share]), wanted[share])
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if ddp:
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
        losses.append(total.item())
    return losses, torch.cat([parameter.detach().view(-1) for parameter in model.parameters()]).tolist()


@pytest.mark.parametrize("world", [2, 3, 4])
def test_data_parallel_training_equals_one_process(world: int) -> None:
    alone = train(0, 1, ddp=False)
    results = harness.run(world, lambda group, rank, size: train(rank, size, ddp=True))
    for losses, parameters in results:
        assert losses == pytest.approx(alone[0], rel=1e-5)
        assert parameters == pytest.approx(alone[1], rel=1e-3, abs=1e-5)
        assert parameters == results[0][1], "replicas must be bit-identical"


def test_object_collectives() -> None:
    def body(group: Any, rank: int, world: int) -> Any:
        gathered: list[Any] = [None] * world
        dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank * 1000})
        shared = [{"from": 0} if rank == 0 else None]
        dist.broadcast_object_list(shared, src=0)
        mine: list[Any] = [None]
        dist.scatter_object_list(mine, [f"for {each}" for each in range(world)] if rank == 1 else None, src=1)
        return [len(each["text"]) for each in gathered], shared[0], mine[0]

    for rank, result in enumerate(harness.run(3, body)):
        assert result == ([0, 1000, 2000], {"from": 0}, f"for {rank}")

"""Work: waiting, timeouts, futures, interrupts, coalescing, and tensors that outlive or do not outlive their Work."""

from __future__ import annotations

import gc
import os
import re
import signal
import time
from datetime import timedelta
from typing import Any

import harness
import pytest
import torch
import torch.distributed as dist


def test_wait_twice_and_results() -> None:
    def body(group: Any, rank: int, world: int) -> None:
        tensor = torch.full((5,), float(rank + 1))
        work = group.allreduce([tensor])
        assert work.wait() and work.wait()
        assert work.is_completed() and work.is_success()
        assert torch.equal(work.result()[0], torch.full((5,), 3.0))
        assert work.result()[0].data_ptr() == tensor.data_ptr()
        assert work._get_duration() > 0

    harness.run(2, body)


def test_wait_with_timeout_raises_on_the_caller_only() -> None:
    def body(group: Any, rank: int, world: int) -> str:
        tensor = torch.ones(3)
        message = ""
        if rank == 0:
            work = group.allreduce([tensor])
            start = time.monotonic()
            with pytest.raises(RuntimeError) as raised:
                work.wait(timedelta(milliseconds=200))
            assert 0.15 < time.monotonic() - start < 1
            message = str(raised.value)
            assert not work.is_completed()
            group.send([tensor], 1, 0).wait()  # now the other may begin
            work.wait()
        else:
            group.recv([tensor], 0, 0).wait()
            tensor.fill_(1)
            group.allreduce([tensor]).wait()
        assert torch.equal(tensor, torch.full((3,), 2.0))
        return message

    message = harness.run(2, body)[0]
    assert re.search(r"wait\(200 ms\) has expired for all_reduce 0 of group 0.*goes on", message), message


def test_timeout_of_the_group_names_who_is_missing() -> None:
    def body(group: Any, rank: int, world: int) -> str:
        if rank == 2:
            with pytest.raises(RuntimeError) as raised:
                time.sleep(2.5)
                group.allreduce([torch.ones(3)]).wait()
            return str(os.getpid())
        with pytest.raises(RuntimeError) as raised:
            group.allreduce([torch.ones(3)]).wait()
        return str(raised.value)

    first, second, pid = harness.run(3, body, timeout=timedelta(seconds=2))
    for message in (first, second):
        assert "all_reduce" in message and re.search(r"group 0\b", message), message
        assert "rank 2" in message and pid in message, message


def test_killed_rank_is_named_on_the_others() -> None:
    def body(group: Any, rank: int, world: int) -> Any:
        group.barrier().wait()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(RuntimeError) as raised:
            group.allreduce([torch.ones(3)]).wait()
        with pytest.raises(RuntimeError):
            group.barrier().wait()
        return str(raised.value), time.monotonic() - start

    job = harness.start(3, body)
    pid = job.pids[1]
    outcomes = job.collect(30)
    for rank in (0, 2):
        assert not outcomes[rank].error, outcomes[rank]
        message, took = outcomes[rank].value
        assert "rank 1" in message and str(pid) in message, message
        assert took < 5, took


@pytest.mark.parametrize("what", ["recv", "barrier", "init"])
def test_interrupt_answers_in_half_a_second(what: str) -> None:
    def body(path: str, rank: int, world: int) -> Any:
        reader, writer = os.pipe()

        def on_interrupt(number: int, frame: Any) -> None:
            raise KeyboardInterrupt

        signal.signal(signal.SIGINT, on_interrupt)
        if os.fork() == 0:  # sends the signal once the rank has waited for a while
            os.read(reader, 1)
            time.sleep(0.3)
            os.kill(os.getppid(), signal.SIGINT)
            os._exit(0)
        start = 0.0
        try:
            if what == "init":
                os.write(writer, b"x")
                start = time.monotonic()
                harness.init_group(path, 0, 2)
            else:
                harness.init_group(path, rank, world)
                os.write(writer, b"x")
                start = time.monotonic()
                tensor = torch.ones(3)
                dist.recv(tensor, src=1 - rank) if what == "recv" else dist.barrier()
        except KeyboardInterrupt:
            return time.monotonic() - start
        return None

    def only_first(path: str, rank: int, world: int) -> Any:
        if rank == 0:
            return body(path, rank, world)
        if what != "init":
            harness.init_group(path, rank, world)
            time.sleep(1.5)
        return None

    took = harness.run(2, only_first, init=False)[0]
    assert took is not None, "no KeyboardInterrupt"
    assert 0.25 < took < 0.8, took


def test_interrupt_ends_the_wait_and_not_the_operation() -> None:
    def body(group: Any, rank: int, world: int) -> None:
        tensor = torch.full((3,), float(rank))
        if rank == 1:
            time.sleep(0.6)
            group.allreduce([tensor]).wait()
            return
        signal.setitimer(signal.ITIMER_REAL, 0.2)

        def on_alarm(number: int, frame: Any) -> None:
            raise InterruptedError("alarm")

        signal.signal(signal.SIGALRM, on_alarm)
        work = group.allreduce([tensor])
        with pytest.raises(InterruptedError):
            work.wait()
        work.wait()
        assert torch.equal(tensor, torch.ones(3))

    harness.run(2, body)


def test_future() -> None:
    def body(group: Any, rank: int, world: int) -> Any:
        tensor = torch.full((4,), float(rank))
        future = group.allreduce([tensor]).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2).wait()
        finished = group.barrier()
        finished.wait()
        assert finished.get_future().done()
        return doubled[0].item()

    assert harness.run(3, body) == [6.0] * 3


def test_future_of_a_failed_operation_is_completed() -> None:
    def body(group: Any, rank: int, world: int) -> Any:
        if rank == 1:
            time.sleep(1.5)
            return ""
        future = group.allreduce([torch.ones(4)]).get_future()
        with pytest.raises(RuntimeError) as raised:
            future.wait()
        return str(raised.value)

    assert "all_reduce" in harness.run(2, body, timeout=timedelta(seconds=1))[0]


def test_callback_may_wait_for_another_operation() -> None:
    """PowerSGD's hook does so, with one future per bucket."""

    def body(group: Any, rank: int, world: int) -> Any:
        def follow(done: Any) -> torch.Tensor:
            second = done.value()[0].clone()
            group.allreduce([second]).wait()
            return second

        futures = [group.allreduce([torch.full((10,), float(rank + i))]).get_future().then(follow) for i in range(8)]
        return [future.wait()[0].item() for future in futures]

    def sorted_sums(values: list[float]) -> list[float]:
        return sorted(values)

    # The callbacks of different buckets may run in any order, so that sums may mix; the process must end and agree.
    results = harness.run(2, body)
    assert len(results[0]) == len(results[1]) == 8


def test_many_callbacks_that_block_do_not_stop_progress() -> None:
    def body(group: Any, rank: int, world: int) -> int:
        import threading

        gate = threading.Event()
        if rank == 1:  # begins when the callbacks of the other are in place
            group.recv([torch.ones(1)], 0, 0).wait()
            for _ in range(6):
                group.allreduce([torch.ones(2)]).wait()
            return 4
        blocked = [group.allreduce([torch.ones(2)]).get_future().then(lambda done: gate.wait(20)) for _ in range(4)]
        last = group.allreduce([torch.ones(2)]).get_future()
        group.send([torch.ones(1)], 1, 0).wait()
        group.allreduce([torch.ones(2)]).wait()
        last.wait()
        gate.set()
        return sum(future.wait() for future in blocked)

    assert harness.run(2, body) == [4, 4]


def test_work_may_be_dropped_before_its_operation_is_done() -> None:
    def body(group: Any, rank: int, world: int) -> None:
        plain = torch.full((300_000,), float(rank))
        strided = torch.full((2000,), float(rank))[::2]
        if rank == 1:
            time.sleep(0.2)
        group.allreduce([plain])
        group.allreduce([strided])
        group.allreduce([torch.ones(100_000)])  # nobody else holds this one
        gc.collect()
        group.barrier().wait()
        assert harness.eventually(lambda: bool((strided == 1).all()))
        assert bool((plain == 1).all())

    harness.run(2, body)


def test_future_outlives_work_and_group_variable() -> None:
    def body(group: Any, rank: int, world: int) -> float:
        def issue() -> Any:
            return group.allreduce([torch.full((4,), float(rank))[::2]]).get_future()

        return issue().wait()[0][0].item()

    assert harness.run(2, body) == [1.0, 1.0]


def test_polling_without_waiting() -> None:
    def body(group: Any, rank: int, world: int) -> None:
        tensor = torch.ones(6)[::2]
        work = group.allreduce([tensor])
        assert harness.eventually(work.is_completed)
        assert torch.equal(tensor, torch.full((3,), 2.0))

    harness.run(2, body)


def test_coalescing_block() -> None:
    def body(group: Any, rank: int, world: int) -> None:
        peer = 1 - rank
        incoming, outgoing = torch.zeros(4), torch.full((4,), float(rank))
        operations = [dist.P2POp(dist.irecv, incoming, peer), dist.P2POp(dist.isend, outgoing, peer)]
        works = dist.batch_isend_irecv(operations)
        assert len(works) == 1
        for work in works:
            work.wait()
        assert torch.equal(incoming, torch.full((4,), float(peer)))
        tensors = [torch.full((size,), float(rank)) for size in (1, 10, 1000)]
        with dist._coalescing_manager(group, torch.device("cpu"), async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        assert all(torch.equal(tensor, torch.ones_like(tensor)) for tensor in tensors)

    harness.run(2, body)


def test_exception_inside_a_coalescing_block_hangs_nothing() -> None:
    def body(group: Any, rank: int, world: int) -> None:
        backend = group._get_backend(torch.device("cpu"))
        tensor = torch.ones(3)
        backend._start_coalescing()
        work = backend.allreduce([tensor])
        with pytest.raises(ValueError, match="src is 7"):
            backend.recv([torch.ones(1)], 7, 0)
        work.wait()  # the block was left without an end
        assert torch.equal(tensor, torch.full((3,), 2.0))
        backend._start_coalescing()
        second = backend.allreduce([tensor])
        backend._end_coalescing().wait()
        assert second.is_completed()
        backend._start_coalescing()
        backend._end_coalescing().wait()

    harness.run(2, body)


def test_both_send_first() -> None:
    """Large messages, sends of both sides before any receive, as pipeline schedules issue them."""

    def body(group: Any, rank: int, world: int) -> None:
        size = 3_000_000
        out, into = torch.full((size,), float(rank)), torch.empty(size)
        sending = group.send([out], 1 - rank, 0)
        group.recv([into], 1 - rank, 0).wait()
        sending.wait()
        assert bool((into == 1 - rank).all())

    harness.run(2, body)


def test_source_rank_and_sequence_numbers() -> None:
    def body(group: Any, rank: int, world: int) -> Any:
        backend = group._get_backend(torch.device("cpu"))
        backend._set_sequence_number_for_group()
        numbers = [backend._get_sequence_number_for_group()]
        for _ in range(3):
            group.barrier().wait()
            numbers.append(backend._get_sequence_number_for_group())
        if rank == 0:
            group.send([torch.ones(1)], 1, 3).wait()
        else:
            work = group.recv([torch.ones(1)], 0, 3)
            work.wait()
            assert work._source_rank() == 0
            sending = group.send([torch.ones(1)], 0, 4)
            with pytest.raises(RuntimeError, match="source_rank"):
                sending._source_rank()
            sending.wait()
        if rank == 0:
            group.recv([torch.ones(1)], 1, 4).wait()
        return numbers

    first, second = harness.run(2, body)
    assert first == second == list(range(first[0], first[0] + 4))


def test_abort_ends_everybody() -> None:
    def body(group: Any, rank: int, world: int) -> str:
        backend = group._get_backend(torch.device("cpu"))
        group.barrier().wait()
        if rank == 0:
            time.sleep(0.2)
            backend.abort()
            return ""
        start = time.monotonic()
        with pytest.raises(RuntimeError) as raised:
            group.allreduce([torch.ones(3)]).wait()
        assert time.monotonic() - start < 5
        return str(raised.value)

    _, first, second = harness.run(3, body)
    for message in (first, second):
        assert "abort" in message and "rank 0" in message, message


def test_profiler_sees_operations() -> None:
    def body(group: Any, rank: int, world: int) -> list[str]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            dist.all_reduce(torch.ones(3))
            dist.barrier()
        return [event.name for event in profile.events()]

    names = harness.run(2, body)[0]
    assert "neuron:all_reduce" in names, names
    assert "record_param_comms" in names, names

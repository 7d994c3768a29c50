"""What the engine holds stays bounded though a rank does not take part for long, and other groups go on meanwhile."""

from __future__ import annotations

import threading
import time
from typing import Any

import harness
import pytest
import torch
import torch.distributed as dist

COUNT, ELEMENTS = 10_000, 1024  # 4 KiB each
LIMIT = 16 << 20


def busy_receiver(group: Any, rank: int, world: int, what: str) -> tuple[int, int]:
    """Returns the most that this rank's engine held, and the operations that were not done when the other group was."""
    backend = group._get_backend(torch.device("cpu"))
    other = dist.new_group([0, 1])
    tensors = [torch.full((ELEMENTS,), float(index)) if rank == 0 else torch.zeros(ELEMENTS) for index in range(COUNT)]
    options = dist.BroadcastOptions()
    group.barrier().wait()
    before = backend.memory_in_use()

    def issue() -> list[Any]:
        if what == "broadcast":
            return [group.broadcast([tensor], options) for tensor in tensors]
        return [group.send([each], 1, 0) if rank == 0 else group.recv([each], 0, 0) for each in tensors]

    most, pending = 0, 0
    if rank == 0:
        works = issue()
        for _ in range(5):
            dist.all_reduce(torch.ones(3), group=other)
            most = max(most, backend.memory_in_use() - before)
        pending = sum(not work.is_completed() for work in works)
    else:

        def take_part() -> None:
            for _ in range(5):
                dist.all_reduce(torch.ones(3), group=other)

        helper = threading.Thread(target=take_part)
        helper.start()
        deadline = time.monotonic() + 2  # "computes"
        while time.monotonic() < deadline:
            most = max(most, backend.memory_in_use() - before)
            time.sleep(0.05)
        helper.join()
        works = issue()
    for work in works:
        work.wait()
    if rank == 1:
        assert all(int(tensor[0]) == int(tensor[-1]) == index for index, tensor in enumerate(tensors))
    return most, pending


@pytest.mark.parametrize("what", ["send", "broadcast"])
@pytest.mark.parametrize("shared_memory", ["1", "0"])
def test_memory_stays_bounded(what: str, shared_memory: str) -> None:
    place = harness.Place("", {"C10D_NEURON_SHARED_MEMORY": shared_memory})
    (sender, pending), (receiver, _) = harness.run(2, busy_receiver, what, places=[place])
    assert sender < LIMIT and receiver < LIMIT, (sender, receiver)
    assert pending > 0, "the receiver took everything: this test proves nothing"

"""What stands on the backend inside torch: functional collectives, FSDP2, DTensor on a mesh, and the debug wrapper."""

from __future__ import annotations

from typing import Any

import harness
import pytest
import torch
import torch.distributed as dist

# Imported here, once, so that forked ranks need not.
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


@pytest.mark.filterwarnings("ignore:.*is deprecated")
def test_functional_collectives() -> None:
    def body(group: Any, rank: int, world: int) -> None:
        mine = torch.full((6,), float(rank))
        wait = functional.wait_tensor
        assert wait(functional.all_reduce(mine, "sum", group)).tolist() == [3.0] * 6
        assert wait(functional.all_gather_tensor(mine, 0, group)).tolist() == [0.0] * 6 + [1.0] * 6 + [2.0] * 6
        assert wait(functional.reduce_scatter_tensor(mine, "avg", 0, group)).tolist() == [1.0, 1.0]
        assert wait(functional.all_to_all_single(mine, [2, 2, 2], [2, 2, 2], group)).tolist() == [0, 0, 1, 1, 2, 2]
        first, second = functional.all_reduce_coalesced([mine, mine * 2], "sum", group)
        assert (wait(first)[0].item(), wait(second)[0].item()) == (3.0, 6.0)
        assert mine.tolist() == [float(rank)] * 6

    harness.run(3, body)


def train_sharded(rank: int, world: int) -> list[float]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    if world > 1:
        mesh = init_device_mesh("cpu", (world,))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(5):
        batch = torch.randn(12, 10, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = model(batch[rank * 12 // world : (rank + 1) * 12 // world]).pow(2).mean()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if world > 1:
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
        losses.append(total.item())
    return losses


@pytest.mark.parametrize("world", [2, 3])
def test_fully_sharded_training_equals_one_process(world: int) -> None:
    alone = train_sharded(0, 1)
    for losses in harness.run(world, lambda group, rank, size: train_sharded(rank, size)):
        assert losses == pytest.approx(alone, rel=1e-5)


def test_mesh_of_two_dimensions() -> None:
    def body(group: Any, rank: int, world: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        whole = torch.arange(64.0).view(8, 8)
        sharded = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
        assert torch.equal(sharded.full_tensor(), whole)
        assert torch.equal(sharded.redistribute(mesh, [Replicate(), Shard(0)]).full_tensor(), whole)
        assert torch.equal((sharded @ sharded).full_tensor(), whole @ whole)

    harness.run(4, body)


def test_debug_wrapper() -> None:
    def body(path: str, rank: int, world: int) -> str:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        harness.init_group(path, rank, world)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        dist.all_reduce(tensor, group=dist.new_group([0, 1]))
        assert tensor.tolist() == [4.0] * 3
        with pytest.raises(RuntimeError) as raised:
            dist.all_reduce(torch.ones(3 + rank))
        return str(raised.value)

    for message in harness.run(2, body, init=False):
        assert "Detected mismatch between collectives" in message, message

"""What wrong arguments get: each message names the argument, its value and what to do, and nothing hangs afterwards."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import harness
import pytest
import torch
import torch.distributed as dist

ONES = torch.ones(4)


class Calls:
    """What a backend can be called with: by its own binding, or where it has none, through c10d's dispatcher."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.backend = group._get_backend(torch.device("cpu"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend if hasattr(self.backend, name) else self.group, name)


@pytest.fixture(scope="module")
def calls() -> Iterator[Any]:
    """Rank 1 of three; no other rank ever calls, so whatever reaches the wire would hang."""
    groups = harness.loopback_groups(3)
    yield Calls(groups[1])
    for group in groups:
        group.shutdown()


def ones(count: int, *shape: int) -> list[torch.Tensor]:
    return [torch.ones(*(shape or (4,))) for _ in range(count)]


def with_op(op: Any) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options


def with_root(kind: type, root: int) -> Any:
    options = kind()
    options.rootRank = root
    return options


Call = Callable[[Any], Any]
CASES: dict[str, tuple[Call, type[Exception], str]] = {
    "dtype": (lambda g: g.allreduce([ONES.double()]), NotImplementedError,
              r"all_reduce .*tensors has dtype Double; reductions support float32, bfloat16, int32 and int64: convert"),
    "op": (lambda g: g.allreduce([ONES.clone()], with_op(dist.ReduceOp.PRODUCT)), NotImplementedError,
           r"op is PRODUCT; supported are SUM, AVG, MIN and MAX"),
    "premul sum": (lambda g: g.allreduce([ONES.clone()], with_op(dist._make_nccl_premul_sum(2.0))), NotImplementedError,
                   r"op is PREMUL_SUM"),
    "average of integers": (lambda g: g.allreduce([ONES.int()], with_op(dist.ReduceOp.AVG)), NotImplementedError,
                            r"op is AVG, but tensors has dtype Int; .*use SUM and divide"),
    "device": (lambda g: g.allreduce([torch.ones(4, device="meta")]), ValueError,
               r"tensors: tensor is on meta, this group serves cpu: move it with \.cpu\(\)"),
    "sparse": (lambda g: g.allreduce([ONES.to_sparse()]), NotImplementedError, r"Sparse, only dense.*\.to_dense\(\)"),
    "two tensors": (lambda g: g.allreduce(ones(2)), ValueError, r"tensors holds 2 tensors; a rank gives exactly one"),
    "no tensor": (lambda g: g.broadcast([]), ValueError, r"tensors holds 0 tensors"),
    "expanded output": (lambda g: g.allreduce([torch.ones(1).expand(4)]), ValueError,
                        r"elements of the tensor share memory .*\.clone\(\)"),
    "mixed coalesced": (lambda g: g.allreduce_coalesced([ONES.clone(), ONES.int()]), ValueError,
                        r"tensors has dtype Int where Float is needed"),
    "root too large": (lambda g: g.broadcast([ONES.clone()], with_root(dist.BroadcastOptions, 3)), ValueError,
                       r"src is 3, the group has ranks 0 to 2"),
    "negative root": (lambda g: g.reduce([ONES.clone()], with_root(dist.ReduceOptions, -1)), ValueError,
                      r"dst is -1, the group has ranks 0 to 2"),
    "short gather list": (lambda g: g.gather([ones(2)], [ONES], with_root(dist.GatherOptions, 1)), ValueError,
                          r"gather_list holds 2 tensors, the group has 3 ranks: give one tensor per rank"),
    "gather list elsewhere": (lambda g: g.gather([ones(3)], [ONES], with_root(dist.GatherOptions, 0)), ValueError,
                              r"gather_list is given on rank 1, but the result goes to rank 0: leave it empty here"),
    "scatter list missing": (lambda g: g.scatter([ONES.clone()], [], with_root(dist.ScatterOptions, 1)), ValueError,
                             r"scatter_list holds 0 lists; a rank gives exactly one list of 3 tensors"),
    "scatter list elsewhere": (lambda g: g.scatter([ONES.clone()], [ones(3)], with_root(dist.ScatterOptions, 2)),
                               ValueError,
                               r"scatter_list is given on rank 1, but the values come from rank 2"),
    "scatter shapes": (lambda g: g.scatter([ONES.clone()], [ones(3, 5)], with_root(dist.ScatterOptions, 1)), ValueError,
                       r"scatter_list\[0\] has shape \[5\] where \[4\] is needed"),
    "short gather": (lambda g: g.allgather([ones(2)], [ONES]), ValueError, r"tensor_list holds 2 tensors, .* 3 ranks"),
    "gather shapes": (lambda g: g.allgather([[*ones(2), torch.ones(5)]], [ONES]), ValueError,
                      r"tensor_list\[2\] has shape \[5\] where \[4\] is needed.*pad to the largest"),
    "gather dtypes": (lambda g: g.allgather([[*ones(2), ONES.int()]], [ONES]), ValueError,
                      r"tensor_list has dtype Int where Float is needed"),
    "gather size": (lambda g: g._allgather_base(torch.ones(8), ONES), ValueError,
                    r"output_tensor has 8 elements, input_tensor has 4: .* 3 \(ranks\) times as many, 12"),
    "scatter size": (lambda g: g._reduce_scatter_base(ONES.clone(), torch.ones(13)), ValueError,
                     r"input has 13 elements, output has 4: .* 12"),
    "reduce_scatter list": (lambda g: g.reduce_scatter([ONES.clone()], [ones(4)]), ValueError,
                            r"input_list holds 4 tensors, the group has 3 ranks"),
    "pairs": (lambda g: g.allgather_into_tensor_coalesced([torch.ones(12)], ones(2)), ValueError,
              r"outputs holds 1 tensors and inputs 2"),
    "all_to_all lists": (lambda g: g.alltoall(ones(3), ones(2)), ValueError, r"input_tensor_list holds 2 tensors"),
    "all_to_all dtypes": (lambda g: g.alltoall(ones(3), [*ones(2), ONES.int()]), ValueError,
                          r"input_tensor_list has dtype Int where Float is needed"),
    "uneven rows": (lambda g: g.alltoall_base(torch.ones(4), torch.ones(4), [], []), ValueError,
                    r"first dimension of input is 4, which 3 ranks cannot share evenly: give input_split_sizes"),
    "number of splits": (lambda g: g.alltoall_base(torch.ones(6), torch.ones(6), [], [3, 3]), ValueError,
                         r"input_split_sizes has 2 entries, the group has 3 ranks"),
    "sum of splits": (lambda g: g.alltoall_base(torch.ones(6), torch.ones(6), [], [3, 2, 2]), ValueError,
                      r"input_split_sizes sums up to 7, the first dimension of input is 6"),
    "negative split": (lambda g: g.alltoall_base(torch.ones(6), torch.ones(6), [], [8, -4, 2]), ValueError,
                       r"input_split_sizes"),
    "scalar to split": (lambda g: g.alltoall_base(torch.ones(()), torch.ones(()), [], []), ValueError,
                        r"input has no dimension to split"),
    "send to self": (lambda g: g.send([ONES], 1, 0), ValueError, r"dst is 1, this rank itself: copy the tensor"),
    "receive from self": (lambda g: g.recv([ONES.clone()], 1, 0), ValueError, r"src is 1, this rank itself"),
    "send too far": (lambda g: g.send([ONES], 3, 0), ValueError, r"dst is 3, the group has ranks 0 to 2"),
    "negative tag": (lambda g: g.send([ONES], 0, -1), ValueError, r"tag is -1; allowed are 0 to 2147483647"),
    "any source": (lambda g: g.recv_anysource([ONES.clone()], 0), NotImplementedError,
                   r"src is None, but receiving from any source is not supported: name the source rank"),
    "monitored barrier": (lambda g: g.monitored_barrier(), NotImplementedError,
                          r"monitored_barrier is not supported: use barrier\(\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_wrong_argument(name: str, calls: Any) -> None:
    call, kind, message = CASES[name]
    with pytest.raises(kind) as raised:
        call(calls)
    text = str(raised.value).splitlines()[0]
    assert re.search(message, text), text
    assert 'neuron group "loopback"' in text, text


def test_group_works_after_wrong_arguments() -> None:
    def body(group: Any, rank: int, world: int) -> float:
        for call, kind, _ in CASES.values() if rank == 1 else ():
            with pytest.raises(kind):
                call(Calls(group))
        tensor = torch.full((4,), float(rank))
        group.allreduce([tensor]).wait()
        return tensor[0].item()

    assert harness.run_threads(3, body, seed=1) == [3.0, 3.0, 3.0]


def test_closed_group() -> None:
    def body(group: Any, rank: int, world: int) -> str:
        backend = group._get_backend(torch.device("cpu"))
        dist.barrier()
        dist.destroy_process_group()
        with pytest.raises(RuntimeError) as raised:
            backend.allreduce([torch.ones(3)])
        return str(raised.value)

    for message in harness.run(2, body):
        assert "destroyed" in message, message


def mismatching(*calls: Callable[[Any], Any]) -> list[str]:
    def body(group: Any, rank: int, world: int) -> None:
        calls[rank](group).wait()
        # A rank whose part was done before the mismatch was found hears of it at its next call.
        group.barrier().wait()

    return harness.errors(len(calls), body, timeout=timedelta(seconds=10))


def test_ranks_with_different_dtypes() -> None:
    errors = mismatching(
        lambda g: g.allreduce([torch.ones(4)]), lambda g: g.allreduce([torch.ones(4, dtype=torch.int32)])
    )
    assert all("DistBackendError" in error for error in errors), errors
    assert any("all_reduce" in error for error in errors), errors


def test_ranks_with_different_dtypes_of_equal_size_where_bytes_move() -> None:
    errors = mismatching(lambda g: g.broadcast([torch.ones(4, dtype=torch.float16)]),
                         lambda g: g.broadcast([torch.ones(4, dtype=torch.int16)]))  # fmt: skip
    assert all("DistBackendError" in error for error in errors), errors


def test_ranks_with_different_sizes() -> None:
    errors = mismatching(lambda g: g.allreduce([torch.ones(4)]), lambda g: g.allreduce([torch.ones(8)]))
    assert all("DistBackendError" in error for error in errors), errors


def test_ranks_in_different_operations() -> None:
    errors = mismatching(lambda g: g.allreduce([torch.ones(4)]), lambda g: g.barrier())
    assert all("DistBackendError" in error for error in errors), errors
    assert any("barrier 0" in error or "all_reduce 0" in error for error in errors), errors


def test_mismatch_that_exchanges_nothing() -> None:
    errors = mismatching(lambda g: g.reduce([torch.ones(4)], with_root(dist.ReduceOptions, 0)),
                         lambda g: g.broadcast([torch.ones(4)], with_root(dist.BroadcastOptions, 1)))  # fmt: skip
    assert all("DistBackendError" in error for error in errors), errors


def test_receive_of_another_size_fails_the_pair_only() -> None:
    def body(group: Any, rank: int, world: int) -> str:
        with pytest.raises(RuntimeError) as raised:
            if rank == 0:
                group.send([torch.ones(300_000)], 1, 0).wait()
            elif rank == 1:
                group.recv([torch.ones(200_000)], 0, 0).wait()
            else:
                raise RuntimeError("not of the pair")
        group.allreduce([torch.ones(4)]).wait()
        return str(raised.value)

    first, second, _ = harness.run(3, body, timeout=timedelta(seconds=10))
    assert "bytes" in second, second
    assert first, first


@pytest.mark.parametrize(("size", "ranks", "message"), [
    ((2, 3), (0, 1), r"world|size|3"),
    ((2, 2), (0, 0), r"rank 0"),
])  # fmt: skip
def test_wrong_world(size: tuple[int, int], ranks: tuple[int, int], message: str) -> None:
    def body(path: str, index: int, world: int) -> None:
        harness.init_group(path, ranks[index], size[index], timedelta(seconds=3))

    errors = harness.errors(2, body, init=False)
    assert all(errors), errors
    assert any(re.search(message, error) for error in errors), errors


def test_missing_rank_is_named() -> None:
    def body(path: str, rank: int, world: int) -> None:
        if rank != 1:
            harness.init_group(path, rank, 3, timedelta(seconds=3))

    errors = harness.errors(3, body, init=False)
    assert re.search(r"\b1\b", errors[0]), errors
    assert errors[2], errors


def environment(**variables: str) -> list[harness.Place]:
    return [harness.Place("", variables)]


def test_provider_that_does_not_exist() -> None:
    places = environment(C10D_NEURON_SHARED_MEMORY="0", C10D_NEURON_PROVIDER="carrier_pigeon")
    errors = harness.errors(2, lambda group, rank, world: None, places=places)
    assert all("carrier_pigeon" in error for error in errors), errors


def test_knob_that_does_not_parse() -> None:
    errors = harness.errors(1, lambda g, r, w: None, places=environment(C10D_NEURON_SHARED_MEMORY="perhaps"))
    assert "C10D_NEURON_SHARED_MEMORY" in errors[0], errors
    assert "perhaps" in errors[0], errors


def test_one_host_needs_no_libfabric() -> None:
    harness.run(
        2, lambda group, rank, world: dist.barrier(), places=environment(C10D_NEURON_LIBFABRIC="/nonexistent.so")
    )


def test_missing_libfabric_is_said_when_it_matters() -> None:
    places = environment(C10D_NEURON_SHARED_MEMORY="0", C10D_NEURON_LIBFABRIC="/nonexistent.so")
    errors = harness.errors(2, lambda group, rank, world: None, places=places)
    assert all("libfabric" in error and "/nonexistent.so" in error for error in errors), errors


def test_interface_that_does_not_exist() -> None:
    places = environment(C10D_NEURON_SHARED_MEMORY="0", C10D_NEURON_INTERFACE="nosuch0")
    errors = harness.errors(2, lambda group, rank, world: dist.barrier(), places=places)
    assert all("nosuch0 (C10D_NEURON_INTERFACE)" in error for error in errors), errors


def test_token_file_that_does_not_exist() -> None:
    places = environment(C10D_NEURON_TOKEN_FILE="/nonexistent")
    errors = harness.errors(2, lambda group, rank, world: dist.barrier(), places=places)
    assert all("/nonexistent" in error and "C10D_NEURON_TOKEN_FILE" in error for error in errors), errors


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: takes a network interface down")
def test_rank_0_that_cannot_be_reached() -> None:
    with harness.two_hosts() as places:
        space = Path(places[0].namespace).name
        subprocess.run(["ip", "-n", space, "link", "set", "eth0", "down"], check=True)
        limit = timedelta(seconds=3)
        errors = harness.errors(2, lambda group, rank, world: dist.barrier(), places=places, timeout=limit)
    assert "rank 1 has not joined" in errors[0], errors
    assert "rank 0 (host" in errors[1] and "cannot be reached" in errors[1], errors

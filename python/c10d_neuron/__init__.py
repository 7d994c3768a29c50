"""A PyTorch distributed backend: shared memory inside a host, libfabric between hosts.

Nothing here has to be imported to use it: after installation `torch.distributed.init_process_group("neuron")` works.
Importing this package loads no library; the functions below do when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from c10d_neuron._autoload import register

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["PeerTraffic", "flight_records", "knobs", "register", "traffic"]


class PeerTraffic(NamedTuple):
    """What this process has sent to one rank through one transport since it joined the job."""

    peer: int  # global rank
    transport: str  # "shared_memory", or the libfabric provider
    messages: int
    bytes: int  # payload, without the 64 bytes of header that each message has
    scheduled_bytes: int  # what the operations wanted to send to this peer, over all transports


def traffic(group: ProcessGroup | None = None) -> list[PeerTraffic]:
    """Bytes and messages that this process has sent, per peer and transport, ordered by peer.

    Empty before the first process group of ours, and after the last one is destroyed.

    Args:
        group: Only the members of this group; None for all ranks of the job. Counts are the process's, over all groups.
    """
    from c10d_neuron._library import library

    # A process that has left a job and joined another has rows of both.
    sums: dict[tuple[int, str], PeerTraffic] = {}
    for row in library().traffic():
        key = (row["peer"], row["transport"])
        before = sums.get(key, PeerTraffic(*key, 0, 0, 0))
        counts = (row[name] + getattr(before, name) for name in ("messages", "bytes", "scheduled_bytes"))
        sums[key] = PeerTraffic(*key, *counts)
    rows = list(sums.values())
    if group is not None:
        import torch.distributed as dist

        members = set(dist.get_process_group_ranks(group))
        rows = [row for row in rows if row.peer in members]
    return sorted(rows)


def flight_records() -> list[dict[str, Any]]:
    """The last operations of this process, oldest first; `C10D_NEURON_FLIGHT_RECORDS` says how many are remembered.

    Each holds what was asked for (group, sequence, collective, bytes), how it was done (algorithm, the schedule's
    hash), its state ("issued", "started", "done" or "failed"), times in nanoseconds, and its error. `c10d-neuron
    records` prints them when they are saved as JSON. Empty before the first process group of ours.
    """
    from c10d_neuron._library import library

    return library().flight_records()


def knobs() -> str:
    """Every environment variable that c10d-neuron reads, as a Markdown document."""
    from c10d_neuron._library import library

    return library().knobs_markdown()


def __getattr__(name: str) -> str:
    # Reading the version takes a search through the installed packages: only when somebody asks.
    if name == "__version__":
        from importlib.metadata import version

        return version("c10d-neuron")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Several hosts on one machine, for the demo, the benchmark and tests.

As root, each host is a network namespace with a name and an address of its own, on one bridge: its ranks share no
memory with those of another host and reach them over TCP only. Without root, a host is only a name (the knob
C10D_NEURON_HOST): the backend then treats the ranks as if they were on different hosts, on the machine's own network.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TOOLS = ("ip", "nsenter", "unshare", "mount", "hostname")
_made = itertools.count(1)  # sets of namespaces that this process has made
_ENTER = 'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"'


@dataclass(frozen=True)
class Host:
    """One host: how to start a command there. A value."""

    name: str
    address: str
    prefix: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def popen(self, command: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
        """Starts `command` on this host; `env` in `options` is extended. The pid is the command's own."""
        env = dict(options.pop("env", None) or os.environ) | self.environment
        return subprocess.Popen([*self.prefix, *command], env=env, **options)  # type: ignore[call-overload]


@dataclass(frozen=True)
class Hosts:
    """The hosts and what they are. A value; `hosts` owns what lies behind it."""

    members: tuple[Host, ...]
    kind: str  # for people
    separate: bool  # network namespaces


@contextlib.contextmanager
def hosts(count: int, *, namespaces: bool | None = None) -> Iterator[Hosts]:
    """Makes `count` hosts and removes them at the end.

    Args:
        count: From 1 to 200. One host is the machine itself.
        namespaces: True insists on network namespaces, False never makes them, None takes them when possible.

    Raises:
        RuntimeError: `namespaces` is True and they cannot be made.
    """
    if not 1 <= count <= 200:
        raise ValueError(f"{count} hosts: from 1 to 200 are possible")
    if count == 1:
        yield Hosts((Host(socket.gethostname(), "127.0.0.1"),), "this machine", separate=False)
        return
    with contextlib.ExitStack() as stack:
        reason = "as asked for" if namespaces is False else _missing()
        if not reason:
            try:
                members = _make_namespaces(count, stack)
            except subprocess.CalledProcessError as error:
                reason = f"`{' '.join(error.cmd)}` says: {(error.stderr or b'').decode().strip()}"
            else:
                kind = f"{count} network namespaces joined by a bridge"
                yield Hosts(members, kind, separate=True)
                return
        if namespaces:
            raise RuntimeError(f"Network namespaces cannot be made: {reason}")
        members = tuple(
            Host(f"host-{index}", "127.0.0.1", environment={"C10D_NEURON_HOST": f"host-{index}"})
            for index in range(count)
        )
        yield Hosts(members, f"{count} host identities on this one machine (no network namespaces: {reason})", False)


def _missing() -> str:
    """Why network namespaces are out of the question, or nothing."""
    if os.geteuid() != 0:
        return "they need root"
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"{', '.join(absent)} not found; install iproute2 and util-linux" if absent else ""


def _make_namespaces(count: int, stack: contextlib.ExitStack) -> tuple[Host, ...]:
    names = [f"host-{index}" for index in range(count)]
    addresses = [f"10.88.0.{index + 1}" for index in range(count)]
    # Unique, so that parallel runs do not meet. The bridge has a namespace too, so that the machine's is untouched.
    name = f"c10dn-{os.getpid()}-{next(_made)}"
    spaces = [f"{name}-{index}" for index in range(count)]
    switch = f"{name}-switch"
    for space in (switch, *spaces):
        _ip("netns", "add", space)
        stack.callback(_remove_namespace, space)
        _ip("-n", space, "link", "set", "lo", "up")
    _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
    _ip("-n", switch, "link", "set", "bridge", "up")
    for index, space in enumerate(spaces):
        port = f"port{index}"
        _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
        _ip("-n", space, "addr", "add", f"{addresses[index]}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="c10d-neuron-hosts-")))
    table = folder / "hosts"
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for address, name in zip(addresses, names, strict=True))]
    table.write_text("\n".join(lines) + "\n")
    table.chmod(0o644)
    return tuple(
        Host(
            name,
            address,
            prefix=(
                *("nsenter", f"--net=/run/netns/{space}", "unshare", "--uts", "--mount"),
                *("sh", "-e", "-c", _ENTER, "sh", name, str(table)),
            ),
            # gloo, when it runs for comparison, takes no hint from the address.
            environment={"GLOO_SOCKET_IFNAME": "eth0"},
        )
        for name, address, space in zip(names, addresses, spaces, strict=True)
    )


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True)


def _remove_namespace(space: str) -> None:
    subprocess.run(("ip", "netns", "del", space), check=False, capture_output=True)


def free_port() -> int:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

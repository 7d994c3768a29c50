"""Hosts on one machine: namespaces as root, names otherwise."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from c10d_neuron import hosts as module
from c10d_neuron.hosts import hosts

needs_namespaces = pytest.mark.skipif(bool(module._missing()), reason=f"no network namespaces: {module._missing()}")


def output(host, code):
    process = host.popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    return process.communicate(timeout=60)[0].decode().strip()


def all_spaces():
    folder = Path("/run/netns")
    return {path.name for path in folder.iterdir() if f"-{os.getpid()}-" in path.name} if folder.exists() else set()


@pytest.fixture
def spaces():
    """The namespaces that this test has made: other tests of this process may have theirs."""
    others = all_spaces()
    return lambda: sorted(all_spaces() - others)


def test_one_host_is_the_machine_itself():
    with hosts(1) as one:
        assert output(one.members[0], "import socket; print(socket.gethostname())") == socket.gethostname()


def test_hosts_without_namespaces_differ_by_the_knob():
    with hosts(2, namespaces=False) as two:
        code = "import os; print(os.environ['C10D_NEURON_HOST'])"
        assert [output(host, code) for host in two.members] == ["host-0", "host-1"]
        assert not two.separate
        assert "as asked for" in two.kind


def test_hosts_say_why_they_are_only_names(monkeypatch):
    monkeypatch.setattr(module, "_missing", lambda: "they need root")
    with hosts(2) as two:
        assert two.kind == "2 host identities on this one machine (no network namespaces: they need root)"
    with pytest.raises(RuntimeError, match="they need root"), hosts(2, namespaces=True):
        pass


def test_hosts_fall_back_when_a_command_fails_and_leave_nothing(monkeypatch):
    def refuse(*arguments):
        raise subprocess.CalledProcessError(1, ("ip", *arguments), stderr=b"Operation not permitted\n")

    monkeypatch.setattr(module, "_missing", lambda: "")
    monkeypatch.setattr(module, "_ip", refuse)
    with hosts(2) as two:
        assert "Operation not permitted" in two.kind


@needs_namespaces
def test_namespaces_have_names_and_addresses_of_their_own():
    with hosts(3, namespaces=True) as three:
        code = "import socket; print(socket.gethostname(), *(socket.gethostbyname(f'host-{i}') for i in range(3)))"
        for index, host in enumerate(three.members):
            assert output(host, code) == f"host-{index} 10.88.0.1 10.88.0.2 10.88.0.3"


@needs_namespaces
def test_namespaces_reach_each_other_over_tcp():
    listen = """
import socket
with socket.create_server(("10.88.0.1", 29600)) as server:
    print("ready", flush=True)
    connection, peer = server.accept()
    print(peer[0], connection.recv(5).decode())
"""
    greet = "import socket; socket.create_connection(('host-0', 29600), timeout=20).sendall(b'hello')"
    with hosts(2, namespaces=True) as two:
        server = two.members[0].popen([sys.executable, "-c", listen], stdout=subprocess.PIPE)
        assert server.stdout.readline() == b"ready\n"
        assert output(two.members[1], greet) == ""
        assert server.communicate(timeout=20)[0] == b"10.88.0.2 hello\n"


@needs_namespaces
def test_namespaces_are_removed_at_the_end_and_after_an_error(spaces):
    with pytest.raises(ZeroDivisionError), hosts(2, namespaces=True):
        assert len(spaces()) == 3
        _ = 1 / 0
    assert spaces() == []

"""Each entry point, each dtype and layout, on 1, 2, 3, 4 and 7 ranks: on one host, on two hosts, and over loopback."""

from __future__ import annotations

import harness
import pytest
from entries import ENTRIES, check_entry

WORLDS = (2, 3, 4, 7)


def all_same(digests: list[list[str]]) -> None:
    assert all(each == digests[0] for each in digests), "replicas differ bit by bit"


@pytest.mark.parametrize("entry", ENTRIES)
def test_one_rank(entry: str, seed: int) -> None:
    harness.run(1, check_entry, entry, seed)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_one_host(entry: str, world: int, seed: int) -> None:
    all_same(harness.run(world, check_entry, entry, seed))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_two_hosts(entry: str, world: int, seed: int, hosts: list[harness.Place]) -> None:
    all_same(harness.run(world, check_entry, entry, seed, places=hosts))


@pytest.mark.parametrize("personality", ["efa_direct", "no_remote_write"])
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_loopback(entry: str, world: int, personality: str, seed: int) -> None:
    all_same(harness.run_threads(world, check_entry, entry, seed, seed=seed, personality=personality))


@pytest.mark.parametrize("entry", ["all_reduce", "all_to_all", "send_and_receive"])
def test_fabric_alone(entry: str, seed: int) -> None:
    all_same(harness.run(2, check_entry, entry, seed, places=[harness.Place("", {"C10D_NEURON_SHARED_MEMORY": "0"})]))


@pytest.mark.parametrize("layout", ["AAABBBB", "ABBB", "ABABABA"])
def test_unequal_hosts(layout: str, seed: int, hosts: list[harness.Place]) -> None:
    places = [hosts["AB".index(letter)] for letter in layout]
    all_same(harness.run(len(layout), check_entry, "mixed", seed, places=places))

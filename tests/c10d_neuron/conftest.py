"""What the tests of the backend share: our package on the path, and two hosts made once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
if find_spec("c10d_neuron") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import harness

import c10d_neuron

c10d_neuron.register()
# Forked children of a process that has used OpenMP's threads would hang in them.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def hosts() -> Iterator[list[harness.Place]]:
    with harness.two_hosts() as places:
        yield places

"""What all Python tests share: the seed of random tests, from `scripts/test --seed` or new, printed at the top."""

import os
import random

import pytest

SEED = int(os.environ.setdefault("NEURON_TEST_SEED", str(random.SystemRandom().randrange(1, 2**30))))


def pytest_report_header() -> str:
    return f"seed: {SEED} (repeat with NEURON_TEST_SEED={SEED})"


@pytest.fixture
def seed() -> int:
    return SEED

"""Makes scripts/checks importable, and a small tree to plant violations in."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

Plant = Callable[[str, str], Path]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """plant(name, text) writes one file of a tree that keeps the rules, and returns the tree's root."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return tmp_path

    write("transport/base/status.h", "// Status: a value.\n#pragma once\n")
    write("transport/transport.h", '// Transport: a resource.\n#pragma once\n#include "transport/base/status.h"\n')
    return write


@pytest.fixture
def repository() -> Path:
    return Path(__file__).resolve().parents[2]

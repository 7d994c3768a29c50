"""What the Python tests share: a fresh interpreter for each question about `import torch`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).resolve().parents[2]


def clean_environment() -> dict[str, str]:
    ours = ("C10D_NEURON_", "TORCH_DEVICE_BACKEND_", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


class Interpreter:
    """Runs code in a Python that finds our package, and packages made up by a test."""

    def __init__(self, site: Path, zygote: subprocess.Popen[str]) -> None:
        self.site = site
        self.zygote = zygote
        self.path = [str(site), str(ROOT / "python")]
        # The entry point, also where the package is not installed; the same distribution twice counts once.
        self.install("c10d-neuron", {"torch.backends": "c10d_neuron = c10d_neuron._autoload:register"})

    def install(self, name: str, entry_points: dict[str, str] | None = None, module: str | None = None) -> None:
        """Makes a distribution that importlib.metadata finds, and optionally a module of the same name."""
        importable = name.replace("-", "_")
        folder = self.site / f"{importable}-0.1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        text = "".join(f"[{group}]\n{entry}\n" for group, entry in (entry_points or {}).items())
        (folder / "entry_points.txt").write_text(text)
        if module is not None:
            (self.site / f"{importable}.py").write_text(module)

    def run(self, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """In a fork of a Python that has only just imported torch: quick."""
        stdin, stdout = pipes(self.zygote)
        print(json.dumps({"code": code, "path": self.path, "environment": environment}), file=stdin, flush=True)
        answer = json.loads(stdout.readline())
        return subprocess.CompletedProcess("fork", answer["returncode"], answer["stdout"], answer["stderr"])

    def run_from_the_start(self, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """In a new process: what `import torch` really does, but slow."""
        return subprocess.run(
            [sys.executable, "-c", code],
            env=clean_environment() | {"PYTHONPATH": os.pathsep.join(self.path)} | environment,
            cwd=self.site,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def output(self, code: str, **environment: str) -> str:
        return self.checked(self.run(code, **environment))

    def output_from_the_start(self, code: str, **environment: str) -> str:
        return self.checked(self.run_from_the_start(code, **environment))

    @staticmethod
    def checked(done: subprocess.CompletedProcess[str]) -> str:
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


@pytest.fixture(scope="session")
def zygote() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("zygote.py"))],
        env=clean_environment() | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        pipes(process)[0].close()


@pytest.fixture
def interpreter(tmp_path: Path, zygote: subprocess.Popen[str]) -> Interpreter:
    return Interpreter(tmp_path, zygote)

"""Every header compiles alone: it includes what it uses. Headers that see torch: one compiler, they are slow."""

import importlib.util
import re
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

from .includes import layer_of
from .repository import Finding, files

COMPILERS = ("g++", "clang++-19")
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Wnon-virtual-dtor", "-Werror")
FIRST_ERROR = re.compile(r"^(?P<path>[^\s:]+):(?P<line>\d+):\d+: (?:fatal )?error: (?P<message>.*)$", re.MULTILINE)


def check(root: Path) -> list[Finding]:
    jobs = [(compiler, name) for name in files(root) if name.endswith(".h") for compiler in compilers_for(name)]
    with ThreadPoolExecutor(cpu_count()) as pool:
        results = pool.map(lambda job: compile_alone(root, *job), jobs)
        return [finding for finding in results if finding]


def compilers_for(name: str) -> tuple[str, ...]:
    found = tuple(compiler for compiler in COMPILERS if shutil.which(compiler))
    return found[:1] if layer_of(name) == "c10d_neuron" else found


def compile_alone(root: Path, compiler: str, name: str) -> Finding | None:
    flags = ["-std=c++20", "-fsyntax-only", "-x", "c++", *WARNINGS, f"-I{root}", *foreign_includes(root, name)]
    result = subprocess.run(
        [compiler, *flags, "-"],
        input=f'#include "{name}"\n',
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode == 0:
        return None
    error = FIRST_ERROR.search(result.stderr)
    reason = f"{error['path']}:{error['line']}: {error['message']}" if error else result.stderr.strip()[-500:]
    return Finding(name, 1, f"does not compile alone with {compiler}: {reason}")


def foreign_includes(root: Path, name: str) -> list[str]:
    """Where the headers of others lie that this header's layer may see."""
    layer = layer_of(name.removeprefix("tests/"))
    folders: list[str] = []
    if layer == "c10d_neuron/control":
        folders = [str(root / "build/release/generated")]
    elif layer == "c10d_neuron":
        torch = importlib.util.find_spec("torch")
        if torch and torch.submodule_search_locations:
            include = Path(torch.submodule_search_locations[0]) / "include"
            folders = [str(include), str(include / "torch/csrc/api/include"), sysconfig.get_path("include")]
    return [argument for folder in folders for argument in ("-isystem", folder)]

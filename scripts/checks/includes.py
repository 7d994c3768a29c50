"""Includes go downward only, and other people's large headers stay in the layers that hide them."""

import re
from pathlib import Path

from .repository import Finding, cpp_files, read

# Folder of a layer -> folders it may include beside its own. docs/architecture.md draws this table.
LAYERS: dict[str, tuple[str, ...]] = {
    "transport/base": (),
    "transport": ("transport/base",),
    "transport/messaging": ("transport", "transport/base"),
    "transport/loopback": ("transport", "transport/base"),
    "transport/shared_memory": ("transport", "transport/base"),
    "transport/fabric": ("transport", "transport/base"),
    "topology": ("transport/base",),
    "collectives/schedule": ("transport/base",),
    "collectives/algorithms": ("collectives/schedule", "transport/base"),
    "collectives/reduce": ("transport/base",),
    "collectives/run": (
        "collectives/algorithms",
        "collectives/schedule",
        "collectives/reduce",
        "topology",
        "transport/messaging",
        "transport",
        "transport/base",
    ),
    "c10d_neuron/control": ("topology", "transport/base"),
}
# The layer on top may include every other one.
LAYERS["c10d_neuron"] = tuple(LAYERS)

# Headers of others: what their names look like -> the layers (and those layers' tests) that may see them.
FOREIGN: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = (
    ("libfabric", re.compile(r"^rdma/"), ("transport/fabric",)),
    (
        "gRPC, Protobuf and Boost",
        re.compile(r"^(grpc|grpcpp|google/protobuf|boost|asio|absl)[/.]|\.pb\.h$"),
        ("c10d_neuron/control",),
    ),
    (
        "torch, pybind11 and Python",
        re.compile(r"^(torch|c10|ATen|caffe2|pybind11)/|^Python\.h$"),
        ("c10d_neuron",),
    ),
)

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
GENERATED = re.compile(r"\.pb\.h$")


def layer_of(name: str) -> str | None:
    """The layer that a file belongs to: its folder's, or the nearest one above."""
    folder = Path(name).parent
    while folder != Path():
        if folder.as_posix() in LAYERS:
            return folder.as_posix()
        folder = folder.parent
    return None


def check(root: Path) -> list[Finding]:
    findings = []
    for name in cpp_files(root):
        layer = layer_of(name.removeprefix("tests/"))
        source = read(root, name)
        for include in INCLUDE.finditer(source):
            line = source.count("\n", 0, include.start()) + 1
            quote, target = include.groups()
            problem = foreign_problem(layer, target)
            if not problem and quote == '"' and not GENERATED.search(target):
                problem = own_problem(root, name, layer, target)
            if problem:
                findings.append(Finding(name, line, problem))
    return findings


def foreign_problem(layer: str | None, target: str) -> str | None:
    for owner, pattern, allowed in FOREIGN:
        if pattern.search(target) and layer not in allowed:
            return f"<{target}>: headers of {owner} are hidden in {', '.join(allowed)}; include that layer's own header"
    return None


def own_problem(root: Path, name: str, layer: str | None, target: str) -> str | None:
    is_test = name.startswith("tests/")
    if is_test and (root / name).parent.joinpath(target).is_file():
        return None
    if not (root / target).is_file():
        return f'"{target}" is no file of the repository: name it from the root, and others\' headers in <>'
    if is_test:
        return None
    if target.startswith("tests/"):
        return f'"{target}": the product does not include tests'
    target_layer = layer_of(target)
    if layer is None or target_layer is None:
        return f'"{target}": this file or that one belongs to no layer of scripts/checks/includes.py'
    if target_layer != layer and target_layer not in LAYERS[layer]:
        may = ", ".join(LAYERS[layer]) or "nothing"
        return f'"{target}": {layer} may not include {target_layer}; besides itself it may include {may}'
    return None

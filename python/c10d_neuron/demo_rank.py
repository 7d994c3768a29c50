"""Runs a training script as it is, and writes down what this rank has sent before the script leaves its group.

python -m c10d_neuron.demo_rank FOLDER SCRIPT [arguments of the script]
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    folder, script, *arguments = sys.argv[1:]
    import torch.distributed as dist

    import c10d_neuron

    destroy = dist.destroy_process_group

    def write_down_then_destroy(*positional: Any, **named: Any) -> None:
        rows = [row._asdict() for row in c10d_neuron.traffic()]
        (Path(folder) / f"traffic{os.environ['RANK']}.json").write_text(json.dumps(rows))
        destroy(*positional, **named)

    dist.destroy_process_group = write_down_then_destroy
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()

"""The demo and the benchmark as a user starts them, over our backend."""

import json
import subprocess
import sys

import pytest

from c10d_neuron import cli, hosts

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "option",
    [
        pytest.param(
            "--namespaces",
            marks=pytest.mark.skipif(bool(hosts._missing()), reason=f"no network namespaces: {hosts._missing()}"),
        ),
        "--no-namespaces",
    ],
)
def test_demo_trains_and_every_check_passes(option):
    done = subprocess.run(
        [sys.executable, "-m", "c10d_neuron.demo", option], capture_output=True, text=True, timeout=240
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert "9 of 9 checks passed" in done.stdout


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize(
    "operation", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"]
)
def test_bench_finds_no_wrong_element(tmp_path, operation, places):
    path = tmp_path / "rows.json"
    arguments = ["--op", operation, "--hosts", str(places), "--ranks", "3", "-e", "1M", "-f", "64", "-n", "8"]
    assert cli.main(["bench", *arguments, "--quiet", "--json", str(path)]) == 0
    sides = [side for row in json.loads(path.read_text())["rows"] for side in row["sides"]]
    assert len(sides) == 8
    assert all(side["errors"] == 0 for side in sides)

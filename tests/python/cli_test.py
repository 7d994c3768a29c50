"""The command line: what it prints and what it refuses."""

import json
import subprocess
import sys
from importlib import metadata

import pytest

from c10d_neuron import cli

RECORD = {
    "number": 7,
    "group": 12,
    "group_name": "default_pg",
    "sequence": 3,
    "collective": "all_reduce",
    "algorithm": "ring",
    "data_type": "float32",
    "input_bytes": 4096,
    "rank": 1,
    "world": 4,
    "state": "done",
    "issued_at_ns": 1_000_000,
    "finished_at_ns": 1_012_500,
    "error": "",
}
FAILED = RECORD | {"number": 8, "state": "failed", "error": "rank 2 on host-1 (pid 9) is gone"}


def test_version_names_package_and_torch(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("c10d-neuron ")


def test_no_command_prints_help_and_fails(capsys):
    assert cli.main([]) == 2
    assert "bench" in capsys.readouterr().out


def test_start_loads_neither_torch_nor_our_library():
    code = "import sys; from c10d_neuron import cli; cli.make_parser(); print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_package_offers_entry_point_and_command():
    (entry,) = metadata.entry_points(group="torch.backends", name="c10d_neuron")
    assert entry.value == "c10d_neuron._autoload:register"
    (command,) = metadata.entry_points(group="console_scripts", name="c10d-neuron")
    assert command.load() is cli.main


def test_records_prints_one_line_for_each_operation(tmp_path, capsys):
    path = tmp_path / "records.json"
    path.write_text(json.dumps([RECORD, FAILED]))
    assert cli.main(["records", str(path)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "#7 default_pg seq 3 all_reduce float32 4,096 B by ring rank 1/4: done in 12.5 us"
    assert second.endswith("failed in 12.5 us: rank 2 on host-1 (pid 9) is gone")


def test_records_failed_leaves_out_what_is_done(tmp_path, capsys):
    path = tmp_path / "records.json"
    path.write_text(json.dumps([RECORD, FAILED]))
    assert cli.main(["records", "--failed", str(path)]) == 0
    assert capsys.readouterr().out.startswith("#8 ")


@pytest.mark.parametrize("text", [None, "no json", "[1]", '[{"number": 1}]'])
def test_records_says_which_file_it_cannot_read(tmp_path, capsys, text):
    path = tmp_path / "records.json"
    if text is not None:
        path.write_text(text)
    assert cli.main(["records", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def test_knobs_as_text_shows_name_default_and_sentence():
    document = "| knob | default | unit | what it does |\n|---|---|---|---|\n| `A_B` | `-1` | seconds | Waits. |\n"
    assert cli.knobs_as_text(document) == "A_B=-1 seconds\n    Waits.\n"


def test_knobs_as_text_shows_an_empty_default():
    assert cli.knobs_as_text("| `A` | (empty) |  | Does. |\n") == "A=\n    Does.\n"

"""The benchmark: its options, its exact checks, its bars, and a run over gloo, which needs nothing of ours."""

import csv
import json
from dataclasses import replace

import pytest
import torch

from c10d_neuron import cli
from c10d_neuron.bench import bars, options
from c10d_neuron.bench.operations import CLASSES
from c10d_neuron.bench.options import Options
from c10d_neuron.bench.table import Row, Side, header, line


def parsed(*arguments):
    return options.from_arguments(cli.make_parser().parse_args(["bench", *arguments]))


def row(ours, theirs):
    sides = (Side("neuron_fabric", ours, ours, 1.0, 1.0, 0), Side("gloo", theirs, theirs, 1.0, 1.0, 0))
    return Row("all_reduce", 4, 1, "float32", "sum", 20, sides)


@pytest.mark.parametrize(("text", "size"), [("4", 4), ("64K", 65536), ("1m", 1 << 20), ("2GiB", 2 << 30), ("8B", 8)])
def test_sizes_are_read_as_people_write_them(text, size):
    assert options.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-4", "4T", "1.5M", "four"])
def test_sizes_that_make_no_sense_are_refused(text, capsys):
    with pytest.raises(SystemExit):
        parsed(f"--min-bytes={text}")
    assert "is no size" in capsys.readouterr().err


def test_sizes_grow_by_the_factor_up_to_the_largest():
    assert parsed("-b", "4", "-e", "300", "-f", "4").sizes == (4, 16, 64, 256)


@pytest.mark.parametrize(
    "arguments",
    [["-b", "8", "-e", "4"], ["-f", "1"], ["--ranks", "2", "--hosts", "3"], ["-n", "0"], ["-w", "-1"]],
)
def test_options_that_make_no_sense_are_refused(arguments):
    with pytest.raises(SystemExit, match="c10d-neuron bench: "):
        parsed(*arguments)


def test_options_reach_the_ranks_unchanged(tmp_path):
    arguments = ["-b", "8", "-e", "1M", "-f", "8", "-n", "3", "-w", "0", "--ranks", "4", "--hosts", "2", "--quiet"]
    arguments += ["--op", "all_gather", "--dtype", "int64", "--against", "none", "--cores", "2", "--idle", "1.5"]
    wanted = parsed(*arguments, "--json", str(tmp_path / "a.json"), "--csv", str(tmp_path / "a.csv"))
    assert parsed(*options.to_command_line(wanted)) == wanted
    single = replace(wanted, sizes=(64,))
    assert parsed(*options.to_command_line(single)) == single


def test_iterations_become_fewer_with_the_size_unless_given():
    assert [Options().iterations_at(size) for size in (4, 1 << 20, 1 << 26)] == [400, 256, 20]
    assert Options(iterations=7).iterations_at(1 << 26) == 7


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtype", options.DTYPES)
def test_operations_count_wrong_elements(name, dtype):
    # A world of one needs no group: the right result is what was written.
    operation = CLASSES[name](64, getattr(torch, dtype), rank=0, world=1)
    operation.write(3)
    output = getattr(operation, "output", getattr(operation, "tensor", None))
    if hasattr(operation, "output"):
        output.copy_(operation.input if hasattr(operation, "input") else operation.tensor)
    assert operation.errors(3) == 0
    assert operation.errors(4) == operation.count
    output[2] += 1
    assert operation.errors(3) == 1


def test_all_reduce_refuses_sums_that_bfloat16_cannot_hold():
    with pytest.raises(ValueError, match="not exact in bfloat16"):
        CLASSES["all_reduce"](64, torch.bfloat16, rank=0, world=17)


def test_table_columns_line_up():
    title = header(Options(sizes=(4,))).splitlines()[-2]
    assert len(line(row(1.0, 10.0))) == len(title)
    assert line(row(1.0, 10.0)).endswith(" 10.00")


def test_bars_ask_for_what_was_promised():
    promised = {size: bars.ratio_on_one_host(size) for size in bars.SIZES}
    wanted = {4: 10, 65536: 4, 1 << 20: 2, 1 << 22: 2, 1 << 24: 2, 1 << 26: 2}
    assert {size: ratio for size, ratio in promised.items() if ratio} == wanted


def test_bars_fail_when_one_is_missed(monkeypatch, capsys):
    monkeypatch.setattr(bars, "rows_of", lambda chosen: [row(1.0, 9.9 if chosen.hosts == 1 else 1.0)])
    monkeypatch.setattr(bars, "idle_percent", lambda chosen: 0.21 if chosen.hosts == 2 else 0.2)
    assert bars.check(Options()) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert [line.split()[0] for line in lines] == ["FAILED", "ok", "ok", "ok", "FAILED", "3"]
    assert lines[-1] == "3 of 5 bars reached"


def test_bars_pass_when_all_are_reached(monkeypatch, capsys):
    monkeypatch.setattr(bars, "rows_of", lambda _: [row(1.0, 10.0)])
    monkeypatch.setattr(bars, "idle_percent", lambda _: 0.2)
    assert bars.check(Options()) == 0
    assert "5 of 5 bars reached" in capsys.readouterr().out


def test_run_over_gloo_finds_no_errors_and_saves_rows(tmp_path, capfd):
    files = ["--json", str(tmp_path / "rows.json"), "--csv", str(tmp_path / "rows.csv")]
    assert cli.main(["bench", "--backend", "gloo", "-e", "64", "-n", "8", "-w", "1", *files]) == 0
    assert "# 2 ranks on this machine" in capfd.readouterr().out
    document = json.loads((tmp_path / "rows.json").read_text())
    assert [found["size"] for found in document["rows"]] == [4, 16, 64]
    assert all(side["errors"] == 0 and side["p50"] > 0 for found in document["rows"] for side in found["sides"])
    with (tmp_path / "rows.csv").open() as file:
        assert [found["backend"] for found in csv.DictReader(file)] == ["gloo"] * 6


def test_run_ends_with_an_error_when_a_rank_fails(capfd):
    assert cli.main(["bench", "--backend", "no_such_backend", "-e", "4"]) != 0
    assert "no_such_backend" in capfd.readouterr().err

"""The command `c10d-neuron`. Starts lightly: torch and our library are loaded by the subcommands that need them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from c10d_neuron.bench import options as bench_options


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser()
    args = parser.parse_args(arguments)
    if args.version:
        print(version())
        return 0
    if args.command is None:
        parser.print_help()
        return 2
    try:
        return args.run(args)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        sys.stderr.close()
        return 141
    except KeyboardInterrupt:
        return 130


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="c10d-neuron", description="Measures, explains and configures the PyTorch backend c10d-neuron."
    )
    parser.add_argument("--version", action="store_true", help="print the versions of c10d-neuron and torch")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    bench = commands.add_parser("bench", help="measure operations beside another backend")
    bench_options.add_arguments(bench)
    bench.set_defaults(run=run_bench)

    knobs = commands.add_parser("knobs", help="list the environment variables that c10d-neuron reads")
    knobs.add_argument("--markdown", action="store_true", help="as docs/configuration.md")
    knobs.set_defaults(run=run_knobs)

    records = commands.add_parser("records", help="print flight records that a process has saved")
    records.add_argument(
        "files", nargs="+", type=Path, help="JSON, as json.dump(c10d_neuron.flight_records(), file) writes it"
    )
    records.add_argument("--failed", action="store_true", help="only operations that failed or never ended")
    records.set_defaults(run=run_records)
    return parser


def version() -> str:
    from importlib import metadata

    found = []
    for name in ("c10d-neuron", "torch"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} (not installed)")
    return ", ".join(found)


def run_bench(args: argparse.Namespace) -> int:
    from c10d_neuron.bench.launch import run

    return run(bench_options.from_arguments(args))


def run_knobs(args: argparse.Namespace) -> int:
    import c10d_neuron

    document = c10d_neuron.knobs()
    print(document if args.markdown else knobs_as_text(document), end="")
    return 0


def knobs_as_text(document: str) -> str:
    """The rows of the Markdown table, two lines each."""
    text = ""
    for line in document.splitlines():
        if line.startswith("| `"):
            name, default, unit, sentence = (cell.strip() for cell in line.strip("|").split(" | "))
            value = "" if default == "(empty)" else " ".join(part for part in (default.strip("`"), unit) if part)
            text += f"{name.strip('`')}={value}\n    {sentence.strip()}\n"
    return text


def run_records(args: argparse.Namespace) -> int:
    for path in args.files:
        try:
            records = json.loads(path.read_text())
            lines = [record_line(record) for record in records if not args.failed or record["state"] != "done"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"c10d-neuron records: {path}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        if len(args.files) > 1:
            print(f"== {path}")
        for line in lines:
            print(line)
    return 0


def record_line(record: dict[str, Any]) -> str:
    took = record["finished_at_ns"] - record["issued_at_ns"] if record["finished_at_ns"] else None
    line = (
        f"#{record['number']} {record['group_name'] or record['group']} seq {record['sequence']} "
        f"{record['collective']} {record['data_type']} {record['input_bytes']:,} B by {record['algorithm']} "
        f"rank {record['rank']}/{record['world']}: {record['state']}"
    )
    if took is not None:
        line += f" in {took / 1000:,.1f} us"
    return line + (f": {record['error']}" if record["error"] else "")


if __name__ == "__main__":
    sys.exit(main())

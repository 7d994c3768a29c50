"""The lists and scripts that people and CI rely on agree with each other."""

import re
import subprocess

import pytest
from checks import __main__ as runner
from checks import repository as files_of


def test_packages_list_has_three_columns(repository):
    rows = [line for line in (repository / "scripts/packages.txt").read_text().splitlines() if not line.startswith("#")]
    assert rows
    for row in rows:
        name, when, purpose = re.split(r"\s+", row, maxsplit=2)
        assert re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name)
        assert when in {"product", "test", "lint"}
        assert purpose


@pytest.mark.parametrize("script", ["setup", "build", "test", "demo", "bench", "lint", "format"])
def test_script_is_executable_and_parses(repository, script):
    path = repository / "scripts" / script
    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", path], check=True)


@pytest.mark.parametrize("script", ["setup", "build", "test", "lint"])
def test_script_refuses_an_unknown_argument(repository, script):
    result = subprocess.run(
        [repository / "scripts" / script, "--nonsense"], capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert f"{script}:" in result.stderr


def test_checks_refuse_an_unknown_name():
    assert runner.main(["nonsense"]) == 2


def test_files_lists_what_git_does_not_know_yet(plant):
    root = plant("topology/rings.cc", "int a;\n")
    assert "topology/rings.cc" in files_of.files(root)


def test_code_only_keeps_line_numbers():
    source = 'int a; // getenv\n/* two\nlines */ int b = f("x // y");\n'
    code = files_of.code_only(source)
    assert code.count("\n") == source.count("\n")
    assert "getenv" not in code
    assert "int b" in code

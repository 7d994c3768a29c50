"""What all checks share: which files there are, what a finding is, and C++ without its comments."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

CPP_SUFFIXES = (".h", ".cc")
COMMENT_OR_LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


@dataclass(frozen=True)
class Finding:
    """A broken rule at one place. `line` counts from 1; 0 means the file as a whole."""

    path: str
    line: int
    message: str
    is_error: bool = True

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {'error' if self.is_error else 'warning'}: {self.message}"


def files(root: Path) -> list[str]:
    """The repository's files, relative to root, with those not added yet; without git, every file below root."""
    if (root / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    else:
        listed = [path.relative_to(root).as_posix() for path in root.rglob("*")]
    return sorted(name for name in set(listed) if name and (root / name).is_file())


def cpp_files(root: Path) -> list[str]:
    return [name for name in files(root) if name.endswith(CPP_SUFFIXES)]


def read(root: Path, name: str) -> str:
    return (root / name).read_text(encoding="utf-8")


def code_only(source: str) -> str:
    """C++ with comments and literals blanked, line numbers kept. Digit separators may blank a bit more."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    return COMMENT_OR_LITERAL.sub(blank, source)


def matches(root: Path, name: str, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
    """(line, matched text) of the pattern in the code of one C++ file."""
    code = code_only(read(root, name))
    return [(code.count("\n", 0, found.start()) + 1, found.group().strip()) for found in pattern.finditer(code)]

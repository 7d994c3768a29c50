"""Rules for the text of files: nothing left undone, headers that introduce themselves, no file too long to read."""

import re
from pathlib import Path

from .repository import Finding, files, read

MAXIMUM_LINES = 450
# Spelt apart, so that this file does not find itself.
UNDONE = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
TEXT_SUFFIXES = (".h", ".cc", ".py", ".sh", ".md", ".toml", ".txt", ".json", ".proto", ".cmake", ".map", "")
INTRODUCTION = "a header starts by saying what it is, who owns it, which thread calls it, what can fail"
CODE_SUFFIXES = (".h", ".cc", ".py")


def check(root: Path) -> list[Finding]:
    findings = []
    for name in files(root):
        if Path(name).suffix not in TEXT_SUFFIXES or name == "LICENSE":
            continue
        lines = read(root, name).splitlines()
        for number, line in enumerate(lines, start=1):
            if found := UNDONE.search(line):
                findings.append(Finding(name, number, f"{found.group()}: do it now, or file it outside the code"))
        if name.endswith(CODE_SUFFIXES) and len(lines) > MAXIMUM_LINES:
            message = f"{len(lines)} lines, more than {MAXIMUM_LINES}: which two subjects are in it?"
            findings.append(Finding(name, 0, message, is_error=False))
        if name.endswith(".h"):
            findings.extend(header_problems(name, lines))
    return findings


def header_problems(name: str, lines: list[str]) -> list[Finding]:
    findings = []
    if not lines or not lines[0].startswith("//"):
        findings.append(Finding(name, 1, INTRODUCTION))
    if "#pragma once" not in lines:
        findings.append(Finding(name, 0, "#pragma once is missing"))
    return findings

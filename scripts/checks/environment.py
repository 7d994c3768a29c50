"""Only the configuration table reads the environment, so that every knob is documented."""

import re
from pathlib import Path

from .repository import Finding, cpp_files, matches

TABLE = "transport/base/config.cc"
READS = re.compile(r"\b(?:secure_getenv|getenv|environ)\b")
# libfabric takes some settings through variables of its own only.
SETTER = "transport/fabric/library.cc"
WRITES = re.compile(r"\b(?:setenv|putenv|unsetenv)\b")

RULES = (
    (READS, TABLE, f"only {TABLE} reads the environment; add a knob to its table and pass the Config on"),
    (WRITES, SETTER, f"only {SETTER} changes the environment, for libfabric, which has no other way in"),
)


def check(root: Path) -> list[Finding]:
    return [
        Finding(name, line, f"{text}: {reason}")
        for name in cpp_files(root)
        for pattern, allowed, reason in RULES
        if name != allowed and not name.startswith("tests/")
        for line, text in matches(root, name, pattern)
    ]
